//! No policy leaves GPUs idle that a waiting job could use, unless it says so here and why.

use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_types::{Cluster, GroupId, Job, JobId, Time, Work};
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
