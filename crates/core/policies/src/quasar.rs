//! Quasar: each job gets the least GPUs of the best types that meet its target, by what jobs like it were seen to do.

use crate::prelude::*;
use crate::tenancy::{Cheapest, Failed, Tenancy, config_on, kept_beside, may_meet, stand_alone};
use trainyard_framework::PairSource;
use trainyard_types::Config;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "quasar",
    about: "Jobs in order of arrival, each on the fewest GPUs of the best type that meet its target by its classification; no job is stopped.",
    paper: "Delimitrou and Kozyrakis, Quasar, ASPLOS 2014; Paragon, ASPLOS 2013",
    needs: Needs {
        rates: true,
        shared_rates: true,
        pairs: PairSource::Classified,
        ..Needs::NOTHING
    },
    class: Taxonomy {
        elastic: true,
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Throughput, Family::Sharing)
    }
    .by_setting("`rule=paragon` leaves the number of GPUs as it was asked for")
    .partial("a job that misses its target later keeps its GPUs; interference is classified by partner, not by source"),
    settings: &[
        ("rule", "`quasar`: the best type first, as few GPUs as meet the target; `paragon`: as many as asked for, where interference is least, then the best type"),
        ("target", "the part of the speed on the GPUs asked for that a job shall reach, and that one on a shared GPU shall keep"),
        ("least", "a job that cannot reach its target starts where it reaches this part of it, and waits otherwise"),
        ("pairs", "`classified`: by two short runs in each classification; or `measured` speeds and pairs"),
        ("jobs_max", "the most jobs on a GPU"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        ("fill", "`strict`: the first job that must wait blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    rule: Rule,
    target: f64,
    least: f64,
    pairs: PairSource,
    jobs_max: usize,
    across_tenants: bool,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    Quasar,
    Paragon,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rule: Rule::Quasar,
            target: 0.9,
            least: 0.3,
            pairs: PairSource::Classified,
            jobs_max: 2,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    for (key, value) in [("target", settings.target), ("least", settings.least)] {
        if !(0.0..=1.0).contains(&value) {
            return Err(ENTRY.bad_value(key, value, "a part from 0 to 1"));
        }
    }
    if !(1..=16).contains(&settings.jobs_max) {
        return Err(ENTRY.bad_value("jobs_max", settings.jobs_max, "a number from 1 to 16"));
    }
    let needs = Needs { pairs: settings.pairs, ..ENTRY.needs };
    Ok(Pipeline::new(Quasar { settings }, FewestNodes, needs))
}

/// O(classes of waiting jobs * types * sizes * GPUs + granted) for each decision. It remembers nothing.
struct Quasar {
    settings: Settings,
}

/// A place for a job and the part of its target speed that it would reach there.
struct Candidate {
    place: Placement,
    reached: f64,
}

impl Policy for Quasar {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        stand_alone(view, offer);
        if view.waiting_len() == 0 {
            return Ok(());
        }
        let mut tenancy = Tenancy::of(view);
        let mut failed = Failed::default();
        let mut jobs: Vec<JobRef<'_>> = view.waiting().collect();
        jobs.sort_by_key(|job| (job.spec.submitted, job.id()));
        for job in jobs {
            let class = failed.class(job, view);
            let placed = class.is_some() && self.place(job, &mut tenancy, (view, offer));
            if placed {
                continue;
            }
            if let Some(class) = class {
                failed.add(class);
            }
            if self.settings.fill == Fill::Strict {
                break;
            }
        }
        Ok(())
    }
}

impl Quasar {
    fn place(
        &self,
        job: JobRef<'_>,
        tenancy: &mut Tenancy,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        // A part of a GPU is asked for by its size; a job without a speed has no class.
        let Some(wished) = wished_speed(job, view).filter(|_| job.spec.want.permille >= 1000)
        else {
            return offer.grant(&wanted(job)) == GrantOutcome::Taken;
        };
        let found = match self.settings.rule {
            Rule::Quasar => self.fewest(job, wished, tenancy, (view, offer.free())),
            Rule::Paragon => self.calmest(job, tenancy, (view, offer.free())),
        };
        if let Some(place) = found {
            return tenancy.seat(job, place, offer) == GrantOutcome::Taken;
        }
        let (need, free) = (job.spec.want.gpus, offer.free().total());
        offer.note(job.id(), Reason::NoRoom { need, free: free.min(need.saturating_sub(1)) });
        false
    }

    /// The fewest GPUs of the best type on which a job reaches its target (Quasar, section 3.3: servers in order of
    /// quality, the least of each); where no type does, those on which it reaches most, if that is enough to start.
    fn fewest(
        &self,
        job: JobRef<'_>,
        wished: f64,
        tenancy: &Tenancy,
        (view, free): (&View<'_>, &Free),
    ) -> Option<Placement> {
        let mut best: Option<Candidate> = None;
        for kind in self.by_quality(job, (view, free)) {
            for gpus in self.sizes(job, (kind, wished), view) {
                let mut cost = |jobs: &[JobId]| {
                    let lost = self.lost((job, gpus), kind, jobs, view)?;
                    lost.is_bearable.then_some(lost.own)
                };
                let (asked, most) = ((job, gpus), self.settings.jobs_max);
                let found = tenancy.cheapest_on(kind, asked, (view, free), most, &mut cost);
                let Some(found) = found else { break };
                let Some(reached) = reached(job, &found, wished, view) else { continue };
                let candidate = Candidate { place: found.place, reached };
                if reached >= self.settings.target {
                    return Some(candidate.place);
                }
                if best.as_ref().is_none_or(|best| reached > best.reached) {
                    best = Some(candidate);
                }
            }
        }
        // A type that is not in service is not waited for.
        let there = self.by_quality(job, (view, free)).into_iter();
        let there = there.filter(|kind| free.in_service(*kind) >= job.spec.want.gpus);
        let rates = there.filter_map(|kind| view.rate(job, &config_on(job, kind, view)));
        let most = rates.map(|rate| rate.0 / wished).fold(0.0, f64::max).min(1.0);
        let starts =
            |best: &Candidate| best.reached >= self.settings.least * self.settings.target * most;
        best.filter(starts).map(|best| best.place)
    }

    /// The sizes of a job that could meet its target on a type, ascending, and beside them the least that it can have and
    /// what it asked for.
    fn sizes(&self, job: JobRef<'_>, (kind, wished): (GpuType, f64), view: &View<'_>) -> Vec<u32> {
        let want = &job.spec.want;
        let usual = config_on(job, kind, view);
        let per_node = usual.shape.first().map_or(1, |gpus| u32::from(*gpus));
        let is_enough = |gpus: u32| {
            let packed = Config::packed(kind, gpus, per_node);
            view.rate(job, &packed).is_some_and(|rate| rate.0 >= self.settings.target * wished)
        };
        let least = want.gpus_min.max(1);
        let is_tried = |gpus: &u32| *gpus == least || *gpus == want.gpus || is_enough(*gpus);
        (least..=want.gpus_max).filter(is_tried).collect()
    }

    /// As many GPUs as asked for, where the interference that is more than tolerated is least; of equals the best type
    /// (Paragon, section 3.2: first the differences of tolerated and caused interference, then the platform).
    fn calmest(
        &self,
        job: JobRef<'_>,
        tenancy: &Tenancy,
        (view, free): (&View<'_>, &Free),
    ) -> Option<Placement> {
        let gpus = job.spec.want.gpus;
        let mut best: Option<Cheapest> = None;
        for kind in self.by_quality(job, (view, free)) {
            let mut cost =
                |jobs: &[JobId]| Some(self.lost((job, gpus), kind, jobs, view)?.intolerable);
            let (asked, most) = ((job, gpus), self.settings.jobs_max);
            let found = tenancy.cheapest_on(kind, asked, (view, free), most, &mut cost);
            if let Some(found) = found
                && best.as_ref().is_none_or(|best| found.cost < best.cost)
            {
                best = Some(found);
            }
        }
        let is_tolerable = |best: &Cheapest| best.cost <= 1.0 - self.settings.least;
        best.filter(is_tolerable).map(|best| best.place)
    }

    /// The types that a job accepts and has a speed on, the fastest for it first.
    fn by_quality(&self, job: JobRef<'_>, (view, free): (&View<'_>, &Free)) -> Vec<GpuType> {
        let kinds = free.kinds().into_iter().filter(|kind| job.spec.want.accepts(*kind));
        let mut kinds: Vec<(f64, GpuType)> = kinds
            .filter_map(|kind| Some((view.rate(job, &config_on(job, kind, view))?.0, kind)))
            .collect();
        kinds.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        kinds.into_iter().map(|(_, kind)| kind).collect()
    }

    /// What a job and those on a GPU lose by each other; nothing if it may not be there.
    fn lost(
        &self,
        (job, gpus): (JobRef<'_>, u32),
        kind: GpuType,
        jobs: &[JobId],
        view: &View<'_>,
    ) -> Option<Lost> {
        if jobs.is_empty() {
            return Some(Lost { own: 0.0, intolerable: 0.0, is_bearable: true });
        }
        let per_node = config_on(job, kind, view).shape.first().copied().unwrap_or(1);
        let on = Config::packed(kind, gpus, u32::from(per_node.max(1)));
        let own = kept_beside(job, &on, jobs.iter().copied(), view)?;
        let tolerated = self.settings.target;
        let mut intolerable = (tolerated - own).max(0.0);
        let mut least = own;
        for resident in jobs {
            let there = view.job(*resident)?;
            if !may_meet(job, there, self.settings.across_tenants) {
                return None;
            }
            let others = jobs.iter().copied().filter(|other| other != resident);
            let on = config_on(there, kind, view);
            let kept = kept_beside(there, &on, others.chain([job.id()]), view)?;
            intolerable += (tolerated - kept).max(0.0);
            least = least.min(kept);
        }
        let is_bearable = least >= tolerated;
        (least > 0.0).then_some(Lost { own: 1.0 - own, intolerable, is_bearable })
    }
}

/// What jobs lose on one GPU, as parts of their speeds.
struct Lost {
    /// The new job.
    own: f64,
    /// What all lose beyond what is tolerated (D1 + D2 of Paragon).
    intolerable: f64,
    /// Whether each keeps its target.
    is_bearable: bool,
}

/// The speed that a job asked for: that on its GPUs, packed, on the first type that it accepts; nothing where that is no
/// speed, so that a job of which nonsense is believed does not speak for those that are alike.
fn wished_speed(job: JobRef<'_>, view: &View<'_>) -> Option<f64> {
    let shapes = &view.state().shapes;
    let &(kind, _) = shapes.iter().find(|(kind, _)| job.spec.want.accepts(*kind))?;
    let wished = view.rate(job, &config_on(job, kind, view))?.0;
    (wished > 0.0 && wished.is_finite()).then_some(wished)
}

/// The part of the wished speed that a job reaches at a place.
fn reached(job: JobRef<'_>, found: &Cheapest, wished: f64, view: &View<'_>) -> Option<f64> {
    let whole = Config { permille: 1000, ..found.place.config(view.cluster()) };
    let alone = view.rate(job, &whole)?.0;
    Some(alone * (1.0 - found.cost) / wished)
}
