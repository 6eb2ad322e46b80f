//! Slurm at this moment: two calls, read and put together.

use crate::call::{CallError, Calls, call_of, failure};
use crate::read::{self, ReadError, Rows};
use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at Slurm by calls that anybody may make and that change nothing.
#[derive(Debug)]
pub struct Lookout<'a> {
    calls: &'a Calls,
    /// Whether `scontrol` is asked for the nodes, which it can tell as JSON since 23.02.
    by_scontrol: AtomicBool,
}

const SQUEUE: [&str; 2] = ["--json", "--all"];
const SINFO: [&str; 2] = ["--json", "--all"];
const SCONTROL: [&str; 4] = ["--all", "show", "nodes", "--json"];

impl<'a> Lookout<'a> {
    /// Looks by these calls.
    pub fn new(calls: &'a Calls) -> Lookout<'a> {
        Lookout { calls, by_scontrol: AtomicBool::new(false) }
    }

    /// Jobs and nodes.
    pub fn look(&self) -> Result<SlurmSeen, CallError> {
        let nodes = self.nodes()?;
        let jobs = self.jobs()?;
        let mut skipped = jobs.skipped;
        skipped.count += nodes.skipped.count;
        skipped.first.extend(nodes.skipped.first);
        let release = if jobs.release.is_empty() { nodes.release } else { jobs.release };
        Ok(SlurmSeen {
            at: jobs.at.or(nodes.at),
            jobs: jobs.rows,
            nodes: nodes.rows,
            release,
            skipped,
        })
    }

    /// Jobs alone: those that wait, run, or ended less than `MinJobAge` ago.
    pub fn jobs(&self) -> Result<Rows<SlurmJob>, CallError> {
        let printed = self.calls.run("squeue", &SQUEUE)?;
        read::jobs(&printed.stdout).map_err(|error| unread("squeue", &SQUEUE, error))
    }

    /// Nodes alone.
    pub fn nodes(&self) -> Result<Rows<SlurmNode>, CallError> {
        if self.by_scontrol.load(Ordering::Relaxed) {
            return self.nodes_by_scontrol();
        }
        let printed = self.calls.run("sinfo", &SINFO)?;
        if read::nodes::is_grouped(&printed.stdout) {
            // Groups do not tell which GPUs are in use; scontrol does, where it may be asked.
            if let Ok(nodes) = self.nodes_by_scontrol() {
                self.by_scontrol.store(true, Ordering::Relaxed);
                return Ok(nodes);
            }
        }
        read::nodes(&printed.stdout).map_err(|error| unread("sinfo", &SINFO, error))
    }

    fn nodes_by_scontrol(&self) -> Result<Rows<SlurmNode>, CallError> {
        let printed = self.calls.run("scontrol", &SCONTROL)?;
        read::nodes(&printed.stdout).map_err(|error| unread("scontrol", &SCONTROL, error))
    }
}

/// What a bad answer means for the call that printed it.
fn unread(program: &str, arguments: &[&str], error: ReadError) -> CallError {
    match error {
        ReadError::NotJson { problem, begin } => {
            CallError::NotJson { call: call_of(program, arguments), problem, begin }
        }
        ReadError::Errors(message) => failure(program, arguments, &message, String::new()),
        ReadError::NoList(_) => CallError::NotJson {
            call: call_of(program, arguments),
            problem: error.to_string(),
            begin: "{".to_owned(),
        },
    }
}
