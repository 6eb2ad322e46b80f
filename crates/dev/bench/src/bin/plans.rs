//! What described models cost a policy: CPU time of a decision at 512 GPUs whose jobs are as fast as the best division of
//! their model, beside the same jobs with measured points.
//!
//! `cargo run --release -p trainyard-bench --bin plans` prints both for Gavel and Sia; `--gate` fails when a decision
//! takes more than twice as long. Divisions are found at the first question about a configuration and looked up after it,
//! so the first half of the moments of a run is left out as warm-up, and shown apart.

use anyhow::Result;
use clap::Parser;
use cpu_time::ProcessTime;
use std::sync::Arc;
use trainyard_bench::{Flags, mark, reference_seconds};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::{Cluster, Time};
use trainyard_workload::{Arrival, Like, Spec, Workload, cluster, generate};

/// A decision may take so many times as long.
const BOUND: f64 = 2.0;
const JOBS: u32 = 200;

#[derive(Parser)]
#[command(about)]
struct Args {
    #[command(flatten)]
    flags: Flags,
}

/// CPU seconds between the moments of a run.
#[derive(Default)]
struct Stopwatch {
    last: Option<ProcessTime>,
    taken: Vec<f64>,
}

impl Observer for Stopwatch {
    fn goes_on(&mut self, _to: Time) -> bool {
        if let Some(last) = self.last {
            self.taken.push(last.elapsed().as_secs_f64());
        }
        self.last = Some(ProcessTime::now());
        true
    }
}

/// Mean milliseconds of a moment in the second half of a run, and seconds of the first half.
fn measured(policy: &str, workload: &Workload, on: &Arc<Cluster>) -> Result<(f64, f64)> {
    let mut watch = Stopwatch::default();
    let options = Options { estimate_error: 0.0, ..Options::default() };
    let pipeline = Selection::policy(policy).build()?;
    simulate(workload, on, pipeline, &options, &mut watch);
    let (first, second) = watch.taken.split_at(watch.taken.len() / 2);
    let mean = second.iter().sum::<f64>() / second.len().max(1) as f64;
    Ok((1e3 * mean, first.iter().sum()))
}

fn main() -> Result<()> {
    let Args { flags } = Args::parse();
    let on = Arc::new(cluster::parse_line("24x8 a100, 24x8 v100, 16x8 h100")?);
    let arrival = Arrival::PerHour(20.0);
    let spec = Spec { like: Like::Llm, jobs: JOBS, seed: 1, arrival, ..Spec::default() };
    let described = generate(&spec, &Catalog::builtin(), &on)?;
    let catalog = described.catalog.without_plans(&on);
    let measured_only = Workload { catalog, ..described.clone() };
    println!(
        "policy  moment with plans ms  without ms  ratio  bound  first half s  without s  reference s"
    );
    let mut missed = 0;
    for policy in ["gavel", "sia"] {
        let (mut with, mut without) = ((f64::INFINITY, 0.0), (f64::INFINITY, 0.0));
        for _ in 0..flags.runs {
            let least =
                |known: (f64, f64), new: (f64, f64)| if new.0 < known.0 { new } else { known };
            with = least(with, measured(policy, &described, &on)?);
            without = least(without, measured(policy, &measured_only, &on)?);
        }
        let ratio = with.0 / without.0;
        missed += usize::from(ratio > BOUND);
        println!(
            "{policy:6}  {:20.3}  {:10.3}  {ratio:5.2}  {BOUND:5.1}  {:12.2}  {:9.2}  {:11.3}{}",
            with.0,
            without.0,
            with.1,
            without.1,
            reference_seconds(),
            mark(ratio > BOUND)
        );
    }
    flags.conclude(missed)
}
