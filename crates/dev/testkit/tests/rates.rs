//! Speeds that depend on more than GPUs: host CPUs and memory, and batches that change on the way.

use std::sync::Arc;
use trainyard_framework::Pipeline;
use trainyard_policies::compose::Selection;
use trainyard_profile::{Batches, Catalog, CostModel, HostTable, ModelProfile};
use trainyard_sim::{Options, Outcome, Quiet, simulate};
use trainyard_types::{Cluster, Job, JobId, Span, Time, Work};
use trainyard_workload::{BatchPhase, TraceJob, Workload};

fn pipeline(policy: &str) -> Pipeline {
    Selection::policy(policy).build().expect("a policy of the registry")
}

fn run(workload: &Workload, cluster: Cluster, policy: &str) -> Outcome {
    let mut options = Options { costs: CostModel::Free, ..Options::default() };
    options.setup.check_every = 1;
    simulate(workload, &Arc::new(cluster), pipeline(policy), &options, &mut Quiet)
}

fn ended_seconds(outcome: &Outcome) -> Vec<f64> {
    outcome.jobs.iter().map(|job| job.ended.as_secs_f64()).collect()
}

/// One step each second at three CPUs for each GPU, 0.3 at one, and a tenth without memory.
fn hungry() -> ModelProfile {
    let table = HostTable {
        gpus: 1,
        cpus: vec![1.0, 3.0, 6.0],
        memory_mib: vec![16_000, 64_000],
        parts: vec![vec![0.1, 0.3], vec![0.1, 1.0], vec![0.1, 2.0]],
        usual: (3.0, 64_000),
    };
    ModelProfile { host: vec![table], ..ModelProfile::steady("hungry", "test", 1.0) }
}

#[test]
fn a_job_starved_of_cpus_or_memory_runs_slower() {
    let mut workload = Workload::empty("hosts");
    let model = workload.catalog.add(hungry());
    for (id, (cpus, memory)) in
        [(0, 0), (1, 64_000), (3, 64_000), (6, 64_000), (3, 16_000)].into_iter().enumerate()
    {
        let mut job = Job { model, ..Job::simple(JobId(id as u32), Time::ZERO, 1) };
        job.want.cpus_per_gpu = cpus;
        job.want.memory_mib_per_gpu = memory;
        workload.jobs.push(TraceJob::new(job, Work(600.0)));
    }
    let cluster = Cluster::uniform(1, 8, "v100");
    let expected = [600.0, 2000.0, 600.0, 300.0, 6000.0];
    let ideal: Vec<f64> = workload.ideal(&cluster).iter().map(|span| span.as_secs_f64()).collect();
    let ended = ended_seconds(&run(&workload, cluster, "fifo"));
    for (found, expected) in ended.iter().chain(&ideal).zip(expected.iter().cycle()) {
        assert!((found - expected).abs() < 1e-3, "{ended:?} {ideal:?}");
    }
}

/// Eight steps of 32 each second, or six of 64, each of which does the work of two.
fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let batches = Batches { own: 32, epoch_samples: 0, others: vec![(64, "large".to_owned())] };
    let small =
        ModelProfile { batches: Some(batches), ..ModelProfile::steady("small", "test", 8.0) };
    catalog.add(small);
    catalog.add(ModelProfile::steady("large", "test", 6.0));
    catalog
}

fn growing(jobs: usize, batches: &[(f64, u32)]) -> Workload {
    let mut workload = Workload { catalog: catalog(), ..Workload::empty("batches") };
    let model = workload.catalog.find("small").unwrap();
    for id in 0..jobs {
        let job = Job { model, ..Job::simple(JobId(id as u32), Time::ZERO, 1) };
        let batches = batches.iter().map(|(from, batch)| BatchPhase { from: *from, batch: *batch });
        let batches = batches.collect();
        workload.jobs.push(TraceJob { batches, ..TraceJob::new(job, Work(9600.0)) });
    }
    workload
}

#[test]
fn a_batch_that_changes_on_the_way_changes_the_speed_from_there_on() {
    // 9,600 steps of work: 8 of them each second at 32, 12 at 64.
    for (batches, seconds) in [
        (&[][..], 1200.0),
        (&[(0.0, 64)][..], 800.0),
        (&[(0.5, 64)][..], 1000.0),
        (&[(0.25, 64), (0.5, 32)][..], 1100.0),
        (&[(0.0, 32), (0.999, 64)][..], 1199.6),
    ] {
        let workload = growing(1, batches);
        let cluster = Cluster::uniform(1, 1, "v100");
        let ideal = workload.ideal(&cluster)[0].as_secs_f64();
        let ended = ended_seconds(&run(&workload, cluster, "fifo"));
        assert!((ended[0] - seconds).abs() < 1e-3, "{batches:?}: {ended:?}, not {seconds}");
        assert!((ideal - seconds).abs() < 1e-3, "{batches:?}: ideal {ideal}, not {seconds}");
    }
}

#[test]
fn a_job_that_is_stopped_goes_on_with_the_batch_it_had_reached() {
    let mut workload = growing(1, &[(0.25, 64)]);
    // A shorter job takes the GPU after half of the first one's time, for 100 seconds.
    let short = Job::simple(JobId(1), Time::ZERO + Span::secs(450), 1);
    workload.jobs.push(TraceJob::new(short, Work(100.0)));
    let outcome = run(&workload, Cluster::uniform(1, 1, "v100"), "srtf");
    let ended = ended_seconds(&outcome);
    assert_eq!(outcome.jobs[0].preemptions, 1);
    assert!((ended[1] - 550.0).abs() < 1e-3 && (ended[0] - 1000.0).abs() < 1e-3, "{ended:?}");
}
