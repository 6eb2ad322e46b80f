//! Elastic jobs that report nothing: no elastic policy may leave them on few GPUs while others are idle.

use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::Catalog;
use trainyard_profile::model::{ModelProfile, Point};
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, Job, JobId, Span, Time, Want, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

/// How many times as long as FIFO, which gives each job what it asks for, an elastic policy may take. Some run fewer jobs
/// at once on more GPUs each, where speed grows by less; a job left on one GPU takes more than three times as long.
const TIMES_FIFO_MAX: f64 = 1.5;

/// Sixteen equal jobs that ask for 4 GPUs, run on 1 to 8, and come so many seconds apart.
fn elastic_jobs(model: &str, work: f64, apart: u64) -> Workload {
    let catalog = Catalog::builtin();
    let model = catalog.find(model).expect("a model of the zoo");
    let mut workload = Workload { catalog, ..Workload::empty("16 quiet elastic jobs") };
    for id in 0..16 {
        let want = Want { gpus_min: 1, gpus_max: 8, ..Want::gpus(4) };
        let at = Time::ZERO + Span::secs(u64::from(id) * apart);
        let mut job = Job { want, model, ..Job::simple(JobId(id), at, 4) };
        job.declared = Some(Work(work));
        workload.jobs.push(TraceJob::new(Arc::new(job), Work(work)));
    }
    workload
}

fn run(policy: &str, workload: &Workload, cluster: &Arc<Cluster>) -> Outcome {
    let pipeline = Selection::policy(policy).build().expect("defaults build");
    let options = Options { estimate_error: 0.0, ..Options::default() };
    let outcome = simulate(workload, cluster, pipeline, &options, &mut Quiet);
    assert!(outcome.unfinished.is_empty(), "{policy} leaves {:?}", outcome.unfinished);
    outcome
}

#[test]
fn no_elastic_policy_takes_much_longer_than_fifo_for_jobs_that_report_nothing() {
    let mut wrong = Vec::new();
    for (line, apart) in [("8x8 a100", 0), ("16x4 a100", 0), ("8x8 a100", 300)] {
        let (cluster, _) = cluster::parse(line).expect("a cluster");
        let cluster = Arc::new(cluster);
        let workload = elastic_jobs("elasticflow-resnet50-b256", 20_000.0, apart);
        let fifo = run("fifo", &workload, &cluster).ended.as_secs_f64();
        assert!((1800.0..36_000.0).contains(&fifo), "FIFO takes {fifo} s");
        for entry in POLICIES.iter().filter(|entry| entry.class.elastic) {
            let took = run(entry.name, &workload, &cluster).ended.as_secs_f64();
            if took > TIMES_FIFO_MAX * fifo {
                let name = entry.name;
                wrong.push(format!(
                    "{name} on {line}, {apart} s apart: {took:.0} s, FIFO {fifo:.0} s"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Forty equal jobs on 144 GPUs of two types that are nearly as fast, of which there are very different numbers; each
/// asks for 4 GPUs, runs on 1 to 8, and gains less by each further one.
fn on_two_types(apart: u64) -> Workload {
    let speed = [(1, 1.0), (2, 1.9), (4, 3.5), (8, 6.0)];
    let points = speed.iter().flat_map(|&(gpus, rate)| {
        let point = |kind: &str, rate| Point { kind: kind.to_owned(), gpus, nodes: 1, rate };
        [point("v100", rate), point("p100", 0.97 * rate)]
    });
    let model = ModelProfile { points: points.collect(), ..ModelProfile::named("even", "a test") };
    let mut workload = Workload::empty("40 quiet elastic jobs");
    let model = workload.catalog.add(model);
    for id in 0..40 {
        let want = Want { gpus_min: 1, gpus_max: 8, ..Want::gpus(4) };
        let at = Time::ZERO + Span::secs(u64::from(id) * apart);
        let mut job = Job { want, model, ..Job::simple(JobId(id), at, 4) };
        job.declared = Some(Work(12_600.0));
        workload.jobs.push(TraceJob::new(Arc::new(job), Work(12_600.0)));
    }
    workload
}

#[test]
fn nor_on_more_than_128_gpus_of_two_types_that_are_nearly_as_fast() {
    let (cluster, _) = cluster::parse("16x8 v100, 2x8 p100").expect("a cluster");
    let cluster = Arc::new(cluster);
    let mut wrong = Vec::new();
    for apart in [0, 60, 600] {
        let workload = on_two_types(apart);
        let fifo = run("fifo", &workload, &cluster).ended.as_secs_f64();
        for entry in POLICIES.iter().filter(|entry| entry.class.elastic) {
            let took = run(entry.name, &workload, &cluster).ended.as_secs_f64();
            if took > TIMES_FIFO_MAX * fifo {
                wrong.push(format!(
                    "{}, {apart} s apart: {took:.0} s, FIFO {fifo:.0} s",
                    entry.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
