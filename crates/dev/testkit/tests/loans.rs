//! Pools that are lent: what their owner may count on under any policy, and what a loan is worth.

use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_report::metrics::Summary;
use trainyard_sim::{FailureModel, Lending, Observer, Options, Outcome, simulate};
use trainyard_types::{Cluster, Span};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

fn workload(cluster: &Cluster, spec: Spec) -> Workload {
    let models = vec!["elasticflow-*".to_owned()];
    let spec = Spec { models, elastic_share: 0.3, ..spec };
    generate(&spec, &Catalog::builtin(), cluster).expect("a valid spec")
}

/// Looks after every moment whether the owner has what it needs.
#[derive(Default)]
struct Watch {
    looked: u32,
    most: u32,
}

impl Observer for Watch {
    fn passed(&mut self, engine: &Engine) {
        for loan in &engine.state().loans {
            assert_eq!(loan.owed, 0, "at {:?} the owner waits", engine.state().now);
            let nodes = engine.state().cluster.nodes.iter();
            let ours =
                nodes.filter(|node| node.pool == loan.pool && engine.free().up(node.id) != 0);
            let all = engine.state().cluster.nodes.iter().filter(|node| node.pool == loan.pool);
            assert!(
                ours.count() + loan.needed as usize <= all.count(),
                "more is lent than there is"
            );
            self.looked += 1;
            self.most = self.most.max(loan.needed);
        }
    }
}

fn run(policy: &str, options: &Options, seed: u64) -> (Outcome, Watch) {
    let (cluster, _) = cluster::parse("3x8 a100, 3x8 a100 in inference").expect("a cluster");
    let spec = Spec { jobs: 150, seed, arrival: Arrival::Load(0.9), ..Spec::default() };
    let workload = workload(&cluster, spec);
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let mut watch = Watch::default();
    let outcome = simulate(&workload, &Arc::new(cluster), pipeline, options, &mut watch);
    (outcome, watch)
}

fn lending(noise: f64) -> Options {
    let law = Lending { period: Span::secs(6 * 3600), noise, ..Lending::default() };
    let mut options = Options { lending: Some(law), ..Options::default() };
    options.setup.check_every = 1;
    options
}

#[test]
fn an_owner_has_what_it_needs_after_every_moment_whoever_decides() {
    for policy in ["lyra", "fifo", "srtf", "tiresias", "gavel"] {
        let (outcome, watch) = run(policy, &lending(0.1), 3);
        assert!(
            watch.looked > 1000 && watch.most == 3,
            "{policy}: {} {}",
            watch.looked,
            watch.most
        );
        assert_eq!(outcome.stats.faults, 0, "{policy}: {:?}", outcome.stats.fault_samples);
        assert_eq!((outcome.stats.policy_errors, outcome.stats.policy_panics), (0, 0), "{policy}");
        assert!(outcome.unfinished.is_empty(), "{policy} left {:?}", outcome.unfinished);
        assert!(outcome.stats.preemptions > 0, "{policy}: no job had to go");
    }
}

#[test]
fn lyra_is_sound_with_elastic_jobs_while_nodes_break_and_repeats_itself() {
    let failures =
        FailureModel { between: Span::secs(80_000), repair: Span::secs(3_000), gpus: None };
    let options = Options { failures: Some(failures), ..lending(0.1) };
    let sound = |seed| {
        let (cluster, _) = cluster::parse("3x8 a100, 3x8 a100 in inference").expect("a cluster");
        let spec =
            Spec { jobs: 150, seed, arrival: Arrival::Load(0.9), tenants: 3, ..Spec::default() };
        let workload = workload(&cluster, spec);
        let pipeline = Selection::policy("lyra").build().expect("defaults build");
        let outcome =
            simulate(&workload, &Arc::new(cluster), pipeline, &options, &mut trainyard_sim::Quiet);
        assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
        assert_eq!((outcome.stats.policy_errors, outcome.stats.policy_panics), (0, 0));
        assert!(outcome.unfinished.is_empty(), "left {:?}", outcome.unfinished);
        (outcome.jobs, outcome.stats)
    };
    assert_eq!(sound(5), sound(5));
    sound(6);
}

/// Mean completion and queueing in seconds, the part of the time that GPUs were in use, and preemptions.
fn measured(policy: &str, lend: bool, load: f64) -> (f64, f64, f64, u64) {
    let line = if lend { "8x8 a100, 8x8 a100 in inference" } else { "8x8 a100" };
    let (cluster, _) = cluster::parse(line).expect("a cluster");
    // The same jobs for both: drawn for the training nodes alone.
    let (own, _) = cluster::parse("8x8 a100").expect("a cluster");
    let spec =
        Spec { jobs: 600, seed: 1, arrival: Arrival::Load(load), daily: 0.5, ..Spec::default() };
    let workload = workload(&own, spec);
    let options = Options { lending: lend.then(Lending::default), ..Options::default() };
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let cluster = Arc::new(cluster);
    let outcome = simulate(&workload, &cluster, pipeline, &options, &mut trainyard_sim::Quiet);
    let summary = Summary::new(&workload, &cluster, &outcome);
    let stops = outcome.stats.preemptions;
    (summary.jct_s.mean, summary.queueing_s.mean, summary.utilisation, stops)
}

#[test]
fn loans_and_growth_shorten_queues_and_completion() {
    for (load, least) in [(1.0, 1.2), (1.4, 1.3)] {
        let base = measured("sjf", false, load);
        let both = measured("lyra", true, load);
        let rows = [
            ("sjf, no loan", base),
            ("lyra, no loan", measured("lyra", false, load)),
            ("sjf, loan", measured("sjf", true, load)),
            ("lyra, loan", both),
        ];
        println!("load {load}");
        for (name, (jct, queueing, used, stops)) in rows {
            println!(
                "{name:14} jct {jct:7.0} s, queueing {queueing:7.0} s, use {used:.3}, stops {stops}"
            );
        }
        let (jct, queueing) = (base.0 / both.0, base.1 / both.1);
        println!("published 1.48x completion, 1.53x queueing; ours {jct:.2}x, {queueing:.2}x");
        assert!(jct > least && queueing > 1.53, "{jct} {queueing}");
    }
}
