//! How long `eta` and `whatif` take at 10,000 waiting jobs on 1,000 nodes of 8 GPUs: CPU seconds, the least of
//! several runs, beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin forecast`; `--gate` fails when a bound is missed.

use anyhow::{Result, ensure};
use clap::Parser;
use std::sync::Arc;
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_engine::Engine;
use trainyard_forecast::sizes::ideal_spans;
use trainyard_forecast::{ForecastRow, Foreseen, Lengths, Limits, Sizes, foresee};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::Time;
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, cluster, generate};

/// Jobs that wait.
const WAITING: usize = 10_000;
/// The most CPU seconds that an answer may take.
const BOUND: f64 = 1.0;
const POLICIES: [&str; 5] = ["fifo", "sjf", "srtf", "las", "tiresias"];

/// Stops a run when enough jobs wait.
#[derive(Default)]
struct Crowd {
    fork: Option<Engine>,
}

impl Observer for Crowd {
    fn goes_on(&mut self, _to: Time) -> bool {
        self.fork.is_none()
    }

    fn passed(&mut self, engine: &Engine) {
        if engine.state().waiting.len() >= WAITING {
            self.fork = Some(engine.fork(engine.state().now));
        }
    }
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    println!(
        "case                  waiting  running    steps   cpu s  bound s  reference s  x ref"
    );
    let mut missed = 0;
    for policy in POLICIES {
        let engine = crowded(policy)?;
        let eta =
            least(flags.runs, || eta(&engine, policy).map(|foreseen| foreseen.outcome.steps))?;
        missed += line(&format!("eta {policy}"), &engine, eta);
        let other = if policy == "fifo" { "srtf" } else { "fifo" };
        let compared = least(flags.runs, || {
            Ok(whatif(&engine, policy, policy)? + whatif(&engine, other, policy)?)
        })?;
        missed += line(&format!("whatif {policy},{other}"), &engine, compared);
    }
    flags.conclude(missed)
}

/// A cluster that was asked for far too much, when so many jobs wait.
fn crowded(policy: &str) -> Result<Engine> {
    let (cluster, _) = cluster::parse("1000x8 v100")?;
    let spec = Spec {
        jobs: 60_000,
        arrival: Arrival::Load(20.0),
        duration: DurationLaw::Gavel,
        size: SizeLaw::Gavel,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::default(), &cluster)?;
    let mut crowd = Crowd::default();
    let pipeline = Selection::policy(policy).build()?;
    simulate(&workload, &Arc::new(cluster), pipeline, &Options::default(), &mut crowd);
    crowd.fork.ok_or_else(|| anyhow::anyhow!("{policy}: never so many jobs waited"))
}

/// What the daemon does for `eta`: a fork, sizes, and the run to its end.
fn eta(engine: &Engine, policy: &str) -> Result<Foreseen> {
    let fork = engine.fork(engine.state().now);
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    let foreseen = foresee(fork, sizes, Selection::policy(policy).build()?, Limits::WIDE);
    ensure!(foreseen.jobs.iter().all(|one| one.ends.is_some()), "{policy} left some");
    Ok(foreseen)
}

/// What it does for a row of `whatif`; how many moments the run had.
fn whatif(engine: &Engine, policy: &str, running: &str) -> Result<u64> {
    let mut fork = engine.fork(engine.state().now);
    if policy != running {
        fork.reset_failures();
    }
    let sizes = Sizes::new(&fork, &Lengths::default().sorted());
    let ideal = ideal_spans(&fork, &sizes);
    let foreseen = foresee(fork, sizes, Selection::policy(policy).build()?, Limits::WIDE);
    let row = ForecastRow::new(&foreseen, |job| ideal.get(&job).copied());
    ensure!(row.finished == foreseen.jobs.len() as u64, "{policy} left some");
    Ok(foreseen.outcome.steps)
}

fn line(name: &str, engine: &Engine, took: Least<u64>) -> usize {
    let state = engine.state();
    let Least { seconds, reference, found: steps } = took;
    let over = seconds > BOUND;
    println!(
        "{name:<21} {:>7} {:>8} {steps:>8} {seconds:>7.3} {BOUND:>8.2} {reference:>12.3} {:>6.1}{}",
        state.waiting.len(),
        state.granted.len(),
        took.times_reference(),
        mark(over),
    );
    usize::from(over)
}
