//! Kube-Knots: jobs share a GPU where their use of it, as monitored, does not peak together.

mod series;

use crate::prelude::*;
use crate::tenancy::{Failed, Tenancy, may_meet, stand_alone};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_framework::{Monitored, UsageSource};
use trainyard_types::ModelId;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "kube-knots",
    about: "By priority and arrival, a job joins another where their monitored memory and utilisation fit and do not peak together; no job is stopped.",
    paper: "Thinakaran et al., Kube-Knots, CLUSTER 2019",
    needs: Needs { usage: UsageSource::Profiled, monitoring: true, ..Needs::NOTHING },
    class: Taxonomy::rigid(Objective::Throughput, Family::Sharing)
        .partial("memory that a job asked for is kept for it, and not cut to its percentile while it runs; no queries with deadlines"),
    settings: &[
        ("rule", "`pp`: utilisation is forecast where it has a trend, else as `cbp`; `cbp`: by correlation alone"),
        ("percentile", "a job counts with the memory that it stays within for this part of the time"),
        ("correlation_max", "jobs whose series have a larger rank correlation are not put together"),
        ("utilisation_max", "the most that utilisations on a GPU may sum to"),
        ("window", "how far back monitoring is looked at, and how far ahead a forecast goes"),
        ("every", "how far apart two looks at the monitoring are"),
        ("samples_min", "with fewer samples a job has its GPUs for itself"),
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
    percentile: f64,
    correlation_max: f64,
    utilisation_max: f64,
    window: Span,
    every: Span,
    samples_min: usize,
    jobs_max: usize,
    across_tenants: bool,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    Cbp,
    Pp,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rule: Rule::Pp,
            percentile: 0.8,
            correlation_max: 0.5,
            utilisation_max: 1.2,
            window: Span::secs(600),
            every: Span::secs(20),
            samples_min: 6,
            jobs_max: 2,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

/// More looks than this at one job are no window but a log.
const SAMPLES_MAX: u64 = 1000;

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !(0.01..=1.0).contains(&settings.percentile) {
        return Err(ENTRY.bad_value("percentile", settings.percentile, "a part from 0.01 to 1"));
    }
    if !(-1.0..=1.0).contains(&settings.correlation_max) {
        let given = settings.correlation_max;
        return Err(ENTRY.bad_value("correlation_max", given, "a correlation from -1 to 1"));
    }
    if !(0.0..=16.0).contains(&settings.utilisation_max) {
        let given = settings.utilisation_max;
        return Err(ENTRY.bad_value("utilisation_max", given, "a number from 0 to 16"));
    }
    if settings.every == Span::ZERO || settings.window.0 / settings.every.0 > SAMPLES_MAX {
        let expected = "a time above 0, at most a thousand of which are a window";
        return Err(ENTRY.bad_value("every", settings.every, expected));
    }
    if !(1..=16).contains(&settings.jobs_max) {
        return Err(ENTRY.bad_value("jobs_max", settings.jobs_max, "a number from 1 to 16"));
    }
    let policy = KubeKnots { settings, seen: BTreeMap::new(), valid_for: None };
    Ok(Pipeline::new(policy, FewestNodes, ENTRY.needs))
}

/// O(granted * samples + classes of waiting jobs * (GPUs + pairs of jobs * samples)) for each decision.
struct KubeKnots {
    settings: Settings,
    /// What monitoring showed last of a job of each model, for those that have not run yet.
    seen: BTreeMap<ModelId, Vec<Monitored>>,
    valid_for: Option<u64>,
}

impl Policy for KubeKnots {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if self.valid_for != Some(view.decision()) {
            self.forget();
        }
        self.valid_for = Some(view.decision() + 1);
        let running = self.look(view);
        stand_alone(view, offer);
        let mut tenancy = Tenancy::of(view);
        let mut failed = Failed::default();
        let mut jobs: Vec<JobRef<'_>> = view.waiting().collect();
        jobs.sort_by_key(|job| (Reverse(job.spec.priority), job.spec.submitted, job.id()));
        let mut left_out = false;
        for job in jobs {
            let class = failed.class(job, view);
            let placed = class.is_some() && self.place(job, &running, &mut tenancy, (view, offer));
            if placed {
                continue;
            }
            left_out = true;
            if let Some(class) = class {
                failed.add(class);
            }
            if self.settings.fill == Fill::Strict {
                break;
            }
        }
        // What is monitored changes though nothing else happens: a job that waits is looked at again.
        let known = running.values().any(|series| !series.is_empty());
        if left_out && known {
            offer.wake_at(view.now + self.settings.window.max(Span::secs(1)));
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.seen.clear();
        self.valid_for = None;
    }
}

impl KubeKnots {
    /// What monitoring shows of all jobs that run, and remembers it for others of their models.
    fn look(&mut self, view: &View<'_>) -> BTreeMap<JobId, Vec<Monitored>> {
        let mut running = BTreeMap::new();
        for job in view.granted() {
            let series = view.monitored(job, self.settings.window, self.settings.every);
            let known = self.seen.entry(job.spec.model).or_default();
            if series.len() >= known.len() && !series.is_empty() {
                known.clone_from(&series);
            }
            running.insert(job.id(), series);
        }
        running
    }

    fn place(
        &self,
        job: JobRef<'_>,
        running: &BTreeMap<JobId, Vec<Monitored>>,
        tenancy: &mut Tenancy,
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> bool {
        if job.spec.want.permille < 1000 {
            return offer.grant(&wanted(job)) == GrantOutcome::Taken;
        }
        let own = self.seen.get(&job.spec.model).map_or(&[][..], Vec::as_slice);
        let mut cost = |kind: GpuType, jobs: &[JobId]| {
            let mut there: Vec<&[Monitored]> = Vec::with_capacity(jobs.len());
            for other in jobs {
                let other = view.job(*other)?;
                if !may_meet(job, other, self.settings.across_tenants) {
                    return None;
                }
                let known = running.get(&other.id()).filter(|series| !series.is_empty());
                let known = known.or_else(|| self.seen.get(&other.spec.model));
                there.push(known?.as_slice());
            }
            let room = f64::from(view.cluster().kinds[kind.index()].memory_mib);
            self.together(own, &there, room)
        };
        let (asked, most) = ((job, job.spec.want.gpus), self.settings.jobs_max);
        let found = tenancy.cheapest(asked, (view, offer.free()), most, &mut cost);
        if let Some(found) = found {
            return tenancy.seat(job, found.place, offer) == GrantOutcome::Taken;
        }
        let (need, free) = (job.spec.want.gpus, offer.free().total());
        offer.note(job.id(), Reason::NoRoom { need, free: free.min(need.saturating_sub(1)) });
        false
    }

    /// How busy a GPU would be with one job more; nothing where they may not be together.
    fn together(&self, own: &[Monitored], there: &[&[Monitored]], room_mib: f64) -> Option<f64> {
        if there.is_empty() {
            return Some(0.0);
        }
        let Settings { percentile, correlation_max, utilisation_max, samples_min, .. } =
            self.settings;
        let is_known = |series: &[Monitored]| series.len() >= samples_min.max(3);
        if !is_known(own) || !there.iter().all(|series| is_known(series)) {
            return None;
        }
        // CBP: each job counts with the memory that is enough most of the time.
        let memory = |series: &[Monitored]| column(series, |at| at.memory_mib);
        let asked = |series: &[Monitored]| series::percentile(&memory(series), percentile);
        let sum = asked(own) + there.iter().map(|series| asked(series)).sum::<f64>();
        if room_mib > 0.0 && sum > room_mib {
            return None;
        }
        let busy = |series: &[Monitored]| column(series, |at| at.utilisation);
        let together = all_busy(there);
        let own_busy = series::percentile(&busy(own), percentile);
        if self.settings.rule == Rule::Pp
            && series::autocorrelation(&together, 1).is_some_and(|trend| trend > 0.0)
        {
            // PP: with a trend, the peak that is forecast must leave room.
            let steps = (self.settings.window.0 / self.settings.every.0) as usize;
            let peak = series::forecast_peak(&together, steps)?;
            return (peak + own_busy <= utilisation_max).then_some(peak + own_busy);
        }
        let peaks_together = |other: &[Monitored]| {
            let above = |one: Vec<f64>, other: Vec<f64>| {
                series::spearman(&one, &other).is_some_and(|rho| rho > correlation_max)
            };
            above(memory(own), memory(other)) || above(busy(own), busy(other))
        };
        if there.iter().any(|series| peaks_together(series)) {
            return None;
        }
        let mean = together.iter().sum::<f64>() / together.len() as f64;
        let all = mean + own_busy;
        (all <= utilisation_max).then_some(all)
    }
}

fn column(series: &[Monitored], value: impl Fn(&Monitored) -> f64) -> Vec<f64> {
    series.iter().map(value).collect()
}

/// The utilisation of a GPU over the time that all jobs there were seen.
fn all_busy(there: &[&[Monitored]]) -> Vec<f64> {
    let count = there.iter().map(|series| series.len()).min().unwrap_or(0);
    let at = |from_end: usize| -> f64 {
        there.iter().map(|series| series[series.len() - count + from_end].utilisation).sum()
    };
    (0..count).map(at).collect()
}
