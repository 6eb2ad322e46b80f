//! Speed of the live side: a real daemon over its Unix socket, and the real engine on a large cluster of names.
//!
//! `cargo run --release -p trainyard-bench --bin live` prints each figure beside its target; `--gate` fails when one is
//! missed. The program `trainyard` must be built too: it is looked for beside this one. What a disk can do differs
//! a lot, so its own rate of syncs, measured in the same folder in the same run, stands first.

mod daemon;
mod decide;
mod names;
mod pages;
mod queue;

use anyhow::{Result, bail};
use clap::Parser;
use std::path::PathBuf;

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// The program [default: `trainyard` beside this one].
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the daemon keeps its state, on the disk to be measured.
    #[arg(long, default_value = "live-bench")]
    folder: PathBuf,
    /// Jobs in the queue for batches, restart, memory and pages; twice as many names come one by one.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Fail when a target is missed.
    #[arg(long)]
    gate: bool,
}

/// A figure, what it must be, and whether it is.
#[derive(Debug)]
struct Row {
    name: String,
    text: String,
    target: String,
    met: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let mut missed = 0;
    let mut show = |row: Row| {
        missed += u32::from(!row.met);
        let verdict = if row.met { "" } else { "  MISSED" };
        println!("{:<22} {:<58} {}{verdict}", row.name, row.text, row.target);
    };
    let beside = std::env::current_exe()?.with_file_name("trainyard");
    let program = args.program.clone().unwrap_or(beside);
    if "live-queue".contains(&args.filter) {
        queue::run(&program, &args.folder, args.jobs, &mut show)?;
    }
    if "live-names".contains(&args.filter) {
        names::run(&program, &args.folder, args.jobs, &mut show)?;
    }
    if "live-decide".contains(&args.filter) {
        decide::run(&mut show)?;
    }
    if args.gate && missed > 0 {
        bail!("{missed} targets missed");
    }
    Ok(())
}
