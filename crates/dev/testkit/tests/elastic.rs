//! Policies that choose sizes: sound with jobs that have many, and what that is worth.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::Catalog;
use trainyard_report::metrics::Summary;
use trainyard_sim::{FailureModel, Observer, Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, GroupId, Job, JobId, Span, Time, Want, Work};
use trainyard_workload::elasticity::{Elasticity, loosen};
use trainyard_workload::tells::{Learning, TrainingSignals};
use trainyard_workload::{Arrival, Spec, TraceJob, Workload, cluster, generate};

fn selection(policy: &str, settings: &[&str]) -> Selection {
    let mut choice = Choice { name: policy.to_owned(), settings: RawSettings::default() };
    for pair in settings {
        choice.settings.add(pair).expect("a setting");
    }
    Selection { policy: choice, ..Selection::policy(policy) }
}

fn elastic(line: &str, spec: Spec) -> (Workload, Arc<Cluster>) {
    let (cluster, _) = cluster::parse(line).expect("a cluster");
    let workload = generate(&spec, &Catalog::builtin(), &cluster).expect("a valid spec");
    (loosen(workload, &cluster, Elasticity::Elastic), Arc::new(cluster))
}

fn assert_sound(name: &str, outcome: &Outcome) {
    let stats = &outcome.stats;
    assert_eq!(stats.faults, 0, "{name} made faulty grants: {:?}", stats.fault_samples);
    assert_eq!((stats.policy_errors, stats.policy_panics), (0, 0), "{name} failed");
    assert!(outcome.unfinished.is_empty(), "{name} left {:?}", outcome.unfinished);
}

#[test]
fn policies_that_choose_sizes_are_sound_while_nodes_break_and_repeat_themselves() {
    let mut options = Options {
        failures: Some(FailureModel {
            between: Span::secs(60_000),
            repair: Span::secs(3_000),
            gpus: None,
        }),
        estimate_error: 0.8,
        ..Options::default()
    };
    options.setup.check_every = 1;
    let models = vec!["gavel-*".to_owned(), "elasticflow-*".to_owned()];
    let arrival = Arrival::Load(1.1);
    let spec = Spec { jobs: 60, seed: 9, arrival, models, tenants: 3, ..Spec::default() };
    let (workload, cluster) = elastic("2x8 v100, 2x8 a100, 2x4 k80", spec);
    let chosen: [(&str, &[&str]); 6] = [
        ("lyra", &[]),
        ("heet", &[]),
        ("heet", &["profiled=0.3"]),
        ("kungfu", &[]),
        ("kungfu", &["arbitrate=arrival"]),
        ("hypersched", &[]),
    ];
    for (policy, settings) in chosen {
        let name = format!("{policy} {settings:?}");
        let run = || {
            let pipeline = selection(policy, settings).build().expect("it builds");
            simulate(&workload, &cluster, pipeline, &options, &mut Quiet)
        };
        let (first, second) = (run(), run());
        assert_sound(&name, &first);
        assert_eq!((first.jobs, first.stats), (second.jobs, second.stats), "{name}");
    }
}

#[test]
fn heet_on_several_types_is_faster_than_rigid_jobs_and_bears_few_profiles() {
    let models = vec!["gavel-*".to_owned()];
    let arrival = Arrival::Load(0.9);
    let spec = Spec { jobs: 200, seed: 2, arrival, models, ..Spec::default() };
    let (workload, cluster) = elastic("3x4 v100, 3x4 p100, 3x4 k80", spec);
    let mean = |policy: &str, settings: &[&str]| {
        let pipeline = selection(policy, settings).build().expect("it builds");
        let outcome = simulate(&workload, &cluster, pipeline, &Options::default(), &mut Quiet);
        assert_sound(policy, &outcome);
        Summary::new(&workload, &cluster, &outcome).jct_s.mean
    };
    let heet = mean("heet", &[]);
    println!("heet {heet:.0} s mean completion; published: up to 2.46x");
    let rivals: [(&str, &[&str]); 8] = [
        ("heet", &["profiled=0.3"]),
        ("heet", &["kappa=0"]),
        ("heet", &["resize_cost=0"]),
        ("fifo", &[]),
        ("srtf", &[]),
        ("allox", &[]),
        ("gavel", &[]),
        ("lyra", &[]),
    ];
    let mut ratios = BTreeMap::new();
    for (policy, settings) in rivals {
        let other = mean(policy, settings);
        println!("{policy} {settings:?}: {other:.0} s, {:.2}x", other / heet);
        ratios.insert(format!("{policy}{}", settings.join("")), other / heet);
    }
    assert!(ratios["fifo"] > 1.3 && ratios["srtf"] > 1.2, "{ratios:?}");
    assert!(ratios["heetprofiled=0.3"] < 1.5, "{ratios:?}");
}

/// The best accuracy that any trial showed by the deadline.
struct Best {
    deadline: Time,
    accuracy: f64,
}

impl Observer for Best {
    fn passed(&mut self, engine: &Engine) {
        if engine.state().now > self.deadline {
            return;
        }
        for live in engine.state().jobs.values() {
            let measured = live.state.measured.as_deref();
            let losses = measured.into_iter().flat_map(|measured| &measured.losses);
            let best = losses.map(|(_, loss)| 1.0 - loss).fold(0.0, f64::max);
            self.accuracy = self.accuracy.max(best);
        }
    }
}

/// A search of so many trials with curves drawn from a seed.
fn search(trials: u32, seed: u64, deadline: Time) -> Workload {
    let catalog = Catalog::builtin();
    let model = catalog.find("elasticflow-resnet50-b256").expect("a model of the zoo");
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut uniform = |low: f64, high: f64| {
        low + (high - low) * (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut jobs = Vec::new();
    for id in 0..trials {
        let best = uniform(0.5, 0.95);
        let learning = Learning { best, gap: uniform(0.3, 0.45), bend: uniform(0.3, 0.9) };
        let job = Job {
            model,
            want: Want { gpus_max: 8, ..Want::gpus(1) },
            group: Some(GroupId(1)),
            value: vec![(deadline, 1.0)],
            ..Job::simple(JobId(id), Time::ZERO, 1)
        };
        // Two hours on one GPU.
        let tells = Some(Box::new(TrainingSignals { noise: None, learning: Some(learning) }));
        jobs.push(TraceJob { tells, ..TraceJob::new(job, Work(1.8434 * 7200.0)) });
    }
    Workload { jobs, catalog, ..Workload::empty("search") }
}

#[test]
fn a_search_ends_with_a_better_model_when_what_losers_leave_goes_to_the_best() {
    let deadline = Time::ZERO + Span::secs(3600);
    let (cluster, _) = cluster::parse("1x8 a100").expect("a cluster");
    let cluster = Arc::new(cluster);
    let best = |policy: &str, settings: &[&str]| {
        let mut sum = 0.0;
        for seed in 0..10 {
            let workload = search(24, seed, deadline);
            let pipeline = selection(policy, settings).build().expect("it builds");
            let mut watch = Best { deadline, accuracy: 0.0 };
            let options = Options::default();
            let outcome = simulate(&workload, &cluster, pipeline, &options, &mut watch);
            assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
            assert!(outcome.unfinished.is_empty(), "{policy} left {:?}", outcome.unfinished);
            sum += watch.accuracy;
        }
        sum / 10.0
    };
    let rows: [(&str, &[&str]); 6] = [
        ("fifo", &[]),
        ("hypersched", &["reallocate=none"]),
        ("hypersched", &["reallocate=uniform"]),
        ("hypersched", &["reallocate=top-job"]),
        ("hypersched", &["reallocate=softmax"]),
        ("hypersched", &["reallocate=uniform", "scaling=linear"]),
    ];
    let found: Vec<f64> = rows.iter().map(|(policy, settings)| best(policy, settings)).collect();
    for ((policy, settings), accuracy) in rows.iter().zip(&found) {
        println!("{policy} {settings:?}: {accuracy:.4}");
    }
    assert!(found[1] > found[0], "rungs are better than arrival: {found:?}");
    assert!(
        found[2] > found[1] && found[3] > found[1],
        "so is what is left to the best: {found:?}"
    );
}
