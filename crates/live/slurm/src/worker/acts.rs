//! What is done to jobs of Slurm, one call for many where Slurm's programs can. Each is asked first whether it still is ours.

use super::{Worker, unix_seconds};
use crate::act::{HeldPlacement, Submission, job_name, minutes};
use crate::call::CallError;
use crate::decide::Known;
use crate::folder;
use crate::ledger::{self, Stage};
use crate::ownership::Claim;
use crate::spot;
use std::time::{Duration, Instant};
use trainyard_types::JobId;

/// So many jobs are cancelled before anything else is looked at.
const CANCELS_AT_ONCE: usize = 8;
/// When a job that Slurm refused is submitted again.
const SUBMIT_AGAIN: Duration = Duration::from_secs(60);

impl Worker {
    /// Submits a job, held. Before it, it is on disk that this was begun; after it, what came of it.
    pub(super) fn submit(&mut self, job: JobId) -> bool {
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
                // It is not known whether Slurm took it: the next look tells.
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
    pub(super) fn place(&mut self, jobs: &[JobId]) {
        let mut ready: Vec<(JobId, HeldPlacement)> = Vec::new();
        for job in jobs {
            match self.prepare(*job) {
                Ok(Some(place)) => ready.push((*job, place)),
                Ok(None) => {}
                Err(why) => self.cannot_start(*job, why),
            }
        }
        let (jobs, places): (Vec<JobId>, Vec<_>) = ready.into_iter().unzip();
        let sure = self.confirmed(&jobs);
        let ready: Vec<(JobId, HeldPlacement)> =
            jobs.into_iter().zip(places).filter(|(job, _)| sure.contains(job)).collect();
        if ready.is_empty() {
            return;
        }
        let (jobs, places): (Vec<JobId>, Vec<_>) = ready.into_iter().unzip();
        let results = self.actor.put(&places);
        let mut put: Vec<JobId> = Vec::new();
        for (job, result) in jobs.into_iter().zip(results) {
            match result {
                Ok(()) => put.push(job),
                Err(error) if error.may_pass() => self.failed(&error),
                Err(error) if error.is_outdated() => self.outdated(job, &error),
                Err(error) => self.cannot_start(job, error.to_string()),
            }
        }
        let (sure, ids) = self.confirmed_ids(&put);
        let results = self.actor.release(&ids);
        self.note(&sure, results, &Known::Waiting);
    }

    /// Makes everything ready that must be there before an attempt may start.
    fn prepare(&mut self, job: JobId) -> Result<Option<HeldPlacement>, String> {
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
            course.released.get_or_insert_with(unix_seconds);
        }
        if let Some(run) = self.runs.get_mut(&job) {
            run.released.get_or_insert_with(Instant::now);
        }
        // From here on it may run: that must be known after any crash.
        let kept = self.keep(job);
        Ok(kept.then_some(HeldPlacement { slurm, spot, minutes: limit, adopted }))
    }

    pub(super) fn tell_stops(&mut self, jobs: &[JobId]) {
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

    /// Cancels Slurm jobs that are not needed any more, a few at a time: each is a call, and other jobs need calls too.
    pub(super) fn cancel(&mut self, jobs: &[JobId]) {
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

    pub(super) fn requeue(&mut self, jobs: &[JobId]) {
        let (sure, ids) = self.confirmed_ids(jobs);
        for job in &sure {
            if let Some(run) = self.runs.get_mut(job) {
                run.requeueable = false;
            }
        }
        // One that ended meanwhile refuses both; the next look tells.
        let _ = self.actor.allow_requeue(&ids);
        // This one ends what runs, so that it is asked about once more.
        let (sure, ids) = self.confirmed_ids(&sure);
        let results = self.actor.requeue(&ids);
        self.note(&sure, results, &Known::Leaving);
    }

    pub(super) fn hold(&mut self, jobs: &[JobId]) {
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
}
