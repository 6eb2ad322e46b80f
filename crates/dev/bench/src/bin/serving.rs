//! Speed of the serving simulation: a million requests on 64 GPUs under each discipline.
//!
//! `cargo run --release -p trainyard-bench --bin serving` prints CPU seconds of one core beside a reference loop;
//! `--gate` fails when a run takes more than 5 s.

use anyhow::{Result, anyhow};
use clap::Parser;
use trainyard_bench::{Flags, least, mark};
use trainyard_serving::latency::Model;
use trainyard_serving::load::Load;
use trainyard_serving::registry::{DISCIPLINES, choose};
use trainyard_serving::run::{Served, run, serves};
use trainyard_serving::{Fleet, LlmFleet, Trace, zoo};

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only disciplines whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// How many requests.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u32,
    #[command(flatten)]
    flags: Flags,
}

const SERVERS: u32 = 64;
const BOUND_SECONDS: f64 = 5.0;

/// Half of what the GPUs carry in the largest batches, and a rate of conversations that they keep up with.
fn given(requests: u32) -> Result<[(Served, Trace); 2]> {
    let models: Vec<Model> =
        zoo::models().values().filter(|model| !model.name.ends_with("-eager")).cloned().collect();
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let words = |rate: f64| {
        format!("requests={requests} rate={rate} clients=100 priorities=1,4 prefixes=50")
    };
    let load = |rate: f64| Load::parse(&words(rate)).map_err(|fault| anyhow!("{fault}"));
    let whole = Load {
        models: names,
        ..Load::parse(&format!("{} slo=100ms", words(300_000.0)))
            .map_err(|fault| anyhow!("{fault}"))?
    };
    let tokens = Load { models: vec!["llama-8b".to_owned()], ..load(800.0)? };
    let alone = |_: &str| trainyard_types::Span::ZERO;
    let slowdowns = zoo::slowdowns(&models);
    let fleet = Fleet::new(models, slowdowns, SERVERS);
    Ok([
        (Served::Whole(fleet), whole.trace(&alone, false)),
        (Served::Tokens(LlmFleet::measured(SERVERS)), tokens.trace(&alone, true)),
    ])
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut missed = 0;
    for (served, trace) in given(args.requests)? {
        for entry in DISCIPLINES.iter().filter(|entry| entry.name.contains(&args.filter)) {
            let choice = choose(entry.name).map_err(|fault| anyhow!("{fault}"))?;
            if !serves(&choice, &trace) {
                continue;
            }
            let found = least(args.flags.runs, || {
                run(&choice, &served, &trace, &mut |_| {}).map_err(|error| anyhow!("{error}"))
            })?;
            let is_missed = found.seconds > BOUND_SECONDS;
            missed += usize::from(is_missed);
            let tally = found.found.tally();
            println!(
                "{:<14} {:>7.2} s (bound {BOUND_SECONDS} s, {:.1} times the reference)  {} answered, {:.2} % in time, GPU use {:.2}{}",
                entry.name,
                found.seconds,
                found.times_reference(),
                tally.answered,
                100.0 * tally.attainment(),
                tally.use_of_servers(),
                mark(is_missed)
            );
        }
    }
    args.flags.conclude(missed)
}
