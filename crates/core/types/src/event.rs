//! What happened, and what the engine wants done.

use crate::{
    Allocation, Attempt, End, GpuAt, GpuType, Job, JobId, NodeId, PoolId, Rate, Span, Tenant,
    TenantId, Time, Window, WindowId, Work,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Something that happened. Job events name the attempt they speak of; a stale one is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A user submitted a job.
    Submitted(Arc<Job>),
    /// A user gave a job up.
    Cancelled(JobId),
    /// A user set a job aside.
    Hold(JobId),
    /// A user let it go on.
    Release(JobId),
    /// A user sends a job that holds GPUs back to the queue.
    Requeue(JobId),
    /// A job is of no use any more and ends as failed.
    GivenUp(JobId),
    /// Too many jobs of an array run already, or no longer.
    Throttle(JobId, bool),
    /// There is one more tenant; it gets the next id.
    TenantAdded(Tenant),
    /// A launch succeeded: the job makes progress from now on.
    Started {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
    },
    /// The job has gone over to the GPUs of the newest [`Action::Adjust`], and those it gave up are free.
    Resized {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
    },
    /// The job is put aside in host memory and its GPUs are free: the answer to [`Action::Suspend`].
    Suspended {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Host memory that it takes now; 0 where that was not measured.
        memory_mib: u64,
    },
    /// The job could not be put aside and runs on: the other answer to [`Action::Suspend`].
    NotSuspended {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
    },
    /// A stop is complete and the GPUs are free; `done` is what a later launch resumes from.
    Stopped {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Work saved.
        done: Work,
    },
    /// All work is done and the GPUs are free.
    Finished {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
    },
    /// The attempt ended badly and the GPUs are free.
    Failed {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Why.
        cause: Cause,
        /// Work saved.
        done: Work,
    },
    /// What a running job reports.
    Report {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// What it says.
        sample: Sample,
    },
    /// A node came (back) into service.
    NodeUp(NodeId),
    /// A node is gone, with all that ran on it.
    NodeLost(NodeId),
    /// A node takes no new work; what runs there goes on.
    NodeDrained(NodeId),
    /// One GPU is gone.
    GpuLost(GpuAt),
    /// One GPU is back.
    GpuBack(GpuAt),
    /// One GPU is ill: it takes no new work until [`Event::GpuReturned`], whatever becomes of its node meanwhile.
    GpuQuarantined {
        /// Which.
        gpu: GpuAt,
        /// Whether what runs there must go, as on a lost GPU; otherwise it goes on.
        evict: bool,
    },
    /// One GPU takes work again.
    GpuReturned(GpuAt),
    /// So many GPUs of a node are in use by processes that are not ours to stop.
    Claimed(NodeId, u32),
    /// The owner of a pool needs so many of its nodes; the others are lent.
    Needed(PoolId, u32),
    /// The price of a type changed.
    PriceChanged(GpuType, f64),
    /// The ceiling of a tenant changed.
    QuotaChanged(TenantId, Option<u32>),
    /// Nodes are under maintenance or reserved for a while; in place of the window of that number, if there is one.
    WindowSet(Window),
    /// A window is taken back, or over before its time.
    WindowRemoved(WindowId),
    /// Every job that runs has done its part of the round; said by a host that keeps rounds.
    RoundOver,
}

/// Why an attempt ended badly.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The job's own fault; counts against its retries.
    Job,
    /// It could not be launched where it was sent; counts against the node.
    Launch,
    /// The node or GPU was lost; counts against the node, not the job.
    Machine,
}

/// What a running job says about itself. Fields it cannot tell stay empty.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Work done.
    pub done: Option<Work>,
    /// Current speed.
    pub rate: Option<Rate>,
    /// Time of one iteration, accumulated passes included.
    pub step: Option<Span>,
    /// Time of one iteration spent exchanging gradients.
    pub sync: Option<Span>,
    /// Batch size over all GPUs.
    pub batch: Option<u32>,
    /// Passes that are accumulated before the one that exchanges gradients.
    pub accumulation: Option<u32>,
    /// Gradient noise scale: the batch at which noise and signal are alike.
    pub noise: Option<f64>,
    /// Training loss.
    pub loss: Option<f64>,
    /// Epochs finished.
    pub epoch: Option<u32>,
    /// GPUs it would like.
    pub wants_gpus: Option<u32>,
    /// Work it is in all, once it knows.
    pub total: Option<Work>,
    /// How long its last stop took, from the request until its GPUs were free.
    pub save: Option<Span>,
    /// How long its last start took, from the launch to the first progress.
    pub start: Option<Span>,
}

/// Why a job is stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Another job takes its place.
    Preempted,
    /// It goes on elsewhere or at another size.
    Moved,
    /// Its user cancelled or set it aside.
    Asked,
    /// Its time limit is used up.
    TimeLimit,
    /// The policy ended it.
    Pruned,
    /// A node it spans was lost, so the rest of the gang must go.
    Machine,
    /// A node it spans is about to be under maintenance, or reserved for others.
    Window,
    /// It is killed and goes back to its last checkpoint: saving would cost more than it loses, or there are no GPUs
    /// on which it could.
    Dropped,
}

/// What the engine wants done. Hosts obey; they never decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Save and stop; answer with [`Event::Stopped`].
    Stop {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Why.
        why: Why,
    },
    /// Put aside in host memory, so that its GPUs are free; answer with [`Event::Suspended`] or [`Event::NotSuspended`].
    Suspend {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Host memory that may be taken for it.
        memory_mib: u64,
    },
    /// Bring back on the same GPUs, which are free; answer with [`Event::Started`].
    Resume {
        /// The job.
        job: JobId,
        /// Its launch, the same as before.
        attempt: Attempt,
        /// The same GPUs, with what it gets of them now.
        allocation: Allocation,
    },
    /// Start on free GPUs; answer with [`Event::Started`].
    Launch {
        /// The job.
        job: JobId,
        /// Its new launch.
        attempt: Attempt,
        /// Where and how.
        allocation: Allocation,
    },
    /// Change lease, knobs, host share or GPUs without a restart. Where the engine waits for a change of GPUs, answer
    /// with [`Event::Resized`].
    Adjust {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Where and how from now on.
        allocation: Allocation,
    },
    /// The job ended; nothing more will come of it.
    Ended {
        /// The job.
        job: JobId,
        /// When.
        at: Time,
        /// How.
        end: End,
    },
}
