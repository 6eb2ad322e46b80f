//! An emptied cluster is filled in the order in which published simulators fill it, whether all jobs are looked at or
//! only those that changed or run; and how many are looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trainyard_framework::{Fill, JobRef, Key, Mode, Needs, Pipeline, Rank, Ranked, View};
use trainyard_policies::compose::Selection;
use trainyard_policies::place::FewestNodes;
use trainyard_profile::Catalog;
use trainyard_sim::{Outcome, Quiet, Semantics, simulate};
use trainyard_types::Cluster;
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, generate};

/// What is left of a job, in whole hours or sixths of one so that many keys are the same.
struct Left {
    unit: u64,
    is_steady: bool,
    asked: Arc<AtomicU64>,
}

impl Rank for Left {
    fn rank(&mut self, job: JobRef<'_>, view: &View<'_>) -> Key {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Key::value(view.time_left(job).map_or(0, |left| (left.0 / self.unit) as i64))
    }

    fn is_steady(&self) -> bool {
        self.is_steady
    }
}

/// The outcome, and how often a key was asked for.
fn run(
    (seed, arrival): (u64, Arrival),
    (fill, preempts): (Fill, bool),
    is_steady: bool,
) -> (Outcome, u64) {
    let cluster = Cluster::uniform(4, 8, "v100");
    let spec = Spec {
        jobs: 300,
        seed,
        arrival,
        duration: DurationLaw::Gavel,
        size: SizeLaw::Gavel,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::default(), &cluster).expect("a workload");
    let asked = Arc::new(AtomicU64::new(0));
    let unit = if seed.is_multiple_of(2) { 3_600_000_000 } else { 600_000_000 };
    let rank = Left { unit, is_steady, asked: Arc::clone(&asked) };
    let mut policy = Ranked::new(rank).fill(fill).mode(Mode::Refill);
    if !preempts {
        policy = policy.no_preemption();
    }
    let pipeline = Pipeline::new(policy, FewestNodes, Needs::ESTIMATE);
    let options = Semantics::Muri.options();
    let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet);
    (outcome, asked.load(Ordering::Relaxed))
}

#[test]
fn a_refill_that_looks_at_what_changed_gives_every_job_what_one_that_looks_at_all_gives() {
    for seed in 0..4 {
        for how in [(Fill::Backfill, true), (Fill::Strict, true), (Fill::Strict, false)] {
            let given = (seed, Arrival::Load(4.0));
            let ((some, _), (all, _)) = (run(given, how, true), run(given, how, false));
            assert_eq!(some.jobs, all.jobs, "seed {seed}, {how:?}");
        }
    }
}

#[test]
fn a_refill_does_not_look_at_every_waiting_job() {
    let (given, how) = ((1, Arrival::AtOnce), (Fill::Backfill, true));
    let ((_, some), (_, all)) = (run(given, how, true), run(given, how, false));
    assert!(some * 2 < all, "{some} keys of {all}");
}

#[test]
fn themis_in_muris_semantics_is_solved_as_in_its_simulator_unless_told_otherwise() {
    let solver = |own: &str| {
        let mut selection = Selection::policy("themis");
        selection.policy.settings.add(own).expect("a setting of themis");
        selection.wish(Semantics::Muri.wishes().iter().copied());
        selection.policy.settings.0.get("solver").cloned()
    };
    assert_eq!(solver("lease=20m").as_ref().and_then(|value| value.as_str()), Some("interior"));
    let told = solver("solver=lexicographic");
    assert_eq!(told.as_ref().and_then(|value| value.as_str()), Some("lexicographic"));
}
