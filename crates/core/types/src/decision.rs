//! A plan as a difference, with its reasons.

use crate::{Allocation, GpuAt, JobId, NodeId, Span, TenantId, Time, WindowId};
use serde::{Deserialize, Serialize};

/// One job's allocation as it should become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The job.
    pub job: JobId,
    /// What it should hold; `None` takes everything away.
    pub to: Option<Allocation>,
}

/// What a policy wants changed, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Takings first, then the rest in order of precedence.
    pub changes: Vec<Change>,
    /// Jobs of a group that the policy ends for good.
    pub ends: Vec<JobId>,
    /// Nodes that go back to the owner of their pool.
    #[serde(default)]
    pub back: Vec<NodeId>,
    /// Answers about jobs that were asked for admission.
    pub verdicts: Vec<(JobId, Verdict)>,
    /// When the policy wants to be asked again though nothing happens.
    pub wake_at: Option<Time>,
    /// Why jobs that were looked at do not run.
    pub notes: Vec<Note>,
    /// What was wrong with grants that were dropped.
    pub faults: Vec<Fault>,
    /// Whether GPUs that are taken away and given to no other job are meant to be idle.
    pub idle: bool,
    /// How good the policy says it is.
    pub quality: Quality,
}

/// How good a decision is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quality {
    /// What the policy defines, exactly.
    #[default]
    Proven,
    /// At most so many millionths of its value below the best, which is proven.
    Within(u32),
    /// Good, not proven best.
    Feasible,
    /// The policy failed and the plan was kept or a fallback order used.
    Fallback,
}

/// A policy's answer about a new job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It may take part.
    Accept,
    /// Ask again at the next decision.
    Hold(Reason),
    /// It never will.
    Reject(Reason),
}

/// Why one job does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The job.
    pub job: JobId,
    /// The reason.
    pub reason: Reason,
}

/// Why a job does not run, as data; text is made at the rim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// Too few GPUs are free.
    NoRoom {
        /// How many it needs.
        need: u32,
        /// How many acceptable ones are free.
        free: u32,
    },
    /// Enough GPUs are free, but not together as the job needs them.
    Fragmented {
        /// How many it needs.
        need: u32,
        /// How many acceptable ones are free.
        free: u32,
    },
    /// Enough GPUs are free, but not in a shape that can be launched here, such as the same number on each node.
    Uneven {
        /// How many it needs.
        need: u32,
        /// How many acceptable ones are free.
        free: u32,
    },
    /// Another job comes first.
    Outranked {
        /// Which.
        by: JobId,
    },
    /// GPUs are kept free for a job that comes first.
    Reserved {
        /// For which.
        by: JobId,
        /// When that one is expected to start.
        until: Time,
    },
    /// A tenant's ceiling is reached.
    Quota {
        /// Whose.
        tenant: TenantId,
        /// The ceiling.
        ceiling: u32,
        /// What that tenant uses.
        used: u32,
    },
    /// More is admitted already than the policy allows.
    Overload {
        /// GPUs asked for by admitted jobs.
        demand: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// The GPUs for first runs are taken by other new jobs.
    FirstRuns {
        /// GPUs that those ask for.
        used: u32,
        /// How many there are for that.
        allowed: u32,
    },
    /// No node or set of nodes could ever hold it.
    NeverFits {
        /// How many it needs.
        need: u32,
        /// The most there could ever be.
        most: u32,
    },
    /// No speed above zero is known for it on any type that could hold it.
    NoSpeed,
    /// No batch size keeps its limits on any number of GPUs it may have.
    NoBatch {
        /// The smallest that would do.
        least: u32,
        /// The largest that is allowed.
        most: u32,
    },
    /// A job before it has not finished.
    After {
        /// Which.
        job: JobId,
    },
    /// Its start time has not come.
    NotBefore {
        /// When it comes.
        time: Time,
    },
    /// A node is under maintenance or reserved for others, now or before the job could have left it.
    Window {
        /// The window.
        window: WindowId,
        /// The node.
        node: NodeId,
        /// When it begins.
        from: Time,
        /// When it is over.
        until: Time,
    },
    /// Its user set it aside.
    HeldByUser,
    /// As many jobs of its array run as may at once.
    ArrayFull,
    /// It is planned and waits for GPUs to be given up.
    Freeing {
        /// By which job.
        by: JobId,
    },
    /// It is put aside in host memory and goes on only where it was.
    OwnGpu {
        /// Where that is.
        gpu: GpuAt,
        /// The job that holds it, if any does.
        by: Option<JobId>,
        /// From when on it may go on elsewhere.
        until: Time,
    },
    /// It failed and waits before it is tried again.
    BackOff {
        /// Until when.
        until: Time,
    },
    /// The deadline cannot be met any more.
    DeadlineLost {
        /// By how much.
        late: Span,
    },
    /// It has just been submitted and was not looked at yet.
    Undecided,
}

/// What was wrong with a grant.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The job is not known, over, or not allowed to run.
    NotEligible(JobId),
    /// Granted twice in one decision.
    Twice(JobId),
    /// Fewer GPUs than its least or more than its most.
    WrongSize(JobId),
    /// A type the job does not accept.
    WrongKind(JobId),
    /// A GPU that is not there or not in service.
    NoSuchGpu(GpuAt),
    /// More of a GPU than there is.
    Oversubscribed(GpuAt),
    /// More host CPUs or memory than a node has.
    HostOversubscribed(NodeId),
    /// A shape that cannot be launched here.
    WrongShape(JobId),
    /// A lease or minimum run time would be broken.
    LeaseBroken(JobId),
    /// The job may not be stopped.
    NotPreemptible(JobId),
    /// A tenant's ceiling would be passed.
    QuotaPassed(JobId),
    /// It would share a GPU with a job of another tenant, and not both allow that.
    Strangers(JobId),
    /// A node is under maintenance or reserved for others before the job could have left it.
    InWindow(JobId, NodeId),
    /// A wake-up in the past.
    WakeInPast(Time),
    /// An end for a job that does not allow it.
    EndNotAllowed(JobId),
}
