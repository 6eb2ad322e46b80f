//! No policy leaves GPUs idle that a waiting job could use, unless it says so here and why.

use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::model::{ModelProfile, Point};
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Observer, Options, Quiet, simulate};
use trainyard_types::{Cluster, GroupId, Job, JobId, Span, Time, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// Equal jobs of one hour at once, each on so many GPUs.
fn jobs(count: u32, gpus: u32) -> Workload {
    let mut workload = Workload::empty("at once");
    for id in 0..count {
        let mut job = Job::simple(JobId(id), Time::ZERO, gpus);
        job.declared = Some(Work(3600.0));
        workload.jobs.push(TraceJob::new(Arc::new(job), Work(3600.0)));
    }
    workload
}

/// How much longer than one hour a policy takes where all jobs fit at once.
fn beyond_an_hour(policy: &str, workload: &Workload, cluster: &Arc<Cluster>) -> f64 {
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    let outcome = simulate(workload, cluster, pipeline, &options, &mut Quiet);
    assert!(outcome.unfinished.is_empty(), "{policy} leaves {:?}", outcome.unfinished);
    outcome.ended.as_secs_f64() / 3600.0 - 1.0
}

#[test]
fn where_all_jobs_fit_at_once_all_run_at_once() {
    let mut wrong = Vec::new();
    for (line, count, gpus) in [("32x8 v100", 240, 1), ("32x8 v100", 30, 8), ("16x8 v100", 120, 1)]
    {
        let (cluster, _) = cluster::parse(line).expect("a cluster");
        let (cluster, workload) = (Arc::new(cluster), jobs(count, gpus));
        for entry in POLICIES {
            let late = beyond_an_hour(entry.name, &workload, &cluster);
            if late > 0.15 {
                wrong.push(format!(
                    "{}: {count} jobs of {gpus} on {line}: {:.0} % late",
                    entry.name,
                    late * 100.0
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_all_jobs_fit_over_several_types_of_gpu_all_run_at_once() {
    let (cluster, _) = cluster::parse("4x8 a100, 8x8 v100").expect("a cluster");
    let cluster = Arc::new(cluster);
    let mut workload = jobs(90, 1);
    workload.catalog = Catalog::builtin();
    let model = workload.catalog.find("gavel-resnet18-b128").expect("a model of the zoo");
    let slowest = {
        let pipeline = Selection::policy("fifo").build().expect("defaults build");
        workload.jobs.iter_mut().for_each(|job| Arc::make_mut(&mut job.job).model = model);
        let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
        simulate(&workload, &cluster, pipeline, &options, &mut Quiet).ended.as_secs_f64()
    };
    // The trials of a search are the same jobs with a group.
    let mut search = workload.clone();
    search.jobs.iter_mut().for_each(|job| Arc::make_mut(&mut job.job).group = Some(GroupId(1)));
    let mut wrong = Vec::new();
    for (what, workload) in [("jobs", &workload), ("trials", &search)] {
        for entry in POLICIES {
            let took = (beyond_an_hour(entry.name, workload, &cluster) + 1.0) * 3600.0;
            let late = took / slowest - 1.0;
            if late > 0.15 {
                wrong.push(format!("{}: {what}: {:.0} % late", entry.name, late * 100.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How much of the time of GPUs may be idle while a job waits: policies with rounds give out at the end of a round what
/// came free within it.
const IDLE_MAX: f64 = 0.05;

/// GPU time that was idle though a job waited, and GPU time in use.
#[derive(Default)]
struct Waste {
    at: Time,
    idle: u32,
    used: u32,
    wasted: f64,
    useful: f64,
}

impl Observer for Waste {
    fn passed(&mut self, engine: &Engine) {
        let state = engine.state();
        let seconds = state.now.since(self.at).as_secs_f64();
        self.wasted += seconds * f64::from(self.idle);
        self.useful += seconds * f64::from(self.used);
        // Every job runs on one GPU of any type, so that each that is free would do.
        let waiting = (state.waiting.len() + state.unadmitted.len()) as u32;
        let free = engine.free().total();
        (self.at, self.idle) = (state.now, waiting.min(free));
        self.used = state.cluster.gpus() - free;
    }
}

/// Jobs on one GPU of two types that are nearly as fast, of which there are very different numbers.
fn steady_load(load: f64, gpus: f64) -> Workload {
    let mut workload = Workload::empty("one after another");
    let point = |kind: &str, rate: f64| Point { kind: kind.to_owned(), gpus: 1, nodes: 1, rate };
    let points = vec![point("v100", 1.0), point("p100", 0.97)];
    let model = ModelProfile { points, ..ModelProfile::named("even", "a test") };
    let model = workload.catalog.add(model);
    let mut at = Time::ZERO;
    for id in 0..260 {
        // Between 10 and 60 minutes, in no order.
        let work = Work(600.0 + f64::from((id * 7919) % 3001));
        let mut job = Job { model, ..Job::simple(JobId(id), at, 1) };
        job.declared = Some(work);
        workload.jobs.push(TraceJob::new(Arc::new(job), work));
        at = at + Span::from_secs_f64(2100.0 / gpus / load);
    }
    workload
}

#[test]
fn no_policy_leaves_gpus_idle_that_a_waiting_job_could_use() {
    let (cluster, _) = cluster::parse("16x8 v100, 1x4 p100").expect("a cluster");
    let cluster = Arc::new(cluster);
    let mut wrong = Vec::new();
    for load in [0.3, 1.0, 2.2] {
        let workload = steady_load(load, f64::from(cluster.gpus()));
        for entry in POLICIES {
            let pipeline = Selection::policy(entry.name).build().expect("defaults build");
            let mut waste = Waste::default();
            let options = Options { estimate_error: 0.0, ..Options::default() };
            let outcome = simulate(&workload, &cluster, pipeline, &options, &mut waste);
            let name = entry.name;
            assert!(outcome.unfinished.is_empty(), "{name} leaves {:?}", outcome.unfinished);
            let share = waste.wasted / (waste.wasted + waste.useful);
            if share > IDLE_MAX {
                wrong.push(format!("{name} at load {load}: {:.1} % idle", share * 100.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
