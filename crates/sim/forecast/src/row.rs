//! A run from a moment as a row of a comparison.

use crate::foresee::Foreseen;
use crate::sizes::Grounds;
use trainyard_report::Spread;
use trainyard_report::fairness::{Life, Rho, rhos_of_lives};
use trainyard_sim::JobOutcome;
use trainyard_types::{End, JobId, Span, Time};

/// The jobs of a moment under one policy. Times of completion count from each job's submission.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastRow {
    /// Jobs that do all their work by then; one of which only its time limit is known ends with that.
    pub finished: u64,
    /// Completion times of these, in seconds.
    pub completion_s: Spread,
    /// From submission to the first start of those that start, in seconds.
    pub wait_s: Spread,
    /// From the moment until the last job ends.
    pub makespan: Span,
    /// The part of the cluster's GPUs that jobs hold, from the moment until then.
    pub utilisation: f64,
    /// The worst finish-time fairness of those that finish.
    pub worst_rho: f64,
    /// Deadlines met.
    pub deadlines_met: u64,
    /// Deadlines set.
    pub deadlines: u64,
    /// Stops for another job.
    pub preemptions: u64,
    /// GPU-hours spent on saving, on every start but the first, and on work done again.
    pub gpu_hours_lost: f64,
    /// What went wrong with the policy itself, if anything did.
    pub trouble: Option<String>,
}

impl ForecastRow {
    /// Measures a run. `ideal` is how long a job takes undisturbed, as asked for, where that is known.
    pub fn new(foreseen: &Foreseen, ideal: impl Fn(JobId) -> Option<Span>) -> ForecastRow {
        let outcome = &foreseen.outcome;
        let submitted = |job: JobId| foreseen.sizes.job(job).job.submitted;
        let ends = || outcome.jobs.iter().filter(|one| is_done(foreseen, one));
        let completion = ends().map(|one| one.ended.since(submitted(one.job)));
        let wait =
            foreseen.jobs.iter().filter_map(|one| Some(one.starts?.since(submitted(one.job))));
        let deadline = |job: JobId| foreseen.sizes.job(job).job.deadline();
        let met = ends().filter(|one| deadline(one.job).is_some_and(|by| one.ended <= by)).count();
        let set = foreseen.jobs.iter().filter(|one| deadline(one.job).is_some()).count();
        let lost = outcome.gpu_seconds_restarting + outcome.gpu_seconds_lost;
        ForecastRow {
            finished: ends().count() as u64,
            completion_s: Spread::of_spans(completion.collect()),
            wait_s: Spread::of_spans(wait.collect()),
            makespan: outcome.ended.since(foreseen.now),
            utilisation: outcome.series.mean(|point| point.used) / f64::from(outcome.gpus.max(1)),
            worst_rho: Rho::of(&rhos(foreseen, ideal)).worst,
            deadlines_met: met as u64,
            deadlines: set as u64,
            preemptions: outcome.stats.preemptions,
            gpu_hours_lost: lost / 3600.0,
            trouble: trouble(foreseen),
        }
    }
}

/// Whether a job does all its work, as far as that is known.
fn is_done(foreseen: &Foreseen, one: &JobOutcome) -> bool {
    let by_limit = foreseen.sizes.grounds(one.job) == Some(Grounds::Limit);
    one.end == End::Finished || one.end == End::TimeLimit && by_limit
}

fn rhos(foreseen: &Foreseen, ideal: impl Fn(JobId) -> Option<Span>) -> Vec<f64> {
    let outcome = &foreseen.outcome;
    let finished = outcome.jobs.iter().filter(|one| is_done(foreseen, one));
    let lives = finished.filter_map(|one| {
        let job = &foreseen.sizes.job(one.job).job;
        let gpus = job.want.gpus;
        Some(Life { submitted: job.submitted, ended: one.ended, gpus, ideal: ideal(one.job)? })
    });
    let begins: Vec<Time> = foreseen.sizes.jobs().map(|(one, _)| one.job.submitted).collect();
    let ends: Vec<Time> = outcome.jobs.iter().map(|one| one.ended).collect();
    rhos_of_lives(&lives.collect::<Vec<_>>(), (begins, ends), outcome.gpus)
}

fn trouble(foreseen: &Foreseen) -> Option<String> {
    let stats = &foreseen.outcome.stats;
    let failed = stats.policy_errors + stats.policy_panics;
    if failed == 0 && stats.fallbacks == 0 {
        return None;
    }
    Some(format!(
        "the policy failed {failed} times ({} of them panics); the fallback order decided {} times in its place",
        stats.policy_panics, stats.fallbacks
    ))
}
