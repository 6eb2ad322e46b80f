//! How long every policy of the registry takes for the embedded workload: CPU seconds of the whole simulation, the least
//! of several, beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin registry -- --runs 1`; `--gate` fails when a bound is missed.

use anyhow::{Result, ensure};
use clap::Parser;
use cpu_time::ProcessTime;
use std::sync::Arc;
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_policies::compose::Selection;
use trainyard_policies::registry::POLICIES;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::Time;
use trainyard_workload::embedded;

/// The most CPU seconds that a policy may take.
const BOUND: f64 = 3.0;
/// What the reference loop takes where the bounds were set: on a slower machine they grow with it.
const REFERENCE: f64 = 0.12;
/// The most that all of them together may take.
const BOUND_OF_ALL: f64 = 60.0;

/// Ends a run that takes far too long: that it misses its bound is known by then.
struct Patience {
    since: ProcessTime,
}

impl Observer for Patience {
    fn goes_on(&mut self, _to: Time) -> bool {
        self.since.elapsed().as_secs_f64() < 2.0 * BOUND
    }
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let (workload, cluster) = embedded();
    let cluster = Arc::new(cluster);
    let options = Options::default();
    println!("policy                 steps    cpu s  bound s  reference s  x ref");
    let (mut missed, mut sum) = (0, 0.0);
    for entry in POLICIES {
        let took = least(flags.runs, || {
            let pipeline = Selection::policy(entry.name).build()?;
            let mut patience = Patience { since: ProcessTime::now() };
            let outcome = simulate(&workload, &cluster, pipeline, &options, &mut patience);
            ensure!(outcome.stats.faults == 0, "{}: {:?}", entry.name, outcome.stats.fault_samples);
            Ok(outcome.steps)
        })?;
        let Least { seconds, reference, found: steps } = took;
        let slower = (reference / REFERENCE).max(1.0);
        let over = seconds > BOUND * slower;
        missed += usize::from(over);
        sum += seconds / slower;
        println!(
            "{:<18} {steps:>9} {seconds:>8.3} {BOUND:>8.2} {reference:>12.3} {:>6.2}{}",
            entry.name,
            took.times_reference(),
            mark(over),
        );
    }
    let over = sum > BOUND_OF_ALL;
    missed += usize::from(over);
    println!("{:<28} {sum:>8.3} {BOUND_OF_ALL:>8.2}{}", "all", mark(over));
    flags.conclude(missed)
}
