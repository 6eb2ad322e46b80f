//! What Slurm says about its jobs and nodes, in our words and free of versions.

use serde::{Deserialize, Serialize};

/// Slurm at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlurmSeen {
    /// Its own clock, in seconds of Unix time, where it tells it.
    pub at: Option<i64>,
    /// Its jobs: those that wait, those that run, and those that ended lately.
    pub jobs: Vec<SlurmJob>,
    /// Its nodes.
    pub nodes: Vec<SlurmNode>,
    /// Its release, such as `22.05.8`; empty where it does not tell.
    #[serde(default)]
    pub release: String,
    /// Jobs and nodes that could not be read and are not above.
    #[serde(default)]
    pub skipped: Skipped,
}

/// Rows of an answer that could not be read: how many, and the first few in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// How many there were.
    pub count: u32,
    /// The first of them: which one, and what is wrong with it.
    pub first: Vec<String>,
}

impl Skipped {
    /// How many are told in words.
    const TOLD_MAX: usize = 8;

    /// Takes note of one more.
    pub fn add(&mut self, what: String) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < Skipped::TOLD_MAX {
            self.first.push(what);
        }
    }
}

/// A job of Slurm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmJob {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// The number of that user, where Slurm tells it.
    pub uid: Option<u32>,
    /// Who pays.
    pub account: String,
    /// Partitions it may run in.
    pub partition: String,
    /// The base state: `PENDING`, `RUNNING`, `COMPLETED`, `FAILED`, `NODE_FAIL`, `CANCELLED`, ...
    /// Slurm 22.05 tells a flag in its place; then this is `RUNNING` while the nodes are held, else `PENDING`.
    pub state: String,
    /// Flags beside it: `COMPLETING`, `REQUEUED`, `REQUEUE_HOLD`, ...
    pub flags: Vec<String>,
    /// Why it waits, in Slurm's word: `Priority`, `Resources`, `JobHeldUser`, `JobHeldAdmin`, `BeginTime`, ...
    pub reason: String,
    /// Its priority; 0 means held.
    pub priority: u64,
    /// The comment its submitter gave; ours begins with `trainyard:`.
    pub comment: String,
    /// Nodes it has now or had.
    pub nodes: Vec<String>,
    /// Nodes it must run on.
    pub required_nodes: Vec<String>,
    /// GPUs it asks for in all; 0 for a job without.
    pub gpus: u32,
    /// Types of GPUs it asks for by name.
    pub gpu_types: Vec<String>,
    /// GPUs it holds, by node.
    pub held: Vec<(String, u32)>,
    /// CPUs it asks for.
    pub cpus: u32,
    /// Nodes it asks for, at least.
    pub nodes_min: u32,
    /// How often Slurm started it again.
    pub restarts: u32,
    /// When it was submitted, in seconds of Unix time.
    pub submitted: Option<i64>,
    /// When it may begin.
    pub eligible: Option<i64>,
    /// When it began, or is planned to.
    pub started: Option<i64>,
    /// When it ended, or will by its limit.
    pub ended: Option<i64>,
    /// Its limit in seconds; nothing for none.
    pub time_limit: Option<i64>,
    /// Its exit code and the signal that ended it.
    pub exit: Option<(i32, i32)>,
    /// What it waits for, in Slurm's words.
    pub dependency: String,
    /// The number of its array and its index there.
    pub array: Option<(u32, Option<u32>)>,
    /// Jobs that this row stands for: more than 1 for the waiting part of an array.
    #[serde(default = "one")]
    pub tasks: u32,
    /// Nodes it must not run on.
    pub excluded_nodes: Vec<String>,
    /// Features that it asks for, in Slurm's words.
    pub features: String,
    /// The reservation it runs in; empty for none.
    pub reservation: String,
    /// Where its standard output goes.
    pub stdout: String,
}

/// A node of Slurm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmNode {
    /// Its name.
    pub name: String,
    /// The base state: `IDLE`, `MIXED`, `ALLOCATED`, `DOWN`, `UNKNOWN`, ...
    pub state: String,
    /// Flags beside it: `DRAIN`, `NOT_RESPONDING`, `MAINTENANCE`, ...
    pub flags: Vec<String>,
    /// GPUs, by type; the type is empty where it has none.
    pub gpus: Vec<(String, u32)>,
    /// GPUs in use, by type.
    pub gpus_used: Vec<(String, u32)>,
    /// CPUs.
    pub cpus: u32,
    /// Host memory.
    pub memory_mib: u64,
    /// Features.
    pub features: Vec<String>,
    /// Partitions it belongs to.
    pub partitions: Vec<String>,
    /// Why it is out of service.
    pub reason: String,
}

fn one() -> u32 {
    1
}
