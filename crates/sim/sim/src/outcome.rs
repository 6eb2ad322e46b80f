//! What came of a run.

use crate::entitlement::Backlogged;
use crate::options::Window;
use crate::series::Series;
use serde::Serialize;
use trainyard_engine::Stats;
use trainyard_types::{End, GpuType, JobId, Span, Time};

/// What came of one job.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct JobOutcome {
    /// The job.
    pub job: JobId,
    /// When it first got GPUs.
    pub first_start: Option<Time>,
    /// When it was over.
    pub ended: Time,
    /// How it ended.
    pub end: End,
    /// GPU time it held, in GPU-microseconds.
    pub gpu_time: Span,
    /// Time it held GPUs.
    pub ran: Span,
    /// Launches beyond the first.
    pub restarts: u32,
    /// Times it was stopped for another job.
    pub preemptions: u32,
    /// The type of GPU it spent most time on; the lower one of equals, none for a job that never ran.
    pub kind: Option<GpuType>,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Jobs that ended and count, by id.
    pub jobs: Vec<JobOutcome>,
    /// Jobs that count and were never over: the policy does not serve them, or they cannot run.
    pub unfinished: Vec<JobId>,
    /// Jobs that ended and do not count, by id: those before and after the measured ones.
    pub beside: Vec<JobOutcome>,
    /// The jobs that count; all if not given.
    pub measured: Option<Window>,
    /// When the first job was submitted.
    pub started: Time,
    /// When the last job was over.
    pub ended: Time,
    /// GPU time held by jobs, in GPU-seconds: of those that ended, and of all where only some are measured.
    pub gpu_seconds_held: f64,
    /// The part of it that counts a shared GPU a second time or more.
    pub gpu_seconds_doubled: f64,
    /// What each tenant received and was entitled to while one of its jobs waited; by id.
    pub tenants: Vec<Backlogged>,
    /// GPU time held by type of GPU; a job that moved between types counts by the time it spent on each.
    pub gpu_seconds_by_kind: Vec<f64>,
    /// GPU time held while starting or saving, in GPU-seconds.
    pub gpu_seconds_overhead: f64,
    /// The part of it that only restarts cost: every saving, and every start but the first of each job.
    pub gpu_seconds_restarting: f64,
    /// GPU time whose work was lost to failures, in GPU-seconds.
    pub gpu_seconds_lost: f64,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// Use and queue over time.
    pub series: Series,
    /// What the engine counted.
    pub stats: Stats,
    /// Distinct moments at which something happened.
    pub steps: u64,
}

impl Outcome {
    /// Whether a job counts.
    pub fn measures(&self, job: JobId) -> bool {
        self.measured.is_none_or(|window| window.contains(job))
    }

    /// The time from the first submission to the last end.
    pub fn makespan(&self) -> Span {
        self.ended.since(self.started)
    }

    /// The part of the cluster's GPU time that jobs held, a shared GPU counted once.
    pub fn utilisation(&self) -> f64 {
        let capacity = f64::from(self.gpus) * self.makespan().as_secs_f64();
        if capacity == 0.0 {
            0.0
        } else {
            (self.gpu_seconds_held - self.gpu_seconds_doubled) / capacity
        }
    }
}
