//! What the daemon expects of the future: when a job starts and ends, and what another policy would make of it.

use crate::answer::QueueState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A moment that is not known exactly, in seconds of Unix time.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// It is earlier than this only in the lower half of what the interval leaves out.
    pub low: f64,
    /// The best single guess.
    pub likely: f64,
    /// It is later than this only in the upper half of what the interval leaves out.
    pub high: f64,
}

/// When a job is expected to start and to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EtaAnswer {
    /// The job.
    pub job: u32,
    /// Where it stands.
    pub state: QueueState,
    /// Its first start; the past one, exactly, of a job that has started.
    pub starts: Option<Expected>,
    /// Its end.
    pub ends: Option<Expected>,
    /// How much of the time the intervals are right, such as 0.8.
    pub confidence: f64,
    /// What it rests on, in one sentence: the policy, how many estimates of the past, or why nothing can be told.
    pub basis: String,
}

/// What to compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhatIfRequest {
    /// Policies with their settings, as `--policy` takes them; the running one is always compared too.
    pub policies: Vec<String>,
    /// How far ahead, in seconds; until all jobs have ended by default.
    #[serde(default)]
    pub horizon_seconds: Option<f64>,
}

/// The jobs of this moment under several policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfAnswer {
    /// The moment, in seconds of Unix time.
    pub at: f64,
    /// Jobs that have not ended.
    pub jobs: u64,
    /// One for each policy, the running one first.
    pub rows: Vec<WhatIfRow>,
    /// What it rests on, in one sentence.
    pub basis: String,
    /// How long it took.
    pub took_seconds: f64,
}

/// The jobs of this moment under one policy. Times of completion count from each job's submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfRow {
    /// The policy with its settings.
    pub policy: String,
    /// Whether it is the one that decides now.
    pub runs_now: bool,
    /// Jobs that have ended by then.
    pub finished: u64,
    /// Mean completion time.
    pub mean_completion_seconds: f64,
    /// The 95th percentile of completion times.
    pub p95_completion_seconds: f64,
    /// Mean time from submission to the first start.
    pub mean_wait_seconds: f64,
    /// From now until the last job ends.
    pub makespan_seconds: f64,
    /// The share of GPUs that work, from now until then.
    pub utilisation: f64,
    /// The worst finish-time fairness.
    pub worst_rho: f64,
    /// Deadlines met and set.
    pub deadlines_met: u64,
    /// Deadlines set.
    pub deadlines: u64,
    /// Stops for another job.
    pub preemptions: u64,
    /// GPU-hours spent on saving, restoring and work done again.
    pub gpu_hours_lost: f64,
    /// Why it could not be told, if so.
    pub trouble: Option<String>,
}
