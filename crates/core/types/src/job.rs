//! What a user asked for, and what has happened to it so far.

use crate::{
    Allocation, Attempt, BatchLimits, GpuType, GroupId, HostShare, JobId, Measured, ModelId,
    PoolId, Rate, Span, TenantId, Time, Work,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::Arc;

/// What the user asked for. Never changes after submission.
///
/// The true amount of work is deliberately absent: it lives in the simulated world, or nowhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The tenant that is charged.
    pub tenant: TenantId,
    /// What it trains.
    pub model: ModelId,
    /// When it was submitted.
    pub submitted: Time,
    /// How many GPUs and of what sort.
    pub want: Want,
    /// How it may be treated when room is short.
    pub class: Class,
    /// Larger is more important.
    pub priority: i32,
    /// Its weight in fair shares.
    pub weight: f64,
    /// How much work its user said it is.
    pub declared: Option<Work>,
    /// Its value if it is finished by then, best first; empty means no deadline. One entry is a hard deadline, several a soft one.
    #[serde(alias = "worth")]
    pub value: Vec<(Time, f64)>,
    /// Jobs that must finish well before this one starts.
    pub after: Vec<JobId>,
    /// The earliest start.
    pub not_before: Option<Time>,
    /// The longest time it may hold GPUs, all attempts together.
    pub run_max: Option<Span>,
    /// How long it runs undisturbed after each start.
    pub min_run: Span,
    /// Whether it may be stopped and resumed.
    pub preemptible: bool,
    /// How long it may take to save when it is asked to stop.
    #[serde(default)]
    pub grace: Span,
    /// How often it is tried again after a failure.
    pub retries_max: u16,
    /// Whether its user says that its batch grows while it trains, and by which rule.
    pub batch_mode: BatchMode,
    /// The search it is a trial of.
    pub group: Option<GroupId>,
    /// With which jobs it may, must and must not share a GPU; most jobs say nothing about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Box<Labels>>,
    /// Whether it saves its state when it is asked to stop; one that does not loses all that it did since its start.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub saves: bool,
}

fn yes() -> bool {
    true
}

/// With which jobs a job may, must and must not share a GPU, by names that users agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// Only beside jobs with the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Box<str>>,
    /// Not beside jobs with the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<Box<str>>,
    /// Beside jobs with the same name and no others, not even jobs without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<Box<str>>,
}

impl Labels {
    /// What a name may be, in words.
    pub const NAME: &str = "1 to 63 letters, digits, `-`, `_` or `.`";

    /// Whether a text may be one of these names.
    pub fn is_name(text: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=63).contains(&text.len()) && text.bytes().all(allowed)
    }

    /// The names, if any is there.
    pub fn of(
        affinity: Option<&str>,
        anti_affinity: Option<&str>,
        exclusion: Option<&str>,
    ) -> Option<Box<Labels>> {
        let own = |name: Option<&str>| name.map(Box::from);
        let labels = Labels {
            affinity: own(affinity),
            anti_affinity: own(anti_affinity),
            exclusion: own(exclusion),
        };
        (labels != Labels::default()).then(|| Box::new(labels))
    }
}

/// How often a job is tried again after a failure of its own, unless it says otherwise: the same in job files, batch
/// scripts, `run`, requests, traces and scenarios.
pub const RETRIES_DEFAULT: u16 = 3;

impl Job {
    /// A preemptible best-effort job of the first tenant and model, with nothing special about it.
    pub fn simple(id: JobId, submitted: Time, gpus: u32) -> Job {
        Job {
            id,
            tenant: TenantId(0),
            model: ModelId(0),
            submitted,
            want: Want::gpus(gpus),
            class: Class::BestEffort,
            priority: 0,
            weight: 1.0,
            declared: None,
            value: Vec::new(),
            after: Vec::new(),
            not_before: None,
            run_max: None,
            min_run: Span::ZERO,
            preemptible: true,
            grace: Span::ZERO,
            retries_max: RETRIES_DEFAULT,
            batch_mode: BatchMode::Static,
            group: None,
            labels: None,
            saves: true,
        }
    }

    /// The last moment at which finishing is worth anything.
    pub fn deadline(&self) -> Option<Time> {
        self.value.last().map(|(time, _)| *time)
    }
}

/// How a job may be treated when room is short.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Has a right to what it asked for.
    Guaranteed,
    /// Takes its turn.
    #[default]
    BestEffort,
    /// Lives on what is left over.
    Opportunistic,
}

/// What a soft deadline is worth at its first moment, at a third and two thirds of the delay that is accepted, and at
/// its end: the values of the soft deadlines in Chronus' traces (SoCC 2021), 10, 8, 5 and 2 of 10.
const SOFT_WORTH: [f64; 4] = [1.0, 0.8, 0.5, 0.2];

/// A deadline and the delay after it that is accepted, both in seconds, as moments with what an end by then is worth.
/// Without a delay, or with one below the resolution of time, it is strict.
pub fn soft_deadline(deadline: f64, accepted: f64) -> Vec<(Time, f64)> {
    let last = (SOFT_WORTH.len() - 1) as f64;
    let step = |(index, value): (usize, &f64)| {
        let delay = accepted * index as f64 / last;
        (Time::from_secs_f64(deadline + delay), *value)
    };
    let soft: Vec<(Time, f64)> = SOFT_WORTH.iter().enumerate().map(step).collect();
    let strict = || vec![(Time::from_secs_f64(deadline), 1.0)];
    if soft.is_sorted_by(|one, next| one.0 < next.0) { soft } else { strict() }
}

/// The rule by which a job changes its own batch size, as its user declares it.
///
/// Only the rule is declared: when the batch will change is not known before it does.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum BatchMode {
    /// It keeps its batch size.
    #[default]
    Static,
    /// Large batches outside of critical regimes, as in Accordion (MLSys 2021).
    Accordion,
    /// Batches that grow with the gradient noise scale.
    Gns,
}

impl BatchMode {
    /// All, in order of name.
    pub const ALL: [BatchMode; 3] = [BatchMode::Accordion, BatchMode::Gns, BatchMode::Static];

    /// Its name in traces.
    pub fn name(self) -> &'static str {
        match self {
            BatchMode::Static => "static",
            BatchMode::Accordion => "accordion",
            BatchMode::Gns => "gns",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<BatchMode> {
        BatchMode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// How many GPUs, of what sort. Rigid when `gpus_min == gpus_max`.
/// A GPU here is any accelerator; CPUs alone are a type too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Want {
    /// The number asked for.
    pub gpus: u32,
    /// The least it can run on.
    pub gpus_min: u32,
    /// The most it can use.
    pub gpus_max: u32,
    /// Acceptable types; empty means any.
    pub kinds: SmallVec<[GpuType; 4]>,
    /// Thousandths of one GPU when less than a whole one is asked for; 1000 otherwise.
    pub permille: u16,
    /// The most of a GPU's time that it may have where it has a share, in thousandths; 0 means that the share is the limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub permille_max: u16,
    /// Memory needed on each GPU; 0 means not stated.
    pub gpu_memory_mib: u32,
    /// The part of it that the job keeps between two iterations; 0 means not stated.
    #[serde(default, skip_serializing_if = "is_zero_mib")]
    pub gpu_memory_persistent_mib: u32,
    /// Host CPUs for each GPU; 0 means not stated.
    pub cpus_per_gpu: u16,
    /// Host memory for each GPU; 0 means not stated.
    pub memory_mib_per_gpu: u32,
    /// The most nodes it may span; 0 means any.
    pub nodes_max: u16,
    /// The pool it must run in.
    pub pool: Option<PoolId>,
    /// Batch size over all GPUs that it trains with; nothing leaves the choice to the policy.
    pub batch: Option<u32>,
    /// Between which limits its batch may be chosen, if its user said so.
    #[serde(default)]
    pub batch_limits: Option<BatchLimits>,
    /// Whether it goes over to other GPUs while it runs, as its user says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resizes_in_place: bool,
    /// Whether it may have GPUs of several types at once, so that a gang may be larger than any one type; only policies
    /// that grant several types give it those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub across_kinds: bool,
}

impl Want {
    /// A rigid wish for `gpus` whole GPUs of any type.
    pub fn gpus(gpus: u32) -> Want {
        Want {
            gpus,
            gpus_min: gpus,
            gpus_max: gpus,
            kinds: SmallVec::new(),
            permille: 1000,
            permille_max: 0,
            gpu_memory_mib: 0,
            gpu_memory_persistent_mib: 0,
            cpus_per_gpu: 0,
            memory_mib_per_gpu: 0,
            nodes_max: 0,
            pool: None,
            batch: None,
            batch_limits: None,
            resizes_in_place: false,
            across_kinds: false,
        }
    }

    /// Host CPUs and memory for each GPU; 0 means not stated.
    pub fn host_per_gpu(&self) -> HostShare {
        HostShare {
            cpus: u32::from(self.cpus_per_gpu),
            memory_mib: u64::from(self.memory_mib_per_gpu),
        }
    }

    /// The most of a GPU's time that it may have, in thousandths: never below its share.
    pub fn limit(&self) -> u16 {
        self.permille_max.max(self.permille)
    }

    /// Whether the number of GPUs is fixed.
    pub fn is_rigid(&self) -> bool {
        self.gpus_min == self.gpus_max
    }

    /// Whether `kind` is acceptable.
    pub fn accepts(&self, kind: GpuType) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

fn is_zero_mib(number: &u32) -> bool {
    *number == 0
}

/// Where a job stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Not allowed to run yet: held by its user, before its start time, or after unfinished jobs.
    Blocked,
    /// Allowed to run, but not admitted by the policy.
    Unadmitted,
    /// Admitted, without GPUs.
    Waiting,
    /// Admitted, without GPUs, put aside in host memory: the same attempt goes on where it was.
    Suspended,
    /// Holds GPUs and is being started.
    Starting,
    /// Makes progress.
    Running,
    /// Holds GPUs and is being stopped.
    Saving,
}

impl Phase {
    /// In the order in which a job goes through them.
    pub const ALL: [Phase; 7] = [
        Phase::Blocked,
        Phase::Unadmitted,
        Phase::Waiting,
        Phase::Suspended,
        Phase::Starting,
        Phase::Running,
        Phase::Saving,
    ];

    /// Its name, wherever it is written.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Blocked => "blocked",
            Phase::Unadmitted => "unadmitted",
            Phase::Waiting => "waiting",
            Phase::Suspended => "suspended",
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Saving => "saving",
        }
    }
}

/// How a job ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All work done.
    Finished,
    /// Ended by its user.
    Cancelled,
    /// Failed more often than it may be retried.
    Failed,
    /// Used up its time limit.
    TimeLimit,
    /// A job it had to follow did not finish.
    Orphaned,
    /// Refused by the policy.
    Rejected,
    /// Ended by the policy, as a trial that lost.
    Pruned,
}

impl End {
    /// All of them.
    pub const ALL: [End; 7] = [
        End::Finished,
        End::Cancelled,
        End::Failed,
        End::TimeLimit,
        End::Orphaned,
        End::Rejected,
        End::Pruned,
    ];

    /// Its name, wherever it is written.
    pub fn name(self) -> &'static str {
        match self {
            End::Finished => "finished",
            End::Cancelled => "cancelled",
            End::Failed => "failed",
            End::TimeLimit => "time-limit",
            End::Orphaned => "orphaned",
            End::Rejected => "rejected",
            End::Pruned => "pruned",
        }
    }

    /// The end of that name.
    pub fn named(name: &str) -> Option<End> {
        End::ALL.into_iter().find(|end| end.name() == name)
    }
}

/// Work done so far, as a promise: `done` at `at`, growing by `rate` while the job runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Work done at `at`.
    pub done: Work,
    /// When it was known.
    pub at: Time,
    /// Growth since; zero while it does not run.
    pub rate: Rate,
}

impl Progress {
    /// The work done at `now`.
    pub fn done_at(&self, now: Time) -> Work {
        self.done + self.rate.over(now.since(self.at))
    }
}

/// What has happened to a job so far; written by the engine, read-only to policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// Where it stands.
    pub phase: Phase,
    /// Whether the policy ever let it in; that outlives restarts.
    pub admitted: bool,
    /// Since when it stands there.
    pub since: Time,
    /// Its newest launch; 0 before the first.
    pub attempt: Attempt,
    /// Its first launch.
    pub first_start: Option<Time>,
    /// Its newest launch.
    pub last_start: Option<Time>,
    /// When it last entered the queue.
    pub queued_at: Time,
    /// Launches beyond the first.
    pub restarts: u32,
    /// Times it was stopped for another job.
    pub preemptions: u32,
    /// Times it failed.
    pub failures: u16,
    /// Work done.
    pub progress: Progress,
    /// The batch size it last reported.
    pub batch: Option<u32>,
    /// What was measured while it ran, if it says anything about that.
    #[serde(default)]
    pub measured: Option<Arc<Measured>>,
    /// GPU time used up to `since`, in GPU-microseconds; see [`JobState::attained`].
    pub gpu_time: Span,
    /// Time on GPUs up to `since`, whatever their number.
    pub ran: Span,
    /// Time on each type of GPU up to `since`.
    pub time_on: SmallVec<[(GpuType, Span); 2]>,
    /// What it really holds.
    pub held: Option<Allocation>,
    /// What it should hold by the newest decision.
    pub planned: Option<Allocation>,
    /// Where it is kept while it is put aside, until it runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Box<Suspended>>,
    /// How often it was put aside, in all attempts.
    #[serde(default, skip_serializing_if = "is_never")]
    pub suspends: u32,
    /// What putting it aside and bringing it back took when it was last done, and how long it was away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<Box<AsideSpans>>,
}

/// A job that is put aside in host memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspended {
    /// What it held, and where alone it can go on.
    pub home: Allocation,
    /// Since when it holds no GPUs.
    pub since: Time,
    /// Host memory that it takes.
    pub memory_mib: u64,
}

/// What was measured of a job that was put aside.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideSpans {
    /// From the request until its GPUs were free.
    pub out: Span,
    /// From getting them again until it ran; zero before it first did.
    pub back: Span,
    /// How long it held no GPUs in between.
    pub away: Span,
}

fn is_never(times: &u32) -> bool {
    *times == 0
}

impl JobState {
    /// The state of a job that was just submitted.
    pub fn submitted(at: Time) -> JobState {
        JobState {
            phase: Phase::Blocked,
            admitted: false,
            since: at,
            attempt: Attempt(0),
            first_start: None,
            last_start: None,
            queued_at: at,
            restarts: 0,
            preemptions: 0,
            failures: 0,
            progress: Progress { done: Work::ZERO, at, rate: Rate(0.0) },
            batch: None,
            measured: None,
            gpu_time: Span::ZERO,
            ran: Span::ZERO,
            time_on: SmallVec::new(),
            held: None,
            planned: None,
            suspended: None,
            suspends: 0,
            aside: None,
        }
    }

    /// GPUs it holds now.
    #[inline]
    pub fn gpus(&self) -> u32 {
        self.held.as_ref().map_or(0, |allocation| allocation.placement.gpus())
    }

    /// Whether it holds GPUs.
    #[inline]
    pub fn is_placed(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running | Phase::Saving)
    }

    /// GPU time used up to `now`, in GPU-microseconds: the two-dimensional attained service.
    #[inline]
    pub fn attained(&self, now: Time) -> Span {
        if self.is_placed() {
            self.gpu_time + now.since(self.since).times(u64::from(self.gpus()))
        } else {
            self.gpu_time
        }
    }

    /// Time on GPUs up to `now`.
    #[inline]
    pub fn ran(&self, now: Time) -> Span {
        if self.is_placed() { self.ran + now.since(self.since) } else { self.ran }
    }
}
