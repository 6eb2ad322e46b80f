//! Lucid: jobs that share well are packed two by two by a score, the shortest first, and no job is stopped.

mod duration;
mod score;

use crate::prelude::*;
use duration::Durations;
use rustc_hash::FxHashMap;
use score::{MeanSpeed, ScoreSource, kept};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use trainyard_types::{Grant, Shape, Share};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "lucid",
    about: "The job with the least predicted GPU time starts first, beside another one where both share well; no job is stopped.",
    paper: "Hu et al., Lucid, ASPLOS 2023",
    needs: Needs { rates: true, shared_rates: true, ..Needs::ESTIMATE },
    class: Taxonomy::rigid(Objective::CompletionTime, Family::Sharing)
        .by_setting("`duration=learned` needs no estimates")
        .partial("scores by believed speeds instead of a tree over profiles; submissions forecast as in the hour before"),
    settings: &[
        ("packing", "`auto`: while more than `quiet` jobs are expected; `always`; `never`"),
        ("quiet", "so many submissions in ten minutes, in the mean of the next five, or fewer are quiet"),
        ("score_max", "the largest sum of the sharing scores (0, 1 or 2) of two jobs on the same GPUs"),
        ("longer_max", "a job joins one whose predicted GPU time is at least its own divided by this"),
        ("gpus_max", "the most GPUs of a job that shares"),
        ("duration", "`told`: estimates; `learned`: from the jobs that ended, by tenant, model, size and hour"),
        ("across_tenants", "whether jobs of different tenants may share a GPU"),
        ("fill", "while nothing is packed, `strict`: the head blocks the rest; `backfill`: any job that fits may pass it"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    packing: Packing,
    quiet: f64,
    score_max: u8,
    longer_max: f64,
    gpus_max: u32,
    duration: Source,
    across_tenants: bool,
    fill: Fill,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Packing {
    Auto,
    Always,
    Never,
}

#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    Told,
    Learned,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            packing: Packing::Auto,
            quiet: 2.0,
            score_max: 2,
            longer_max: 2.0,
            gpus_max: 8,
            duration: Source::Told,
            across_tenants: false,
            fill: Fill::Backfill,
        }
    }
}

/// How far back submissions are counted: the five slots of ten minutes whose mean is expected of the next five.
const LOOK_BACK: Span = Span::secs(3_000);
const SLOTS: f64 = 5.0;

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if settings.longer_max.is_nan() || settings.longer_max < 0.0 {
        return Err(ENTRY.bad_value("longer_max", settings.longer_max, "a number of 0 or more"));
    }
    if settings.score_max > 4 {
        return Err(ENTRY.bad_value("score_max", settings.score_max, "a number from 0 to 4"));
    }
    let mut needs = ENTRY.needs;
    if settings.duration == Source::Learned {
        needs.work_left = trainyard_framework::Knowledge::Nothing;
    }
    let policy = Lucid {
        settings,
        scores: Box::new(MeanSpeed::default()),
        durations: Durations::default(),
        submitted: BTreeSet::new(),
        valid_for: None,
    };
    Ok(Pipeline::new(policy, FewestNodes, needs))
}

/// O(granted + waiting log waiting) for each decision.
struct Lucid {
    settings: Settings,
    scores: Box<dyn ScoreSource>,
    durations: Durations,
    /// Submissions of the last fifty minutes.
    submitted: BTreeSet<(Time, JobId)>,
    valid_for: Option<u64>,
}

/// GPUs by the jobs that have them.
type Sets = FxHashMap<Placement, SmallVec<[JobId; 2]>>;

impl Policy for Lucid {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        self.look(view);
        let sets = sets(view);
        stand_alone(&sets, view, offer);
        let packs = self.packs(view);
        let mut hosts: Vec<JobId> = alone(&sets, view);
        for id in self.in_order(view) {
            let job = view.job(id).expect("just listed");
            if packs && let Some(at) = self.host(job, &hosts, (view, offer)) {
                hosts.remove(at);
                continue;
            }
            let answer = offer.grant(&wanted(job));
            if answer != GrantOutcome::Taken && !packs && self.settings.fill == Fill::Strict {
                break;
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.scores.forget();
        self.durations.forget();
        self.submitted.clear();
        self.valid_for = None;
    }
}

impl Lucid {
    fn look(&mut self, view: &View<'_>) {
        if self.valid_for != Some(view.decision()) {
            self.forget();
            let jobs = view.granted().chain(view.waiting());
            self.submitted.extend(jobs.map(|job| (job.spec.submitted, job.id())));
        }
        self.valid_for = Some(view.decision() + 1);
        let changed = view.changed().iter().filter_map(|job| view.job(*job));
        self.submitted.extend(changed.map(|job| (job.spec.submitted, job.id())));
        let from = Time(view.now.0.saturating_sub(LOOK_BACK.0));
        self.submitted = self.submitted.split_off(&(from, JobId(0)));
        self.scores.look(view);
        self.durations.look(view);
    }

    /// Whether jobs are packed now: not while few jobs are expected, for then each can have GPUs of its own.
    fn packs(&self, view: &View<'_>) -> bool {
        match self.settings.packing {
            Packing::Always => true,
            Packing::Never => false,
            Packing::Auto => {
                let recent = self.submitted.range(..=(view.now, JobId(u32::MAX))).count();
                recent as f64 / SLOTS > self.settings.quiet
            }
        }
    }

    /// Predicted GPU time of a job in all.
    fn gpu_time(&self, job: JobRef<'_>, view: &View<'_>) -> Span {
        let length = match self.settings.duration {
            Source::Told => view.time_total(job).unwrap_or(Span(u64::MAX >> 16)),
            Source::Learned => self.durations.of(job),
        };
        length.times(u64::from(job.spec.want.gpus))
    }

    /// Waiting jobs, least predicted GPU time first.
    fn in_order(&self, view: &View<'_>) -> Vec<JobId> {
        let mut jobs: Vec<(Span, JobId)> =
            view.waiting().map(|job| (self.gpu_time(job, view), job.id())).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, job)| job).collect()
    }

    /// Puts a job beside the first one that it may join, and says at which place of the list that is.
    fn host(
        &mut self,
        job: JobRef<'_>,
        hosts: &[JobId],
        (view, offer): (&View<'_>, &mut Offer<'_>),
    ) -> Option<usize> {
        let want = &job.spec.want;
        if want.permille < 1000 || want.gpus > self.settings.gpus_max {
            return None;
        }
        let score = self.scores.score(job, view);
        let own = self.gpu_time(job, view).as_secs_f64();
        for (at, host) in hosts.iter().enumerate() {
            let Some(host) = view.job(*host) else { continue };
            let Some(place) = offer.plan(host.id()).map(|plan| plan.placement.clone()) else {
                continue;
            };
            let alike = place.gpus() == want.gpus && self.may_meet(job, host);
            if !alike || score + self.scores.score(host, view) > self.settings.score_max {
                continue;
            }
            let others = self.gpu_time(host, view).as_secs_f64();
            if own > self.settings.longer_max * others || !fits(job, host, &place, view) {
                continue;
            }
            let mut grant = Grant::gpus(job.id(), want.gpus).share(Share::Leftover);
            grant.shape = Shape::Exact(place);
            if offer.grant(&grant) == GrantOutcome::Taken {
                return Some(at);
            }
            // What was tried and refused is no second grant: it waits for the next decision.
            if offer.plan(job.id()).is_some() {
                return None;
            }
        }
        None
    }

    fn may_meet(&self, job: JobRef<'_>, host: JobRef<'_>) -> bool {
        self.settings.across_tenants || job.spec.tenant == host.spec.tenant
    }
}

/// Whether a job may run where a host is, and neither is brought to a halt by the other.
fn fits(job: JobRef<'_>, host: JobRef<'_>, place: &Placement, view: &View<'_>) -> bool {
    let want = &job.spec.want;
    let near = want.nodes_max == 0 || place.nodes() <= u32::from(want.nodes_max);
    let accepted = place.masks().iter().all(|(node, _)| {
        let node = view.cluster().node(*node);
        want.accepts(node.kind) && want.pool.is_none_or(|pool| node.pool == pool)
    });
    let runs = |one: JobRef<'_>, other: JobRef<'_>| {
        kept(one, other.spec.model, view).is_some_and(|kept| kept > 0.0)
    };
    near && accepted && runs(job, host) && runs(host, job)
}

/// Which jobs have which GPUs by the plan.
fn sets(view: &View<'_>) -> Sets {
    let mut sets = Sets::default();
    for job in view.granted() {
        if let Some(planned) = &job.state.planned {
            sets.entry(planned.placement.clone()).or_default().push(job.id());
        }
    }
    sets
}

/// A job whose host has ended has its GPUs for itself from now on, which is no restart.
fn stand_alone(sets: &Sets, view: &View<'_>, offer: &mut Offer<'_>) {
    let mut left: Vec<JobId> = Vec::new();
    for jobs in sets.values() {
        if let [job] = jobs[..] {
            let planned = view.job(job).and_then(|job| job.state.planned.as_ref());
            left.extend(planned.filter(|planned| planned.is_on_leftovers()).map(|_| job));
        }
    }
    left.sort_unstable();
    for job in left {
        let place = offer.plan(job).map(|plan| plan.placement.clone());
        let Some(place) = place else { continue };
        let mut grant = Grant::gpus(job, place.gpus());
        grant.shape = Shape::Exact(place);
        offer.grant(&grant);
    }
}

/// Jobs that have whole GPUs for themselves, by id.
fn alone(sets: &Sets, view: &View<'_>) -> Vec<JobId> {
    let single = sets.values().filter(|jobs| jobs.len() == 1).map(|jobs| jobs[0]);
    let whole = |job: &JobId| view.job(*job).is_some_and(|job| job.spec.want.permille >= 1000);
    let mut alone: Vec<JobId> = single.filter(whole).collect();
    alone.sort_unstable();
    alone
}
