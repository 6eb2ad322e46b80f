//! Why a job waits, what would change that, and when.

use super::DaemonSnapshot;
use crate::messages;
use trainyard_api::answer::WhyAnswer;
use trainyard_framework::{Knowledge, Live, Needs, Snapshot, View};
use trainyard_types::{Cluster, GpuType, JobId, Phase, Reason, Span, Time, Want};

/// Jobs that a `why` names at most.
const BLOCKERS_MAX: usize = 20;

/// GPUs in quarantine that a `why` names at most.
const ILL_MAX: usize = 4;

impl DaemonSnapshot {
    /// Why a job does not run; nothing for one that is not known or over.
    pub fn why(&self, job: JobId) -> Option<WhyAnswer> {
        let explained = self.outlook.explain(job)?;
        let state = &self.snapshot.state;
        let live = state.live(job)?;
        let waits =
            matches!(live.state.phase, Phase::Waiting | Phase::Suspended | Phase::Unadmitted);
        let blockers = if waits { blockers(self, &live.spec.want) } else { Vec::new() };
        let nearest =
            explained.reasons.first().and_then(|reason| self.nearest(live, reason, &blockers));
        let not_before = self.not_before(live, &explained.reasons);
        let lacks_room = explained.reasons.first().is_some_and(is_about_room);
        let absent = if lacks_room { self.absent(&live.spec.want) } else { Vec::new() };
        let sentences = explained.reasons.iter();
        let sentences = sentences.map(|reason| self.sentence(reason));
        let ill = self.ill_gpus_for(&live.spec.want).filter(|_| waits);
        let record = self.records.get(&job);
        let hang = record.and_then(|record| self.hang_of(live, record));
        let hang = hang.map(|hang| self.hang_words(&hang));
        let shared = self.shared.get(&job).map(messages::sharing);
        let divided = self.divided(live);
        Some(WhyAnswer {
            job: job.0,
            state: live.state.phase.into(),
            since: self.unix(explained.since),
            reasons: sentences
                .chain(absent)
                .chain(ill)
                .chain(hang)
                .chain(shared)
                .chain(divided)
                .collect(),
            data: (explained.reasons.iter())
                .map(|reason| serde_json::to_value(reason).unwrap_or_default())
                .collect(),
            blockers: blockers.iter().map(|(job, ..)| job.0).take(BLOCKERS_MAX).collect(),
            nearest_change: nearest,
            not_before: not_before.map(|at| self.unix(at)),
        })
    }

    /// How a described model is divided over what its job holds.
    fn divided(&self, live: &Live) -> Option<String> {
        let config = live.state.held.as_ref()?.config(&self.snapshot.state.cluster);
        let division = self.snapshot.beliefs.division(&live.spec, &config)?.ok()?;
        Some(format!("its model is divided over its GPUs: {division}"))
    }

    /// GPUs that a job could use if they were not ill.
    fn ill_gpus_for(&self, want: &Want) -> Option<String> {
        let cluster = &self.snapshot.state.cluster;
        let ill = self.gpus.iter().filter_map(|(gpu, chart)| {
            let illness = chart.illness.as_ref()?;
            let kind = cluster.node(gpu.node).kind;
            usable(cluster, want, kind)
                .then(|| format!("{}:{} ({})", chart.node, chart.gpu, illness.found.what))
        });
        let mut names: Vec<String> = ill.take(ILL_MAX + 1).collect();
        if names.len() > ILL_MAX {
            names[ILL_MAX] = "others".to_owned();
        }
        (!names.is_empty())
            .then(|| format!("in quarantine and of no use to it: {}", names.join(", ")))
    }

    /// The nearest change that would let a job start.
    fn nearest(&self, live: &Live, reason: &Reason, blockers: &[Blocker]) -> Option<String> {
        let want = &live.spec.want;
        match reason {
            Reason::HeldByUser => Some(format!("`trainyard release {}`", live.spec.id.0)),
            Reason::Window { until, .. } => Some(format!(
                "a time limit or checkpoints with which it is gone before, or the end of the window at {}",
                messages::moment(self.unix(*until))
            )),
            Reason::ArrayFull => Some("another job of its array ending".to_owned()),
            Reason::After { job } => Some(format!("job {} finishing", job.0)),
            Reason::NotBefore { .. } => Some("its begin time coming".to_owned()),
            Reason::BackOff { .. } => Some("the wait after its failure ending".to_owned()),
            Reason::OwnGpu { by, .. } => by.map(|by| format!("job {} giving its GPU up", by.0)),
            Reason::Freeing { by } => Some(format!("job {} giving its GPUs up", by.0)),
            Reason::Quota { tenant, used, .. } => {
                let name = &self.snapshot.state.tenants.get(*tenant).name;
                Some(format!("raise the ceiling of `{name}` to {}", used + want.gpus))
            }
            Reason::NeverFits { most, .. } => {
                Some(format!("ask for {most} GPUs at most, or for other types"))
            }
            Reason::NoSpeed => Some("a profile with its speed, or types it can run on".to_owned()),
            Reason::NoBatch { least, .. } => {
                Some(format!("limits of its batch that allow {least}"))
            }
            Reason::Undecided | Reason::DeadlineLost { .. } => None,
            Reason::Overload { .. } | Reason::FirstRuns { .. } => ending(blockers, 1),
            Reason::Outranked { by } | Reason::Reserved { by, .. } => {
                let higher = self.snapshot.state.live(*by).map_or(0, |other| other.spec.priority);
                Some(format!("job {} starting, or a priority above its {higher}", by.0))
            }
            Reason::NoRoom { need, .. }
            | Reason::Fragmented { need, .. }
            | Reason::Uneven { need, .. } => {
                let largest = largest_now(&self.snapshot, want);
                if largest > 0 && largest < *need && need - largest <= need / 2 {
                    let fewer = need - largest;
                    let verb = if fewer == 1 { "GPU" } else { "GPUs" };
                    return Some(format!("{fewer} {verb} fewer would fit now"));
                }
                ending(blockers, need.saturating_sub(largest))
            }
        }
    }

    /// The earliest start that can be told.
    pub(crate) fn not_before(&self, live: &Live, reasons: &[Reason]) -> Option<Time> {
        let told = reasons.iter().filter_map(|reason| match reason {
            Reason::NotBefore { time } => Some(*time),
            Reason::BackOff { until } | Reason::Reserved { until, .. } => Some(*until),
            _ => None,
        });
        let told = told.max();
        if live.state.phase != Phase::Waiting {
            return told;
        }
        let room = forecast(self, &live.spec.want);
        told.max(room.map(|wait| self.snapshot.now + wait))
    }
}

/// Whether more GPUs would help.
fn is_about_room(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::NoRoom { .. }
            | Reason::Fragmented { .. }
            | Reason::Uneven { .. }
            | Reason::Outranked { .. }
            | Reason::Reserved { .. }
    )
}

/// A job that holds what another could use: which, how many GPUs, and when it is expected to end.
type Blocker = (JobId, u32, Option<Span>);

/// Jobs that hold GPUs that `want` could use, the first to go first; those of unknown length last.
fn blockers(seen: &DaemonSnapshot, want: &Want) -> Vec<Blocker> {
    let snapshot = &seen.snapshot;
    let cluster = &snapshot.state.cluster;
    let needs = Needs { work_left: Knowledge::Estimate, rates: true, ..Needs::NOTHING };
    let view = View::new(snapshot.now, &snapshot.state, snapshot.beliefs.as_ref(), &needs);
    let mut all: Vec<Blocker> = Vec::new();
    for live in seen.holders() {
        let Some(held) = &live.state.held else { continue };
        let masks = held.placement.masks().iter();
        let usable: u32 = masks
            .filter(|(node, _)| usable(cluster, want, cluster.node(*node).kind))
            .map(|(_, mask)| mask.count_ones())
            .sum();
        if usable > 0 {
            let job = view.job(live.spec.id);
            let known = snapshot.beliefs.work(&live.spec).is_some();
            let left = job.filter(|_| known).and_then(|job| view.time_to_end(job));
            all.push((live.spec.id, usable, left));
        }
    }
    all.sort_by_key(|(job, _, left)| (left.is_none(), *left, *job));
    all
}

fn usable(cluster: &Cluster, want: &Want, kind: GpuType) -> bool {
    let memory = cluster.kinds[kind.index()].memory_mib;
    want.accepts(kind) && (memory == 0 || memory >= want.gpu_memory_mib)
}

/// The most GPUs of one type that are free for `want`.
fn largest_now(snapshot: &Snapshot, want: &Want) -> u32 {
    let cluster = &snapshot.state.cluster;
    let kinds = (0..cluster.kinds.len()).map(|index| GpuType(index as u8));
    let free =
        kinds.filter(|kind| usable(cluster, want, *kind)).map(|kind| snapshot.free.gpus(kind));
    free.max().unwrap_or(0)
}

/// The first of those in the way that, with those before them, free enough.
fn ending(blockers: &[Blocker], missing: u32) -> Option<String> {
    let mut names = Vec::new();
    let mut freed = 0;
    for (job, gpus, _) in blockers {
        names.push(format!("job {} ({gpus} {})", job.0, if *gpus == 1 { "GPU" } else { "GPUs" }));
        freed += gpus;
        if freed >= missing {
            return Some(format!("{} ending", names.join(" and ")));
        }
        if names.len() >= 4 {
            return Some(format!("{} and others ending", names.join(", ")));
        }
    }
    None
}

/// How long until so many GPUs are free, if everything that runs ends when it is expected to and no other job takes
/// them; nothing where that cannot be told.
pub fn forecast(seen: &DaemonSnapshot, want: &Want) -> Option<Span> {
    let mut free = largest_now(&seen.snapshot, want);
    let mut wait = Span::ZERO;
    for (_, gpus, left) in blockers(seen, want) {
        if free >= want.gpus_min {
            break;
        }
        wait = left?;
        free += gpus;
    }
    (free >= want.gpus_min).then_some(wait)
}
