//! Whose a job of Slurm is, asked in the moment before anything is done to it.

use super::Worker;
use crate::act::Target;
use crate::decide::Known;
use crate::look::Lookout;
use crate::ownership::{Mismatch, PREFIX};
use crate::read::Rows;
use crate::seen::{SlurmJob, SlurmSeen};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trainyard_backend::Report;
use trainyard_types::JobId;

/// So many jobs are asked for by their numbers; for more of them a whole look is as good.
const FEW_MAX: usize = 64;
/// So many submissions in a row may not be recognised before a job has to wait for its next.
const UNRECOGNISED_MAX: u32 = 3;
/// How long, at first; twice as long each time.
const UNRECOGNISED_WAIT: Duration = Duration::from_secs(60);

impl Worker {
    /// Those of `jobs` that are, in Slurm and at this moment, what they were taken for when a step was decided: ours, and
    /// in the same state. The others are decided about again.
    pub(super) fn confirmed(&mut self, jobs: &[JobId]) -> Vec<JobId> {
        if jobs.is_empty() {
            return Vec::new();
        }
        let began = Instant::now();
        let surely = self.surely(jobs);
        self.actor.answered_in(began.elapsed());
        let open: Vec<JobId> = jobs.iter().copied().filter(|job| !surely.contains(job)).collect();
        if self.down.is_some() || open.is_empty() {
            return surely.into_iter().collect();
        }
        let Some(rows) = self.jobs_now() else { return Vec::new() };
        let by_id: BTreeMap<u32, &SlurmJob> = rows.rows.iter().map(|job| (job.id, job)).collect();
        let is_whole = rows.skipped.count == 0;
        let also = open.into_iter().filter(|job| self.confirm(*job, &by_id, is_whole));
        let also: Vec<JobId> = also.collect();
        surely.into_iter().chain(also).collect()
    }

    /// All jobs as they are at this moment; nothing if Slurm does not answer.
    fn jobs_now(&mut self) -> Option<Rows<SlurmJob>> {
        let began = Instant::now();
        let result = Lookout::new(self.actor.calls()).jobs();
        self.actor.answered_in(began.elapsed());
        result.map_err(|error| self.failed(&error)).ok()
    }

    /// Those that are quickly recognised: seen before, and all as it was then.
    fn surely(&mut self, jobs: &[JobId]) -> BTreeSet<JobId> {
        let open = |job: &&JobId| self.ledger.entries.get(job).is_some_and(|one| !one.submitting);
        let by_id: BTreeMap<u32, JobId> = (jobs.iter().filter(open))
            .filter_map(|job| Some((self.ledger.entries[job].slurm?, *job)))
            .collect();
        if by_id.is_empty() || by_id.len() > FEW_MAX {
            return BTreeSet::new();
        }
        let ids: Vec<u32> = by_id.keys().copied().collect();
        let rows = match Lookout::new(self.actor.calls()).few(&ids) {
            Ok(rows) => rows,
            Err(error) => {
                self.failed(&error);
                return BTreeSet::new();
            }
        };
        let mut sure = BTreeSet::new();
        for one in &rows {
            let Some(job) = by_id.get(&one.id).copied() else { continue };
            // The first sight of a submission tells when it was made.
            let is_new = self.ledger.entries[&job].claim.sightings.is_empty();
            if is_new && self.ledger.entries[&job].claim.check(one).is_ok() {
                self.recognise(job, one);
            }
            let same_state = self.runs.get(&job).is_some_and(|run| run.known == Known::of(one));
            if same_state && self.ledger.entries[&job].claim.is_surely(one) {
                sure.insert(job);
            }
        }
        sure
    }

    /// The same with their numbers in Slurm.
    pub(super) fn confirmed_ids(&mut self, jobs: &[JobId]) -> (Vec<JobId>, Vec<u32>) {
        let sure = self.confirmed(jobs);
        self.targets(&sure).into_iter().map(|(job, target)| (job, target.slurm)).unzip()
    }

    fn confirm(&mut self, job: JobId, by_id: &BTreeMap<u32, &SlurmJob>, is_whole: bool) -> bool {
        let entry = self.ledger.entries.get(&job);
        let Some(id) = entry.filter(|entry| !entry.submitting).and_then(|entry| entry.slurm) else {
            return false;
        };
        let Some(one) = by_id.get(&id) else {
            if is_whole && let Some(run) = self.runs.get_mut(&job) {
                run.now_is(Known::Missing);
                self.dirty.insert(job);
            }
            return false;
        };
        if !self.recognise(job, one) {
            return false;
        }
        let Some(run) = self.runs.get_mut(&job) else { return false };
        let known = Known::of(one);
        run.slurm = Some(Box::new((*one).clone()));
        if run.known != known {
            run.now_is(known);
            self.dirty.insert(job);
            return false;
        }
        true
    }

    /// Whether a job of Slurm is the one that an entry names; one that is not is forgotten, aloud.
    pub(super) fn recognise(&mut self, job: JobId, one: &SlurmJob) -> bool {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return false };
        match entry.claim.check(one) {
            Ok(None) => true,
            Ok(Some(sighting)) => {
                entry.claim.note(sighting);
                entry.unrecognised = 0;
                self.troubles.remove("ownership");
                self.keep(job)
            }
            Err(why @ Mismatch::Unknown(_)) => {
                self.troubles.insert("ownership", format!("Slurm job {}: {why}", one.id));
                false
            }
            Err(why) => {
                self.disown(job, one.id, &why);
                false
            }
        }
    }

    /// Forgets a number of Slurm's that names another job by now. Nothing is done to that job.
    fn disown(&mut self, job: JobId, id: u32, why: &Mismatch) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        if entry.adopted {
            let why = match why {
                Mismatch::Mark(_) => "it was handed back to Slurm".to_owned(),
                other => format!("Slurm job {id} is not the one that was taken over: {other}"),
            };
            return self.let_go(job, &why);
        }
        let what =
            format!("Slurm job {id} is not ours: {why}; it is left alone and its number forgotten");
        tracing::error!(job = job.0, "{what}");
        let is_fresh = entry.claim.sightings.is_empty();
        (entry.slurm, entry.cancelled) = (None, None);
        entry.unrecognised += u32::from(is_fresh);
        entry.disowned.push(entry.submissions);
        let times = entry.unrecognised;
        if let Some(run) = self.runs.get_mut(&job) {
            run.slurm = None;
            run.now_is(Known::Absent);
        }
        self.keep(job);
        self.dirty.insert(job);
        (self.reports)(Report::Notice { job: Some(job), what });
        if is_fresh && times >= UNRECOGNISED_MAX {
            self.slow_down(job, (id, times), why);
        }
    }

    /// What was submitted is never what is seen: something changes jobs on their way in, and more of them do not help.
    fn slow_down(&mut self, job: JobId, (id, times): (u32, u32), why: &Mismatch) {
        let what = format!(
            "job {}: what is submitted to Slurm is not recognised there, {times} times by now (Slurm job {id}: {why}); \
             does a job_submit plugin change comments or users? Let it leave jobs alone whose comment begins with \
             \"{PREFIX}\", and cancel those that are held there",
            job.0
        );
        let wait = UNRECOGNISED_WAIT * 2_u32.saturating_pow((times - UNRECOGNISED_MAX).min(6));
        if let Some(run) = self.runs.get_mut(&job) {
            run.retry_at = Some(Instant::now() + wait);
        }
        self.cannot_start(job, what.clone());
        self.troubles.insert("ownership", what);
    }

    /// The Slurm jobs that an action on these jobs means. A job that cannot be named in full is left out.
    pub(super) fn targets(&self, jobs: &[JobId]) -> Vec<(JobId, Target)> {
        let target = |job: &JobId| {
            let entry = self.ledger.entries.get(job)?;
            let run = self.runs.get(job)?;
            let name = run.slurm.as_ref().map_or(&entry.claim.name, |seen| &seen.name);
            Some((*job, Target { slurm: entry.slurm?, uid: entry.claim.uid?, name: name.clone() }))
        };
        jobs.iter().filter_map(target).collect()
    }

    /// Held jobs with our mark that no entry speaks of: a submission whose answer was lost and that was made again.
    /// Nothing authorises them, and nothing else would ever end them.
    pub(super) fn cancel_strays(&mut self, seen: &SlurmSeen, began: Instant) {
        let open = self.ledger.entries.values().any(|entry| entry.submitting);
        let acted = self.runs.values().any(|run| run.acted >= began);
        if open || acted || self.strays(&seen.jobs).is_empty() {
            return;
        }
        // As they are now, and not as they were when the look was made.
        let Some(now) = self.jobs_now() else { return };
        for target in self.strays(&now.rows) {
            let what =
                format!("Slurm job {} carries our mark but is not in the ledger", target.slurm);
            tracing::warn!("{what}: it is cancelled");
            if self.actor.cancel(&target).is_ok() {
                let what = format!("{what}: it was cancelled");
                (self.reports)(Report::Notice { job: None, what });
            }
        }
    }

    fn strays(&self, jobs: &[SlurmJob]) -> Vec<Target> {
        let current: BTreeSet<u32> =
            self.ledger.entries.values().filter_map(|entry| entry.slurm).collect();
        let stray = |job: &SlurmJob| {
            let uid = job.uid?;
            let mark = self.key.read(&self.instance, &job.comment, uid)?;
            let entry = self.ledger.entries.get(&mark.job);
            let is_own = mark.submission > 0
                && entry.is_none_or(|entry| !entry.disowned.contains(&mark.submission))
                && job.name.ends_with(&crate::act::name_suffix(mark.job, mark.submission));
            is_own.then(|| Target { slurm: job.id, uid, name: job.name.clone() })
        };
        let waits = |job: &&SlurmJob| matches!(Known::of(job), Known::Held | Known::Waiting);
        let open = jobs.iter().filter(|job| !current.contains(&job.id)).filter(waits);
        open.filter_map(stray).collect()
    }

    /// Marks a job that was in Slurm before it was ours, if it still is the one that was meant.
    pub(super) fn mark_adopted(&mut self, job: JobId) {
        let entry = self.ledger.entries.get(&job).filter(|entry| !entry.marked);
        let Some(id) = entry.and_then(|entry| entry.slurm) else { return };
        let Some(now) = self.jobs_now() else { return };
        let Some(one) = now.rows.into_iter().find(|one| one.id == id) else {
            if now.skipped.count == 0 {
                self.let_go(job, "it is not in Slurm any more, where it was to be taken over from");
            }
            return;
        };
        let marked = match self.claim_adopted(job, &one) {
            Ok(None) => Ok(()),
            Ok(Some(comment)) => match self.actor.mark(id, &comment) {
                // It is not known whether it was done: the next look tells, and it is tried again.
                Err(error) if error.may_pass() => return self.failed(&error),
                result => result.map_err(|error| error.to_string()),
            },
            Err(why) => Err(why),
        };
        match marked {
            Ok(()) => {
                self.ledger.entries.entry(job).and_modify(|entry| entry.marked = true);
                self.runs.entry(job).and_modify(|run| run.acted = Instant::now());
                self.keep(job);
            }
            Err(why) => self.let_go(job, &format!("it cannot be taken over: {why}")),
        }
        self.look_soon();
    }

    /// Writes down by what a job that was another's is recognised, and says the comment it is to have, unless it has it.
    fn claim_adopted(&mut self, job: JobId, one: &SlurmJob) -> Result<Option<String>, String> {
        let entry = self.ledger.entries.get_mut(&job).ok_or("it is not known")?;
        // A request of an older version named the number alone.
        entry.claim.uid = entry.claim.uid.or(one.uid);
        let sighting =
            entry.claim.check_who_and_when(one).map_err(|mismatch| mismatch.to_string())?;
        sighting.into_iter().for_each(|sighting| entry.claim.note(sighting));
        if entry.claim.is_marked(&one.comment) {
            return Ok(None);
        }
        if entry.claim.mark.is_empty() {
            let uid = one.uid.ok_or("Slurm does not tell whose it is")?;
            let mark = self.key.mark(&self.instance, job, 0, uid);
            entry.claim.mark = mark.map_err(|error| error.to_string())?;
        }
        entry.claim.name.clone_from(&one.name);
        let comment = format!("{} {}", entry.claim.mark, one.comment).trim_end().to_owned();
        if self.keep(job) {
            Ok(Some(comment))
        } else {
            Err("nothing can be written down".to_owned())
        }
    }
}
