//! How attempts end, in what script, job and Slurm say of it.

use super::{Key, Worker};
use crate::decide::{self, Known};
use crate::folder::{self, Written};
use crate::ledger::{PersistedRun, Stage};
use std::time::Instant;
use trainyard_backend::{Exit, Report};
use trainyard_types::{Attempt, JobId};

impl Worker {
    /// A user or an operator cancelled a job in Slurm.
    pub(super) fn gone(&mut self, job: JobId) {
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

    pub(super) fn end(&mut self, job: JobId, how: decide::End) {
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
                let why = "Slurm forgot it, or its node could not start it";
                tracing::warn!(job = job.0, forgotten = course.forgotten, "{why}");
                self.over(key, Exit { lost: true, ..self.exit_by_files(key) });
            }
            decide::End::ByState => {
                let exit = self.exit_by_state(key, &course);
                self.over(key, exit);
            }
        }
    }

    fn why_not_started(&self, job: JobId, course: &PersistedRun) -> String {
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
        let run = self.runs.get(&job);
        let waited = run.map(|run| run.given_up.clone().unwrap_or_else(|| run.waited()));
        format!("Slurm did not start it within {}", waited.unwrap_or_default())
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
    /// only for jobs that saved, as below.
    fn was_asked_by_slurm(&self, course: &PersistedRun, key: Key, exit: &Exit) -> bool {
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
    fn exit_by_state(&self, key: Key, course: &PersistedRun) -> Exit {
        let told = self.exit_by_files(key);
        let run = self.runs.get(&key.0);
        let slurm = run.and_then(|run| run.slurm.as_deref());
        let state = self.state_of(key.0);
        let asked = course.stop.is_some();
        let exit = Exit { lost: false, asked_to_stop: asked, ..told };
        let (code, signal) = slurm.and_then(|slurm| slurm.exit).unwrap_or((0, 0));
        match state {
            // A job that saved goes on, as often as Slurm's limit ends it; one that never saves would repeat for ever.
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
            (run.hopeless, run.given_up) = (false, None);
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
