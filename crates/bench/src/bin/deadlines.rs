//! Speed of one decision about deadlines, with every job there at once.
//!
//! `cargo run --release -p trainyard-bench --bin deadlines` prints every case with its bound; `--gate` fails when a bound
//! is missed. Times are CPU time of one core until the first decision of a run is obeyed, the least of several runs;
//! `fifo` shows how much of it is the run itself.

use anyhow::{Result, bail};
use clap::Parser;
use cpu_time::ProcessTime;
use std::sync::Arc;
use trainyard_policies::compose::{Choice, Selection};
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::{Cluster, Time};
use trainyard_workload::{Arrival, Spec, Workload, cluster, generate};

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// How many runs; the least counts.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Fail when a case misses its bound.
    #[arg(long)]
    gate: bool,
}

/// Policies with the most milliseconds that a decision for 1,000 jobs on 1,024 GPUs may take.
const CASES: &[(&str, f64)] = &[
    ("fifo", 50.0),
    ("elasticflow", 1000.0),
    ("elasticflow filling=events", 1000.0),
    ("elasticflow kinds=true", 1000.0),
    ("edf", 50.0),
    ("edf size=largest", 50.0),
    ("least-laxity", 50.0),
    ("genie", 100.0),
];

/// Ends a run after its first moment.
struct FirstMoment;

impl Observer for FirstMoment {
    fn goes_on(&mut self, to: Time) -> bool {
        to == Time::ZERO
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let (workload, cluster) = crowd()?;
    let mut missed = 0;
    println!("{:<28} {:>10} {:>10}", "case", "cpu ms", "bound ms");
    for (policy, bound) in CASES.iter().filter(|(name, _)| name.contains(&args.filter)) {
        let took = least_ms(policy, (&workload, &cluster), args.runs)?;
        let over = took > *bound;
        missed += u32::from(over);
        let note = if over { "  MISSED" } else { "" };
        println!("{policy:<28} {took:>10.2} {bound:>10.0}{note}");
    }
    if args.gate && missed > 0 {
        bail!("{missed} cases missed their bound");
    }
    Ok(())
}

/// 1,000 elastic jobs with deadlines at once, on 128 nodes of 8.
fn crowd() -> Result<(Workload, Arc<Cluster>)> {
    let (cluster, _) = cluster::parse("128x8 a100")?;
    let spec = Spec {
        jobs: 1000,
        arrival: Arrival::AtOnce,
        models: vec!["elasticflow-*".to_owned()],
        deadline_share: 0.8,
        deadline_slack: vec![1.2, 1.5, 2.0, 4.0, 10.0],
        elastic_share: 1.0,
        ..Spec::default()
    };
    let workload = generate(&spec, &Catalog::builtin(), &cluster)?;
    Ok((workload, Arc::new(cluster)))
}

/// The least CPU time until the first moment is over, in milliseconds.
fn least_ms(
    policy: &str,
    (workload, cluster): (&Workload, &Arc<Cluster>),
    runs: u32,
) -> Result<f64> {
    let mut words = policy.split_whitespace();
    let mut choice = Choice::named(words.next().unwrap_or(policy));
    for word in words {
        choice.settings.add(word)?;
    }
    let selection = Selection { policy: choice, ..Selection::default() };
    let options = Options { estimate_error: 0.0, ..Options::default() };
    let mut least = f64::INFINITY;
    for _ in 0..runs.max(1) {
        let pipeline = selection.build()?;
        let start = ProcessTime::now();
        simulate(workload, cluster, pipeline, &options, &mut FirstMoment);
        least = least.min(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(least)
}
