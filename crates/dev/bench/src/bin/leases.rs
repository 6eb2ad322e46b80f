//! How long a plan of leases takes for 1,000 jobs with soft deadlines: CPU seconds, the least of several runs, beside
//! a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin leases`; `--gate` fails when a bound is missed.

use anyhow::Result;
use clap::Parser;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_solver::leases::{Demand, Now, Program, Step};

/// Jobs of each plan.
const JOBS: u32 = 1000;
/// The most CPU seconds that a plan may take; Chronus gives its solver 5 s.
const BOUND: f64 = 1.0;
/// Units of work, as the policy has them by default.
const WORK: u64 = 200_000;

fn main() -> Result<()> {
    let flags = Flags::parse();
    println!(
        "case                  gpus  served      value      gap     work   cpu s  bound s  reference s"
    );
    let mut missed = 0;
    for (name, gpus) in [("room for all", 960), ("full", 480), ("over full", 240)] {
        let program = program(gpus);
        let Least { seconds, reference, found: plan } =
            least(flags.runs, || Ok(program.solve(WORK)))?;
        let served = plan.steps.iter().flatten().count();
        let (value, gap) = (plan.value, plan.gap() * 100.0);
        println!(
            "{name:<20} {gpus:>5} {served:>7} {value:>10.0} {gap:>6.2} % {:>8} {seconds:>7.3} {BOUND:>8.2} {reference:>12.3}{}",
            plan.work,
            mark(seconds > BOUND),
        );
        missed += usize::from(seconds > BOUND);
    }
    flags.conclude(missed)
}

/// Jobs like those of Chronus' Philly traces: mostly one GPU, 1 to 80 leases, four values.
fn program(gpus: u32) -> Program {
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    let mut below = |most: u32| rng.next_u32() % most;
    let mut demands = Vec::new();
    for _ in 0..JOBS {
        let width = match below(100) {
            0..90 => 1,
            90..92 => 2,
            92..96 => 4,
            _ => 8,
        };
        let leases = match below(10) {
            0..8 => 1 + below(12),
            _ => 12 + below(68),
        };
        let first = leases + below(1 + leases);
        let steps = [10.0, 8.0, 5.0, 2.0].iter().zip([0, 2, 4, 7]);
        let steps = steps.map(|(value, later)| Step { before: first + later, value: *value });
        demands.push(Demand { gpus: width, leases, steps: steps.collect(), prefers: false });
    }
    Program { demands, capacity: vec![gpus], now: Now::Least }
}
