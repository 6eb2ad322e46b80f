//! What is done to Slurm's jobs and nodes: many at a time where Slurm's programs can.

use crate::call::{CallError, Calls};
use crate::script;
use crate::spot::Spot;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trainyard_backend::LaunchOrder;
use trainyard_types::JobId;

/// How jobs are submitted.
#[derive(Clone, Debug, Default)]
pub struct Submitting {
    /// The partition; Slurm's default where none is named.
    pub partition: Option<String>,
    /// The account that pays; the user's own where none is named.
    pub account: Option<String>,
    /// The script, where every node finds it.
    pub script: PathBuf,
    /// The directory that all nodes share.
    pub run_dir: PathBuf,
}

/// A call that changes a job has so long, or a few times what slurmctld took to answer a question just before: long
/// enough for it, and too short to be answered by another slurmctld that knows the number for another user's job.
/// Slurm's programs by themselves try again for nine seconds.
pub const LIMIT: Duration = Duration::from_secs(3);
const LIMIT_ANSWERS: u32 = 4;

/// Makes the calls that change jobs of Slurm.
#[derive(Clone, Debug)]
pub struct Actor {
    calls: Arc<Calls>,
    submitting: Submitting,
    /// How long a call may take that changes a job.
    limit: Duration,
}

/// A job of Slurm that something is to be done to, named in every way that Slurm's programs take: where they can, they
/// compare all of it before they act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its number.
    pub slurm: u32,
    /// The number of its user.
    pub uid: u32,
    /// Its name in Slurm.
    pub name: String,
}

/// A held job as it is submitted.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    /// What is known of it.
    pub order: &'a LaunchOrder,
    /// The mark by which it is known to be ours.
    pub mark: &'a str,
    /// Its name in Slurm.
    pub name: &'a str,
    /// Nodes and GPUs of each, to look at while it waits.
    pub shape: (u32, u32),
}

/// Where a held job is put.
#[derive(Clone, Debug)]
pub struct HeldPlacement {
    /// Its number in Slurm.
    pub slurm: u32,
    /// Where.
    pub spot: Spot,
    /// For how many minutes at most.
    pub minutes: Option<u64>,
    /// What it asks for is its user's own affair: only its nodes are said.
    pub adopted: bool,
}

impl Actor {
    /// Acts by these calls.
    pub fn new(calls: Arc<Calls>, submitting: Submitting) -> Actor {
        Actor { calls, submitting, limit: LIMIT }
    }

    /// Takes note of how long slurmctld took to answer.
    pub fn answered_in(&mut self, took: Duration) {
        self.limit = LIMIT.max(took * LIMIT_ANSWERS);
    }

    /// The calls.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// The script, where every node finds it.
    pub fn script(&self) -> &std::path::Path {
        &self.submitting.script
    }

    /// Submits a job, held, and says its number.
    pub fn submit(&self, submission: &Submission<'_>) -> Result<u32, CallError> {
        let arguments = self.submit_arguments(submission);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let printed = self.calls.run_bare("sbatch", &arguments)?;
        // `NUMBER`, or `NUMBER;CLUSTER` where there are several clusters.
        let text = printed.text();
        let number = text.trim().split(';').next().and_then(|number| number.parse().ok());
        number.ok_or_else(|| CallError::NotJson {
            call: "sbatch --parsable".to_owned(),
            problem: "no number of a job".to_owned(),
            begin: text.chars().take(80).collect(),
        })
    }

    fn submit_arguments(&self, submission: &Submission<'_>) -> Vec<String> {
        let order = submission.order;
        let (nodes, gpus) = submission.shape;
        // Not requeued by Slurm itself: what may start again is decided by the daemon.
        let mut all: Vec<String> =
            ["--parsable", "--hold", "--no-requeue", "--export=ALL", "--chdir=/", "--mem=1"]
                .map(str::to_owned)
                .to_vec();
        all.extend(["--output=/dev/null".to_owned(), "--error=/dev/null".to_owned()]);
        all.push(format!("--job-name={}", submission.name));
        all.push(format!("--comment={}", submission.mark));
        // The number of tasks is left to Slurm: with one, it refuses a node more CPUs than it has tasks.
        all.push(format!("--nodes={nodes}"));
        if gpus > 0 {
            all.push(format!("--gres=gpu:{gpus}"));
        }
        all.extend(self.submitting.partition.iter().map(|name| format!("--partition={name}")));
        all.extend(self.submitting.account.iter().map(|name| format!("--account={name}")));
        if let Some(minutes) = minutes(order) {
            all.push(format!("--time={minutes}"));
        }
        if let Some(who) = order.identity.as_ref().filter(|_| nix::unistd::geteuid().is_root()) {
            all.extend([format!("--uid={}", who.uid), format!("--gid={}", who.gid)]);
        }
        all.push(self.submitting.script.display().to_string());
        all.push(self.submitting.run_dir.display().to_string());
        all.push(order.job.0.to_string());
        all
    }

    /// Puts held jobs in their places, without releasing them. Says for each whether it is there.
    pub fn put(&self, places: &[HeldPlacement]) -> Vec<Result<(), CallError>> {
        let lines: Vec<String> = places.iter().map(place_line).collect();
        self.each(&lines)
    }

    /// Releases jobs.
    pub fn release(&self, jobs: &[u32]) -> Vec<Result<(), CallError>> {
        self.each_of("release", jobs)
    }

    /// Holds jobs.
    pub fn hold(&self, jobs: &[u32]) -> Vec<Result<(), CallError>> {
        self.each_of("hold", jobs)
    }

    /// Allows that jobs are requeued.
    pub fn allow_requeue(&self, jobs: &[u32]) -> Vec<Result<(), CallError>> {
        let lines: Vec<String> =
            jobs.iter().map(|job| format!("update JobId={job} Requeue=1")).collect();
        self.each(&lines)
    }

    /// Ends what runs and puts jobs back, held. They must be allowed to be requeued.
    pub fn requeue(&self, jobs: &[u32]) -> Vec<Result<(), CallError>> {
        self.each_of("requeuehold", jobs)
    }

    /// Lets Slurm read its configuration again, whereby it counts what jobs have anew.
    pub fn reconfigure(&self) -> Result<(), CallError> {
        self.calls.run("scontrol", &["reconfigure"]).map(drop)
    }

    /// Wakes the script of a job.
    pub fn poke(&self, target: &Target) -> Result<(), CallError> {
        self.scancel(&["--batch", "--signal=USR1"], target)
    }

    /// Cancels a job.
    pub fn cancel(&self, target: &Target) -> Result<(), CallError> {
        self.scancel(&[], target)
    }

    /// Marks a job that was in Slurm before it was ours.
    pub fn mark(&self, job: u32, comment: &str) -> Result<(), CallError> {
        let (job, comment) = (format!("JobId={job}"), format!("Comment={comment}"));
        let arguments = ["update", &job, &comment];
        self.calls.run_within(self.limit, ("scontrol", &arguments), b"").map(drop)
    }

    /// Takes a node out of service, or back.
    pub fn drain(&self, node: &str, reason: Option<&str>) -> Result<(), CallError> {
        let node = format!("NodeName={node}");
        let printed = match reason {
            Some(reason) => {
                let reason = format!("Reason=trainyard: {reason}");
                self.calls.run("scontrol", &["update", &node, "State=DRAIN", &reason])
            }
            None => self.calls.run("scontrol", &["update", &node, "State=RESUME"]),
        };
        printed.map(drop)
    }

    fn each_of(&self, verb: &str, jobs: &[u32]) -> Vec<Result<(), CallError>> {
        let lines: Vec<String> = jobs.iter().map(|job| format!("{verb} {job}")).collect();
        self.each(&lines)
    }

    /// One session of `scontrol` for all lines. Where it fails, each line is tried by itself to find out which did:
    /// all of them may be said twice.
    fn each(&self, lines: &[String]) -> Vec<Result<(), CallError>> {
        if lines.len() > 1 {
            let session = lines.join("\n") + "\n";
            // A line takes slurmctld some milliseconds.
            let limit = self.limit + Duration::from_millis(20) * lines.len() as u32;
            if self.calls.run_within(limit, ("scontrol", &[]), session.as_bytes()).is_ok() {
                return lines.iter().map(|_| Ok(())).collect();
            }
        }
        let mut down = false;
        let one = |line: &String| {
            let words: Vec<&str> = line.split(' ').collect();
            if down {
                // Each call would wait for as long as the last.
                return Err(CallError::Down {
                    program: "scontrol".to_owned(),
                    message: "it did not answer a moment ago".to_owned(),
                });
            }
            let result = self.calls.run_within(self.limit, ("scontrol", &words), b"").map(drop);
            down = result.as_ref().is_err_and(CallError::may_pass);
            result
        };
        lines.iter().map(one).collect()
    }

    fn scancel(&self, flags: &[&str], target: &Target) -> Result<(), CallError> {
        let (user, name) = (format!("--user={}", target.uid), format!("--name={}", target.name));
        let id = target.slurm.to_string();
        let arguments: Vec<&str> =
            flags.iter().copied().chain([user.as_str(), name.as_str(), id.as_str()]).collect();
        match self.calls.run_within(self.limit, ("scancel", &arguments), b"") {
            // It is over already, or not there any more.
            Err(CallError::Refused { .. } | CallError::NoSuchJob { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn place_line(place: &HeldPlacement) -> String {
    let HeldPlacement { slurm: job, spot, minutes, adopted } = place;
    let (count, nodes) = (spot.nodes.len(), spot.nodes.join(","));
    if *adopted {
        // Slurm refuses to change a request with a type of GPU into one without, and its script counts on the rest.
        return format!("update JobId={job} ReqNodeList={nodes} StartTime=now");
    }
    let gres = spot.gres.as_ref().map_or_else(String::new, |gres| format!("gres:{gres}"));
    let time = minutes.map_or_else(String::new, |minutes| format!(" TimeLimit={minutes}"));
    // `StartTime=now`: a job that was requeued may otherwise not start again for two minutes.
    format!(
        "update JobId={job} ReqNodeList={nodes} NumNodes={count}-{count} TresPerNode={gres} \
         MinCPUsNode={} MinMemoryNode={} Requeue=0 StartTime=now{time}",
        spot.cpus, spot.memory_mib
    )
}

/// The limit for Slurm: what the job may still run, and time to save. The daemon's own limit comes first.
pub fn minutes(order: &LaunchOrder) -> Option<u64> {
    let seconds = order.time_limit_seconds?;
    let grace = script::whole_seconds(order.checkpoint.grace_seconds);
    Some((script::whole_seconds(seconds) + grace) / 60 + 2)
}

/// The name of a submission in Slurm: the one that its user gave, on one line, and behind it which job of ours it is. No
/// other job of that user has it.
pub fn job_name(order: &LaunchOrder, submission: u32) -> String {
    let name: String = order.name.chars().filter(|one| !one.is_control()).take(120).collect();
    let name = if name.is_empty() { "job" } else { &name };
    format!("{name}{}", name_suffix(order.job, submission))
}

/// What the name of a submission ends with.
pub fn name_suffix(job: JobId, submission: u32) -> String {
    format!(".ty{}-{submission}", job.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_line() {
        let spot = Spot {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            gres: Some("gpu:v100:2".to_owned()),
            cpus: 4,
            memory_mib: 900,
        };
        assert_eq!(
            place_line(&HeldPlacement {
                slurm: 7,
                spot: spot.clone(),
                minutes: Some(5),
                adopted: false
            }),
            "update JobId=7 ReqNodeList=n1,n2 NumNodes=2-2 TresPerNode=gres:gpu:v100:2 MinCPUsNode=4 \
             MinMemoryNode=900 Requeue=0 StartTime=now TimeLimit=5"
        );
        assert_eq!(
            place_line(&HeldPlacement { slurm: 7, spot, minutes: None, adopted: true }),
            "update JobId=7 ReqNodeList=n1,n2 StartTime=now"
        );
    }

    #[test]
    fn a_name_stays_on_its_line_and_tells_the_job() {
        let named = |name: &str| {
            let order =
                LaunchOrder { job: JobId(7), name: name.to_owned(), ..LaunchOrder::default() };
            job_name(&order, 2)
        };
        assert_eq!(named("a\nb c"), "ab c.ty7-2");
        assert_eq!(named("\n"), "job.ty7-2");
    }
}
