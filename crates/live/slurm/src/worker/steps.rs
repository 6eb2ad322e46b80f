//! What is decided about jobs: steps of one kind together, so that Slurm is called once for many jobs.

use super::{Key, Run, Worker};
use crate::decide::{self, Known, Sight, Step};
use crate::ledger::Stage;
use crate::seen::SlurmJob;
use std::time::{Duration, Instant};
use trainyard_api::wire::{FromJob, Gather};
use trainyard_backend::{Report, sample};
use trainyard_types::JobId;

/// What is seen of a Slurm job for so long is not about to change by a file that is still on its way.
const SETTLED: Duration = Duration::from_secs(2);
/// A script that shows no life for so long has none; it does every other second.
const SILENT: Duration = Duration::from_secs(10);
/// A job that Slurm lets wait for a begin of its own is put in its place again after this.
const POSTPONED: Duration = Duration::from_secs(3);
/// A job that never gets anywhere by Slurm's own words is given up after this.
const HOPELESS: Duration = Duration::from_secs(10);
/// So many jobs that only wait are submitted before anything else is looked at.
const SUBMITS_AT_ONCE: usize = 8;
/// A job that ends so soon after its start, without a word of its script, was not cancelled by a person.
const LAUNCH_SECONDS: i64 = 5;

/// Steps by kind.
#[derive(Debug, Default)]
struct Todo {
    submit: Vec<JobId>,
    place: Vec<JobId>,
    hold: Vec<JobId>,
    tell_stop: Vec<JobId>,
    requeue: Vec<JobId>,
    cancel: Vec<JobId>,
}

impl Worker {
    /// Looks at what scripts and jobs wrote.
    pub(super) fn scan(&mut self) {
        if self.scanned.elapsed() < self.tick() {
            return;
        }
        self.scanned = Instant::now();
        let keys: Vec<Key> = (self.ledger.entries.iter())
            .filter_map(|(job, entry)| Some((*job, entry.attempt.as_ref()?)))
            .filter(|(_, course)| course.stage == Stage::Released)
            .map(|(job, course)| (job, course.attempt))
            .collect();
        for key in keys {
            self.dirty.insert(key.0);
            self.read(key);
        }
    }

    fn read(&mut self, key: Key) {
        let (job, attempt) = key;
        let folder = self.folder(key);
        let Ok(written) = folder.written() else { return };
        let Some(run) = self.runs.get_mut(&job) else { return };
        let ended_now = written.exit && !run.written.exit;
        let alive = folder.alive();
        if alive != run.beat.0 {
            run.beat = (alive, Instant::now());
        }
        if written.taken && !run.written.taken {
            // Slurm has started it: what was seen of it before is old.
            run.now_is(Known::Running);
            run.beat.1 = Instant::now();
        }
        run.written = written.clone();
        let messages = run.ear.listen(&folder);
        if written.started || !messages.is_empty() {
            self.started(key);
        }
        for message in newest(messages) {
            let sample = sample(&message);
            (self.reports)(Report::Said { job, attempt, sample, message });
        }
        if ended_now {
            self.look_soon();
        }
    }

    pub(super) fn started(&mut self, (job, attempt): Key) {
        let course = self.ledger.entries.get_mut(&job).and_then(|entry| entry.attempt.as_mut());
        if let Some(course) = course.filter(|course| course.attempt == attempt && !course.started) {
            course.started = true;
            (self.reports)(Report::Started { job, attempt });
        }
    }

    /// Whether jobs are still to be submitted that only wait.
    pub(super) fn has_submissions_left(&self) -> bool {
        self.down.is_none() && !self.dirty.is_empty()
    }

    /// Decides about every job that something happened to, and does it.
    pub(super) fn step(&mut self) {
        let mut todo = Todo::default();
        let mut later = std::collections::BTreeSet::new();
        let mut waits = 0;
        for job in std::mem::take(&mut self.dirty) {
            let Some(sight) = self.sight(job) else { continue };
            let step = decide::decide(&sight);
            let needs_slurm = !matches!(step, Step::Nothing | Step::End(_) | Step::Drop);
            if needs_slurm && self.down.is_some() {
                // It is decided again at the next look that succeeds.
                continue;
            }
            match step {
                Step::Nothing => {}
                Step::Submit if sight.stage.is_none() && waits >= SUBMITS_AT_ONCE => {
                    later.insert(job);
                }
                Step::Submit => {
                    waits += usize::from(sight.stage.is_none());
                    todo.submit.push(job);
                }
                Step::Place => todo.place.push(job),
                Step::Hold => {
                    // Held, it no longer says why it waited.
                    if let Some(run) = self.runs.get_mut(&job) {
                        run.hopeless |= waits_in_vain(run);
                        run.given_up = sight.stuck.then(|| run.waited()).or(run.given_up.take());
                    }
                    todo.hold.push(job);
                }
                Step::TellStop => todo.tell_stop.push(job),
                Step::Requeue => todo.requeue.push(job),
                Step::Cancel => todo.cancel.push(job),
                Step::Again => self.again(job),
                Step::Gone => self.gone(job),
                Step::End(how) => self.end(job, how),
                Step::Drop => {
                    self.ledger.drop_entry(job);
                    self.runs.remove(&job);
                }
            }
        }
        self.perform(todo);
        self.dirty.append(&mut later);
    }

    fn sight(&self, job: JobId) -> Option<Sight> {
        let (entry, run) = (self.ledger.entries.get(&job)?, self.runs.get(&job)?);
        let course = entry.attempt.as_ref();
        let now = Instant::now();
        let is_new = course.is_none() && entry.submissions == 0;
        let refused = run.retry_at.is_some_and(|at| now < at) && course.is_none();
        let patience = match run.slurm.as_deref().map(|job| job.reason.as_str()) {
            _ if run.hopeless || waits_in_vain(run) => HOPELESS,
            Some("Resources") => self.options.crowded.min(self.options.patience),
            _ => self.options.patience,
        };
        let known = match run.known {
            _ if entry.submitting => Known::Unknown,
            // What was another's is never submitted by us: the daemon withdraws it soon.
            Known::Absent if entry.adopted && !entry.withdrawn => Known::Leaving,
            ref known => known.clone(),
        };
        Some(Sight {
            known,
            stage: course.map(|course| course.stage),
            // A job that was another's writes no files: that it was seen to run, or to be over, is all there is.
            taken: run.written.taken
                || entry.adopted
                    && (course.is_some_and(|course| course.started)
                        || matches!(run.known, Known::Dead(_))),
            exit: run.written.exit,
            stop: course.is_some_and(|course| course.stop.is_some()),
            stop_told: run.stop_told,
            overdue: run.kill_at.is_some_and(|at| now >= at),
            settled: !refused && (is_settled(run) || is_new),
            tries: course.map_or(0, |course| course.tries),
            forgotten: course.map_or(0, |course| course.forgotten),
            bad_node: run.bad_node,
            cut_short: run.slurm.as_deref().is_some_and(was_cut_short),
            cancelled_by_us: entry.cancelled.is_some() && entry.cancelled == entry.slurm,
            lingers: run.known == Known::Running && run.since.elapsed() >= SILENT,
            requeueable: run.requeueable,
            stuck: run.given_up.is_some() || run.released.is_some_and(|at| at.elapsed() > patience),
            postponed: run.slurm.as_deref().is_some_and(|job| job.reason == "BeginTime")
                && run.since.elapsed() >= POSTPONED,
            withdrawn: entry.withdrawn,
            down: self.down.is_some(),
        })
    }

    fn perform(&mut self, todo: Todo) {
        let acts = !todo.place.is_empty()
            || !todo.hold.is_empty()
            || !todo.requeue.is_empty()
            || !todo.tell_stop.is_empty();
        // Those that make room come first.
        self.tell_stops(&todo.tell_stop);
        self.requeue(&todo.requeue);
        self.hold(&todo.hold);
        let mut place = todo.place;
        for job in todo.submit {
            let is_launch = self.ledger.entries[&job].attempt.is_some();
            if self.submit(job) && is_launch {
                place.push(job);
            }
        }
        self.place(&place);
        self.cancel(&todo.cancel);
        if acts {
            self.look_soon();
        }
    }

    /// A Slurm job is of no use any more; if an attempt was to run in it, it gets another.
    fn again(&mut self, job: JobId) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        if entry.adopted {
            return self.let_go(job, "it is not in Slurm any more, where it was taken over from");
        }
        entry.slurm = None;
        let ended = self.runs.get(&job).is_some_and(|run| matches!(run.known, Known::Dead(_)));
        if let Some(course) = &mut entry.attempt {
            let released = u32::from(course.stage == Stage::Released);
            // Slurm that forgets is no reason to give a job up.
            match ended {
                true => course.tries += released,
                false => course.forgotten += released,
            }
            (course.stage, course.released) = (Stage::Wanted, None);
        }
        self.ledger.forbid(job);
        if let Some(run) = self.runs.get_mut(&job) {
            (run.slurm, run.released, run.requeueable) = (None, None, false);
            run.now_is(Known::Absent);
        }
        self.keep(job);
        self.dirty.insert(job);
    }
}

/// Whether nothing more is to come. A slurmctld that was killed may have forgotten that it started a job, which then
/// runs on: as long as its script shows that it lives, it is not over.
fn is_settled(run: &Run) -> bool {
    let forgotten = run.written.taken && !matches!(run.known, Known::Dead(_));
    run.since.elapsed() >= SETTLED && !(forgotten && run.beat.1.elapsed() < SILENT)
}

/// Whether a job had nodes and was over in no time. One that was cancelled while it waited never had any.
fn was_cut_short(job: &SlurmJob) -> bool {
    let ran = job.ended.zip(job.started).map(|(ended, started)| ended - started);
    !job.nodes.is_empty() && ran.is_some_and(|seconds| seconds <= LAUNCH_SECONDS)
}

/// Of progress only the newest of each rank is passed on, as one message; everything else is.
fn newest(messages: Vec<FromJob>) -> Vec<FromJob> {
    let is_progress = |message: &FromJob| matches!(message, FromJob::Progress { .. });
    let last = messages.iter().rposition(is_progress);
    let mut gather = Gather::default();
    let mut all = Vec::with_capacity(messages.len());
    for (at, message) in messages.into_iter().enumerate() {
        if !is_progress(&message) {
            all.push(message);
            continue;
        }
        gather.take(message);
        if Some(at) == last {
            all.extend(gather.give());
        }
    }
    all
}

/// Whether a job waits for something that does not come.
fn waits_in_vain(run: &super::Run) -> bool {
    run.slurm.as_ref().is_some_and(|job| is_hopeless(&job.reason))
}

/// Reasons that do not pass by waiting.
fn is_hopeless(reason: &str) -> bool {
    matches!(
        reason,
        "BadConstraints"
            | "PartitionTimeLimit"
            | "PartitionNodeLimit"
            | "AccountNotAllowed"
            | "InvalidAccount"
            | "InvalidQOS"
            | "NonZeroExitCode"
            | "FailedLaunch"
    )
}
