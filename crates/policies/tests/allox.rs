//! AlloX in Gavel's simulator, met job by job and round by round; and jobs that may run on a CPU or on a GPU.
//!
//! The golden lies beside the repository; where it is absent the test says so and passes.

use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel, ModelProfile, Point};
use trainyard_sim::{Observer, Options, Outcome, Semantics, simulate};
use trainyard_types::{Action, Cluster, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload};

/// Past the capture of the test harness, so that it is seen.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// The shared folder, or nothing and a line that says so.
fn shared(path: &str) -> Option<PathBuf> {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(path);
    if full.exists() {
        return Some(full);
    }
    say!("skipped: {} is absent", full.display());
    None
}

/// The type on which each job runs, whenever that changes.
struct Recorder {
    cluster: Arc<Cluster>,
    runs: BTreeMap<JobId, Vec<(Time, Option<String>)>>,
}

impl Observer for Recorder {
    fn action(&mut self, at: Time, action: &Action) {
        if let Action::Launch { job, allocation, .. } = action {
            let (node, _) = allocation.placement.masks()[0];
            let kind = self.cluster.node(node).kind;
            let name = self.cluster.kinds[kind.index()].name.clone();
            self.runs.entry(*job).or_default().push((at, Some(name)));
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.runs.entry(job).or_default().push((at, None));
    }
}

impl Recorder {
    /// The type on which a job runs at a moment.
    fn at(&self, job: JobId, time: Time) -> Option<&str> {
        let runs = self.runs.get(&job)?;
        runs[..runs.partition_point(|(at, _)| *at <= time)].last()?.1.as_deref()
    }
}

fn cluster(kinds: &[(&str, u32)]) -> Arc<Cluster> {
    let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
    for (kind, nodes) in kinds {
        let kind = cluster.add_kind(kind);
        for _ in 0..*nodes {
            cluster.add_node(kind, 1);
        }
    }
    Arc::new(cluster)
}

fn model(name: &str, rates: &[(&str, f64)]) -> ModelProfile {
    let point =
        |&(kind, rate): &(&str, f64)| Point { kind: kind.to_owned(), gpus: 1, nodes: 1, rate };
    let points = rates.iter().map(point).collect();
    ModelProfile { points, ..ModelProfile::named(name, "a test") }
}

fn run(
    workload: &Workload,
    cluster: &Arc<Cluster>,
    settings: &[&str],
    options: &Options,
) -> (Outcome, Recorder) {
    let settings = RawSettings::parse(settings.iter().copied()).expect("valid settings");
    let policy = Choice { name: "allox".to_owned(), settings };
    let pipeline = Selection { policy, ..Selection::default() }.build().expect("it builds");
    let mut seen = Recorder { cluster: cluster.clone(), runs: BTreeMap::new() };
    let outcome = simulate(workload, cluster, pipeline, options, &mut seen);
    assert_eq!(outcome.stats.faults, 0, "{:?}", outcome.stats.fault_samples);
    assert_eq!(outcome.stats.policy_errors + outcome.stats.policy_panics, 0);
    (outcome, seen)
}

/// The trace with the authors' own speeds, unrounded.
fn gavel_workload(trace: PathBuf, speeds: PathBuf) -> Workload {
    let speeds: Value =
        serde_json::from_reader(File::open(speeds).expect("it opens")).expect("it is JSON");
    let mut workload = Workload::empty("medium_test");
    workload.catalog = Catalog::default();
    for line in std::fs::read_to_string(trace).expect("it is text").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let key = format!("('{}', 1)", fields[0]);
        let rate = |kind: &str| speeds[kind][&key]["null"].as_f64().expect("a speed");
        let rates = ["v100", "p100", "k80"].map(|kind| (kind, rate(kind)));
        let id = JobId(workload.jobs.len() as u32);
        let mut job = Job::simple(id, Time::ZERO, 1);
        job.submitted = Time((fields[9].parse::<f64>().expect("seconds") * 1e6).round() as u64);
        job.model = workload.catalog.add(model(&format!("{}-{id}", fields[0]), &rates));
        workload.jobs.push(TraceJob::new(job, Work(fields[5].parse().expect("steps"))));
    }
    workload
}

#[test]
fn every_job_of_gavels_run_ends_in_the_recorded_millisecond() {
    let (Some(trace), Some(speeds), Some(golden), Some(rounds)) = (
        shared("data/gavel/traces/physical_cluster/medium_test.trace"),
        shared("data/gavel/simulation_throughputs.json"),
        shared("golden/gavel/medium20_2-2-2_allox.json"),
        shared("golden/gavel/medium20_2-2-2_allox.rounds.jsonl.gz"),
    ) else {
        return;
    };
    let workload = gavel_workload(trace, speeds);
    let cluster = cluster(&[("v100", 2), ("p100", 2), ("k80", 2)]);
    let (outcome, seen) = run(&workload, &cluster, &["rounds=gavel"], &Semantics::Gavel.options());
    let golden: Value =
        serde_json::from_reader(File::open(golden).expect("it opens")).expect("it is JSON");
    let mut worst: f64 = 0.0;
    let mut sum = 0.0;
    for one in outcome.finished() {
        let expected = golden["jct_s"][one.job.0.to_string()].as_f64().expect("a time");
        let submitted = workload.jobs[one.job.index()].job.submitted;
        let ours = one.ended.since(submitted).as_secs_f64();
        worst = worst.max((ours - expected).abs());
        sum += ours;
    }
    let mean = sum / outcome.finished().count() as f64;
    say!(
        "allox, medium20 2-2-2: mean completion {:.3} s theirs, {mean:.3} s ours, the farthest job {:.6} s off",
        golden["avg_jct_s"].as_f64().expect("a time"),
        worst,
    );
    assert_eq!(outcome.finished().count(), 20);
    assert!(worst <= 0.001, "a job is {worst} s off");
    let mut count = 0;
    for line in BufReader::new(GzDecoder::new(File::open(rounds).expect("it opens"))).lines() {
        let round: Value = serde_json::from_str(&line.expect("a line")).expect("it is JSON");
        let begins = round["t"].as_f64().expect("a time");
        let time = Time(((begins + 0.001) * 1e6) as u64);
        let assign = round["assign"].as_object().expect("jobs");
        for id in 0..20 {
            let expected =
                assign.get(&id.to_string()).map(|place| place[0].as_str().expect("a type"));
            assert_eq!(seen.at(JobId(id), time), expected, "job {id} in the round of {begins}");
        }
        count += 1;
    }
    assert_eq!(count, 126);
}

#[test]
fn a_job_that_suffers_little_runs_on_a_cpu_and_leaves_the_gpu() {
    let mut workload = Workload::empty("two kinds");
    workload.catalog = Catalog::default();
    let light = workload.catalog.add(model("light", &[("v100", 1.0), ("cpu", 0.8)]));
    let heavy = workload.catalog.add(model("heavy", &[("v100", 1.0), ("cpu", 0.02)]));
    for (id, of) in [light, heavy, light, heavy].into_iter().enumerate() {
        let mut job = Job::simple(JobId(id as u32), Time::ZERO, 1);
        job.model = of;
        workload.jobs.push(TraceJob::new(job, Work(100.0)));
    }
    let cluster = cluster(&[("v100", 1), ("cpu", 1)]);
    let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    let (outcome, seen) = run(&workload, &cluster, &[], &options);
    let kinds = |id: u32| seen.runs[&JobId(id)][0].1.clone().expect("it ran");
    assert_eq!([0, 1, 2, 3].map(kinds), ["cpu", "v100", "cpu", "v100"]);
    let ends: Vec<Span> = outcome.jobs.iter().map(|one| one.ended.since(Time::ZERO)).collect();
    assert_eq!(ends, [125, 100, 250, 200].map(Span::secs));
}
