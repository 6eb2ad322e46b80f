//! Estimates that wait for their jobs to end, so that it can be learnt how far they were off.

use crate::foresee::{Foreseen, ForeseenJob};
use crate::lengths::{Lengths, PastJob};
use crate::spread::{Class, Fell, Intervals, Spread, Steadiness, WATCHED, Waiting, What};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trainyard_types::{End, JobId, Time};

/// Estimates that wait, of one job and of all; beyond that every other one of the job is dropped.
const OPEN_OF_JOB_MAX: usize = 48;
const OPEN_MAX: usize = 20_000;
/// Jobs of one forecast that are noted, so that all parts of a long life are.
const NOTED_MAX: usize = 64;

/// An estimate that waits.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    made: Time,
    /// What was expected, in seconds from then.
    class: Class,
    seconds: f32,
    /// The interval that was given for it, and whether it is known where it fell.
    within: (f32, f32),
    #[serde(default)]
    fell: bool,
}

/// All that forecasts have learnt: lengths of past jobs, factors of past estimates, and estimates that wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// How long past jobs took.
    #[serde(default)]
    pub lengths: Lengths,
    /// How far past estimates were off.
    #[serde(default)]
    pub spread: Spread,
    #[serde(default)]
    open: Vec<(JobId, Vec<Open>)>,
}

impl Ledger {
    /// Notes some of the estimates of a forecast, to be settled when their jobs end. Which ones depends on the
    /// moment alone.
    pub fn note(&mut self, foreseen: &Foreseen) {
        let now = foreseen.now;
        self.find_late(now);
        let intervals = self.intervals(now, WATCHED);
        let mut open: BTreeMap<JobId, Vec<Open>> =
            std::mem::take(&mut self.open).into_iter().collect();
        let mut count: usize = open.values().map(Vec::len).sum();
        let mut jobs: Vec<&ForeseenJob> = foreseen.jobs.iter().collect();
        jobs.sort_unstable_by_key(|one| mixed(u64::from(one.job.0) ^ now.0.rotate_left(32)));
        let mut noted = 0;
        for one in jobs {
            let own = open.entry(one.job).or_default();
            if noted == NOTED_MAX || count >= OPEN_MAX {
                break;
            }
            let all = own.len();
            thin_out(own);
            count -= all - own.len();
            let before = own.len();
            let made = |(class, seconds)| {
                let steady = steadiness(own, class, now, seconds);
                let ((low, high), _, _) = intervals.of_steady(class, seconds, steady);
                let within = (low as f32, high as f32);
                Open { made: now, class, seconds: seconds as f32, within, fell: false }
            };
            let fresh: Vec<Open> = estimates(one, now).map(made).collect();
            own.extend(fresh);
            noted += usize::from(own.len() > before);
            count += own.len() - before;
        }
        open.retain(|_, own| !own.is_empty());
        self.open = open.into_iter().collect();
    }

    /// Learns from a job that ended, and settles what was expected of it.
    pub fn settle(&mut self, past: &PastJob) {
        self.lengths.learn(past);
        let Ok(index) = self.open.binary_search_by_key(&past.job, |(job, _)| *job) else { return };
        let (_, open) = self.open.remove(index);
        for one in open {
            let at = match one.class.what {
                What::Start => past.first_start,
                // An end that could not be foreseen says nothing about forecasts.
                What::EndOfWaiting | What::EndOfRunning => Some(past.ended)
                    .filter(|_| past.first_start.is_some() && is_foreseeable(past.end)),
            };
            if let Some(at) = at.filter(|at| *at >= one.made) {
                let real = at.since(one.made).as_secs_f64();
                self.spread.learn(one.class, one.made, f64::from(one.seconds), real);
                if !one.fell {
                    self.spread.watch(one.class, one.fell_at(real));
                }
            }
        }
    }

    /// Drops a job that ended long ago and of which nothing more can be learned.
    pub fn drop_job(&mut self, job: JobId) {
        self.open.retain(|(other, _)| *other != job);
    }

    /// Jobs with estimates that wait, ascending.
    pub fn awaited(&self) -> impl Iterator<Item = JobId> {
        self.open.iter().map(|(job, _)| *job)
    }

    /// Intervals that are right so much of the time, as far as is known at a moment.
    pub fn intervals(&self, now: Time, confidence: f64) -> Intervals {
        let open = self.open.iter().flat_map(|(_, open)| open);
        let waiting = open.map(|one| Waiting {
            class: one.class,
            made: one.made,
            expected: f64::from(one.seconds),
            gone: now.since(one.made).as_secs_f64(),
        });
        self.spread.intervals(confidence, &waiting.collect::<Vec<_>>())
    }

    /// How steadily each job of a forecast that runs has come nearer to its end, by id; the others are left out.
    pub fn steadiness(&self, foreseen: &Foreseen) -> BTreeMap<JobId, Steadiness> {
        let of = |(job, open): &(JobId, Vec<Open>)| {
            let one = foreseen.job(*job)?;
            let mut own = estimates(one, foreseen.now);
            let (class, seconds) = own.find(|(class, _)| class.what == What::EndOfRunning)?;
            Some((*job, steadiness(open, class, foreseen.now, seconds)))
        };
        self.open.iter().filter_map(of).collect()
    }

    /// What is later than its interval is known to be so before it comes true.
    fn find_late(&mut self, now: Time) {
        for one in self.open.iter_mut().flat_map(|(_, open)| open) {
            let gone = now.since(one.made).as_secs_f64();
            if !one.fell && one.fell_at(gone) == Fell::After {
                one.fell = true;
                self.spread.watch(one.class, Fell::After);
            }
        }
    }
}

impl Open {
    fn fell_at(&self, real: f64) -> Fell {
        let (low, high) = (f64::from(self.within.0), f64::from(self.within.1));
        // A hair is not worth a word, and single numbers are rounded.
        let hair = 1e-3 + 1e-6 * real;
        match real {
            real if real < low - hair => Fell::Before,
            real if real > high + hair => Fell::After,
            _ => Fell::Within,
        }
    }
}

/// What is expected of a job, in seconds from now, each with its class.
pub fn estimates(one: &ForeseenJob, now: Time) -> impl Iterator<Item = (Class, f64)> {
    let grounds = one.grounds;
    let waits = !one.runs;
    let start = one.starts.filter(|at| waits && *at >= now);
    let start = start.map(|at| (Class { what: What::Start, grounds }, at.since(now).as_secs_f64()));
    let what = if waits { What::EndOfWaiting } else { What::EndOfRunning };
    let end = one.ends.map(|(at, _)| (Class { what, grounds }, at.since(now).as_secs_f64()));
    start.into_iter().chain(end)
}

/// How well a job's earlier estimates of a class agree with the one of a moment.
fn steadiness(open: &[Open], class: Class, now: Time, seconds: f64) -> Steadiness {
    let mut steady = Steadiness::default();
    for one in open.iter().filter(|one| one.class == class) {
        steady.note(f64::from(one.seconds), now.since(one.made).as_secs_f64() + seconds);
    }
    steady
}

fn is_foreseeable(end: End) -> bool {
    match end {
        End::Finished | End::Failed | End::TimeLimit | End::Cancelled => true,
        End::Orphaned | End::Rejected | End::Pruned => false,
    }
}

/// Makes room for more estimates of a job by dropping those of every other moment.
fn thin_out(own: &mut Vec<Open>) {
    if own.len() < OPEN_OF_JOB_MAX {
        return;
    }
    let mut moments: Vec<Time> = own.iter().map(|open| open.made).collect();
    moments.dedup();
    own.retain(|open| {
        moments.iter().position(|made| *made == open.made).is_some_and(|at| at % 2 == 0)
    });
}

/// Bits well mixed, after the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
