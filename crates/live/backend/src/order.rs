//! What the daemon wants done.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trainyard_api::{Checkpoint, Processes};
use trainyard_types::{Attempt, JobId};

/// An attempt to be started. Written to disk as it is, so that a keeper can read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// The job.
    pub job: JobId,
    /// Its launch.
    pub attempt: Attempt,
    /// What people call the job.
    pub name: String,
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// The text of a script that is run in place of `argv[0]`.
    #[serde(default)]
    pub script: Option<String>,
    /// Where it runs.
    pub cwd: String,
    /// Variables its user wants.
    pub env: BTreeMap<String, String>,
    /// The container image it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Directories that the image sees beside its own: `PATH` or `PATH:ro`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// The virtual environment of Python that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub venv: Option<String>,
    /// It ends when its GPUs have done nothing for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
    /// The user it runs as; nothing for the user of the keeper.
    pub identity: Option<Identity>,
    /// Where it runs: nodes of the cluster with the GPUs of each. Empty in an announcement.
    #[serde(default)]
    pub nodes: Vec<NodeShare>,
    /// The rack that each of its nodes stands in, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<u16>,
    /// When its iterations begin, so that jobs on shared links send in turns; nothing where that does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_shift: Option<TimeShift>,
    /// The type of its GPUs; those it accepts, separated by commas, in an announcement.
    #[serde(default)]
    pub gpu_type: String,
    /// How many GPUs it runs on, or asks for in an announcement.
    #[serde(default)]
    pub gpus_wanted: u32,
    /// How long it may still run, in seconds.
    #[serde(default)]
    pub time_limit_seconds: Option<f64>,
    /// What it is called where it already is, such as `slurm:1234`: it is taken over, not submitted.
    #[serde(default)]
    pub external: Option<String>,
    /// Indices of its GPUs on this machine, ascending.
    pub gpus: Vec<u8>,
    /// What `CUDA_VISIBLE_DEVICES` gets: UUIDs where they are known, indices otherwise. As many as `gpus`.
    pub devices: Vec<String>,
    /// How many processes.
    pub processes: Processes,
    /// How it saves its state.
    pub checkpoint: Checkpoint,
    /// Where its checkpoints are kept: what its user named ([`Checkpoint::dir`]), or what the backend makes for it.
    pub checkpoint_dir: String,
    /// Work its last checkpoint holds, as it was told; 0 before the first, and where none was told.
    pub resumes_from: f64,
    /// An attempt before this one told of a checkpoint, with or without the work in it.
    #[serde(default)]
    pub has_checkpoint: bool,
    /// The batch size to begin with.
    pub batch: Option<u32>,
    /// The part of the batch for each of its GPUs, in their order, where they are of several types: by their speeds, so
    /// that all of them end a step at once. Empty where they are alike or speeds are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch_parts: Vec<f64>,
    /// How its model is to be divided over its GPUs, in a few words; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub division: String,
    /// The elements of its array: the index of this one.
    pub array_index: Option<u32>,
    /// The id of the first job of its array.
    pub array_job: Option<JobId>,
    /// What it gets of a GPU that others may use too; nothing where it has its GPUs for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingOrder>,
    /// Who submitted it.
    pub user: String,
    /// What it may use.
    pub limits: Limits,
}

impl LaunchOrder {
    /// Whether its user named the directory for its checkpoints, which is then made with that user's rights.
    pub fn names_checkpoints(&self) -> bool {
        self.checkpoint.dir.as_ref().is_some_and(|dir| !dir.is_empty())
    }

    /// Whether there is a checkpoint to resume from. Older daemons told the work alone.
    pub fn restores(&self) -> bool {
        self.has_checkpoint || self.resumes_from > 0.0
    }
}

/// Moments at which the iterations of a job begin.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeShift {
    /// Seconds from 1970 to one of them; less than the period.
    pub offset_seconds: f64,
    /// Seconds between two of them.
    pub period_seconds: f64,
}

/// GPUs of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// Its name.
    pub node: String,
    /// Indices of GPUs, as the engine counts them. An engine of its own may give others, as many.
    pub gpus: Vec<u8>,
}

/// What an attempt gets of a GPU that it shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingOrder {
    /// Thousandths of the GPU's time that it gets whenever it wants to.
    pub request: u16,
    /// Thousandths that it gets at most.
    pub limit: u16,
    /// The most GPU memory that it may allocate; nothing is no cap.
    #[serde(default)]
    pub memory_mib: Option<u32>,
    /// How it is held to that. The backend's own: a daemon leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<SharingPlace>,
}

/// Where an attempt finds the arbiter of its GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingPlace {
    /// Its socket.
    pub socket: std::path::PathBuf,
    /// The library that is loaded into its programs.
    pub library: std::path::PathBuf,
    /// The index of the GPU on this machine.
    pub gpu: u8,
    /// What a process is told of it: a UUID, or an index.
    pub device: String,
    /// The user who may connect.
    pub user: u32,
    /// How it is a client of MPS there, if it is: then it takes no turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<MpsPlace>,
}

/// How the programs of an attempt are clients of MPS on their GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpsPlace {
    /// Where they find its control daemon.
    pub pipes: std::path::PathBuf,
    /// The percentage of the GPU's threads that they may use.
    pub threads: u8,
    /// MiB that each of them may take of the GPU, its context included; nothing is no limit.
    pub memory_mib: Option<u32>,
    /// What they are told of the GPU.
    pub device: String,
}

/// A Unix user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Number of the user.
    pub uid: u32,
    /// Number of the main group.
    pub gid: u32,
    /// Name.
    pub name: String,
    /// Home directory.
    pub home: String,
}

/// What an attempt may use; 0 means unlimited.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Host memory.
    pub memory_mib: u64,
    /// Host CPUs.
    pub cpus: u32,
    /// Processes and threads.
    pub processes_max: u32,
    /// Bytes of log kept, over all rotated files.
    pub log_bytes_max: u64,
}

/// How an attempt is to be stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopOrder {
    /// How long it has to save; zero kills at once.
    pub grace_seconds: f64,
    /// Why, for its log.
    pub why: String,
}

/// Whether an attempt is to be in host memory, put aside, or to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideOrder {
    /// How often the job was put aside, this time included: the newest counts, and to come back comes after to go.
    pub number: u32,
    /// Whether it is put aside.
    pub aside: bool,
    /// Host memory that may be taken for it; 0 where that is not known.
    pub memory_mib: u64,
    /// The driver's library, where it is not the usual one. The backend's own: a daemon leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library: Option<std::path::PathBuf>,
}

/// The GPUs of an attempt from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeOrder {
    /// What a process is told of them; never empty.
    pub devices: Vec<String>,
    /// What it may use with them.
    pub limits: Limits,
}

/// What a backend is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Start an attempt, at most once.
    Launch(Box<LaunchOrder>),
    /// Ask an attempt to save and exit, then kill it. A second order for the same attempt may shorten the grace.
    Stop(JobId, Attempt, StopOrder),
    /// A running attempt uses another batch size.
    SetBatch(JobId, Attempt, u32),
    /// A running attempt goes over to other GPUs and says so. Only backends that start processes by themselves are told.
    Resize(JobId, Attempt, ResizeOrder),
    /// A running attempt gets another share of its GPU, which is no restart.
    Share(JobId, Attempt, SharingOrder),
    /// A running attempt is put aside in host memory without its help, or brought back on the same GPUs. Only backends
    /// that can ([`crate::Backend::cannot_suspend`]) are told.
    Aside(JobId, Attempt, AsideOrder),
    /// The end of an attempt is on disk: what is kept about it may go.
    Forget(JobId, Attempt),
    /// A job was taken on and waits: a backend with a queue of its own keeps a place for it there, held. Told again
    /// after a start of the daemon; only backends that want announcements are told.
    Announce(Box<LaunchOrder>),
    /// A job is over, whether it ever ran or not: nothing of it may be left.
    Withdraw(JobId),
    /// A node takes no new work for a reason, or does again.
    Drain(String, Option<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_an_older_daemon_wrote_restores_where_it_tells_of_work() {
        for (work, restores) in [(0.0, false), (7.0, true)] {
            let order = LaunchOrder { resumes_from: work, ..LaunchOrder::default() };
            let mut text = serde_json::to_value(&order).unwrap();
            text.as_object_mut().unwrap().remove("has_checkpoint").unwrap();
            let order: LaunchOrder = serde_json::from_value(text).unwrap();
            assert_eq!(order.restores(), restores, "{work}");
        }
    }
}
