//! Kueue: whole gangs are admitted against quotas of cluster queues, which borrow from each other within cohorts.

mod cycle;
mod preemption;
mod quota;

use crate::pods::{NodeScore, PodByPod, Pods};
use crate::prelude::*;
use cycle::{Cycle, Entry as Head};
use quota::{Limits, Quotas};
use std::collections::BTreeMap;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "kueue",
    about: "Kueue: gangs are admitted when the quotas of their queue and its cohort allow it, type of GPU after type; then kube-scheduler places them.",
    paper: "Kueue documentation: cluster queues, cohorts, preemption, fair sharing",
    needs: Needs::NOTHING,
    class: Taxonomy {
        heterogeneous: true,
        ..Taxonomy::rigid(Objective::Fairness, Family::ClusterManager)
    }
    .by_setting("`within_queue` and `reclaim` stop jobs"),
    settings: &[
        (
            "queueing",
            "`best-effort-fifo`: a job that is not admitted lets others of its queue pass; `strict-fifo`: it does not",
        ),
        (
            "borrowing_limit",
            "the most that a queue may borrow, as a multiple of its quota; below 0 for any amount",
        ),
        ("lending_limit", "the part of its quota that a queue lends, from 0 to 1"),
        (
            "when_can_borrow",
            "on a type that a job fits only by borrowing: `borrow`, or `try-next-flavor` first",
        ),
        (
            "when_can_preempt",
            "on a type that a job fits only at the expense of others: `preempt`, or `try-next-flavor` first",
        ),
        (
            "within_queue",
            "which jobs of the same queue a job within its quota may stop: `never`, `lower-priority` or `lower-or-newer-equal-priority`",
        ),
        (
            "reclaim",
            "which jobs of borrowing queues of the cohort it may stop: `never`, `lower-priority` or `any`",
        ),
        (
            "fair_sharing",
            "whether the queue that borrows least of what its cohort can lend, by weight, goes first, and who borrows more may be stopped for it",
        ),
        (
            "pod_gpus",
            "GPUs of a pod, into which a job is cut; 0 for as many as the largest node has",
        ),
        ("score", "which nodes kube-scheduler prefers: `least-allocated` or `most-allocated`"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    queueing: Queueing,
    borrowing_limit: f64,
    lending_limit: f64,
    when_can_borrow: WhenBorrowing,
    when_can_preempt: WhenPreempting,
    within_queue: WithinQueue,
    reclaim: Reclaim,
    fair_sharing: bool,
    pod_gpus: u32,
    score: NodeScore,
}

impl Default for Settings {
    /// The defaults of its API.
    fn default() -> Settings {
        Settings {
            queueing: Queueing::BestEffortFifo,
            borrowing_limit: -1.0,
            lending_limit: 1.0,
            when_can_borrow: WhenBorrowing::Borrow,
            when_can_preempt: WhenPreempting::TryNextFlavor,
            within_queue: WithinQueue::Never,
            reclaim: Reclaim::Never,
            fair_sharing: false,
            pod_gpus: 0,
            score: NodeScore::LeastAllocated,
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Queueing {
    StrictFifo,
    BestEffortFifo,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WhenBorrowing {
    Borrow,
    TryNextFlavor,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WhenPreempting {
    Preempt,
    TryNextFlavor,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WithinQueue {
    Never,
    LowerPriority,
    LowerOrNewerEqualPriority,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reclaim {
    Never,
    LowerPriority,
    Any,
}

/// A decision costs O(admitted and waiting jobs, with their logarithm) and O(queues x types) for each job that is admitted
/// and for each class that is not; a job that preempts adds O(admitted jobs).
struct Kueue {
    settings: Settings,
    /// Jobs that were admitted and have no GPUs yet, with the type of GPU they have quota of.
    admitted: BTreeMap<JobId, GpuType>,
}

/// Thousandths of GPUs that a job asks for.
fn need(job: JobRef<'_>) -> i64 {
    i64::from(job.spec.want.gpus) * i64::from(job.spec.want.permille)
}

/// The order within a queue: priority, then arrival. The smaller, the sooner.
type Turn = (i64, i64, Time, JobId);

fn turn(job: JobRef<'_>) -> Turn {
    let spec = job.spec;
    (spec.class as i64, -i64::from(spec.priority), spec.submitted, spec.id)
}

/// The type of GPU that a job has by the plan at this point of an offer.
fn kind_of(job: JobRef<'_>, offer: &Offer<'_>) -> Option<GpuType> {
    let plan = offer.plan(job.id())?;
    plan.placement.masks().first().map(|(node, _)| offer.free().kind(*node))
}

impl Kueue {
    /// The quotas, with what jobs that run or were admitted use.
    fn quotas(&mut self, view: &View<'_>, offer: &Offer<'_>) -> Quotas {
        let cluster = view.cluster();
        let kinds = 0..cluster.kinds.len();
        let capacity: Vec<i64> =
            kinds.map(|kind| i64::from(cluster.gpus_of(GpuType(kind as u8))) * 1000).collect();
        let Settings { borrowing_limit: borrowing, lending_limit: lending, .. } = self.settings;
        let limits = Limits { borrowing, lending };
        let mut quotas = Quotas::new(view.tenants(), &capacity, limits);
        self.admitted.retain(|id, _| view.state().waiting.contains(*id));
        for job in view.granted() {
            if let Some(kind) = kind_of(job, offer) {
                quotas.add(quotas.queue(job.spec.tenant), kind, need(job));
            }
        }
        for (id, kind) in &self.admitted {
            if let Some(job) = view.job(*id) {
                quotas.add(quotas.queue(job.spec.tenant), *kind, need(job));
            }
        }
        quotas
    }

    /// Jobs that have quota and found no room so far are placed first, as their pods wait longest.
    fn place_admitted(&mut self, view: &View<'_>, offer: &mut Offer<'_>) {
        let mut turns: Vec<(Turn, GpuType)> = self
            .admitted
            .iter()
            .filter_map(|(id, kind)| Some((turn(view.job(*id)?), *kind)))
            .collect();
        turns.sort_unstable();
        for ((_, _, _, id), kind) in turns {
            let Some(job) = view.job(id) else { continue };
            if offer.grant(&wanted(job).of(kind)) == GrantOutcome::Taken {
                self.admitted.remove(&id);
            }
        }
    }
}

impl Policy for Kueue {
    fn allocate(
        &mut self,
        view: &View<'_>,
        offer: &mut Offer<'_>,
        _cx: &mut Cx,
    ) -> Result<(), PolicyError> {
        if view.waiting_len() == 0 {
            self.admitted.clear();
            return Ok(());
        }
        let quotas = self.quotas(view, offer);
        self.place_admitted(view, offer);
        let mut cycle = Cycle::new(&self.settings, (view, offer), quotas, &self.admitted);
        // Each cycle takes one job off each queue that has one.
        while let Some(heads) = cycle.heads() {
            for Head { job, kind, victims, .. } in heads {
                if cycle.admit(job, kind, victims) {
                    self.admitted.insert(job.id(), kind);
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.admitted.clear();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let settings: Settings = raw.read(ENTRY.name)?;
    if !settings.borrowing_limit.is_finite() {
        let found = settings.borrowing_limit;
        return Err(ENTRY.bad_value("borrowing_limit", found, "a number; below 0 for no limit"));
    }
    if !(0.0..=1.0).contains(&settings.lending_limit) {
        let found = settings.lending_limit;
        return Err(ENTRY.bad_value("lending_limit", found, "a number from 0 to 1"));
    }
    let placer = PodByPod(Pods { gpus: settings.pod_gpus, score: settings.score });
    Ok(Pipeline::new(Kueue { settings, admitted: BTreeMap::new() }, placer, ENTRY.needs))
}
