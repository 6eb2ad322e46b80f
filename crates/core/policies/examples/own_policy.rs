//! A policy of one's own, run on the embedded workload: `cargo run -p trainyard-policies --example own_policy`.

// ANCHOR: example
use std::sync::Arc;
use trainyard_framework::{JobRef, Key, Needs, Pipeline, Rank, Ranked, View};
use trainyard_policies::place::FewestNodes;
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_workload::embedded;

/// Small gangs first; of equals, the one that was submitted first.
struct SmallestGang;

impl Rank for SmallestGang {
    fn rank(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Key {
        Key::value(i64::from(job.spec.want.gpus)).tie(job.spec.submitted)
    }
}

fn main() {
    let (workload, cluster) = embedded();
    let policy = Ranked::new(SmallestGang).no_preemption();
    let pipeline = Pipeline::new(policy, FewestNodes, Needs::NOTHING);
    let options = Options::default();
    let outcome = simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut Quiet);
    let submitted = |job: usize| workload.jobs[job].job.submitted;
    let times = outcome.finished().map(|one| one.ended.since(submitted(one.job.index())));
    let total: f64 = times.map(|time| time.as_secs_f64()).sum();
    assert!(outcome.unfinished.is_empty(), "every job is served");
    println!("mean job completion time: {:.0} s", total / workload.jobs.len() as f64);
}
// ANCHOR_END: example
