//! Jobs whose models are described: policies that know nothing of pipelines and tensor parallelism give them GPUs by the
//! speed of their best division.

use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{JobOutcome, Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, End};
use trainyard_workload::{Arrival, Like, Spec, Workload, cluster, generate, scenario};

/// As many as the page on splits reports: `TRAINYARD_LLM_JOBS=200`.
fn jobs() -> u32 {
    std::env::var("TRAINYARD_LLM_JOBS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn three_types() -> Cluster {
    cluster::parse_line("8x8 a100, 8x8 v100, 4x8 h100").expect("a cluster")
}

fn drawn(seed: u64, per_hour: f64, on: &Cluster) -> Workload {
    let arrival = Arrival::PerHour(per_hour);
    let spec = Spec { like: Like::Llm, jobs: jobs(), seed, arrival, ..Spec::default() };
    generate(&spec, &Catalog::builtin(), on).expect("a workload")
}

fn run(policy: &str, workload: &Workload, on: &Cluster, tells_plans: bool) -> Outcome {
    let mut words = policy.split_whitespace();
    let name = words.next().expect("a name").to_owned();
    let settings = RawSettings::parse(words).expect("settings");
    let selection = Selection { policy: Choice { name, settings }, ..Selection::default() };
    let options = Options {
        tells_plans,
        estimate_error: 0.0,
        costs: CostModel::Profile,
        ..Options::default()
    };
    let pipeline = selection.build().expect("a pipeline");
    simulate(workload, &Arc::new(on.clone()), pipeline, &options, &mut Quiet)
}

/// Mean hours from submission to end of jobs that ended, and how many did.
fn hours(workload: &Workload, outcome: &Outcome) -> (f64, usize) {
    let submitted = |job: &JobOutcome| workload.jobs[job.job.index()].job.submitted;
    let over =
        outcome.jobs.iter().map(|job| job.ended.since(submitted(job)).as_secs_f64() / 3600.0);
    let count = outcome.jobs.len();
    (over.sum::<f64>() / count.max(1) as f64, count)
}

/// Jobs an hour that fill the cluster.
fn per_hour() -> f64 {
    std::env::var("TRAINYARD_LLM_PER_HOUR").ok().and_then(|text| text.parse().ok()).unwrap_or(20.0)
}

/// What knowing the best division is worth to policies that schedule by speeds, in the sum over seeds. The world is the
/// same in both runs.
#[test]
fn policies_are_told_the_speed_of_the_best_division() {
    let on = three_types();
    for policy in ["gavel", "gavel sizes=true", "sia"] {
        let (mut with, mut without) = (0.0, 0.0);
        for seed in 1..=3 {
            let workload = drawn(seed, per_hour(), &on);
            let known = hours(&workload, &run(policy, &workload, &on, true));
            let blind = hours(&workload, &run(policy, &workload, &on, false));
            println!(
                "{policy} seed {seed}: {:.2} h of {}, {:.2} h of {} without plans",
                known.0, known.1, blind.0, blind.1
            );
            assert_eq!(known.1, workload.jobs.len(), "{policy} serves all");
            (with, without) = (with + known.0, without + blind.0);
        }
        println!("{policy}: {:.3} of the mean completion time without plans", with / without);
    }
}

/// Every policy that scales by speeds gives described jobs what they can use, and serves them all.
#[test]
fn four_policies_serve_described_jobs_without_knowing_it() {
    let text = "cluster 2x8 a100, 2x8 v100\n\
        described large gpt-7.5b batch=512\ndescribed less gpt-1.7b batch=512\n\
        job a at 0s wants 8 min 4 max 16 model large work 100\n\
        job b at 1m wants 4 min 1 max 8 model less work 300\n\
        job c at 2m wants 2 model elasticflow-resnet50-b256 work 20000\n\
        policy fifo\n";
    let scenario = scenario::parse(text).expect("a scenario");
    for policy in ["gavel", "sia", "pollux", "afs-l", "fifo", "las"] {
        let outcome = run(policy, &scenario.workload, &scenario.cluster, true);
        let ended = outcome.jobs.iter().filter(|job| job.end == End::Finished).count();
        assert_eq!(ended, 3, "{policy}");
        assert_eq!(outcome.stats.faults, 0, "{policy}: {:?}", outcome.stats.fault_samples);
    }
}

/// A job that names no types may have those on which it fits, and one that fits nowhere is refused with what it lacks.
#[test]
fn a_job_that_fits_nowhere_is_refused_with_the_memory_it_lacks() {
    let parse = |job: &str| {
        let text = format!(
            "cluster 2x8 a100, 2x8 v100\ndescribed large gpt-7.5b batch=512\njob a {job}\npolicy fifo\n"
        );
        scenario::parse(&text).expect("a scenario")
    };
    let large = parse("wants 4 model large work 10");
    assert_eq!(large.workload.jobs[0].job.want.kinds.len(), 1, "four V100s do not hold it");
    assert!(large.workload.check(&large.cluster).is_empty());
    let small = parse("wants 1 model large work 10");
    let problems = small.workload.check(&small.cluster);
    let first = problems.first().expect("a problem").to_string();
    assert!(first.contains("gpt-7.5b") && first.contains("are lacking"), "{first}");
}
