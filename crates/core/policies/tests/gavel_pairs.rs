//! Jobs that share GPUs two by two: few of them with a choice for every two, many with pairs that the solver makes.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_workload::{Arrival, SizeLaw, Spec, cluster, generate};

/// Mean completion time in seconds of so many jobs that are there from the beginning.
fn mean(jobs: u32, settings: &[&str]) -> f64 {
    let (cluster, _) = cluster::parse("2x4 v100, 2x4 k80").expect("a valid cluster");
    let spec = Spec {
        jobs,
        seed: 5,
        arrival: Arrival::AtOnce,
        models: vec!["gavel-*".to_owned()],
        size: SizeLaw::One,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    let settings = RawSettings::parse(settings.iter().copied()).expect("settings");
    let policy = Choice { name: "gavel".to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("a policy");
    let mut options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    options.setup.check_every = 1;
    let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet);
    let stats = &outcome.stats;
    assert_eq!(stats.faults + stats.policy_errors + stats.policy_panics, 0, "{stats:?}");
    assert!(outcome.unfinished.is_empty(), "{:?} were left", outcome.unfinished);
    let submitted = |job: usize| workload.jobs[job].job.submitted;
    let times = outcome.finished().map(|one| one.ended.since(submitted(one.job.index())));
    times.map(|time| time.as_secs_f64()).sum::<f64>() / f64::from(jobs)
}

#[test]
fn sharing_shortens_the_mean_with_few_jobs_and_with_many() {
    for jobs in [24, 80] {
        let (alone, shared) = (mean(jobs, &[]), mean(jobs, &["pairs=true"]));
        println!("{jobs} jobs: mean {shared:.0} s with pairs, {alone:.0} s without");
        assert!(shared < alone, "{jobs} jobs: {shared:.0} s shared, {alone:.0} s alone");
    }
}

#[test]
fn a_blind_policy_makes_pairs_too() {
    let shared = mean(60, &["pairs=true", "aware=false"]);
    let alone = mean(60, &["aware=false"]);
    assert!(shared < alone, "{shared:.0} s shared, {alone:.0} s alone");
}
