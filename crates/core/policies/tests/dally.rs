//! Dally under congestion: 8 racks of 8 nodes of 8 GPUs, more work than they can do, uplinks that all jobs share.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_policies::compose::Selection;
use trainyard_profile::{Catalog, CostModel};
use trainyard_sim::{Options, Quiet, simulate};
use trainyard_types::{Cluster, Job, JobId, Tenants, Time, Work};
use trainyard_workload::{TraceJob, Workload, cluster};

const JOBS: u32 = 500;

/// A batch of jobs in the first hour, one GPU to 64 as in Philly's trace, of models that links hurt more and less.
fn workload(seed: u64) -> Workload {
    let catalog = Catalog::builtin();
    let models = ["muri-vgg16-b16", "muri-bert-b4", "gavel-resnet50-b64", "muri-gpt2-b4"];
    let models = models.map(|name| catalog.find(name).or_else(|| catalog.find("muri-vgg16-b16")));
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut below = |bound: u64| rng.next_u64() % bound;
    let mut jobs: Vec<(Job, f64)> = Vec::new();
    for _ in 0..JOBS {
        let gpus = [1, 1, 2, 4, 8, 8, 16, 16, 32, 64][below(10) as usize];
        let mut job = Job::simple(JobId(0), Time(below(3_600) * 1_000_000), gpus);
        job.model = models[below(4) as usize].expect("a model of the zoo");
        // A long tail, as in Philly: a tenth of the jobs are ten times as long.
        let long = if below(10) == 0 { 10 } else { 1 };
        jobs.push((job, ((300 + below(3_000)) * long) as f64));
    }
    jobs.sort_by_key(|(job, _)| job.submitted);
    let jobs = jobs.into_iter().zip(0..).map(|((job, seconds), id)| {
        let on = trainyard_types::Config::packed(trainyard_types::GpuType(0), job.want.gpus, 8);
        let _ = on;
        TraceJob::new(Job { id: JobId(id), ..job }, Work(seconds * 5.0))
    });
    let jobs = jobs.collect();
    Workload { jobs, tenants: Tenants::default(), catalog, ..Workload::empty("congestion") }
}

/// Mean completion time, last end, and time on GPUs, in hours.
fn run(workload: &Workload, text: &str, policy: &str, setting: Option<&str>) -> (f64, f64, f64) {
    let cluster: Arc<Cluster> = Arc::new(cluster::parse(text).expect("a cluster").0);
    let mut selection = Selection::policy(policy);
    if let Some(setting) = setting {
        selection.policy.settings.add(setting).expect("a setting");
    }
    let options = Options { costs: CostModel::Free, estimate_error: 0.0, ..Options::default() };
    let pipeline = selection.build().expect("it exists");
    let outcome = simulate(workload, &cluster, pipeline, &options, &mut Quiet);
    assert!(outcome.unfinished.is_empty(), "{policy}: every job is served");
    let hours = |seconds: f64| seconds / 3600.0;
    let times = outcome
        .finished()
        .map(|one| one.ended.since(workload.jobs[one.job.index()].job.submitted).as_secs_f64());
    let mean = times.sum::<f64>() / f64::from(JOBS);
    let last = outcome.finished().map(|one| one.ended.as_secs_f64()).fold(0.0, f64::max);
    let held: f64 = outcome.finished().map(|one| one.gpu_time.as_secs_f64()).sum();
    (hours(mean), hours(last), hours(held))
}

#[test]
fn under_congestion_dally_ends_jobs_sooner_than_policies_that_take_what_is_there() {
    let slow = "64x8 v100 over leaf-spine 8 racks 10g 8:1";
    let idle = "64x8 v100";
    let workload = workload(3);
    let mut found = Vec::new();
    for (name, policy, setting) in [
        ("tiresias", "tiresias", None),
        ("las", "las", None),
        ("dally auto", "dally", None),
        ("dally no-wait", "dally", Some("variant=no-wait")),
        ("dally manual", "dally", Some("variant=manual")),
        ("dally consolidated", "dally", Some("variant=consolidated")),
        ("dally expected", "dally", Some("variant=expected")),
    ] {
        let (mean, last, held) = run(&workload, slow, policy, setting);
        let (.., alone) = run(&workload, idle, policy, setting);
        trainyard_testkit::say!(
            "{name}: mean {mean:.2} h, last {last:.2} h, GPU time {held:.0} h, {alone:.0} h without links"
        );
        found.push((name, mean, last, held));
    }
    let of = |name: &str| found.iter().find(|one| one.0 == name).expect("it ran");
    assert!(of("dally auto").1 < of("tiresias").1, "mean completion time");
    assert!(of("dally auto").3 < of("tiresias").3, "GPU time, which links lengthen");
}
