//! How much a problem loses by being solved in parts, and when it loses a lot.

use smallvec::smallvec;
use std::sync::Arc;
use trainyard_framework::{
    Beliefs, ChangeCost, Choice, Cx, Live, Menu, Needs, Pop, RateTable, State, TimeShare, View,
};
use trainyard_policies::gavel::engine::{Engine, Method};
use trainyard_policies::gavel::max_min::MaxMin;
use trainyard_policies::gavel::optimiser::Optimiser;
use trainyard_policies::gavel::problem::Problem;
use trainyard_types::{Config, GpuType, Job, JobId, JobState, Rate, Tenants, Time, Want, Work};
use trainyard_workload::cluster::parse_line;

/// Nothing is asked here: speeds are in the table.
struct Silent;

impl Beliefs for Silent {
    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(Silent)
    }
    fn rate(&self, _: &Job, _: &Config) -> Option<Rate> {
        None
    }
    fn change(&self, _: &Job, _: Option<&Config>, _: Option<&Config>) -> ChangeCost {
        ChangeCost::default()
    }
    fn work(&self, _: &Job) -> Option<Work> {
        None
    }
}

/// A fraction that depends on a number and looks like chance.
fn draw(number: u64) -> f64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ bits >> 31) >> 11) as f64 / (1u64 << 53) as f64
}

/// Jobs of these sizes on three types of so many GPUs, of which the second is 1.2 to 3 times and the third 2 to 10
/// times as slow as the first, as in Gavel's table.
fn table(sizes: &[u32], gpus: u32) -> RateTable {
    let mut choices = Vec::new();
    for (job, size) in sizes.iter().enumerate() {
        let part = |number: u64| draw(job as u64 * 3 + number);
        let fast = 1.0 + 50.0 * part(0);
        let rates = [fast, fast / (1.2 + 1.8 * part(1)), fast / (2.0 + 8.0 * part(2))];
        choices.extend(rates.iter().zip(0..).map(|(rate, kind)| Choice {
            jobs: smallvec![JobId(job as u32)],
            uses: smallvec![(kind, *size)],
            nodes_max: 0,
            rates: smallvec![*rate],
        }));
    }
    RateTable {
        jobs: (0..sizes.len() as u32).map(JobId).collect(),
        kinds: vec![GpuType(0), GpuType(1), GpuType(2)],
        capacity: vec![gpus; 3],
        choices,
    }
}

/// The level of the worst job, and the mean level of all jobs, in four parts beside the whole problem. The first job
/// has a weight of its own.
fn quality(sizes: &[u32], heavy: f64, gpus: u32, split: f64) -> (f64, f64) {
    let parts = 4;
    let table = table(sizes, gpus);
    let cluster = parse_line("1x8 v100, 1x8 p100, 1x8 k80").expect("a cluster");
    let mut state = State::new(Arc::new(cluster), Tenants::default());
    let jobs = sizes.iter().zip(0..).map(|(size, id)| {
        let simple = Job::simple(JobId(id), Time::ZERO, *size);
        let weight = if id == 0 { heavy } else { 1.0 };
        let spec = Arc::new(Job { want: Want::gpus(*size), weight, ..simple });
        (JobId(id), Arc::new(Live { spec, state: JobState::submitted(Time::ZERO) }))
    });
    state.jobs = jobs.collect();
    let needs = Needs::NOTHING;
    let view = View::new(Time::ZERO, &state, &Silent, &needs);
    let problem = Problem::seen(&table, &view);
    let needed = MaxMin::needs(&problem);
    let solved = |parts: usize| {
        let one = || {
            Optimiser::new(
                MaxMin,
                Engine::new(Method::Structured).expect("built in"),
                Menu::default(),
            )
        };
        let mut pop = Pop::new((0..parts).map(|_| one()).collect(), split, 7);
        let shares = pop.shares(&table, &view, &mut Cx::new(1, 1, 1)).expect("shares").of;
        for kind in 0..3 {
            let of_kind = table.choices.iter().zip(&shares).filter(|(it, _)| it.kind() == kind);
            let used: f64 = of_kind.map(|(it, share)| f64::from(it.gpus()) * share).sum();
            assert!(used <= f64::from(gpus) * (1.0 + 1e-6), "type {kind} has {used} of {gpus}");
        }
        let level = |party: usize| problem.rate(party, &shares) / needed[party];
        problem.all().map(level).collect::<Vec<f64>>()
    };
    let (whole, in_parts) = (solved(1), solved(parts));
    let least = |levels: &[f64]| levels.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = |levels: &[f64]| levels.iter().sum::<f64>() / levels.len() as f64;
    (least(&in_parts) / least(&whole), mean(&in_parts) / mean(&whole))
}

/// 70 % of one GPU, 10 % of two, 15 % of four and 5 % of eight, as in Gavel's generator.
fn usual(jobs: u64) -> Vec<u32> {
    let size = |draw: f64| match draw {
        0.0..0.7 => 1,
        0.7..0.8 => 2,
        0.8..0.95 => 4,
        _ => 8,
    };
    (0..jobs).map(|job| size(draw(job + 1_000_000))).collect()
}

#[test]
fn four_parts_of_512_usual_jobs_lose_less_than_a_hundredth() {
    let (worst, mean) = quality(&[1; 512], 1.0, 128, f64::INFINITY);
    println!("512 jobs of one GPU in 4 parts: worst job {worst:.4}, mean {mean:.4} of the whole");
    assert!(worst > 0.99 && mean > 0.99, "worst {worst}, mean {mean}");
    let (worst, mean) = quality(&usual(512), 1.0, 128, f64::INFINITY);
    println!("512 jobs of one to eight GPUs: worst job {worst:.4}, mean {mean:.4}");
    assert!(worst > 0.99 && mean > 0.99, "worst {worst}, mean {mean}");
}

#[test]
fn a_job_that_outweighs_its_part_ruins_it_unless_it_is_split() {
    // A gang of 96 GPUs with half of all weight: one part cannot give it what the whole would.
    let mut sizes = vec![1; 121];
    sizes[0] = 96;
    let (worst, mean) = quality(&sizes, 120.0, 64, f64::INFINITY);
    let (split_worst, split_mean) = quality(&sizes, 120.0, 64, 0.5);
    println!(
        "one dominates: worst {worst:.3}, mean {mean:.3}; split: {split_worst:.3}, {split_mean:.3}"
    );
    assert!(worst < 0.55, "the failure that is claimed did not happen: {worst}");
    assert!(split_worst > 0.95 && split_mean > 0.95, "worst {split_worst}, mean {split_mean}");
}
