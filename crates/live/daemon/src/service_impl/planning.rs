//! A dry run: what the policy would decide if a submission came now.

use super::{ServiceImpl, lost};
use crate::access::{self, Caller, Right};
use crate::host::{Drafted, Message, Moment};
use crate::seen::{DaemonSnapshot, forecast};
use std::sync::Arc;
use tokio::sync::oneshot;
use trainyard_api::answer::{PlanAnswer, PlanRow, SubmitRequest};
use trainyard_api::{Code, Problem};
use trainyard_engine::{DecisionRequest, PolicyOutcome};
use trainyard_framework::{Live, Snapshot, State, Usage};
use trainyard_types::{Decision, Event, Job, JobId, JobState, Phase, Reason, TenantId, Verdict};

impl ServiceImpl {
    pub(super) async fn take_plan(
        &self,
        caller: Caller,
        request: SubmitRequest,
    ) -> Result<PlanAnswer, Problem> {
        access::check(&caller, Right::Submit, None)?;
        let (_, ends) =
            self.look_up(&caller, &SubmitRequest { key: None, ..request.clone() }).await?;
        let (reply, drafted) = oneshot::channel();
        let names: Vec<String> = request.jobs.iter().map(|job| job.name.clone()).collect();
        self.say(Message::Draft { caller, request, ends, reply })?;
        let drafted = drafted.await.map_err(|_| super::ending())??;
        let jobs: Vec<Job> = drafted.0.iter().map(|(job, _)| job.clone()).collect();
        let factory = Arc::clone(&self.0.factory);
        let planned = tokio::task::spawn_blocking(move || {
            let label = drafted.1.policy.clone();
            let mut pipeline = factory(&label).map_err(|why| Problem::new(Code::Internal, why))?;
            Ok(plan(drafted, &names, |request| request.think(&mut pipeline)))
        });
        let mut answer = planned.await.map_err(|_| lost())??;
        if answer.jobs.iter().any(|row| !row.starts_now) {
            self.expect_starts(&mut answer, jobs).await;
        }
        Ok(answer)
    }

    /// When jobs of a dry run that do not start at once are expected to: the queue with them, simulated forward. Where
    /// no forecast can be made, what one decision tells stands.
    async fn expect_starts(&self, answer: &mut PlanAnswer, jobs: Vec<Job>) {
        let Ok(Moment { seen, mut fork }) = self.fork().await else { return };
        let now = seen.snapshot.now;
        // A job that was submitted meanwhile may have the number that a draft was given.
        let free = fork.state().jobs.bound() as u32;
        let ids: Vec<JobId> = (free..).map(JobId).take(jobs.len()).collect();
        for (id, job) in ids.iter().zip(jobs) {
            fork.apply(now, Event::Submitted(Arc::new(Job { id: *id, ..job })));
        }
        let policy = seen.policy.clone();
        let led = self.lead(move |forecaster, goes_on| forecaster.suppose(fork, &policy, goes_on));
        let Ok(Ok(forecast)) = led.await else { return };
        for eta in forecast.etas(&ids, super::CONFIDENCE) {
            let row =
                ids.iter().position(|id| *id == eta.job).and_then(|at| answer.jobs.get_mut(at));
            if let Some(row) = row.filter(|row| !row.starts_now) {
                row.starts_in_seconds = eta.starts.map(|starts| starts.likely);
            }
        }
        answer.basis.push_str("; later starts by simulating the queue forward with them");
    }
}

fn plan(
    (jobs, seen): Drafted,
    names: &[String],
    think: impl FnOnce(&DecisionRequest) -> PolicyOutcome,
) -> PlanAnswer {
    let request = request(&jobs, &seen);
    let outcome = think(&request);
    let state = &request.snapshot.state;
    let (decision, basis) = match outcome {
        PolicyOutcome::Decided(decision) => {
            let basis = format!("one decision of `{}` on the queue as it is now", seen.policy);
            (decision, basis)
        }
        PolicyOutcome::Failed(error) => {
            (Decision::default(), format!("the policy could not decide: {error}"))
        }
        PolicyOutcome::Panicked | PolicyOutcome::Stuck => {
            (Decision::default(), "the policy gave no answer".to_owned())
        }
    };
    let moved = moved(&decision, &seen);
    let rows = jobs.iter().enumerate().map(|(index, (job, _))| {
        let name = names.get(index).filter(|name| !name.is_empty());
        let name = name.cloned().unwrap_or_else(|| format!("job {}", index + 1));
        row(name, job, (&decision, &moved), &seen, state)
    });
    PlanAnswer { jobs: rows.collect(), basis }
}

fn row(
    name: String,
    job: &Job,
    (decision, moved): (&Decision, &[JobId]),
    seen: &DaemonSnapshot,
    state: &State,
) -> PlanRow {
    let now = seen.snapshot.now;
    let change = decision.changes.iter().find(|change| change.job == job.id);
    let place = change.and_then(|change| change.to.as_ref());
    if let Some(place) = place {
        // A job that holds the GPUs it gets has to stop first.
        let in_the_way: Vec<u32> = (moved.iter())
            .filter(|other| {
                let held =
                    seen.snapshot.state.live(**other).and_then(|live| live.state.held.as_ref());
                held.is_some_and(|held| held.placement.overlaps(&place.placement))
            })
            .map(|other| other.0)
            .collect();
        return PlanRow {
            name,
            starts_now: true,
            holds: crate::core::holds(&state.cluster, place),
            moved: in_the_way,
            starts_in_seconds: Some(0.0),
            why: divided(job, place, seen),
        };
    }
    let verdict = decision.verdicts.iter().find(|(id, _)| *id == job.id);
    let refused = verdict.and_then(|(_, verdict)| match verdict {
        Verdict::Accept => None,
        Verdict::Hold(reason) | Verdict::Reject(reason) => Some(reason.clone()),
    });
    let noted = decision.notes.iter().find(|note| note.job == job.id);
    let begin = job.not_before.map(|time| Reason::NotBefore { time });
    let after = job.after.first().map(|job| Reason::After { job: *job });
    let reason = begin.or(after).or(refused).or_else(|| noted.map(|note| note.reason.clone()));
    let reason = seen.outlook.corrected(reason.unwrap_or(Reason::Undecided), &job.want);
    let why = match &reason {
        Reason::Undecided => "jobs before it get what is free".to_owned(),
        other => seen.sentence_for(other, &state.tenants),
    };
    // What is out of service may be all that it waits for.
    let why = seen.absent(&job.want).iter().fold(why, |why, absent| format!("{why}; {absent}"));
    let told = match reason {
        Reason::NotBefore { time } => Some(time.since(now)),
        Reason::After { .. } => None,
        _ => forecast(seen, &job.want),
    };
    let starts_in_seconds = told.map(|wait| wait.as_secs_f64());
    PlanRow {
        name,
        starts_now: false,
        holds: Vec::new(),
        moved: Vec::new(),
        starts_in_seconds,
        why,
    }
}

/// How a described model would be divided there; nothing is said of any other.
fn divided(job: &Job, place: &trainyard_types::Allocation, seen: &DaemonSnapshot) -> String {
    let config = place.config(&seen.snapshot.state.cluster);
    let division = seen.snapshot.beliefs.division(job, &config).and_then(Result::ok);
    division.map_or(String::new(), |division| format!("divided: {division}"))
}

/// Jobs that would lose what they hold.
fn moved(decision: &Decision, seen: &DaemonSnapshot) -> Vec<JobId> {
    let changes = decision.changes.iter().filter(|change| {
        let held = seen.snapshot.state.live(change.job).and_then(|live| live.state.held.as_ref());
        held.is_some_and(|held| change.to.as_ref().is_none_or(|to| !to.same_place(held)))
    });
    changes.map(|change| change.job).collect()
}

/// What the policy would be asked if the jobs were submitted now. Those that may not run yet are left out.
fn request(jobs: &[(Job, String)], seen: &DaemonSnapshot) -> DecisionRequest {
    let mut state = State::clone(&seen.snapshot.state);
    for (job, tenant) in jobs {
        let mut job = job.clone();
        job.tenant = tenant_of(&mut state, tenant);
        if job.not_before.is_some() || !job.after.is_empty() {
            continue;
        }
        let id = job.id;
        let mut fresh = JobState::submitted(seen.snapshot.now);
        fresh.phase = Phase::Unadmitted;
        state.jobs.insert(id, Arc::new(Live { spec: Arc::new(job), state: fresh }));
        state.unadmitted.insert(id);
    }
    let snapshot = Snapshot {
        now: seen.snapshot.now,
        state: Arc::new(state),
        free: seen.snapshot.free.clone(),
        beliefs: Arc::clone(&seen.snapshot.beliefs),
    };
    DecisionRequest { snapshot, seed: seen.seed, work_max: seen.work_max }
}

fn tenant_of(state: &mut State, name: &str) -> TenantId {
    let id = state.tenants.intern(name);
    let count = state.tenants.len();
    state.used_permille.resize(count, 0);
    state.usage.resize(count, Usage::default());
    id
}
