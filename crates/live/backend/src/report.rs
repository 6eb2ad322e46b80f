//! What comes back.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trainyard_types::{Attempt, JobId, Sample};

/// Something that happened to an attempt, a node or the backend itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Its processes run.
    Started {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
    },
    /// It said something about itself.
    Said {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// What the engine learns from.
        sample: Sample,
        /// All that it said, as it said it.
        message: trainyard_api::wire::FromJob,
    },
    /// It is over: no process of it is left and its GPUs are free.
    Ended {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// How.
        exit: Exit,
    },
    /// It was put aside in host memory, came back, or could not be put aside and runs on.
    Aside {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Where it stands.
        seen: AsideSeen,
    },
    /// A node is seen otherwise than before, or for the first time.
    Node {
        /// Its name.
        node: String,
        /// What is seen.
        seen: NodeSeen,
    },
    /// A GPU of this machine is seen otherwise than before, or for the first time, or something happened to it.
    Gpu(crate::GpuSeen),
    /// What attempts on a shared GPU use of it, and for whom they wait.
    Sharing {
        /// The index of the GPU on this machine.
        gpu: u8,
        /// The attempts there.
        seen: Vec<SharingSeen>,
    },
    /// What the backend cannot do now, in one sentence; nothing when that is over.
    Trouble(Option<String>),
    /// Something that an operator should read, in one sentence; nothing changes by it.
    Notice {
        /// The job it is about, if any.
        job: Option<JobId>,
        /// What.
        what: String,
    },
    /// A user or an operator ended a job where it waits, not through the daemon.
    Gone {
        /// The job.
        job: JobId,
        /// Who or why, in one sentence.
        why: String,
    },
}

/// One attempt on a shared GPU at one moment. Times are in microseconds and memory in bytes, both since its start;
/// shares are in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingSeen {
    /// The job.
    pub job: JobId,
    /// Its launch.
    pub attempt: Attempt,
    /// The index of the GPU on this machine.
    pub gpu: u8,
    /// What it gets whenever it wants to.
    pub request: u32,
    /// What it gets at most.
    pub limit: u32,
    /// The percentage of the GPU's threads that it has as a client of MPS, if it is one: then it takes no turns.
    pub threads: Option<u8>,
    /// What it used within the last ten seconds.
    pub usage_us: u64,
    /// How long it had turns.
    pub held_us: u64,
    /// How long it waited for them.
    pub waited_us: u64,
    /// The part of it during which its own limit kept it.
    pub limited_us: u64,
    /// The part of it during which another job had the turn.
    pub behind_us: BTreeMap<JobId, u64>,
    /// What its programs allocated.
    pub memory_used: u64,
    /// The most that they ever had.
    pub memory_peak: u64,
    /// What they may allocate; nothing is no cap.
    pub memory_cap: Option<u64>,
    /// Allocations that were refused.
    pub memory_refusals: u64,
    /// Turns that were taken from it, and its program stopped for that.
    pub revocations: u64,
    /// How often a program said hello; without one nothing of this is enforced.
    pub hellos: u64,
}

/// Where an attempt stands that was told to be put aside or to come back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AsideSeen {
    /// The order that this answers.
    pub number: u32,
    /// Whether it is in host memory.
    pub aside: bool,
    /// Why it could not be put aside.
    pub refused: Option<String>,
    /// How long the driver took.
    pub seconds: f64,
    /// Host memory that it takes; 0 where that was not measured.
    pub memory_mib: u64,
}

/// What is seen of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// Whether it answers.
    pub up: bool,
    /// Why it takes no new work, if so.
    pub drained: Option<String>,
    /// How many of its GPUs are used by jobs that are not ours to touch.
    pub claimed: u32,
    /// How many of its GPUs count as used though no job has them: a job that is sent there never starts.
    #[serde(default)]
    pub unaccounted: u32,
}

impl NodeSeen {
    /// GPUs that are not to be given to any job.
    pub fn set_aside(&self) -> u32 {
        self.claimed.saturating_add(self.unaccounted)
    }
}

/// How an attempt ended. Kept on disk until the daemon has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code of the first process that did not exit with 0, or 0.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether a request to stop reached it before it ended, or before its first rank that failed did.
    pub asked_to_stop: bool,
    /// Whether it said after the request that its state is saved: by the file, by the message, or by the exit code of
    /// a rank. Nothing where an older keeper wrote this, which did not look at the order.
    #[serde(default)]
    pub acknowledged: Option<bool>,
    /// Whether it was killed because its grace was over.
    pub killed: bool,
    /// Whether it said that all work is done.
    pub finished: bool,
    /// Whether it told of a checkpoint in any way, with or without the work in it, asked or not.
    #[serde(default)]
    pub checkpoint: bool,
    /// Work of the newest checkpoint it told of.
    pub saved: Option<f64>,
    /// Work done as it last said.
    pub done: Option<f64>,
    /// Work that the whole job is, as it last said.
    #[serde(default)]
    pub total: Option<f64>,
    /// Seconds from the start of its processes to its first progress.
    pub start_seconds: Option<f64>,
    /// Seconds from the request to stop to its end.
    pub save_seconds: Option<f64>,
    /// Seconds it took to read its checkpoint, as it said.
    pub restore_seconds: Option<f64>,
    /// Seconds from launch to end.
    pub ran_seconds: f64,
    /// It never ran: the command or the directory does not exist, a limit could not be set.
    pub launch_error: Option<String>,
    /// Its keeper died and took it along: nothing is known but that no process is left.
    pub lost: bool,
    /// It was killed for using too much memory.
    pub out_of_memory: bool,
    /// Why it is not to blame for its end, where a neighbour may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excused: Option<String>,
    /// It was ended because its GPUs had done nothing for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
}

impl Exit {
    /// Whether there is a checkpoint to resume from. `saved_code` is the exit code that means "saved, start me again".
    pub fn has_checkpoint(&self, saved_code: i32) -> bool {
        // Older keepers wrote the work and the code alone.
        self.checkpoint || self.saved.is_some() || self.code == Some(saved_code)
    }
}

/// What a backend knows about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// It runs, or is about to.
    Running {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// Whether its processes have started.
        started: bool,
    },
    /// It is over.
    Ended {
        /// The job.
        job: JobId,
        /// Its launch.
        attempt: Attempt,
        /// How.
        exit: Exit,
    },
}

impl Exit {
    /// The end of an attempt that never ran.
    pub fn unstarted(why: String) -> Exit {
        Exit::default().not_started(why)
    }

    /// The same end of an attempt that never ran. A full disk is the machine's fault and not the job's.
    pub fn not_started(self, why: String) -> Exit {
        Exit { lost: self.lost || is_full_disk(&why), launch_error: Some(why), ..self }
    }
}

/// Whether a message is about a disk or a quota without room, by the numbers that the system gives both.
pub(crate) fn is_full_disk(why: &str) -> bool {
    ["(os error 28)", "(os error 122)"].iter().any(|number| why.contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As keepers wrote it before there were acknowledgements in it.
    const OLD: &str = r#"{"code":0,"signal":null,"asked_to_stop":true,"killed":false,"finished":false,
        "saved":120.0,"done":130.0,"start_seconds":null,"save_seconds":0.4,"restore_seconds":null,
        "ran_seconds":9.5,"launch_error":null,"lost":false,"out_of_memory":false}"#;

    #[test]
    fn an_end_that_an_older_keeper_wrote_is_read_and_its_checkpoint_counts() {
        let exit: Exit = serde_json::from_str(OLD).unwrap();
        assert_eq!((exit.code, exit.asked_to_stop, exit.acknowledged), (Some(0), true, None));
        assert!(exit.has_checkpoint(85));
        let text = OLD.replace("120.0", "null");
        let without: Exit = serde_json::from_str(&text).unwrap();
        assert!(!without.has_checkpoint(85));
        let by_code: Exit =
            serde_json::from_str(&text.replace("\"code\":0", "\"code\":85")).unwrap();
        assert!(by_code.has_checkpoint(85));
    }

    #[test]
    fn a_full_disk_is_the_machines_fault_and_a_missing_program_the_jobs() {
        let full = std::io::Error::from_raw_os_error(28);
        assert!(Exit::unstarted(format!("its keeper cannot be started: {full}")).lost);
        let missing = std::io::Error::from_raw_os_error(2);
        assert!(!Exit::unstarted(format!("no program: {missing}")).lost);
    }
}
