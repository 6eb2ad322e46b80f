//! Slurm at this moment: two calls, read and put together.

use crate::call::{CallError, Calls, call_of, failure};
use crate::read::{self, ReadError, Rows};
use crate::seen::{SlurmJob, SlurmNode, SlurmSeen};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at Slurm by calls that every user may make and that change nothing.
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

    /// What tells of a few jobs whose they are: number, user, submit time, state, priority and comment, and nothing else.
    /// It costs little however many jobs there are. A comment is its user's own text and may hold what looks like rows
    /// of other jobs: a number that comes twice is left out.
    pub fn few(&self, ids: &[u32]) -> Result<Vec<SlurmJob>, CallError> {
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        let jobs = format!("--jobs={}", ids.join(","));
        let arguments = ["--noheader", "--states=all", &jobs, "--format=%A %U %V %Q %T %k"];
        let printed = match self.calls.run("squeue", &arguments) {
            Ok(printed) => printed,
            Err(CallError::NoSuchJob { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut rows: BTreeMap<u32, Option<SlurmJob>> = BTreeMap::new();
        for job in printed.text().lines().filter_map(row) {
            rows.entry(job.id).and_modify(|twice| *twice = None).or_insert(Some(job));
        }
        Ok(rows.into_values().flatten().collect())
    }

    /// Whether nodes are given to one job alone in this partition, or in the default one.
    pub fn is_exclusive(&self, partition: Option<&str>) -> Result<bool, CallError> {
        let arguments = ["--oneliner", "show", "partition"];
        let printed = self.calls.run("scontrol", &arguments)?;
        Ok(is_exclusive(&printed.text(), partition))
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

fn row(line: &str) -> Option<SlurmJob> {
    let mut parts = line.splitn(6, ' ');
    let mut next = || parts.next();
    Some(SlurmJob {
        id: next()?.parse().ok()?,
        uid: Some(next()?.parse().ok()?),
        submitted: Some(next()?.parse().ok()?),
        priority: next()?.parse().ok()?,
        state: next()?.to_owned(),
        comment: next()?.to_owned(),
        ..SlurmJob::default()
    })
}

fn is_exclusive(partitions: &str, wanted: Option<&str>) -> bool {
    let has = |line: &str, word: &str| line.split_ascii_whitespace().any(|one| one == word);
    partitions.lines().any(|line| {
        let is_it = match wanted {
            Some(name) => has(line, &format!("PartitionName={name}")),
            None => has(line, "Default=YES"),
        };
        is_it && has(line, "OverSubscribe=EXCLUSIVE")
    })
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

#[cfg(test)]
mod tests {
    use super::is_exclusive;

    #[test]
    fn a_partition_says_whether_a_node_is_for_one_job_alone() {
        let told = "PartitionName=a AllowGroups=ALL Default=YES OverSubscribe=NO\n\
                    PartitionName=b Default=NO OverSubscribe=EXCLUSIVE OverTimeLimit=NONE\n";
        assert_eq!(
            [None, Some("a"), Some("b"), Some("c")].map(|one| is_exclusive(told, one)),
            [false, false, true, false]
        );
    }
}
