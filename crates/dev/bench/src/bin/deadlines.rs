//! Speed of one decision about deadlines, with every job there at once.
//!
//! `cargo run --release -p trainyard-bench --bin deadlines` prints every case with its bound; `--gate` fails when a bound
//! is missed. Times are CPU time of one core until the first decision of a run is obeyed, the least of several runs,
//! beside a reference loop; `fifo` shows how much of it is the run itself.

use anyhow::Result;
use clap::Parser;
use std::sync::Arc;
use trainyard_bench::{Flags, least, mark};
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
    #[command(flatten)]
    flags: Flags,
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
    println!("{:<28} {:>10} {:>10}  reference s", "case", "cpu ms", "bound ms");
    for (policy, bound) in CASES.iter().filter(|(name, _)| name.contains(&args.filter)) {
        let selection = selected(policy)?;
        let took = least(args.flags.runs, || first_moment(&selection, &workload, &cluster))?;
        let took_ms = took.seconds * 1000.0;
        let over = took_ms > *bound;
        missed += usize::from(over);
        let (reference, note) = (took.reference, mark(over));
        println!("{policy:<28} {took_ms:>10.2} {bound:>10.0} {reference:>12.3}{note}");
    }
    args.flags.conclude(missed)
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

/// A policy with its settings, as a case names them.
fn selected(policy: &str) -> Result<Selection> {
    let mut words = policy.split_whitespace();
    let mut choice = Choice::named(words.next().unwrap_or(policy));
    for word in words {
        choice.settings.add(word)?;
    }
    Ok(Selection { policy: choice, ..Selection::default() })
}

/// A run up to the end of its first moment.
fn first_moment(selection: &Selection, workload: &Workload, cluster: &Arc<Cluster>) -> Result<()> {
    let options = Options { estimate_error: 0.0, ..Options::default() };
    simulate(workload, cluster, selection.build()?, &options, &mut FirstMoment);
    Ok(())
}
