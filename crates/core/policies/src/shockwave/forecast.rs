//! How long a job will take still, when its batch size may change on the way (Shockwave, section 4).
//!
//! A job passes through known batch sizes, its modes; how much of its work falls to each is not known before. Before
//! anything is seen all modes are taken to be alike. What was seen counts as much as what was believed at first: a
//! Dirichlet prior over the modes with the whole work as its weight, updated by the work done in each.

use crate::prelude::*;
use smallvec::{SmallVec, smallvec};
use trainyard_profile::Batches;
use trainyard_types::{BatchMode, Job};

/// A measured speed that is further off than this part from the believed one replaces it.
const OFF_MAX: f64 = 0.4;
/// Doublings of a batch that are looked at.
const DOUBLINGS_MAX: u32 = 20;

/// What was seen of one job. A cache: without it the work done is taken to have been done in the present mode.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchHistory {
    /// Work done in each mode, by batch size; 0 stands for a batch that is not known.
    by_batch: SmallVec<[(u32, f64); 4]>,
    /// Believed speed over measured speed, where they differ much.
    slowness: f64,
}

impl Default for BatchHistory {
    fn default() -> BatchHistory {
        BatchHistory { by_batch: SmallVec::new(), slowness: 1.0 }
    }
}

/// What was believed about a job that had done so much, by so many changes of what is believed of speeds.
#[derive(Clone, Debug, PartialEq)]
pub struct LastOutlook {
    done: f64,
    beliefs: u64,
    outlook: Option<Outlook>,
}

impl LastOutlook {
    /// The outlook of a job: the last one as long as the job waits and nothing new is known.
    pub fn of(
        last: &mut Option<LastOutlook>,
        history: &BatchHistory,
        (job, view): (JobRef<'_>, &View<'_>),
        whole: bool,
    ) -> Option<Outlook> {
        let done = job.state.progress.done_at(view.now).0;
        let waits = job.state.held.is_none() && !view.learns();
        let beliefs = view.beliefs_version().filter(|_| waits);
        if let Some(last) = last
            && beliefs == Some(last.beliefs)
            && done == last.done
        {
            return last.outlook.clone();
        }
        let outlook = history.outlook(job, view, whole);
        let known = outlook.clone();
        *last = beliefs.map(|beliefs| LastOutlook { done, beliefs, outlook: known });
        outlook
    }
}

/// What is believed about a job's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Its whole work.
    pub total: f64,
    /// The work done; in whole epochs where these are counted.
    pub done: f64,
    /// Seconds that what is done took.
    pub past: f64,
    /// Seconds that the rest will take.
    pub rest: f64,
    /// Seconds for a unit of work, mean of what was seen.
    pub pace: f64,
}

impl BatchHistory {
    /// Takes note of where a job stands.
    pub fn note(&mut self, job: JobRef<'_>, view: &View<'_>) {
        let done = job.state.progress.done_at(view.now).0.max(0.0);
        let batch = present_batch(job, view.batches(job));
        let known: f64 = self.by_batch.iter().map(|(_, work)| work).sum();
        if done < known {
            // Work was lost with a node; which part of it is not known.
            self.by_batch.iter_mut().for_each(|(_, work)| *work *= done / known);
        } else {
            match self.by_batch.iter_mut().find(|(size, _)| *size == batch) {
                Some((_, work)) => *work += done - known,
                None => self.by_batch.push((batch, done - known)),
            }
        }
        let measured = job.state.progress.rate.0;
        // A job that waits is not measured, and most jobs wait where there are many.
        if measured > 0.0
            && let Some(believed) = seconds_per_work(job, view, batch).map(f64::recip)
        {
            let off = libm::fabs(measured - believed) / believed > OFF_MAX;
            self.slowness = if off { believed / measured } else { 1.0 };
        }
    }

    /// What is believed about the job, or nothing where its work or its speed is not known.
    ///
    /// `whole` counts progress in whole epochs, where an epoch is known.
    pub fn outlook(&self, job: JobRef<'_>, view: &View<'_>, whole: bool) -> Option<Outlook> {
        let done = job.state.progress.done_at(view.now).0.max(0.0);
        let total = done + view.work_left(job)?.0;
        let batches = view.batches(job);
        let epoch = batches.and_then(|batches| epoch_of(job.spec, batches));
        let present = present_batch(job, batches);
        let modes = modes(job.spec, batches, present);
        let time = |batch: u32| Some(seconds_per_work(job, view, batch)? * self.slowness);
        // The epoch in progress is seen too.
        let mut seen = self.by_batch.clone();
        let begun = epoch.unwrap_or(0.0).min(total);
        match seen.iter_mut().find(|(batch, _)| *batch == present) {
            Some((_, work)) => *work += begun,
            None => seen.push((present, begun)),
        }
        let credited = match epoch {
            Some(epoch) if whole => libm::floor(done / epoch + 1e-9) * epoch,
            _ => done,
        };
        let past: Option<f64> =
            self.by_batch.iter().map(|(batch, work)| Some(work * time(*batch)?)).sum();
        let (sum, spent) = seen.iter().try_fold((0.0, 0.0), |(sum, spent), (batch, work)| {
            Some((sum + work, spent + work * time(*batch)?))
        })?;
        let pace = if sum > 0.0 { spent / sum } else { time(present)? };
        let shares = posterior(&modes, &seen, total);
        let of_rest: f64 = shares.iter().map(|(_, work)| work).sum();
        let rest = (total - credited).max(0.0);
        let seconds: Option<f64> =
            shares.iter().map(|(batch, work)| Some(work * time(*batch)?)).sum();
        let rest = if of_rest > 0.0 { seconds? / of_rest * rest } else { pace * rest };
        let past = past?;
        // What is too long for arithmetic is as good as not known.
        let is_sound = [total, past, rest, pace].iter().all(|number| number.is_finite());
        let outlook = Outlook { total, done: credited, past, rest: rest.max(1.0), pace };
        (is_sound && pace > 0.0).then_some(outlook)
    }
}

/// The work still to come in each mode: the posterior mean of the whole less what was seen.
fn posterior(modes: &[u32], seen: &[(u32, f64)], total: f64) -> SmallVec<[(u32, f64); 6]> {
    let prior = total / modes.len().max(1) as f64;
    let mut counts: SmallVec<[(u32, f64); 6]> = modes.iter().map(|batch| (*batch, prior)).collect();
    for (batch, work) in seen {
        match counts.iter_mut().find(|(mode, _)| mode == batch) {
            Some((_, count)) => *count += work,
            None => counts.push((*batch, *work)),
        }
    }
    let sum: f64 = counts.iter().map(|(_, count)| count).sum();
    let seen_in =
        |batch: u32| seen.iter().find(|(other, _)| *other == batch).map_or(0.0, |(_, work)| *work);
    for (batch, count) in &mut counts {
        *count = (*count * total / sum.max(f64::MIN_POSITIVE) - seen_in(*batch)).max(0.0);
    }
    counts
}

/// The batch sizes a job may pass through, by the rule its user declared.
fn modes(job: &Job, batches: Option<&Batches>, present: u32) -> SmallVec<[u32; 6]> {
    let Some(batches) = batches else { return smallvec![present] };
    let own = job.want.batch.unwrap_or(batches.own);
    let largest = batches.others.iter().map(|(batch, _)| *batch).fold(own, u32::max);
    let mut modes: SmallVec<[u32; 6]> = smallvec![own];
    match job.batch_mode {
        BatchMode::Static => {}
        BatchMode::Accordion => modes.push(largest),
        BatchMode::Gns => {
            let doubled = (1..=DOUBLINGS_MAX).map_while(|times| own.checked_shl(times));
            modes.extend(doubled.take_while(|batch| *batch <= largest && *batch > own));
        }
    }
    modes.push(present);
    modes.sort_unstable();
    modes.dedup();
    modes
}

/// The batch a job trains with: what it last reported, else what its user asked for, else its profile's own.
fn present_batch(job: JobRef<'_>, batches: Option<&Batches>) -> u32 {
    let Some(batches) = batches else { return 0 };
    job.state.batch.or(job.spec.want.batch).unwrap_or(batches.own)
}

/// The work of an epoch, if it is known.
fn epoch_of(job: &Job, batches: &Batches) -> Option<f64> {
    let own = u64::from(job.want.batch.unwrap_or(batches.own).max(1));
    (batches.epoch_samples > 0).then(|| batches.epoch_samples.div_ceil(own) as f64)
}

/// Seconds for a unit of work at a batch, where the job would like to run.
fn seconds_per_work(job: JobRef<'_>, view: &View<'_>, batch: u32) -> Option<f64> {
    let rate = view.reference_rate_at(job, (batch > 0).then_some(batch))?.0;
    (rate > 0.0 && rate.is_finite()).then(|| rate.recip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_moves_the_belief_towards_it() {
        let share = |seen: &[(u32, f64)]| {
            let left = posterior(&[32, 64], seen, 100.0);
            left[0].1 / (left[0].1 + left[1].1)
        };
        assert_eq!(share(&[]), 0.5);
        // 40 of 100 were done with the small batch: of 140 in all 90 are small, so 64.3 of 100, less 40.
        let expected = (9000.0 / 140.0 - 40.0) / 60.0;
        assert!((share(&[(32, 40.0)]) - expected).abs() < 1e-12);
        // A mode that was seen more often than believed comes no more.
        assert_eq!(share(&[(32, 100.0)]), 0.0);
    }

    #[test]
    fn the_rule_says_through_which_batches_a_job_passes() {
        let others = [32, 64, 128, 256].map(|batch| (batch, String::new())).to_vec();
        let batches = Batches { own: 16, epoch_samples: 0, others };
        let with = |batch_mode: BatchMode, present: u32| {
            let mut job = Job::simple(JobId(0), Time::ZERO, 1);
            job.batch_mode = batch_mode;
            modes(&job, Some(&batches), present).to_vec()
        };
        assert_eq!(with(BatchMode::Static, 16), [16]);
        assert_eq!(with(BatchMode::Accordion, 16), [16, 256]);
        assert_eq!(with(BatchMode::Gns, 16), [16, 32, 64, 128, 256]);
        // A batch that the rule does not name was seen all the same.
        assert_eq!(with(BatchMode::Accordion, 48), [16, 48, 256]);
    }
}
