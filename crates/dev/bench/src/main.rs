//! Speed and memory of whole simulations: CPU seconds, the least of several runs, beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench` prints every case with its bound; `--gate` fails when one is missed;
//! `--case NAME` runs one. Each case runs in a process of its own, so that its peak memory is its own.

mod cases;
mod measure;

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::process::Command;

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Run this one case here and print one line.
    #[arg(long)]
    case: Option<String>,
    /// How many runs; the least counts.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Fail when a case misses its bound.
    #[arg(long)]
    gate: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(name) = &args.case {
        let case = cases::all().into_iter().find(|case| case.name == *name);
        let case = case.with_context(|| format!("there is no case `{name}`"))?;
        println!("{}", measure::run(&case, args.runs)?);
        return Ok(());
    }
    println!("{}", measure::HEADER);
    let mut missed = 0;
    for case in cases::all().into_iter().filter(|case| case.name.contains(&args.filter)) {
        let output = Command::new(std::env::current_exe()?)
            .args(["--case", &case.name, "--runs", &args.runs.to_string()])
            .output()?;
        let line = String::from_utf8_lossy(&output.stdout);
        print!("{line}");
        if !output.status.success() {
            println!(
                "{:<28} failed: {}",
                case.name,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        if !output.status.success() || line.contains("MISSED") {
            missed += 1;
        }
    }
    if args.gate && missed > 0 {
        bail!("{missed} cases missed their bound");
    }
    Ok(())
}
