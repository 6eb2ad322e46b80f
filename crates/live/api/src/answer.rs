//! What the daemon answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use trainyard_types::{End, Phase};

/// One or more submissions in one request: all are accepted or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The jobs.
    pub jobs: Vec<crate::JobSpec>,
    /// The client's own key: the same key gives the same answer, however often it is sent.
    #[serde(default)]
    pub key: Option<String>,
}

/// The ids of accepted jobs. They are on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// In the order of the request; the elements of an array one after the other.
    pub jobs: Vec<u32>,
    /// Whether the key had been used before and nothing new was accepted.
    pub repeated: bool,
}

/// Where a job stands.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum QueueState {
    /// Not allowed to run yet.
    Blocked,
    /// Waiting for the policy to let it in.
    Unadmitted,
    /// Waiting for GPUs.
    Waiting,
    /// Put aside in host memory, until it goes on where it was.
    Suspended,
    /// Being started.
    Starting,
    /// Running.
    Running,
    /// Being stopped.
    Saving,
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
    /// Refused.
    Rejected,
    /// Ended by the policy.
    Pruned,
}

impl QueueState {
    /// Whether the job has ended.
    pub fn is_over(self) -> bool {
        self >= QueueState::Finished
    }

    /// All states, in the order in which a job goes through them.
    pub fn all() -> impl Iterator<Item = QueueState> {
        let phases = Phase::ALL.into_iter().map(QueueState::from);
        phases.chain(End::ALL.into_iter().map(QueueState::from))
    }

    /// Its name: that of the phase or the end.
    pub fn name(self) -> &'static str {
        let phase = Phase::ALL.into_iter().find(|phase| QueueState::from(*phase) == self);
        let end = End::ALL.into_iter().find(|end| QueueState::from(*end) == self);
        phase.map(Phase::name).or(end.map(End::name)).expect("a state is a phase or an end")
    }

    /// The state of that name.
    pub fn named(name: &str) -> Option<QueueState> {
        QueueState::all().find(|state| state.name() == name)
    }
}

impl From<Phase> for QueueState {
    fn from(phase: Phase) -> QueueState {
        match phase {
            Phase::Blocked => QueueState::Blocked,
            Phase::Unadmitted => QueueState::Unadmitted,
            Phase::Waiting => QueueState::Waiting,
            Phase::Suspended => QueueState::Suspended,
            Phase::Starting => QueueState::Starting,
            Phase::Running => QueueState::Running,
            Phase::Saving => QueueState::Saving,
        }
    }
}

impl From<End> for QueueState {
    fn from(end: End) -> QueueState {
        match end {
            End::Finished => QueueState::Finished,
            End::Cancelled => QueueState::Cancelled,
            End::Failed => QueueState::Failed,
            End::TimeLimit => QueueState::TimeLimit,
            End::Orphaned => QueueState::Orphaned,
            End::Rejected => QueueState::Rejected,
            End::Pruned => QueueState::Pruned,
        }
    }
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRow {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// Where it stands.
    pub state: QueueState,
    /// Since when, in seconds of Unix time.
    pub since: f64,
    /// GPUs asked for.
    pub gpus: u32,
    /// What it holds: node and GPU indices.
    pub holds: Vec<Holding>,
    /// Its newest launch; 0 before the first.
    pub attempt: u32,
    /// When it was submitted, in seconds of Unix time.
    pub submitted: f64,
    /// When it first started.
    pub started: Option<f64>,
    /// When it ended.
    pub ended: Option<f64>,
    /// Seconds on GPUs, all attempts together.
    pub ran_seconds: f64,
    /// Share of its work done, where its size is known.
    pub progress: Option<f64>,
    /// Launches beyond the first.
    pub restarts: u32,
    /// Stops for another job.
    pub preemptions: u32,
    /// Its priority.
    pub priority: i32,
    /// What keeps it from running or from going on, in one sentence; empty for a job that goes on or has ended.
    pub why: String,
    /// That it hangs, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung: Option<HungJob>,
}

/// That a job hangs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HungJob {
    /// Since when it has not advanced, in seconds of Unix time.
    pub since: f64,
    /// How long it usually takes from one advance to the next.
    pub usual_seconds: f64,
    /// The rank that is behind the others, where ranks tell.
    pub rank: Option<u32>,
}

/// GPUs of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holding {
    /// The node.
    pub node: String,
    /// Indices of its GPUs.
    pub gpus: Vec<u8>,
}

/// All about one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobDetail {
    /// The row it has in lists.
    #[serde(flatten)]
    pub row: JobRow,
    /// What was submitted; variables of its environment only for its owner.
    pub spec: crate::JobSpec,
    /// Its launches, oldest first.
    pub attempts: Vec<AttemptRow>,
    /// What it last said about itself.
    pub report: Option<Value>,
    /// Its measured costs.
    pub measured: Measured,
    /// How fast it went, by its own word, since the daemon started; at most 128 points.
    #[serde(default)]
    pub pace: Vec<PacePoint>,
}

/// How fast a job went at a moment.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacePoint {
    /// When, in seconds of Unix time.
    pub at: f64,
    /// Steps a second.
    pub rate: f64,
    /// Its training loss, where it tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// One launch of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptRow {
    /// Its number, from 1.
    pub attempt: u32,
    /// Where it ran.
    pub holds: Vec<Holding>,
    /// When it was launched, in seconds of Unix time.
    pub launched: f64,
    /// When its processes ran.
    pub started: Option<f64>,
    /// When its GPUs were free again.
    pub ended: Option<f64>,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What became of it, in one sentence.
    pub outcome: String,
}

/// What was measured of a job's own costs, in seconds; the newest figure of each.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// From the request to stop until the GPUs were free.
    pub save: Option<f64>,
    /// From the launch to the first progress.
    pub start: Option<f64>,
    /// Reading the checkpoint.
    pub restore: Option<f64>,
    /// Steps a second.
    pub rate: Option<f64>,
}

/// Why a job waits, and what would change that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhyAnswer {
    /// The job.
    pub job: u32,
    /// Where it stands.
    pub state: QueueState,
    /// Since when, in seconds of Unix time.
    pub since: f64,
    /// What keeps it there, as sentences.
    pub reasons: Vec<String>,
    /// The same as data.
    pub data: Vec<Value>,
    /// Jobs that hold what it could use, the first to go first.
    pub blockers: Vec<u32>,
    /// The nearest change that would admit it.
    pub nearest_change: Option<String>,
    /// The earliest start that can be told, in seconds of Unix time.
    pub not_before: Option<f64>,
}

/// What a dry run of a submission says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanAnswer {
    /// One for each job of the request.
    pub jobs: Vec<PlanRow>,
    /// What the policy's answer rests on, in one sentence.
    pub basis: String,
}

/// What one submission would lead to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRow {
    /// Its name.
    pub name: String,
    /// Whether it would start at once.
    pub starts_now: bool,
    /// Where.
    pub holds: Vec<Holding>,
    /// Jobs that would be stopped or moved for it.
    pub moved: Vec<u32>,
    /// When it is expected to start, in seconds from now, if that can be told.
    pub starts_in_seconds: Option<f64>,
    /// Why it would wait.
    pub why: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// The type of its GPUs.
    pub gpu_type: String,
    /// What each GPU does: the jobs on it.
    pub gpus: Vec<Vec<u32>>,
    /// `up`, `drained`, `quarantined`, `reclaimed` (by the owner of its pool) or `lost`.
    pub state: String,
    /// Free GPUs.
    pub free: u32,
    /// GPUs that others use, who are not scheduled here.
    #[serde(default)]
    pub claimed: Vec<u8>,
    /// Host CPUs and memory.
    pub cpus: u16,
    /// Host memory.
    pub memory_mib: u32,
    /// Why it is out of service.
    pub reason: Option<String>,
    /// GPUs that are in quarantine, each alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ill: Vec<IllGpu>,
}

/// A GPU in quarantine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IllGpu {
    /// Its index on its node.
    pub gpu: u8,
    /// Since when, in seconds of Unix time.
    pub since: f64,
    /// What was found, such as `xid-79`.
    pub code: String,
    /// The same for people.
    pub reason: String,
    /// Whether what ran there had to go.
    pub evicted: bool,
}

/// How much of a GPU is used, by the word of its driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUsage {
    /// Its node.
    pub node: String,
    /// Its index on its node.
    pub gpu: u8,
    /// The part of the last moments in which something ran on it, from 0 to 1.
    #[serde(default)]
    pub busy: Option<f64>,
    /// Memory in use.
    #[serde(default)]
    pub memory_used_mib: Option<u64>,
    /// Memory that it has.
    #[serde(default)]
    pub memory_mib: Option<u64>,
}

/// A policy that the daemon can be told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRow {
    /// Its name.
    pub name: String,
    /// What it is, in one sentence.
    pub about: String,
    /// What it optimises.
    pub objective: String,
    /// The keys of its settings.
    pub settings: Vec<String>,
}

/// A tenant's share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FairRow {
    /// Its name.
    pub tenant: String,
    /// What it belongs to.
    pub parent: Option<String>,
    /// Its weight among its siblings.
    pub weight: f64,
    /// The share of the cluster it is entitled to.
    pub entitled: f64,
    /// The share of decayed use it had.
    pub used: f64,
    /// GPUs it holds now.
    pub gpus: f64,
    /// Its ceiling.
    pub ceiling: Option<u32>,
    /// Jobs that wait.
    pub waiting: u32,
    /// Jobs that run.
    pub running: u32,
}

/// Use by a user or tenant over a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcctRow {
    /// The user.
    pub user: String,
    /// The tenant.
    pub tenant: String,
    /// Jobs that used GPUs in the period.
    pub jobs: u64,
    /// GPU-hours; of a shared GPU the part that was granted.
    pub gpu_hours: f64,
    /// Those of them on shared GPUs.
    #[serde(default)]
    pub shared_gpu_hours: f64,
    /// What they cost by the prices of the types.
    pub cost: f64,
    /// Launches.
    pub launches: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRow {
    /// Its number.
    pub seq: u64,
    /// When, in seconds of Unix time.
    pub at: f64,
    /// What sort: `submitted`, `launched`, `started`, `stopping`, `stopped`, `finished`, `failed`, `ended`, `policy`,
    /// `policy-failed`, `node`, ...
    pub kind: String,
    /// The job, where one is meant.
    pub job: Option<u32>,
    /// One sentence.
    pub text: String,
    /// The same as data.
    #[serde(default)]
    pub data: Value,
}

/// Host memory for jobs that are put aside.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AsideMemory {
    /// What is given to them on each node.
    pub memory_mib: u64,
    /// What they take now, on all nodes together.
    pub used_mib: u64,
    /// How many there are, those on their way out or back among them.
    pub jobs: u32,
}

/// The daemon as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// The version of answers.
    pub schema_version: u32,
    /// The policy with its settings.
    pub policy: String,
    /// Whether the fallback order stands in for the policy, and why.
    pub policy_trouble: Option<String>,
    /// The trial that the policy is on, if it is.
    #[serde(default)]
    pub trial: Option<crate::trial::TrialRow>,
    /// Jobs by state; only those that have not ended.
    pub jobs: BTreeMap<String, u64>,
    /// GPUs in all, in use, out of service.
    pub gpus: u32,
    /// GPUs in use.
    pub gpus_used: u32,
    /// GPUs out of service.
    pub gpus_lost: u32,
    /// How often the daemon has started on this store.
    pub epoch: u64,
    /// Since when it runs, in seconds of Unix time.
    pub since: f64,
    /// The role of the caller.
    pub role: String,
    /// The user name of the caller.
    pub user: String,
    /// Whether jobs run as the users who submitted them.
    pub runs_as_users: bool,
    /// Things an operator should know: no cgroup, no right to change users, a slow disk.
    pub warnings: Vec<String>,
    /// Host memory for jobs that are put aside; nothing where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aside: Option<AsideMemory>,
    /// What the engine counted.
    pub stats: Value,
}

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogChunk {
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Where the next part begins.
    pub next: i64,
    /// The launch.
    pub attempt: u32,
    /// Whether nothing more will come.
    pub over: bool,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`, or `store-failed` while nothing can be written.
    pub status: String,
    /// Since when nothing can be written, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_written_by_its_name() {
        for state in QueueState::all() {
            assert_eq!(serde_json::json!(state), state.name());
            assert_eq!(QueueState::named(state.name()), Some(state));
        }
        let (phases, ends) = (Phase::ALL.map(|phase| serde_json::json!(phase)), End::ALL);
        assert_eq!(phases, Phase::ALL.map(|phase| serde_json::json!(phase.name())));
        assert_eq!(
            ends.map(|end| serde_json::json!(end)),
            ends.map(|end| serde_json::json!(end.name()))
        );
    }
}
