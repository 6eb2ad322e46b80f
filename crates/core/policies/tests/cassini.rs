//! CASSINI on top of other policies: 24 servers of one GPU on links of 50 Gbit/s, as in section 5.1 of the paper.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel, ModelProfile, ModelTraffic, Point};
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, Job, JobId, ModelId, Pattern, Tenants, Time, Traffic, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// The thirteen models of the paper, with parameters in millions, the part of an iteration of 240 ms in which they
/// send when alone on eight GPUs, and how they are parallel. The parts are ours; the paper's are in figures only.
const MODELS: [(&str, f64, f64, Pattern); 13] = [
    ("vgg11", 0.16, 0.50, Pattern::Ring),
    ("vgg16", 0.24, 0.50, Pattern::Ring),
    ("vgg19", 0.24, 0.45, Pattern::Ring),
    ("wide-resnet101", 0.32, 0.40, Pattern::Ring),
    ("resnet50", 0.16, 0.25, Pattern::Ring),
    ("bert", 0.24, 0.45, Pattern::Ring),
    ("roberta", 0.24, 0.50, Pattern::Ring),
    ("xlm", 0.32, 0.50, Pattern::Ring),
    ("camembert", 0.24, 0.45, Pattern::Ring),
    ("gpt-1", 0.16, 0.40, Pattern::Tree),
    ("gpt-2", 0.32, 0.50, Pattern::Tree),
    ("gpt-3", 0.48, 0.40, Pattern::Pipeline),
    ("dlrm", 0.16, 0.50, Pattern::AllToAll),
];

const MBPS: f64 = 50_000.0;

/// Speeds on up to eight GPUs of as many servers: an iteration that sends for its part of the time at 50 Gbit/s.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for (name, seconds, part, pattern) in MODELS {
        let bytes = seconds * part * MBPS * 1e6 / 8.0 / pattern.unit(1.0, 8);
        let point = |gpus: u32| {
            let sends = if gpus > 1 { pattern.unit(bytes, gpus) * 8.0 / (MBPS * 1e6) } else { 0.0 };
            let rate = 1.0 / (seconds * (1.0 - part) + sends);
            Point { kind: "a100".to_owned(), gpus, nodes: gpus, rate }
        };
        let moves = Traffic { bytes, pattern, overlap: 0.0 };
        catalog.add(ModelProfile {
            points: (1..=8).map(point).collect(),
            traffic: Some(ModelTraffic { moves, inside_mbps: None, across_mbps: MBPS as u64 }),
            ..ModelProfile::named(name, "a test")
        });
    }
    catalog
}

/// Jobs of two to eight GPUs that come so often that the servers are nearly all busy.
fn workload(seed: u64, count: u32) -> Workload {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let mut at = 0;
    let jobs = (0..count).map(|id| {
        let model = below(MODELS.len() as u64) as usize;
        let gpus = 2 + below(7) as u32;
        let iterations = 1_000 + below(3_000);
        at += below(2 * 30_000);
        let mut job = Job::simple(JobId(id), Time(at * 1_000), gpus);
        job.model = ModelId(model as u32 + 1);
        TraceJob::new(job, Work(iterations as f64))
    });
    let jobs = jobs.collect();
    Workload { jobs, tenants: Tenants::default(), catalog: catalog(), ..Workload::empty("cassini") }
}

fn run(workload: &Workload, policy: &str, tuned: bool) -> Outcome {
    let text = "24x1 a100 over leaf-spine 12 racks 50g 2:1";
    let cluster: Arc<Cluster> = Arc::new(cluster::parse(text).expect("a cluster").0);
    let mut selection = Selection::policy(policy);
    if tuned {
        selection.tune.push(Choice::named("cassini"));
    }
    let options = Options {
        costs: CostModel::Free,
        estimate_error: 0.0,
        in_phases: true,
        ..Options::default()
    };
    let pipeline = selection.build().expect("they exist");
    let outcome = simulate(workload, &cluster, pipeline, &options, &mut Quiet);
    assert!(outcome.unfinished.is_empty(), "every job is served");
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    outcome
}

/// How many times as long an iteration takes as on idle links, for each job: mean, and the 99th of a hundred.
fn stretch(workload: &Workload, outcome: &Outcome) -> (f64, f64) {
    let alone = |job: &TraceJob| {
        let (_, seconds, part, pattern) = MODELS[job.job.model.index() - 1];
        let bytes = seconds * part * MBPS * 1e6 / 8.0 / pattern.unit(1.0, 8);
        let sends = pattern.unit(bytes, job.job.want.gpus) * 8.0 / (MBPS * 1e6);
        seconds * (1.0 - part) + sends
    };
    let mut all: Vec<f64> = outcome
        .finished()
        .map(|one| {
            let job = &workload.jobs[one.job.index()];
            one.ran.as_secs_f64() / job.work.0 / alone(job)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    (all.iter().sum::<f64>() / all.len() as f64, all[all.len() * 99 / 100])
}

#[test]
fn jobs_iterate_faster_under_themis_and_pollux_when_they_take_turns() {
    for policy in ["themis", "pollux"] {
        let (mut plain, mut tuned) = ((0.0, 0.0), (0.0, 0.0));
        let seeds = 4;
        for seed in 0..seeds {
            let workload = workload(seed, 60);
            let add = |sum: &mut (f64, f64), (mean, tail): (f64, f64)| {
                *sum = (sum.0 + mean / seeds as f64, sum.1 + tail / seeds as f64);
            };
            add(&mut plain, stretch(&workload, &run(&workload, policy, false)));
            add(&mut tuned, stretch(&workload, &run(&workload, policy, true)));
        }
        trainyard_testkit::say!(
            "{policy}: mean {:.3} -> {:.3}, {:.2} times; 99th {:.3} -> {:.3}, {:.2} times",
            plain.0,
            tuned.0,
            plain.0 / tuned.0,
            plain.1,
            tuned.1,
            plain.1 / tuned.1
        );
        assert!(tuned.0 < plain.0, "{policy}: {tuned:?} against {plain:?}");
    }
}
