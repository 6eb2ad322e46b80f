//! What is decided about jobs, and done: steps of one kind together, so that Slurm is called once for many jobs.

use super::{Key, Run, Worker};
use crate::act::{Place, Submission, job_name, minutes};
use crate::call::CallError;
use crate::decide::{self, Known, Sight, Step};
use crate::folder::{self, Written};
use crate::ledger::{self, Course, Stage};
use crate::ownership::Claim;
use crate::seen::SlurmJob;
use crate::spot;
use std::time::{Duration, Instant};
use trainyard_api::wire::FromJob;

use trainyard_backend::{Exit, Report, sample};
use trainyard_types::{Attempt, JobId};

/// What is seen of a Slurm job for so long is not about to change by a file that is still on its way.
const SETTLED: Duration = Duration::from_secs(2);
/// A script that shows no life for so long has none; it does every other second.
const SILENT: Duration = Duration::from_secs(10);
/// A job that never gets anywhere by Slurm's own words is given up after this.
const HOPELESS: Duration = Duration::from_secs(10);
/// So many jobs that only wait are submitted before anything else is looked at.
const SUBMITS_AT_ONCE: usize = 8;
/// A job that ends so soon after its start, without a word of its script, was not cancelled by a person.
const LAUNCH_SECONDS: i64 = 5;
/// So many jobs are cancelled before anything else is looked at.
const CANCELS_AT_ONCE: usize = 8;
/// When a job that Slurm refused is submitted again.
const SUBMIT_AGAIN: Duration = Duration::from_secs(60);

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
        let patience =
            if run.hopeless || waits_in_vain(run) { HOPELESS } else { self.options.patience };
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
            requeueable: run.requeueable,
            stuck: run.released.is_some_and(|at| at.elapsed() > patience),
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

    /// Submits a job, held. Before it, it is on disk that this was begun; after it, what came of it.
    fn submit(&mut self, job: JobId) -> bool {
        if !self.claim_next(job) || !self.keep(job) {
            self.ledger.entries.entry(job).and_modify(|entry| entry.submitting = false);
            return false;
        }
        let entry = &self.ledger.entries[&job];
        let shape = spot::waiting_shape(&entry.order, &self.options.inventory);
        let Claim { mark, name, .. } = &entry.claim;
        let submission = Submission { order: &entry.order, mark, name, shape };
        let result = self.actor.submit(&submission);
        let entry = self.ledger.entries.get_mut(&job).expect("it was there above");
        let run = self.runs.get_mut(&job).expect("each entry has one");
        run.acted = Instant::now();
        match result {
            Ok(id) => {
                (entry.slurm, entry.submitting) = (Some(id), false);
                run.retry_at = None;
                run.now_is(Known::Held);
                self.troubles.remove("submit");
                self.keep(job);
                true
            }
            Err(error) if error.may_pass() => {
                // Nobody knows whether it was taken: the next look tells.
                self.failed(&error);
                false
            }
            Err(error) => {
                entry.submitting = false;
                run.retry_at = Some(Instant::now() + SUBMIT_AGAIN);
                run.see(Known::Absent);
                let is_launch = entry.attempt.is_some();
                self.troubles.insert("submit", format!("job {}: {error}", job.0));
                if is_launch {
                    self.cannot_start(job, error.to_string());
                }
                self.keep(job);
                false
            }
        }
    }

    /// Says by what the next submission of a job will be recognised.
    fn claim_next(&mut self, job: JobId) -> bool {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return false };
        entry.submissions += 1;
        let (submission, uid) = (entry.submissions, ledger::uid_of(&entry.order));
        let mark = match self.key.mark(&self.instance, job, submission, uid) {
            Ok(mark) => mark,
            Err(error) => {
                self.troubles.insert("submit", format!("job {}: {error}", job.0));
                return false;
            }
        };
        let name = job_name(&entry.order, submission);
        entry.claim = Claim { mark, uid: Some(uid), name, sightings: Vec::new() };
        (entry.submitting, entry.cancelled) = (true, None);
        true
    }

    /// Authorises attempts, puts their Slurm jobs in place, and releases those that are there.
    fn place(&mut self, jobs: &[JobId]) {
        let mut ready: Vec<(JobId, Place)> = Vec::new();
        for job in jobs {
            match self.prepare(*job) {
                Ok(Some(place)) => ready.push((*job, place)),
                Ok(None) => {}
                Err(why) => self.cannot_start(*job, why),
            }
        }
        let (jobs, places): (Vec<JobId>, Vec<_>) = ready.into_iter().unzip();
        let sure = self.confirmed(&jobs);
        let ready: Vec<(JobId, Place)> =
            jobs.into_iter().zip(places).filter(|(job, _)| sure.contains(job)).collect();
        if ready.is_empty() {
            return;
        }
        let (jobs, places): (Vec<JobId>, Vec<_>) = ready.into_iter().unzip();
        let results = self.actor.put(&places);
        let mut put: Vec<u32> = Vec::new();
        let mut released: Vec<JobId> = Vec::new();
        for ((job, place), result) in jobs.into_iter().zip(&places).zip(results) {
            match result {
                Ok(()) => {
                    put.push(place.slurm);
                    released.push(job);
                }
                Err(error) if error.may_pass() => self.failed(&error),
                Err(error) if error.is_outdated() => self.outdated(job, &error),
                Err(error) => self.cannot_start(job, error.to_string()),
            }
        }
        // They were ours a moment ago, and a place was put by each of these numbers since.
        let results = self.actor.release(&put);
        self.note(&released, results, &Known::Waiting);
    }

    /// Makes everything ready that must be there before an attempt may start.
    fn prepare(&mut self, job: JobId) -> Result<Option<Place>, String> {
        let Some(entry) = self.ledger.entries.get(&job) else { return Ok(None) };
        let (Some(slurm), Some(course)) = (entry.slurm, &entry.attempt) else { return Ok(None) };
        let (attempt, order, adopted) = (course.attempt, &entry.order, entry.adopted);
        let spot = spot::spot(order, &self.options.inventory)?;
        let limit = minutes(order).filter(|_| !adopted);
        if course.stage == Stage::Wanted && !adopted {
            let folder = self.folder((job, attempt));
            let script = self.actor.script();
            let order = &folder::with_checkpoints(order.clone(), &self.options.run_dir)?;
            folder.create(order, &spot.nodes, script).map_err(|error| {
                format!("its folder {} cannot be made: {error}", folder.path().display())
            })?;
        }
        if !adopted {
            let denied = |error| format!("it cannot be authorised: {error}");
            self.ledger.authorise(job, attempt, slurm).map_err(denied)?;
        }
        let entry = self.ledger.entries.get_mut(&job).expect("it was there above");
        if let Some(course) = &mut entry.attempt {
            course.stage = Stage::Released;
        }
        if let Some(run) = self.runs.get_mut(&job) {
            run.released.get_or_insert_with(Instant::now);
        }
        // From here on it may run: that must be known after any crash.
        let kept = self.keep(job);
        Ok(kept.then_some(Place { slurm, spot, minutes: limit, adopted }))
    }

    fn tell_stops(&mut self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        let sure = self.confirmed(jobs);
        let targets = self.targets(&sure);
        let ids: Vec<u32> = targets.iter().map(|(_, target)| target.slurm).collect();
        let down = self
            .actor
            .allow_requeue(&ids)
            .into_iter()
            .find_map(|result| result.err().filter(CallError::may_pass));
        if let Some(error) = down {
            return self.failed(&error);
        }
        for (job, target) in targets {
            if let Err(error) = self.actor.poke(&target) {
                return self.failed(&error);
            }
            if let Some(run) = self.runs.get_mut(&job) {
                (run.stop_told, run.requeueable) = (true, true);
            }
        }
    }

    /// Cancels what nobody waits for any more, a few at a time: each is a call, and others wait for theirs.
    fn cancel(&mut self, jobs: &[JobId]) {
        let (now, later) = jobs.split_at(jobs.len().min(CANCELS_AT_ONCE));
        self.dirty.extend(later);
        let sure = self.confirmed(now);
        for (job, target) in self.targets(&sure) {
            // That it was us is known before it is so.
            self.ledger.entries.entry(job).and_modify(|entry| entry.cancelled = entry.slurm);
            if !self.keep(job) {
                return;
            }
            match self.actor.cancel(&target) {
                Ok(()) => self.set_known(&[job], &Known::Leaving),
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn requeue(&mut self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        let (sure, ids) = self.confirmed_ids(jobs);
        for job in &sure {
            if let Some(run) = self.runs.get_mut(job) {
                run.requeueable = false;
            }
        }
        // One that ended meanwhile refuses both; the next look tells.
        let _ = self.actor.allow_requeue(&ids);
        let results = self.actor.requeue(&ids);
        self.note(&sure, results, &Known::Leaving);
    }

    fn hold(&mut self, jobs: &[JobId]) {
        let (sure, ids) = self.confirmed_ids(jobs);
        let results = self.actor.hold(&ids);
        self.note(&sure, results, &Known::Held);
    }

    /// Takes down what came of one thing that was done to many jobs.
    fn note(&mut self, jobs: &[JobId], results: Vec<Result<(), CallError>>, known: &Known) {
        for (job, result) in jobs.iter().zip(results) {
            match result {
                Ok(()) => self.set_known(&[*job], known),
                Err(error) if error.may_pass() => self.failed(&error),
                Err(error) => self.outdated(*job, &error),
            }
        }
    }

    /// A job that refuses a step is not what it seemed to be: the next look tells.
    fn outdated(&mut self, job: JobId, error: &CallError) {
        tracing::info!(job = job.0, %error, "Slurm refused a step");
        self.set_known(&[job], &Known::Unknown);
        self.look_soon();
    }

    fn set_known(&mut self, jobs: &[JobId], known: &Known) {
        for job in jobs {
            if let Some(run) = self.runs.get_mut(job) {
                run.now_is(known.clone());
            }
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
            course.stage = Stage::Wanted;
        }
        self.ledger.forbid(job);
        if let Some(run) = self.runs.get_mut(&job) {
            (run.slurm, run.released, run.requeueable) = (None, None, false);
            run.now_is(Known::Absent);
        }
        self.keep(job);
        self.dirty.insert(job);
    }

    /// Somebody cancelled a job in Slurm.
    fn gone(&mut self, job: JobId) {
        let Some(run) = self.runs.get_mut(&job).filter(|run| !run.gone_told) else { return };
        run.gone_told = true;
        let id = self.ledger.entries.get(&job).and_then(|entry| entry.slurm).unwrap_or(0);
        let why = format!("cancelled in Slurm, where it was job {id}");
        (self.reports)(Report::Gone { job, why });
        let course = self.ledger.entries.get(&job).and_then(|entry| entry.attempt.as_ref());
        if let Some(course) = course {
            let attempt = course.attempt;
            let exit = self.exit_by_files((job, attempt));
            self.over((job, attempt), Exit { asked_to_stop: true, ..exit });
        }
    }

    /// A job that was another's is not ours any more: nothing is done to it from now on.
    pub(super) fn let_go(&mut self, job: JobId, why: &str) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        entry.slurm = None;
        let course = entry.attempt.as_ref().filter(|course| course.stage != Stage::Over);
        let attempt = course.map(|course| course.attempt);
        if let Some(run) = self.runs.get_mut(&job) {
            run.slurm = None;
            run.now_is(Known::Absent);
        }
        self.keep(job);
        (self.reports)(Report::Gone { job, why: why.to_owned() });
        if let Some(attempt) = attempt {
            self.over((job, attempt), Exit { asked_to_stop: true, ..Exit::default() });
        }
    }

    fn end(&mut self, job: JobId, how: decide::End) {
        let Some(course) = self.ledger.entries.get(&job).and_then(|entry| entry.attempt.clone())
        else {
            return;
        };
        let key = (job, course.attempt);
        match how {
            decide::End::Told => {
                let exit = self.exit_by_files(key);
                let asked_to_stop =
                    exit.asked_to_stop || self.was_asked_by_slurm(&course, key, &exit);
                self.over(key, Exit { asked_to_stop, ..exit });
            }
            decide::End::NeverRan => {
                self.over(key, Exit { asked_to_stop: true, ..Exit::default() });
            }
            decide::End::CannotStart => {
                let why = self.why_not_started(job, &course);
                let hopeless = self.runs.get(&job).is_some_and(|run| run.hopeless);
                if hopeless || course.tries >= decide::TRIES_MAX {
                    self.cannot_start(job, why);
                } else {
                    // The place may be to blame, and not the job: it is tried elsewhere.
                    tracing::warn!(job = job.0, "{why}");
                    self.over(key, Exit { lost: true, ..self.exit_by_files(key) });
                }
            }
            decide::End::Lost => {
                let why = self.why_not_started(job, &course);
                tracing::warn!(job = job.0, "{why}");
                self.over(key, Exit { lost: true, ..self.exit_by_files(key) });
            }
            decide::End::ByState => {
                let exit = self.exit_by_state(key, &course);
                self.over(key, exit);
            }
        }
    }

    fn why_not_started(&self, job: JobId, course: &Course) -> String {
        let slurm = self.runs.get(&job).and_then(|run| run.slurm.as_deref());
        let said = slurm.map_or_else(String::new, |slurm| {
            format!(" (state {}, reason {}, exit {:?})", slurm.state, slurm.reason, slurm.exit)
        });
        if course.tries >= decide::TRIES_MAX {
            let dir = self.options.run_dir.display();
            return format!(
                "Slurm ended it {} times before it ran{said}; is {dir} the same directory on every node?",
                course.tries + 1
            );
        }
        let seconds = self.options.patience.as_secs();
        format!("Slurm did not start it within {seconds} s{said}")
    }

    pub(super) fn cannot_start(&mut self, job: JobId, why: String) {
        let course = self.ledger.entries.get(&job).and_then(|entry| entry.attempt.as_ref());
        if let Some(attempt) = course.map(|course| course.attempt) {
            self.over((job, attempt), Exit { launch_error: Some(why), ..Exit::default() });
        }
    }

    fn exit_by_files(&self, key: Key) -> Exit {
        let folder = self.folder(key);
        let mut told = self.runs.get(&key.0).map(|run| run.ear.clone()).unwrap_or_default();
        told.listen(&folder);
        let nothing = || Exit { lost: true, ..folder::told_exit(&folder, &told.told) };
        folder::exit_of(&folder, &told.told).unwrap_or_else(nothing)
    }

    /// Whether Slurm itself asked an attempt to stop, for a job of others or because we made it. Its time limit counts
    /// for those who saved alone, as below.
    fn was_asked_by_slurm(&self, course: &Course, key: Key, exit: &Exit) -> bool {
        let kill_at = self.runs.get(&key.0).and_then(|run| run.kill_at);
        let overdue = kill_at.is_some_and(|at| Instant::now() >= at);
        let asked = || self.folder(key).script_exit().is_some_and(|script| script.asked);
        match self.state_of(key.0) {
            "PREEMPTED" => true,
            "TIMEOUT" | "DEADLINE" => exit.checkpoint,
            _ => course.stop.is_some() && (overdue || asked()),
        }
    }

    /// What Slurm says of a job that is over.
    fn state_of(&self, job: JobId) -> &str {
        match self.runs.get(&job).map(|run| &run.known) {
            Some(Known::Dead(state)) => state,
            _ => "",
        }
    }

    /// How an attempt ended whose script could not say.
    fn exit_by_state(&self, key: Key, course: &Course) -> Exit {
        let told = self.exit_by_files(key);
        let run = self.runs.get(&key.0);
        let slurm = run.and_then(|run| run.slurm.as_deref());
        let state = self.state_of(key.0);
        let asked = course.stop.is_some();
        let exit = Exit { lost: false, asked_to_stop: asked, ..told };
        let (code, signal) = slurm.and_then(|slurm| slurm.exit).unwrap_or((0, 0));
        match state {
            // Who saved goes on, as often as Slurm's limit ends it; who never saves would begin for ever.
            "TIMEOUT" | "DEADLINE" if exit.checkpoint => Exit { asked_to_stop: true, ..exit },
            "TIMEOUT" | "DEADLINE" => Exit { signal: Some(15), ..exit },
            "PREEMPTED" => Exit { asked_to_stop: true, ..exit },
            "OUT_OF_MEMORY" => Exit { signal: Some(9), out_of_memory: true, ..exit },
            "COMPLETED" if self.is_adopted(key.0) => Exit { code: Some(0), ..exit },
            "FAILED" if self.is_adopted(key.0) => Exit {
                code: Some(code).filter(|_| signal == 0),
                signal: Some(signal).filter(|signal| *signal != 0),
                ..exit
            },
            _ if asked => Exit { killed: true, signal: Some(9), ..exit },
            _ => Exit { lost: true, ..exit },
        }
    }

    pub(super) fn is_adopted(&self, job: JobId) -> bool {
        self.ledger.entries.get(&job).is_some_and(|entry| entry.adopted)
    }

    /// Writes an end down and reports it; one that cannot be kept is not reported yet.
    fn over(&mut self, key: Key, exit: Exit) {
        let (job, attempt) = key;
        self.ledger.forbid(job);
        let folder = self.folder(key);
        let dir = std::fs::create_dir_all(folder.path());
        if let Err(error) = dir.and_then(|()| folder.set_exit(&exit)) {
            let what = format!("the end of job {} cannot be written: {error}", job.0);
            self.troubles.insert("ledger", what);
            return;
        }
        if let Some(entry) = self.ledger.entries.get_mut(&job)
            && let Some(course) = &mut entry.attempt
        {
            course.stage = Stage::Over;
        }
        if let Some(run) = self.runs.get_mut(&job) {
            (run.released, run.kill_at, run.written) = (None, None, Written::default());
            run.hopeless = false;
        }
        if !self.keep(job) {
            return;
        }
        if exit.launch_error.is_none() && !exit.lost && exit.ran_seconds > 0.0 {
            self.started((job, attempt));
        }
        (self.reports)(Report::Ended { job, attempt: Attempt(attempt.0), exit });
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

/// Of progress only the newest is passed on; everything else is.
fn newest(messages: Vec<FromJob>) -> Vec<FromJob> {
    let is_progress = |message: &FromJob| matches!(message, FromJob::Progress { .. });
    let last = messages.iter().rposition(is_progress);
    let all = messages.into_iter().enumerate();
    all.filter(|(at, message)| !is_progress(message) || Some(*at) == last)
        .map(|(_, message)| message)
        .collect()
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
