//! AlloX in Gavel's simulator, met job by job and round by round; and jobs that may run on a CPU or on a GPU.
//!
//! The golden lies beside the repository; where it is absent the test says so and passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_framework::RawSettings;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::{Catalog, CostModel, ModelProfile, Point};
use trainyard_sim::{Observer, Options, Outcome, Semantics, simulate};
use trainyard_testkit::gavel::{Recording, shared};
use trainyard_testkit::say;
use trainyard_types::{Action, Cluster, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload};

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

fn simulated(
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

#[test]
fn every_job_of_gavels_run_ends_in_the_recorded_millisecond() {
    let Some(shared) = shared() else { return };
    let run = Recording::read(&shared, "medium20_2-2-2_allox").expect("a recording");
    let (workload, cluster) = (run.workload().expect("a trace"), Arc::new(run.cluster()));
    let (outcome, seen) =
        simulated(&workload, &cluster, &["rounds=gavel"], &Semantics::Gavel.options());
    let mut worst: f64 = 0.0;
    let mut sum = 0.0;
    for one in outcome.finished() {
        let expected = run.about.jct_s[&one.job.0.to_string()];
        let submitted = workload.jobs[one.job.index()].job.submitted;
        let ours = one.ended.since(submitted).as_secs_f64();
        worst = worst.max((ours - expected).abs());
        sum += ours;
    }
    let mean = sum / outcome.finished().count() as f64;
    say!(
        "allox, medium20 2-2-2: mean completion {:.3} s theirs, {mean:.3} s ours, the farthest job {:.6} s off",
        run.about.avg_jct_s,
        worst,
    );
    assert_eq!(outcome.finished().count(), 20);
    assert!(worst <= 0.001, "a job is {worst} s off");
    for round in &run.rounds {
        let time = Time(((round.t + 0.001) * 1e6) as u64);
        for id in 0..20 {
            let expected = round.assign.get(&id.to_string()).map(|(kind, _)| kind.as_str());
            assert_eq!(seen.at(JobId(id), time), expected, "job {id} in the round of {}", round.t);
        }
    }
    assert_eq!(run.rounds.len(), 126);
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
    let (outcome, seen) = simulated(&workload, &cluster, &[], &options);
    let kinds = |id: u32| seen.runs[&JobId(id)][0].1.clone().expect("it ran");
    assert_eq!([0, 1, 2, 3].map(kinds), ["cpu", "v100", "cpu", "v100"]);
    let ends: Vec<Span> = outcome.jobs.iter().map(|one| one.ended.since(Time::ZERO)).collect();
    assert_eq!(ends, [125, 100, 250, 200].map(Span::secs));
}
