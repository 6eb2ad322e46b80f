//! Time shares over rounds: what is asked for is what jobs get.

use std::sync::Arc;
use trainyard_framework::{
    Cx, Needs, Pipeline, PolicyError, RateTable, RoundSettings, Rounds, Shares, TimeShare, View,
};
use trainyard_policies::place::FewestNodes;
use trainyard_profile::CostModel;
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_testkit::forgetful::Forgetful;
use trainyard_types::{Cluster, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload};

/// Weights for the first jobs; the rest weigh 1.
struct Weighted(Vec<f64>);

impl TimeShare for Weighted {
    fn shares(
        &mut self,
        table: &RateTable,
        _view: &View<'_>,
        _cx: &mut Cx,
    ) -> Result<Shares, PolicyError> {
        let weight = |row: usize| *self.0.get(table.jobs[row].index()).unwrap_or(&1.0);
        let total: f64 = (0..table.jobs.len()).map(weight).sum();
        let gpus: u32 = table.capacity.iter().sum();
        let share = |row| (weight(row) / total * f64::from(gpus)).min(1.0);
        Ok(Shares::from((0..table.jobs.len()).map(share).collect::<Vec<_>>()))
    }
}

fn run(weights: &[f64], hours: &[f64], gpus: u8, forgets: bool) -> Outcome {
    let mut workload = Workload::empty("rounds");
    for (id, hours) in hours.iter().enumerate() {
        let job = Arc::new(Job::simple(JobId(id as u32), Time::ZERO, 1));
        workload.jobs.push(TraceJob::new(job, Work(hours * 3600.0)));
    }
    let policy = Rounds::new(Weighted(weights.to_vec()), RoundSettings::every(Span::secs(60)));
    let mut pipeline = Pipeline::new(policy, FewestNodes, Needs::NOTHING);
    if forgets {
        pipeline.policy = Box::new(Forgetful { inner: pipeline.policy, every: 5 });
    }
    let mut options = Options { costs: CostModel::Free, ..Options::default() };
    options.setup.check_every = 1;
    let cluster = Arc::new(Cluster::uniform(1, gpus, "v100"));
    let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults + outcome.stats.policy_panics, 0, "{:?}", outcome.stats);
    outcome
}

fn ended_hours(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.ended.as_secs_f64() / 3600.0).collect()
}

#[test]
fn three_equal_jobs_on_two_gpus_end_together() {
    for forgets in [false, true] {
        let ended = ended_hours(&run(&[], &[1.0, 1.0, 1.0], 2, forgets));
        assert!(ended.iter().all(|hours| (1.45..=1.51).contains(hours)), "{ended:?}");
    }
}

#[test]
fn a_job_of_twice_the_weight_goes_twice_as_fast() {
    let ended = ended_hours(&run(&[2.0, 1.0], &[1.0, 1.0], 1, false));
    // Two thirds of the time until it is done at 1.5 h, then the other one has the GPU to itself.
    assert!((1.47..=1.53).contains(&ended[0]), "{ended:?}");
    assert!((1.99..=2.01).contains(&ended[1]), "{ended:?}");
}

#[test]
fn nobody_is_moved_when_everybody_fits() {
    let outcome = run(&[3.0, 1.0], &[1.0, 2.0], 2, false);
    assert_eq!((outcome.stats.preemptions, outcome.stats.moves, outcome.stats.launches), (0, 0, 2));
}
