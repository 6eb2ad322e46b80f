//! Admission controls in front of every policy, and every policy through both hosts.

use std::sync::Arc;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_policies::registry::{ADMISSION_CONTROLS, POLICIES};
use trainyard_profile::Catalog;
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_testkit::hosts::{BothHosts, Trouble, troubled};
use trainyard_types::{Cluster, End};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

/// Jobs of four tenants, half of them with deadlines, some of which cannot be met.
fn workload(jobs: u32) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = cluster::parse("2x8 v100, 2x4 a100").expect("a valid cluster");
    let spec = Spec {
        jobs,
        seed: 3,
        arrival: Arrival::Load(1.6),
        models: vec!["gavel-*".to_owned()],
        tenants: 4,
        tenant_skew: 1.0,
        deadline_share: 0.5,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (workload, Arc::new(cluster))
}

/// Every policy as it comes, and those that turn jobs away in the form in which they do.
fn policies() -> Vec<Selection> {
    let mut all: Vec<Selection> =
        POLICIES.iter().map(|entry| Selection::policy(entry.name)).collect();
    for (name, key, value) in
        [("elasticflow", "admission", "reject"), ("genie", "hopeless", "drop")]
    {
        let mut strict = Selection::policy(name);
        strict.policy.settings.0.insert(key.to_owned(), value.into());
        all.push(strict);
    }
    all
}

fn run(selection: &Selection) -> Outcome {
    let (workload, cluster) = workload(60);
    let pipeline = selection.build().expect("settings build");
    simulate(&workload, &cluster, pipeline, &Options::default(), &mut Quiet)
}

fn behind(selection: &Selection, control: &str, setting: Option<(&str, f64)>) -> Selection {
    let mut choice = Choice::named(control);
    if let Some((key, value)) = setting {
        choice.settings.0.insert(key.to_owned(), value.into());
    }
    Selection { admit: vec![choice], ..selection.clone() }
}

#[test]
fn a_control_that_passes_every_job_changes_nothing_for_any_policy() {
    for selection in policies() {
        let name = &selection.policy.name;
        let (alone, controlled) =
            (run(&selection), run(&behind(&selection, "load", Some(("load", 1e6)))));
        assert_eq!(alone.jobs, controlled.jobs, "{name}");
        assert_eq!(alone.stats, controlled.stats, "{name}");
    }
}

#[test]
fn every_policy_serves_or_rejects_every_job_behind_every_control() {
    for control in ADMISSION_CONTROLS {
        for selection in policies() {
            let outcome = run(&behind(&selection, control.name, None));
            let name = format!("{} behind {}", selection.policy.name, control.name);
            assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
            let of_no_kind =
                |end: &End| !matches!(end, End::Finished | End::Rejected | End::Pruned);
            let other = outcome.jobs.iter().map(|job| job.end).find(of_no_kind);
            assert_eq!(other, None, "{name}");
            assert_eq!(outcome.stats.policy_panics + outcome.stats.policy_errors, 0, "{name}");
        }
    }
}

#[test]
fn a_policy_that_rejects_a_job_is_asked_behind_a_control_too() {
    let mut strict = Selection::policy("elasticflow");
    strict.policy.settings.0.insert("admission".to_owned(), "reject".into());
    let rejected =
        |outcome: &Outcome| outcome.jobs.iter().filter(|job| job.end == End::Rejected).count();
    let alone = rejected(&run(&strict));
    assert!(alone > 0, "some deadlines cannot be met");
    let behind = rejected(&run(&behind(&strict, "load", Some(("load", 4.0)))));
    assert!(behind > 0, "{alone} of them alone");
}

#[test]
fn both_hosts_decide_alike_with_every_policy_whatever_goes_wrong() {
    let (workload, cluster) = workload(30);
    for (index, selection) in policies().into_iter().enumerate() {
        // Each policy is sound and in one trouble; the random runs join any policy with any.
        let in_trouble = Trouble::ALL[1 + index % (Trouble::ALL.len() - 1)];
        for trouble in [Trouble::None, in_trouble] {
            let build = || troubled(selection.build().expect("settings build"), trouble, 2);
            let mut hosts = BothHosts::new(&build, 40);
            let pipeline = selection.build().expect("settings build");
            simulate(&workload, &cluster, pipeline, &Options::default(), &mut hosts);
            assert!(hosts.compared > 0, "{}: {trouble:?}", selection.policy.name);
        }
    }
}
