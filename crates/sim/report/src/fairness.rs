//! Finish-time fairness, after Themis (NSDI'20, section 3) and Gavel (OSDI'20, section 4.2).
//!
//! Rho of a job is its completion time over its isolated time: how long it takes alone on a 1/n share of the
//! cluster, where n is the mean number of jobs that were submitted and not over during its life.
//! A share of G/n GPUs serves a gang of g by turns, so that the isolated time is the ideal time times
//! max(1, g n / G); above 1 means that the job would have fared better with a cluster of its own.

use serde::Serialize;
use trainyard_sim::{JobOutcome, Outcome};
use trainyard_types::{Span, Time};
use trainyard_workload::Workload;

/// Where the rhos of a set of jobs lie; all zero when it is empty.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rho {
    /// Their sum over their number.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// The part of jobs above 1.
    pub above_one: f64,
}

impl Rho {
    /// Of jobs that finished.
    pub fn of(rhos: &[f64]) -> Rho {
        let mut sum = RhoSum::default();
        rhos.iter().for_each(|rho| sum.add(*rho));
        sum.rho()
    }
}

/// Rhos that are added up one after another.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct RhoSum {
    sum: f64,
    worst: f64,
    above_one: u64,
    count: u64,
}

impl RhoSum {
    pub(crate) fn add(&mut self, rho: f64) {
        self.sum += rho;
        self.worst = self.worst.max(rho);
        self.above_one += u64::from(rho > 1.0);
        self.count += 1;
    }

    pub(crate) fn rho(&self) -> Rho {
        if self.count == 0 {
            return Rho::default();
        }
        let count = self.count as f64;
        Rho { mean: self.sum / count, worst: self.worst, above_one: self.above_one as f64 / count }
    }
}

/// Rho of every job that ended on a cluster of so many GPUs, in the order of the outcome.
pub fn rhos(workload: &Workload, gpus: u32, outcome: &Outcome, ideal: &[Span]) -> Vec<f64> {
    let life = |index: usize| {
        let one: &JobOutcome = &outcome.jobs[index];
        let job = &workload.jobs[one.job.index()].job;
        let ideal = ideal[one.job.index()];
        Life { submitted: job.submitted, ended: one.ended, gpus: job.want.gpus, ideal }
    };
    let begins = workload.jobs.iter().map(|one| one.job.submitted).collect();
    let ends = outcome.jobs.iter().chain(&outcome.beside).map(|one| one.ended).collect();
    rhos_among((outcome.jobs.len(), life), Crowd::new(begins, ends), gpus)
}

/// The life of a job that ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// When it was submitted.
    pub submitted: Time,
    /// When it was over.
    pub ended: Time,
    /// GPUs it asked for.
    pub gpus: u32,
    /// How long it takes undisturbed, as asked for.
    pub ideal: Span,
}

/// Rho of lives on a cluster of so many GPUs, among a crowd of which the submissions and ends are given.
pub fn rhos_of_lives(
    lives: &[Life],
    (begins, ends): (Vec<Time>, Vec<Time>),
    gpus: u32,
) -> Vec<f64> {
    rhos_among((lives.len(), |index| lives[index]), Crowd::new(begins, ends), gpus)
}

fn rhos_among((count, life): (usize, impl Fn(usize) -> Life), crowd: Crowd, gpus: u32) -> Vec<f64> {
    let sums = crowd.sums(count, &life);
    drop(crowd);
    sums.into_iter().enumerate().map(|(index, sum)| rho(life(index), sum, gpus)).collect()
}

/// Rho of a life with so many job-microseconds of the crowd in it, on a cluster of so many GPUs.
pub(crate) fn rho(life: Life, sum: u128, gpus: u32) -> f64 {
    let length = life.ended.since(life.submitted);
    // The mean over a life; 1 where it has no length.
    let mean = if length == Span::ZERO { 1.0 } else { sum as f64 / length.0 as f64 };
    let share = f64::from(life.gpus) * mean / f64::from(gpus.max(1));
    let isolated = life.ideal.as_secs_f64().max(1e-3) * share.max(1.0);
    length.as_secs_f64() / isolated
}

/// Rho of a job against one of as many equal parts of the cluster as the workload has jobs, of which each GPU has
/// `crowd`, 1 at least: the measure of Shockwave (NSDI'23), for which the crowd is always the whole trace and a part of
/// a GPU serves a gang as it serves one.
pub(crate) fn rho_of_all(jct: Span, ideal: Span, crowd: f64) -> f64 {
    jct.as_secs_f64() / (ideal.as_secs_f64().max(1e-3) * crowd)
}

/// The number of jobs that were submitted and not over: submissions and ends, each in order.
///
/// Sums over time are told to those who ask in the order of time, so that nothing but the moments is kept: of a million
/// jobs the sums would take more room than the jobs.
struct Crowd {
    begins: Vec<Time>,
    ends: Vec<Time>,
}

impl Crowd {
    /// Those that were never over stay to the end.
    fn new(mut begins: Vec<Time>, mut ends: Vec<Time>) -> Crowd {
        begins.sort_unstable();
        ends.sort_unstable();
        Crowd { begins, ends }
    }

    /// Job-microseconds over each life.
    fn sums(&self, count: usize, life: impl Fn(usize) -> Life) -> Vec<u128> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        let mut sums = vec![0u128; count];
        // By submission first: that is the order of most traces, and then nothing is moved.
        order.sort_by_key(|index| life(*index as usize).submitted);
        let mut walk = Walk::new(self);
        for index in order.iter().map(|index| *index as usize) {
            sums[index] = walk.up_to(life(index).submitted);
        }
        order.sort_unstable_by_key(|index| life(*index as usize).ended);
        let mut walk = Walk::new(self);
        for index in order.iter().map(|index| *index as usize) {
            sums[index] = walk.up_to(life(index).ended).saturating_sub(sums[index]);
        }
        sums
    }
}

/// A walk along the time of a crowd.
struct Walk<'a> {
    begins: std::iter::Peekable<std::slice::Iter<'a, Time>>,
    ends: std::iter::Peekable<std::slice::Iter<'a, Time>>,
    now: Time,
    sum: u128,
    count: u64,
}

impl<'a> Walk<'a> {
    fn new(crowd: &'a Crowd) -> Walk<'a> {
        let (begins, ends) = (crowd.begins.iter().peekable(), crowd.ends.iter().peekable());
        Walk { begins, ends, now: Time::ZERO, sum: 0, count: 0 }
    }

    /// Job-microseconds up to a moment that is not before the one asked for last.
    fn up_to(&mut self, at: Time) -> u128 {
        while let Some(&next) =
            [self.begins.peek(), self.ends.peek()].into_iter().flatten().min().copied()
            && next <= at
        {
            self.pass(next);
            while self.begins.next_if(|begin| **begin <= next).is_some() {
                self.count += 1;
            }
            while self.ends.next_if(|end| **end <= next).is_some() {
                self.count = self.count.saturating_sub(1);
            }
        }
        self.pass(at);
        self.sum
    }

    fn pass(&mut self, to: Time) {
        self.sum += u128::from(self.count) * u128::from(to.since(self.now).0);
        self.now = self.now.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_is_averaged_over_a_life() {
        let second = |s: u64| Time(s * 1_000_000);
        // One job from 0 to 10, a second one from 5 to 10; a third one that is never over comes then.
        let crowd =
            Crowd::new(vec![second(5), second(0), second(10)], vec![second(10), second(10)]);
        let life = |(from, to)| Life {
            submitted: second(from),
            ended: second(to),
            gpus: 1,
            ideal: Span::secs(1),
        };
        let lives: Vec<Life> = [(5, 10), (0, 10), (5, 5), (9, 12)].map(life).into();
        let sums = crowd.sums(lives.len(), |index| lives[index]);
        assert_eq!(sums, [10_000_000, 15_000_000, 0, 4_000_000]);
    }

    #[test]
    fn the_worst_and_the_part_above_one_are_counted() {
        let rho = Rho::of(&[0.5, 1.0, 1.5, 3.0]);
        assert_eq!((rho.mean, rho.worst, rho.above_one), (1.5, 3.0, 0.5));
        assert_eq!(Rho::of(&[]), Rho::default());
    }
}
