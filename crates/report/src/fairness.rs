//! Finish-time fairness, after Themis (NSDI'20, section 3) and Gavel (OSDI'20, section 4.2).
//!
//! Rho of a job is its completion time over its isolated time: how long it takes alone on a 1/n share of the
//! cluster, where n is the mean number of jobs that were submitted and not over during its life.
//! A share of G/n GPUs serves a gang of g by turns, so that the isolated time is the ideal time times
//! max(1, g n / G); above 1 means that the job would have fared better with a cluster of its own.

use crate::metrics::jct;
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
        if rhos.is_empty() {
            return Rho::default();
        }
        let count = rhos.len() as f64;
        Rho {
            mean: rhos.iter().sum::<f64>() / count,
            worst: rhos.iter().copied().fold(0.0, f64::max),
            above_one: rhos.iter().filter(|rho| **rho > 1.0).count() as f64 / count,
        }
    }
}

/// Rho of every job that is over on a cluster of so many GPUs, in the order of the outcome.
pub fn rhos(workload: &Workload, gpus: u32, outcome: &Outcome, ideal: &[Span]) -> Vec<f64> {
    let life = |one: &JobOutcome| {
        let job = &workload.jobs[one.job.index()].job;
        let ideal = ideal[one.job.index()];
        Life { submitted: job.submitted, ended: one.ended, gpus: job.want.gpus, ideal }
    };
    let lives: Vec<Life> = outcome.jobs.iter().map(life).collect();
    let begins = workload.jobs.iter().map(|one| one.job.submitted).collect();
    let ends = outcome.jobs.iter().chain(&outcome.beside).map(|one| one.ended).collect();
    rhos_of_lives(&lives, (begins, ends), gpus)
}

/// The life of a job that is over.
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
    let crowd = Crowd::new(begins, ends);
    let gpus = f64::from(gpus.max(1));
    let rho = |life: &Life| {
        let share = f64::from(life.gpus) * crowd.mean(life.submitted, life.ended) / gpus;
        let isolated = life.ideal.as_secs_f64().max(1e-3) * share.max(1.0);
        life.ended.since(life.submitted).as_secs_f64() / isolated
    };
    lives.iter().map(rho).collect()
}

/// Rho of every job that is over against one of as many equal parts of the cluster as the workload has jobs, in the
/// order of the outcome: the measure of Shockwave (NSDI'23), for which the crowd is always the whole trace and a part
/// of a GPU serves a gang as it serves one.
pub fn rhos_of_all(workload: &Workload, gpus: u32, outcome: &Outcome, ideal: &[Span]) -> Vec<f64> {
    let crowd = (workload.jobs.len() as f64 / f64::from(gpus.max(1))).max(1.0);
    let rho = |one: &JobOutcome| {
        let job = &workload.jobs[one.job.index()].job;
        jct(job, one).as_secs_f64() / (ideal[one.job.index()].as_secs_f64().max(1e-3) * crowd)
    };
    outcome.jobs.iter().map(rho).collect()
}

/// The number of jobs that were submitted and not over, summed over time.
struct Crowd {
    /// Moments at which it changes, with the job-microseconds up to there and the number from there on.
    steps: Vec<(Time, u128, u64)>,
}

impl Crowd {
    /// Those that were never over stay to the end.
    fn new(mut begins: Vec<Time>, mut ends: Vec<Time>) -> Crowd {
        begins.sort_unstable();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut begins = begins.into_iter().peekable();
        let mut steps: Vec<(Time, u128, u64)> = Vec::new();
        let (mut now, mut sum, mut count) = (Time::ZERO, 0u128, 0u64);
        while let Some(at) = [begins.peek(), ends.peek()].into_iter().flatten().min().copied() {
            sum += u128::from(count) * u128::from(at.since(now).0);
            now = at;
            while begins.next_if(|begin| *begin <= at).is_some() {
                count += 1;
            }
            while ends.next_if(|end| *end <= at).is_some() {
                count = count.saturating_sub(1);
            }
            steps.push((at, sum, count));
        }
        Crowd { steps }
    }

    /// Its mean between two moments; 1 where they are the same.
    fn mean(&self, from: Time, to: Time) -> f64 {
        let length = to.since(from).0;
        if length == 0 {
            return 1.0;
        }
        (self.up_to(to) - self.up_to(from)) as f64 / length as f64
    }

    fn up_to(&self, at: Time) -> u128 {
        match self.steps.partition_point(|step| step.0 <= at) {
            0 => 0,
            after => {
                let (since, sum, count) = self.steps[after - 1];
                sum + u128::from(count) * u128::from(at.since(since).0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_is_averaged_over_a_life() {
        let second = |s: u64| Time(s * 1_000_000);
        // One job from 0 to 10, a second one from 5 to 10.
        let crowd = Crowd { steps: vec![(second(0), 0, 1), (second(5), 5_000_000, 2)] };
        assert_eq!(crowd.mean(second(0), second(10)), 1.5);
        assert_eq!(crowd.mean(second(5), second(10)), 2.0);
        assert_eq!(crowd.mean(second(5), second(5)), 1.0);
    }

    #[test]
    fn the_worst_and_the_part_above_one_are_counted() {
        let rho = Rho::of(&[0.5, 1.0, 1.5, 3.0]);
        assert_eq!((rho.mean, rho.worst, rho.above_one), (1.5, 3.0, 0.5));
        assert_eq!(Rho::of(&[]), Rho::default());
    }
}
