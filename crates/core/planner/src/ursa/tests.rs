//! Ursa against executors, its two orders, and input pipelines.

use super::*;
use crate::draws::Draws;

fn workers(count: usize) -> Vec<Worker> {
    let worker = |at: usize| Worker {
        name: format!("w{at}"),
        // Cores, network, disk.
        slots: vec![8, 2, 1],
        rates: vec![1.0, 4.0, 4.0],
        memory_bytes: 64e9,
    };
    (0..count).map(worker).collect()
}

/// A job of a few stages that read, compute and send in drawn proportions.
fn job(draws: &mut Draws, at: usize) -> DagJob {
    let stages = 2 + draws.below(3) as usize;
    let (disk, network) = (4.0 * draws.unit(), 4.0 * draws.unit());
    let tasks = 4 + draws.below(40);
    let stage = |stage: usize, draws: &mut Draws| {
        let task = |draws: &mut Draws| {
            let amount = |of: f64, draws: &mut Draws| of * (0.5 + draws.unit());
            let first = match stage {
                0 => Monotask { kind: 2, amount: amount(disk, draws) },
                _ => Monotask { kind: 1, amount: amount(network, draws) },
            };
            vec![first, Monotask { kind: 0, amount: amount(2.0, draws) }]
        };
        Stage {
            name: format!("s{stage}"),
            after: if stage == 0 { Vec::new() } else { vec![stage - 1] },
            tasks: (0..tasks).map(|_| task(draws)).collect(),
        }
    };
    DagJob {
        name: format!("j{at}"),
        arrival: 2.0 * at as f64 * draws.unit(),
        memory_bytes: 40e9 * draws.unit(),
        stages: (0..stages).map(|at| stage(at, draws)).collect(),
    }
}

fn jobs(seed: u64, count: usize) -> Vec<DagJob> {
    let mut draws = Draws::new(seed);
    (0..count).map(|at| job(&mut draws, at)).collect()
}

fn total(jobs: &[DagJob], kind: usize) -> f64 {
    let all =
        jobs.iter().flat_map(|job| job.stages.iter().flat_map(|one| one.tasks.iter().flatten()));
    all.filter(|one| one.kind == kind).map(|one| one.amount).sum()
}

#[test]
fn every_monotask_runs_once() {
    let (workers, jobs) = (workers(3), jobs(1, 12));
    for order in [JobOrder::Earliest, JobOrder::ShortestLeft] {
        for binding in [Binding::Monotasks, Binding::Executors { kind: 0 }] {
            let settings = Settings { order, binding, ..Settings::default() };
            let outcome = run(&workers, &jobs, &settings).unwrap();
            for kind in 0..3 {
                let slots: u32 = workers.iter().map(|one| one.slots[kind]).sum();
                let busy = outcome.busy[kind] * f64::from(slots) * outcome.makespan;
                let wanted = total(&jobs, kind) / workers[0].rates[kind];
                assert!((busy / wanted - 1.0).abs() < 1e-9, "{binding:?} {kind}: {busy} {wanted}");
            }
        }
    }
}

/// The paper's directions: more of each kind is used, and jobs are over sooner, than with executors that hold a core.
#[test]
fn monotasks_beat_executors_and_short_jobs_first_beats_first_come() {
    let (mut spans, mut means, mut orders) = (0.0, 0.0, 0.0);
    for seed in 0..20 {
        let (workers, jobs) = (workers(4), jobs(100 + seed, 20));
        let with = |order, binding| {
            run(&workers, &jobs, &Settings { order, binding, ..Settings::default() }).unwrap()
        };
        let ursa = with(JobOrder::Earliest, Binding::Monotasks);
        let executors = with(JobOrder::Earliest, Binding::Executors { kind: 0 });
        let short = with(JobOrder::ShortestLeft, Binding::Monotasks);
        spans += ursa.makespan / executors.makespan / 20.0;
        means += ursa.mean_seconds / executors.mean_seconds / 20.0;
        orders += short.mean_seconds / ursa.mean_seconds / 20.0;
    }
    println!(
        "makespan {spans:.3}, mean {means:.3} of executors; short first {orders:.3} of first come"
    );
    assert!(spans < 0.97 && means < 0.97, "{spans} {means}");
    assert!(orders < 0.95, "{orders}");
}

/// Load, preprocess, copy, compute, reduce: one job's loading runs beside another's computing.
#[test]
fn input_pipelines_of_two_trainings_interleave() {
    // Disk, cores, bus, GPU, network.
    let worker = Worker {
        name: "gpu-node".to_owned(),
        slots: vec![1, 4, 1, 1, 1],
        rates: vec![1.0; 5],
        memory_bytes: 64e9,
    };
    let training = |name: &str, amounts: [f64; 5]| DagJob {
        name: name.to_owned(),
        arrival: 0.0,
        memory_bytes: 1e9,
        stages: (0..20)
            .map(|at| Stage {
                name: format!("step{at}"),
                after: if at == 0 { Vec::new() } else { vec![at - 1] },
                tasks: vec![(0..5).map(|kind| Monotask { kind, amount: amounts[kind] }).collect()],
            })
            .collect(),
    };
    let jobs = [
        training("reads", [0.4, 0.2, 0.05, 0.3, 0.05]),
        training("computes", [0.05, 0.1, 0.05, 0.7, 0.1]),
    ];
    let settings = Settings { interval: 0.01, horizon: 100.0, ..Settings::default() };
    let workers = [worker];
    let ursa = run(&workers, &jobs, &settings).unwrap();
    let held = Settings { binding: Binding::Executors { kind: 3 }, ..settings };
    let executors = run(&workers, &jobs, &held).unwrap();
    println!("interleaved {:.2} s, one after the other {:.2} s", ursa.makespan, executors.makespan);
    // One at a time takes the sum of both, 40 s.
    assert!((executors.makespan - 40.0).abs() < 1.0, "{}", executors.makespan);
    assert!(ursa.makespan < 0.75 * executors.makespan, "{}", ursa.makespan);
}

#[test]
fn a_job_waits_for_memory_and_one_that_never_fits_is_refused() {
    let workers = workers(1);
    let mut all = jobs(3, 2);
    all.iter_mut().for_each(|job| (job.memory_bytes, job.arrival) = (40e9, 0.0));
    let outcome = run(&workers, &all, &Settings::default()).unwrap();
    let alone = run(&workers, &all[..1], &Settings::default()).unwrap();
    assert_eq!(outcome.ended[0], alone.ended[0]);
    assert!(outcome.ended[1] > outcome.ended[0]);
    all[1].memory_bytes = 65e9;
    let error = run(&workers, &all, &Settings::default()).unwrap_err().to_string();
    assert!(error.contains("job `j1` fits nowhere"), "{error}");
    all[1].memory_bytes = 0.0;
    all[1].stages[0].after = vec![1];
    let error = run(&workers, &all, &Settings::default()).unwrap_err().to_string();
    assert_eq!(error, "the graph has a cycle: j1/s1 -> j1/s0");
    all[1].stages[0].after = Vec::new();
    all[1].stages[0].tasks[0][0].kind = 9;
    let error = run(&workers, &all, &Settings::default()).unwrap_err().to_string();
    assert!(error.contains("operator `j1/s0`: `kind`"), "{error}");
}
