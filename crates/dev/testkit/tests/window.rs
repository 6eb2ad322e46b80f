//! Runs of which only some jobs count.

use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_report::Summary;
use trainyard_sim::{Options, Outcome, Quiet, Window, simulate};
use trainyard_types::{Cluster, JobId};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

fn given() -> (Workload, Arc<Cluster>) {
    let cluster = cluster::parse_line("2x4 v100, 2x4 a100").expect("a cluster");
    let spec = Spec { jobs: 400, arrival: Arrival::Load(1.1), seed: 3, ..Spec::default() };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a workload");
    (workload, Arc::new(cluster))
}

fn run((workload, cluster): &(Workload, Arc<Cluster>), measured: Option<Window>) -> Outcome {
    let pipeline = Selection::policy("fifo").build().expect("a policy of the registry");
    simulate(workload, cluster, pipeline, &Options { measured, ..Options::default() }, &mut Quiet)
}

#[test]
fn under_fifo_a_window_holds_what_the_whole_run_says_of_its_jobs() {
    let given = given();
    let window = Window { from: 100, to: 150 };
    let (whole, part) = (run(&given, None), run(&given, Some(window)));
    // No job overtakes another, so that jobs that come later change nothing for those before.
    let same = |one: &&trainyard_sim::JobOutcome| window.contains(one.job);
    let expected: Vec<_> = whole.jobs.iter().filter(same).collect();
    assert_eq!(part.jobs.iter().collect::<Vec<_>>(), expected);
    assert!(part.unfinished.is_empty() && part.beside.len() >= 100);
    assert!(part.beside.iter().all(|one| !window.contains(one.job)));
    assert_eq!(part.ended, expected.iter().map(|one| one.ended).max().expect("some job"));
    assert!(part.ended < whole.ended && part.steps < whole.steps, "it ends with its window");
    assert!(part.measures(JobId(149)) && !part.measures(JobId(150)));
}

#[test]
fn measures_of_jobs_are_of_the_window_and_those_of_the_cluster_of_all() {
    let given = given();
    let part = run(&given, Some(Window { from: 100, to: 150 }));
    let summary = Summary::new(&given.0, &given.1, &part);
    assert_eq!((summary.jobs, summary.finished, summary.unfinished), (50, 50, 0));
    // What runs at the end is counted too, or less would be held than was seen in use.
    let seen = part.series.mean(|point| point.used) / f64::from(part.gpus);
    assert!((summary.utilisation / seen - 1.0).abs() < 1e-6, "{} {seen}", summary.utilisation);
    let by_kind: f64 = part.gpu_seconds_by_kind.iter().sum();
    assert!((by_kind / part.gpu_seconds_held - 1.0).abs() < 1e-9);
    let text = trainyard_report::text::job_table(&given.0, &part);
    assert_eq!(text.lines().count(), 51, "a heading and the jobs that count");
}
