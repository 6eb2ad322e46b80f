//! What the daemon wants, taken down; it is done in the next step.

use super::{Key, Run, Worker};
use crate::adopt;
use crate::decide::Known;
use crate::ledger::{Entry, PersistedRun, Stage};
use crate::script;
use std::time::{Duration, Instant};
use trainyard_api::wire::ToJob;
use trainyard_backend::attempt_dir;
use trainyard_backend::{Exit, Found, LaunchOrder, Report, StopOrder};
use trainyard_types::JobId;

/// What a script has beyond its grace, until Slurm ends it: a network's file system and a busy node are slow.
const AFTER_GRACE: Duration = Duration::from_secs(20);
/// What one that was to be killed at once has.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// When an attempt that was asked to stop is ended by Slurm.
pub fn kill_at(stop: &StopOrder) -> Instant {
    let grace = Duration::from_secs(script::whole_seconds(stop.grace_seconds));
    Instant::now() + grace + if grace.is_zero() { AFTER_KILL } else { AFTER_GRACE }
}

impl Worker {
    /// The entry of a job, made if it is new.
    fn entry(&mut self, order: &LaunchOrder) -> &mut Entry {
        let job = order.job;
        let adopted = order.external.as_deref().and_then(adopt::External::parse);
        let known = if adopted.is_some() { Known::Unknown } else { Known::Absent };
        self.runs.entry(job).or_insert_with(|| Run::new(known));
        self.dirty.insert(job);
        self.ledger.entries.entry(job).or_insert_with(|| Entry {
            slurm: adopted.map(|one| one.id),
            adopted: adopted.is_some(),
            claim: adopted.map(adopt::External::claim).unwrap_or_default(),
            ..Entry::default()
        })
    }

    pub(super) fn announce(&mut self, order: LaunchOrder) {
        let job = order.job;
        let is_new = !self.ledger.entries.contains_key(&job);
        let entry = self.entry(&order);
        entry.order = order;
        entry.withdrawn = false;
        // A job of ours that is lost before it is submitted is announced again; one that was another's must be kept.
        if entry.adopted && is_new {
            self.keep(job);
            self.mark_adopted(job);
        }
    }

    pub(super) fn launch(&mut self, order: LaunchOrder) {
        let key = (order.job, order.attempt);
        let (job, attempt) = key;
        // The daemon may have forgotten that it knows; it must not run again all the same.
        let archive = self.options.run_dir.join("logs").join(attempt_dir::name(job, attempt));
        if archive.exists() {
            let exit = attempt_dir::read(&archive.join("exit.json")).ok().flatten();
            let exit = exit.unwrap_or(Exit { lost: true, ..Exit::default() });
            return (self.reports)(Report::Ended { job, attempt, exit });
        }
        if let Some(course) = self.course(key) {
            let over = course.stage == Stage::Over;
            if over && let Ok(Some(exit)) = self.folder(key).exit() {
                return (self.reports)(Report::Ended { job, attempt, exit });
            }
            if course.started {
                (self.reports)(Report::Started { job, attempt });
            }
            return;
        }
        let entry = self.entry(&order);
        entry.withdrawn = false;
        entry.order = order;
        let stage = Stage::Wanted;
        entry.attempt = Some(PersistedRun {
            attempt,
            stage,
            tries: 0,
            stop: None,
            started: false,
            forgotten: 0,
            released: None,
        });
        if let Some(run) = self.runs.get_mut(&job) {
            (run.written, run.ear) = Default::default();
            (run.stop_told, run.kill_at, run.released) = (false, None, None);
        }
        self.keep(job);
    }

    pub(super) fn stop(&mut self, key: Key, stop: StopOrder) {
        let (job, _) = key;
        let Some(course) = self.course(key).filter(|course| course.stage != Stage::Over) else {
            return;
        };
        let is_released = course.stage == Stage::Released;
        let kill = kill_at(&stop);
        if is_released && let Err(error) = self.folder(key).ask_to_stop(stop.grace_seconds) {
            tracing::warn!(job = job.0, %error, "a request to stop cannot be written");
        }
        if let Some(course) = self.ledger.entries.get_mut(&job).and_then(|e| e.attempt.as_mut()) {
            course.stop = Some(stop);
        }
        if let Some(run) = self.runs.get_mut(&job) {
            run.kill_at = Some(run.kill_at.map_or(kill, |before| before.min(kill)));
            run.stop_told = false;
        }
        self.keep(job);
        self.dirty.insert(job);
    }

    pub(super) fn set_batch(&mut self, key: Key, size: u32) {
        if self.course(key).is_some_and(|course| course.stage == Stage::Released) {
            // A job that cannot be told now goes on with the size it has.
            let _ = self.folder(key).tell(&ToJob::Batch { size });
        }
    }

    pub(super) fn forget(&mut self, key: Key) {
        let (job, _) = key;
        if !self.course(key).is_some_and(|course| course.stage == Stage::Over) {
            return;
        }
        if let Err(error) = self.folder(key).archive(&self.options.run_dir) {
            tracing::warn!(job = job.0, %error, "the folder of an attempt cannot be put away");
        }
        if let Some(entry) = self.ledger.entries.get_mut(&job) {
            entry.attempt = None;
        }
        if let Some(run) = self.runs.get_mut(&job) {
            // A job that is over is withdrawn in a moment; only one that is not needs a new place.
            run.since = Instant::now();
        }
        self.keep(job);
        self.dirty.insert(job);
    }

    pub(super) fn withdraw(&mut self, job: JobId) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        entry.withdrawn = true;
        self.keep(job);
        self.dirty.insert(job);
    }

    pub(super) fn drain(&mut self, node: &str, reason: Option<&str>) {
        // Two nodes of ours may be one of Slurm's.
        let names = self.options.inventory.cluster.nodes.iter().zip(&self.options.inventory.places);
        let place = names.into_iter().find(|(known, _)| known.name == node);
        let node = place.map_or(node, |(_, place)| place.node.as_str());
        match self.actor.drain(node, reason) {
            Ok(()) => {
                self.troubles.remove("drain");
            }
            Err(error) => {
                let what =
                    format!("node {node} takes no work of ours, but Slurm was not told: {error}");
                self.troubles.insert("drain", what);
            }
        }
        self.look_soon();
    }

    pub(super) fn list_attempts(&mut self) -> Vec<Found> {
        let mut found = Vec::new();
        let keys: Vec<(JobId, PersistedRun)> = (self.ledger.entries.iter())
            .filter_map(|(job, entry)| Some((*job, entry.attempt.clone()?)))
            .collect();
        for (job, course) in keys {
            let attempt = course.attempt;
            let folder = self.folder((job, attempt));
            let exit = folder.exit().ok().flatten();
            found.push(match (course.stage, exit) {
                (Stage::Over, Some(exit)) => Found::Ended { job, attempt, exit },
                // An end that cannot be read is an end all the same.
                (Stage::Over, None) => {
                    Found::Ended { job, attempt, exit: Exit { lost: true, ..Exit::default() } }
                }
                (Stage::Wanted | Stage::Released, _) => {
                    let started =
                        course.started || folder.written().is_ok_and(|written| written.started);
                    Found::Running { job, attempt, started }
                }
            });
        }
        found
    }
}
