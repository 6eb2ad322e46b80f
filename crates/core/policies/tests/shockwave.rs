//! Shockwave's own experiment: 120 jobs on 32 GPUs in the semantics of its authors' simulator.
//!
//! The traces and the authors' results lie beside the repository; where they are absent the tests say so and pass.

use flate2::read::GzDecoder;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::Speeds;
use trainyard_sim::{Outcome, Quiet, Semantics, simulate};
use trainyard_testkit::places::shared;
use trainyard_testkit::say;
use trainyard_types::{Cluster, Config, GpuType, Span};
use trainyard_workload::import::{ImportContext, import_any};
use trainyard_workload::{TraceJob, Workload};

fn trace(name: &str, cluster: &Cluster) -> Option<Workload> {
    let path = shared(&format!("data/shockwave/{name}_multigpu_dynamic.trace.gz"))?;
    let reader = GzDecoder::new(File::open(path).expect("a file that exists opens"));
    let imported = import_any(reader, ImportContext::new(name, Some(cluster)));
    Some(imported.expect("a trace of Shockwave").workload)
}

/// What the authors print of a run.
struct Figures {
    makespan: f64,
    jct: f64,
    /// Completion time over the time alone with one of as many equal parts of the cluster as the trace has jobs.
    rho_worst: f64,
    unfair: f64,
}

impl Figures {
    fn new(workload: &Workload, cluster: &Cluster, outcome: &Outcome) -> Figures {
        let speeds = Speeds::new(&workload.catalog, cluster);
        let crowd = (workload.jobs.len() as f64 / f64::from(cluster.gpus())).max(1.0);
        let (mut jct, mut rhos, mut makespan) = (0.0, Vec::new(), 0.0f64);
        for one in &outcome.jobs {
            let job = &workload.jobs[one.job.index()];
            let time = one.ended.since(job.job.submitted).as_secs_f64();
            jct += time / workload.jobs.len() as f64;
            rhos.push(time / (alone(job, &speeds) * crowd));
            makespan = makespan.max(one.ended.as_secs_f64());
        }
        let unfair = rhos.iter().filter(|rho| **rho > 1.05).count() as f64 / rhos.len() as f64;
        let rho_worst = rhos.into_iter().fold(0.0, f64::max);
        Figures { makespan, jct, rho_worst, unfair }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { makespan, jct, rho_worst, unfair } = self;
        let unfair = unfair * 100.0;
        write!(f, "{makespan:.0} s, {jct:.0} s, worst rho {rho_worst:.3}, unfair {unfair:.1} %")
    }
}

/// Seconds that a job takes alone, through all its batches.
fn alone(job: &TraceJob, speeds: &Speeds) -> f64 {
    let own = [(0.0, None)].into_iter();
    let phases: Vec<(f64, Option<u32>)> =
        own.chain(job.batches.iter().map(|phase| (phase.from, Some(phase.batch)))).collect();
    let ends = phases.iter().skip(1).map(|phase| phase.0).chain([1.0]);
    let time = |((from, batch), to): (&(f64, Option<u32>), f64)| {
        let packed = Config::packed(GpuType(0), job.job.want.gpus, 64);
        let rate = speeds.rate(job.job.model, &Config { batch: *batch, ..packed }).expect("a rate");
        (to - from) * job.work.0 / rate.0
    };
    phases.iter().zip(ends).map(time).sum()
}

fn run(workload: &Workload, cluster: &Cluster, settings: &[&str], preset: Semantics) -> Outcome {
    let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
    let choice = Choice { name: "shockwave".to_owned(), settings };
    let mut selection = Selection { policy: choice, ..Selection::default() };
    selection.wish(preset.wishes().iter().copied());
    let pipeline = selection.build().expect("valid settings");
    let options = preset.options();
    let outcome = simulate(workload, &Arc::new(cluster.clone()), pipeline, &options, &mut Quiet);
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    assert_eq!(outcome.stats.policy_errors + outcome.stats.policy_panics, 0);
    assert!(outcome.unfinished.is_empty());
    outcome
}

const JOBS_120: &str = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01";

#[test]
fn the_table_of_120_jobs_is_met_with_the_authors_constants() {
    let cluster = Cluster::uniform(1, 32, "v100");
    let Some(workload) = trace(JOBS_120, &cluster) else { return };
    let outcome = run(&workload, &cluster, &[], Semantics::Shockwave);
    let figures = Figures::new(&workload, &cluster, &outcome);
    say!("authors' constants: {figures}\nauthors: 24197 s, 9958 s, worst rho 1.784, unfair 5.0 %");
    assert!((figures.makespan / 24_197.42 - 1.0).abs() < 0.03, "{figures}");
    assert!((figures.jct / 9958.49 - 1.0).abs() < 0.03, "{figures}");
    assert!(figures.rho_worst <= 1.9, "{figures}");
}

#[test]
fn the_shortest_tenth_of_120_jobs_takes_as_long_as_the_page_says() {
    let cluster = Cluster::uniform(1, 32, "v100");
    let Some(workload) = trace(JOBS_120, &cluster) else { return };
    let tenth = |rules: &str| {
        let outcome = run(&workload, &cluster, &[rules], Semantics::Shockwave);
        let took = |one: &trainyard_sim::JobOutcome| {
            one.ended.since(workload.jobs[one.job.index()].job.submitted)
        };
        let mut took: Vec<Span> = outcome.jobs.iter().map(took).collect();
        took.sort_unstable();
        took[took.len() / 10 - 1].as_secs_f64().round()
    };
    assert_eq!((tenth("rules=authors"), tenth("rules=ours")), (2705.0, 2415.0));
}

#[test]
fn our_constants_are_as_good_as_those_set_by_hand_at_three_sizes() {
    let sizes = [
        (JOBS_120, 32),
        ("220_0.2_5_100_25_4_0,0.5,0.5_0.6,0.3,0.09,0.01", 64),
        ("460_0.2_5_100_10_1_0,0.5,0.5_0.6,0.3,0.09,0.01", 128),
    ];
    for (name, gpus) in sizes {
        let cluster = Cluster::uniform(gpus / 32, 32, "v100");
        let Some(workload) = trace(name, &cluster) else { return };
        let figures = |rules: &str| {
            let outcome = run(&workload, &cluster, &[rules], Semantics::Shockwave);
            Figures::new(&workload, &cluster, &outcome)
        };
        let (theirs, ours) = (figures("rules=authors"), figures("rules=ours"));
        say!("{gpus} GPUs, by hand: {theirs}\n{gpus} GPUs, chosen: {ours}");
        assert!(ours.makespan <= 1.02 * theirs.makespan, "{gpus} GPUs: {ours}");
        assert!(ours.jct <= 1.02 * theirs.jct, "{gpus} GPUs: {ours}");
        assert!(ours.rho_worst <= 1.1 * theirs.rho_worst, "{gpus} GPUs: {ours}");
    }
}
