//! No policy is better than what is proven to be the best there is.

use std::sync::Arc;
use trainyard_bound::{Bounds, tasks};
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::Catalog;
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_types::{Cluster, End, Span};
use trainyard_workload::{Arrival, Spec, Workload, cluster, embedded, generate};

/// Ends are rounded to microseconds, and a job may be started many times.
const TOLERANCE: f64 = 1e-6;

fn random(seed: u64, load: f64, clusters: &str) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = cluster::parse(clusters).expect("a valid cluster");
    let spec = Spec {
        jobs: 30,
        seed,
        arrival: Arrival::Load(load),
        models: vec!["gavel-*".to_owned()],
        tenants: 3,
        deadline_share: 0.5,
        priority_share: 0.3,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (workload, Arc::new(cluster))
}

/// Runs every policy, and returns how near the nearest came to the bound on mean completion time.
fn hold(workload: &Workload, cluster: &Arc<Cluster>, options: &Options) -> f64 {
    let bounds = Bounds::new(
        &tasks(workload, cluster, options).expect("bounds are known"),
        f64::from(cluster.gpus()),
    );
    assert_eq!(bounds.jobs, workload.jobs.len() as u64);
    let mut nearest = f64::INFINITY;
    for entry in POLICIES {
        let pipeline = Selection::policy(entry.name).build().expect("defaults build");
        let outcome = simulate(workload, cluster, pipeline, options, &mut Quiet);
        let bound = bounds.of_run(outcome.gpu_seconds_doubled > 0.0);
        let submitted = |job: usize| workload.jobs[job].job.submitted;
        let met = outcome.jobs.iter().filter(|one| {
            let deadline = workload.jobs[one.job.index()].job.deadline();
            one.end == End::Finished && deadline.is_some_and(|at| one.ended <= at)
        });
        let met = met.count() as u64;
        let most = bound.deadlines_met.unwrap_or(0);
        assert!(met <= most, "{} meets {met} deadlines of at most {most}", entry.name);
        if outcome.jobs.len() < workload.jobs.len()
            || outcome.jobs.iter().any(|one| one.end != End::Finished)
        {
            continue;
        }
        let times = outcome.jobs.iter().map(|one| one.ended.since(submitted(one.job.index())));
        let mean = times.map(Span::as_secs_f64).sum::<f64>() / workload.jobs.len() as f64;
        let makespan = outcome.makespan().as_secs_f64();
        let least = bound.jct_mean_s;
        assert!(mean >= least * (1.0 - TOLERANCE), "{}: {mean} below {least}", entry.name);
        let least = bound.makespan_s;
        assert!(makespan >= least * (1.0 - TOLERANCE), "{}: {makespan} below {least}", entry.name);
        nearest = nearest.min(mean / bound.jct_mean_s.max(1e-9));
    }
    nearest
}

#[test]
fn no_policy_is_below_a_bound_on_random_workloads() {
    for (seed, load, clusters) in
        [(1, 0.5, "2x8 v100"), (2, 1.5, "2x8 v100"), (3, 2.0, "1x8 v100, 1x8 p100")]
    {
        let (workload, cluster) = random(seed, load, clusters);
        let nearest = hold(&workload, &cluster, &Options::default());
        assert!(nearest < 20.0, "the bound says nothing: the best is {nearest} times it");
    }
}

#[test]
fn no_policy_is_below_a_bound_where_changes_cost_nothing() {
    let (workload, cluster) = random(4, 1.2, "2x4 v100");
    let options = Options {
        costs: trainyard_profile::CostModel::Free,
        estimate_error: 0.0,
        ..Options::default()
    };
    hold(&workload, &cluster, &options);
}

#[test]
fn bounds_cover_the_embedded_workload() {
    let (workload, cluster) = embedded();
    let known = tasks(&workload, &cluster, &Options::default()).expect("bounds are known");
    let bounds = Bounds::new(&known, f64::from(cluster.gpus()));
    assert_eq!(bounds.covered, bounds.jobs, "of some jobs nothing is known");
}
