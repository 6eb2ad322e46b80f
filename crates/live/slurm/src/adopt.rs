//! Jobs that wait in Slurm already, taken over on request, and handed back.
//!
//! A job that was taken over keeps its number, its script and its user; Trainyard only says when and where it runs.
//! What makes it ours is a mark in its comment.
//! Without the mark it belongs to Slurm alone: to hand it back is to take the mark off, to forget the nodes that it was
//! meant for, and to release it.

use crate::act;
use crate::call::{CallError, Calls};
use crate::look::Lookout;
use crate::ownership::{Claim, PREFIX};
use crate::seen::SlurmJob;
use trainyard_api::JobSpec;

/// Why a job cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It runs.
    #[error("it runs already and stays as it is: its GPUs count as used by others until it ends")]
    Runs,
    /// It is over.
    #[error("it has ended ({0})")]
    Over(String),
    /// It is ours.
    #[error("it is under Trainyard already")]
    Ours,
    /// It needs no GPU.
    #[error("it asks for no GPU, and only GPUs are scheduled here")]
    NoGpu,
    /// It is part of an array.
    #[error("it is part of an array: only single jobs can be taken over")]
    Array,
    /// It depends on others.
    #[error("it waits for other jobs ({0}): take it over when they have ended")]
    Dependency(String),
    /// A user or an operator held it.
    #[error("it is held ({0}): release it first")]
    Held(String),
    /// It says itself where it may run.
    #[error("it asks for {0}, which Trainyard does not know of")]
    Bound(String),
}

/// What the operator says about jobs that are taken over.
#[derive(Clone, Debug, Default)]
pub struct Taking {
    /// The tenant that pays; without it the account, or else the user.
    pub tenant: Option<String>,
    /// Whether they may be stopped and started again: their scripts find their own checkpoints.
    pub preemptible: bool,
}

/// The job of ours that a job of Slurm becomes.
pub fn taken_over(job: &SlurmJob, taking: &Taking) -> Result<JobSpec, Refusal> {
    refuse(job)?;
    let account = Some(job.account.clone()).filter(|account| !account.is_empty());
    let tenant = taking.tenant.clone().or(account).unwrap_or_else(|| job.user.clone());
    Ok(JobSpec {
        name: job.name.clone(),
        tenant: Some(tenant),
        owner: Some(job.user.clone()),
        external: Some(External::of(job).to_string()),
        gpus: job.gpus,
        gpu_types: job.gpu_types.clone(),
        cpus_per_gpu: job.cpus.div_ceil(job.gpus.max(1)).min(u32::from(u16::MAX)) as u16,
        nodes_max: job.nodes_min.min(u32::from(u16::MAX)) as u16,
        // Slurm goes on to watch over the limit of each run.
        expected_seconds: job.time_limit.map(|seconds| seconds as f64),
        preemptible: taking.preemptible,
        retries: 0,
        ..JobSpec::default()
    })
}

/// What a job of Slurm is called outside of it: its number, and what that number alone does not tell, because Slurm may
/// hand it out again: when it was submitted and by which user. Written as `slurm:1234:1794794677:1000`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Its number.
    pub id: u32,
    /// When it was submitted, and the number of its user; requests of older versions do not tell.
    pub known: Option<(i64, u32)>,
}

impl External {
    /// What a job is called.
    pub fn of(job: &SlurmJob) -> External {
        External { id: job.id, known: job.submitted.zip(job.uid) }
    }

    /// Reads a name; nothing if it is none.
    pub fn parse(name: &str) -> Option<External> {
        let mut parts = name.strip_prefix("slurm:")?.split(':');
        let id = parts.next()?.parse().ok()?;
        let known = match (parts.next(), parts.next(), parts.next()) {
            (None, None, None) => None,
            (Some(submitted), Some(uid), None) => {
                Some((submitted.parse().ok()?, uid.parse().ok()?))
            }
            _ => return None,
        };
        Some(External { id, known })
    }

    /// By what it will be recognised, before it is marked.
    pub fn claim(self) -> Claim {
        Claim {
            uid: self.known.map(|(_, uid)| uid),
            sightings: self.known.map(|(submitted, _)| (submitted, 0)).into_iter().collect(),
            ..Claim::default()
        }
    }
}

impl std::fmt::Display for External {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slurm:{}", self.id)?;
        match self.known {
            Some((submitted, uid)) => write!(f, ":{submitted}:{uid}"),
            None => Ok(()),
        }
    }
}

fn refuse(job: &SlurmJob) -> Result<(), Refusal> {
    match job.state.as_str() {
        "PENDING" => {}
        "RUNNING" | "SUSPENDED" => return Err(Refusal::Runs),
        other => return Err(Refusal::Over(other.to_lowercase())),
    }
    if job.comment.starts_with(PREFIX) {
        return Err(Refusal::Ours);
    }
    if job.gpus == 0 {
        return Err(Refusal::NoGpu);
    }
    if job.array.is_some() {
        return Err(Refusal::Array);
    }
    if !job.dependency.is_empty() {
        return Err(Refusal::Dependency(job.dependency.clone()));
    }
    if job.priority == 0 {
        return Err(Refusal::Held(job.reason.clone()));
    }
    let bounds = [
        (!job.required_nodes.is_empty(), format!("nodes {}", job.required_nodes.join(","))),
        (!job.excluded_nodes.is_empty(), format!("nodes but {}", job.excluded_nodes.join(","))),
        (!job.features.is_empty(), format!("features {}", job.features)),
        (!job.reservation.is_empty(), format!("reservation {}", job.reservation)),
    ];
    match bounds.into_iter().find(|(is_bound, _)| *is_bound) {
        Some((_, what)) => Err(Refusal::Bound(what)),
        None => Ok(()),
    }
}

/// Whether a job was taken over: its mark says that it was never submitted by us.
pub fn is_taken_over(job: &SlurmJob) -> bool {
    let mark = job.comment.split(' ').next().unwrap_or_default();
    let parts = mark.strip_prefix(PREFIX).map(|rest| rest.split(':').collect::<Vec<_>>());
    // Instance, job and submission, and in newer marks a random part and a digest.
    parts.is_some_and(|parts| [3, 5].contains(&parts.len()) && parts[2] == "0")
}

/// Whether a job carries our mark and was submitted by us.
pub fn is_own(job: &SlurmJob) -> bool {
    job.comment.starts_with(PREFIX) && !is_taken_over(job)
}

/// Why a job was not handed back.
#[derive(Debug, thiserror::Error)]
pub enum HandBackError {
    /// Slurm could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The number names another job by now, or none.
    #[error("Slurm job {0} is not the one that was looked at any more: nothing is done to it")]
    Another(u32),
}

/// Gives a waiting job that was taken over back to Slurm's own scheduler.
pub fn hand_back(calls: &Calls, job: &SlurmJob) -> Result<(), HandBackError> {
    // A requeued job has a begin time in the future; `now` clears it.
    unmark(calls, job, &["ReqNodeList=", "StartTime=now"])?;
    let release = ["release", &job.id.to_string()];
    Ok(calls.run_within(act::LIMIT, ("scontrol", &release), b"").map(drop)?)
}

/// Takes our mark off a job that runs: it goes on, and belongs to Slurm alone.
pub fn let_go(calls: &Calls, job: &SlurmJob) -> Result<(), HandBackError> {
    unmark(calls, job, &[])
}

/// Takes our mark off a job and leaves what its user wrote, if the job still is the one that is meant.
fn unmark(calls: &Calls, job: &SlurmJob, more: &[&str]) -> Result<(), HandBackError> {
    let now = Lookout::new(calls).jobs()?;
    let is_same = |one: &SlurmJob| {
        one.id == job.id
            && one.comment == job.comment
            && (one.uid, one.submitted) == (job.uid, job.submitted)
    };
    if !is_taken_over(job) || !now.rows.iter().any(is_same) {
        return Err(HandBackError::Another(job.id));
    }
    let own = job.comment.split_once(' ').map_or("", |(_, rest)| rest);
    let (id, comment) = (format!("JobId={}", job.id), format!("Comment={own}"));
    let arguments = [&["update", &id, &comment], more].concat();
    Ok(calls.run_within(act::LIMIT, ("scontrol", &arguments), b"").map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::{External, Refusal, Taking, is_own, is_taken_over, taken_over};
    use crate::seen::SlurmJob;

    fn waiting() -> SlurmJob {
        SlurmJob {
            id: 1234,
            name: "train".to_owned(),
            user: "ana".to_owned(),
            uid: Some(1000),
            submitted: Some(1_794_794_677),
            account: "vision".to_owned(),
            state: "PENDING".to_owned(),
            priority: 10,
            gpus: 4,
            gpu_types: vec!["a100".to_owned()],
            cpus: 30,
            nodes_min: 1,
            time_limit: Some(3600),
            tasks: 1,
            ..SlurmJob::default()
        }
    }

    #[test]
    fn a_waiting_job_is_taken_over_with_what_it_asks_for() {
        let spec = taken_over(&waiting(), &Taking::default()).unwrap();
        assert_eq!(spec.external.as_deref(), Some("slurm:1234:1794794677:1000"));
        assert_eq!((spec.owner.as_deref(), spec.tenant.as_deref()), (Some("ana"), Some("vision")));
        assert_eq!((spec.gpus, spec.nodes_max, spec.cpus_per_gpu), (4, 1, 8));
        assert_eq!((spec.expected_seconds, spec.time_limit_seconds), (Some(3600.0), None));
        assert!(!spec.preemptible && spec.argv.is_empty());
        let taking = Taking { tenant: Some("all".to_owned()), preemptible: true };
        let spec = taken_over(&SlurmJob { account: String::new(), ..waiting() }, &taking).unwrap();
        assert!(spec.preemptible && spec.tenant.as_deref() == Some("all"));
    }

    #[test]
    fn what_cannot_be_taken_over_is_refused_with_its_reason() {
        let text = |text: &str| text.to_owned();
        for (job, refusal) in [
            (SlurmJob { state: text("RUNNING"), ..waiting() }, Refusal::Runs),
            (SlurmJob { state: text("FAILED"), ..waiting() }, Refusal::Over(text("failed"))),
            (SlurmJob { comment: text("trainyard:x:1:0"), ..waiting() }, Refusal::Ours),
            (SlurmJob { gpus: 0, ..waiting() }, Refusal::NoGpu),
            (SlurmJob { array: Some((7, Some(1))), ..waiting() }, Refusal::Array),
            (
                SlurmJob { dependency: text("afterok:1"), ..waiting() },
                Refusal::Dependency(text("afterok:1")),
            ),
            (
                SlurmJob { priority: 0, reason: text("JobHeldUser"), ..waiting() },
                Refusal::Held(text("JobHeldUser")),
            ),
            (
                SlurmJob { features: text("nvlink"), ..waiting() },
                Refusal::Bound(text("features nvlink")),
            ),
        ] {
            assert_eq!(taken_over(&job, &Taking::default()), Err(refusal));
        }
    }

    #[test]
    fn the_mark_tells_jobs_taken_over_from_our_own() {
        let marked = |comment: &str| SlurmJob { comment: comment.to_owned(), ..waiting() };
        assert!(is_taken_over(&marked("trainyard:ab12:7:0")));
        assert!(
            !is_taken_over(&marked("trainyard:ab12:7:10"))
                && is_own(&marked("trainyard:ab12:7:10"))
        );
        assert!(is_taken_over(&marked("trainyard:ab12:7:0:9f3c:77aa my run:1")));
        assert!(is_own(&marked("trainyard:ab12:7:3:9f3c:77aa")));
        assert!(!is_taken_over(&marked("see ticket:1:2:0")) && !is_own(&marked("")));
    }

    #[test]
    fn a_job_is_named_with_its_time_and_user_and_older_names_are_read() {
        let external = External { id: 12, known: Some((50, 1000)) };
        assert_eq!(External::parse(&external.to_string()), Some(external));
        assert_eq!(External::parse("slurm:12"), Some(External { id: 12, known: None }));
        for text in ["", "12", "slurm:", "slurm:x", "slurm:1:2", "slurm:1:2:3:4", "slurm:1:a:2"] {
            assert_eq!(External::parse(text), None, "{text}");
        }
    }
}
