//! Jobs that follow a measured training: the pace changes by epoch, and rounds as the run says.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::import::pollux::{self, Authors};
use trainyard_profile::training::{EpochRow, MeasuredAt, StepTime, TimePoint};
use trainyard_profile::{CostModel, ModelProfile};
use trainyard_sim::{Options, Outcome, Quiet, Rounding, Semantics, simulate};
use trainyard_types::{Cluster, Job, JobId, Span, Time};
use trainyard_workload::{TraceJob, Workload};

/// A training on one GPU at batch 16 or 32, whose epochs end at 100, 200, ... steps.
///
/// At 16 an iteration is one step. At 32 it takes twice as long and is worth 4/3 of a step in the first epoch and 3/2
/// in each later one.
fn training(step: f64, epochs: usize) -> ModelProfile {
    let point = |local: u32| TimePoint {
        kind: "t4".to_owned(),
        place: MeasuredAt::Ring(vec![1]),
        local,
        time: StepTime { step, sync: 0.0 },
        recorded: false,
    };
    let row = |epoch: usize| EpochRow {
        progress: 100.0 * (epoch + 1) as f64,
        iterations: 100.0 * (epoch + 1) as f64,
        metric: epoch as f64,
        grad_sqr: 1.0,
        grad_var: if epoch == 0 { 1.0 } else { 2.0 },
    };
    let rows: Vec<EpochRow> = (0..epochs).map(row).collect();
    let all = vec![(16, rows.clone()), (32, rows)];
    pollux::profile(Authors::Pollux, "tiny", vec![point(8), point(16)], all).expect("a training")
}

/// Jobs for one GPU each, given as moments of submission and batch sizes, on a cluster of one GPU.
fn run(model: ModelProfile, jobs: &[(u64, u32)], options: &Options) -> Outcome {
    let mut workload = Workload::empty("trainings");
    let work = model.training.as_ref().expect("a training").work();
    let model = workload.catalog.add(model);
    for (id, (at, batch)) in jobs.iter().enumerate() {
        let mut job = Job::simple(JobId(id as u32), Time(at * 1_000_000), 1);
        job.model = model;
        job.want.batch = Some(*batch);
        workload.jobs.push(TraceJob::new(Arc::new(job), work));
    }
    let policy = Choice { name: "fifo".to_owned(), settings: RawSettings::default() };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("a pipeline");
    let mut options = options.clone();
    options.setup.check_every = 1;
    let cluster = Arc::new(Cluster::uniform(1, 1, "t4"));
    let outcome = simulate(&workload, &cluster, pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults + outcome.stats.policy_panics, 0, "{:?}", outcome.stats);
    assert!(outcome.unfinished.is_empty());
    outcome
}

fn ended(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.ended.as_secs_f64()).collect()
}

fn started(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.first_start.expect("it ran").as_secs_f64()).collect()
}

#[test]
fn the_pace_changes_where_an_epoch_ends() {
    let free = Options { costs: CostModel::Free, ..Options::default() };
    let outcome = run(training(0.125, 3), &[(0, 16), (100, 32)], &free);
    // 300 steps of an eighth of a second; then two passes for each iteration, with the gains of the epochs.
    let second = 100.0 * 0.25 / (4.0 / 3.0) + 200.0 * 0.25 / 1.5;
    assert_eq!(ended(&outcome)[0], 37.5);
    assert!((ended(&outcome)[1] - 100.0 - second).abs() < 1e-5, "{:?}", ended(&outcome));
}

#[test]
fn a_stopped_job_goes_on_in_its_epoch() {
    let mut options = Options { costs: CostModel::Free, ..Options::default() };
    options.injected = vec![
        (Time(20_000_000), trainyard_types::Event::NodeLost(trainyard_types::NodeId(0))),
        (Time(50_000_000), trainyard_types::Event::NodeUp(trainyard_types::NodeId(0))),
    ];
    options.checkpoint_every = Span(1);
    let whole = 100.0 * 0.25 / (4.0 / 3.0) + 200.0 * 0.25 / 1.5;
    let outcome = run(training(0.125, 3), &[(0, 32)], &options);
    assert!((ended(&outcome)[0] - 30.0 - whole).abs() < 1e-3, "{:?}", ended(&outcome));
}

#[test]
fn whole_seconds_are_counted_from_the_begin_of_each_epoch() {
    let options =
        Options { rounding: Rounding::WholeSeconds, costs: CostModel::Free, ..Options::default() };
    // Epochs of 12.4 s become 12 s each, of 12.6 s 13 s.
    assert_eq!(ended(&run(training(0.124, 3), &[(0, 16)], &options)), [36.0]);
    assert_eq!(ended(&run(training(0.126, 3), &[(0, 16)], &options)), [39.0]);
}

#[test]
fn an_end_rounded_back_onto_a_decision_is_seen_by_the_next_one() {
    let options = Semantics::Pollux.options();
    // Decided at 60 s, started until 90 s, done at 120.3 s, which counts as 120 s.
    let outcome = run(training(0.303, 1), &[(7, 16), (8, 16)], &options);
    assert_eq!(started(&outcome), [60.0, 180.0]);
    assert_eq!(ended(&outcome), [120.000001, 240.000001]);
    // Rounded up to 120 s it is seen at once.
    let outcome = run(training(0.298, 1), &[(7, 16), (8, 16)], &options);
    assert_eq!(started(&outcome), [60.0, 120.0]);
    assert_eq!(ended(&outcome), [120.0, 180.0]);
}
