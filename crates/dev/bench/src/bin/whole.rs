//! A million jobs as a user types it, and ten million: the whole command, from the file of the trace to the JSON, in
//! CPU seconds and peak memory.
//!
//! `cargo build --release && cargo run --release -p trainyard-bench --bin whole` prints every case with its bounds;
//! `--gate` fails when one is missed. Ten million jobs run once, however many runs are asked for.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use trainyard_bench::{Flags, mark};

const CLUSTER: &str = "750x8 v100";
const MILLION: u32 = 1_000_000;

/// How often the million jobs come again in the larger trace.
const TIMES: u32 = 10;

/// One policy on one of the traces, with the most that it may take.
struct Case {
    policy: &'static str,
    is_large: bool,
    cpu_seconds_max: Option<f64>,
    memory_mib_max: f64,
}

const CASES: [Case; 4] = [
    Case::million("fifo", 5.0),
    Case::million("las", 8.0),
    Case::million("easy", 6.0),
    Case { policy: "fifo", is_large: true, cpu_seconds_max: None, memory_mib_max: 1024.0 },
];

impl Case {
    const fn million(policy: &'static str, seconds: f64) -> Case {
        Case { policy, is_large: false, cpu_seconds_max: Some(seconds), memory_mib_max: 400.0 }
    }
}

/// The flags of the bench, and those by which it calls itself.
#[derive(Parser)]
#[command(about)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Run this command here and print its CPU seconds and its peak memory in MiB.
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    alone: Vec<String>,
}

fn main() -> Result<()> {
    let Args { flags, alone } = Args::parse();
    if !alone.is_empty() {
        return measure(&alone);
    }
    let program = std::env::current_exe()?.with_file_name("trainyard");
    ensure!(program.exists(), "{} is not there: `cargo build --release`", program.display());
    let name = |jobs| std::env::temp_dir().join(format!("whole-{}-{jobs}.csv", std::process::id()));
    let traces = [name("1"), name("10")];
    let made = generate(&program, &traces[0]).and_then(|()| repeat(&traces[0], &traces[1]));
    let missed = made.and_then(|()| all(&program, &traces, flags.runs));
    // Whatever came of it, the traces go.
    for trace in &traces {
        let _ = std::fs::remove_file(trace);
    }
    flags.conclude(missed?)
}

fn generate(program: &Path, trace: &Path) -> Result<()> {
    let jobs = MILLION.to_string();
    let mut command = Command::new(program);
    command.args(["trace", "generate", "--load", "0.85", "--duration", "gavel", "--size", "gavel"]);
    command.args(["--jobs", &jobs, "--cluster", CLUSTER, "--out"]).arg(trace);
    let status = command.stdout(Stdio::null()).status().context("the trace could not be made")?;
    ensure!(status.success(), "the trace could not be made");
    Ok(())
}

/// The jobs of a trace again and again, each time behind the last; the first two columns are the id and the submission.
fn repeat(trace: &Path, larger: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(larger)?);
    let (mut id, mut begin) = (0u64, 0.0);
    for time in 0..TIMES {
        let mut last = 0.0;
        for (index, line) in BufReader::new(File::open(trace)?).lines().enumerate() {
            let line = line?;
            let mut fields = line.splitn(3, ',');
            let (_, at, rest) = (fields.next(), fields.next(), fields.next());
            let (at, rest) = at.zip(rest).context("a trace with more than two columns")?;
            if index == 0 {
                ensure!(line.starts_with("id,submit_s,"), "unknown columns: {line}");
                if time == 0 {
                    writeln!(out, "{line}")?;
                }
                continue;
            }
            last = at.parse::<f64>()?;
            writeln!(out, "{id},{},{rest}", begin + last)?;
            id += 1;
        }
        begin += last;
    }
    Ok(out.flush()?)
}

/// How many bounds were missed.
fn all(program: &Path, traces: &[PathBuf; 2], runs: u32) -> Result<usize> {
    println!("policy       jobs   cpu s  bound s  peak MiB  bound MiB");
    let mut missed = 0;
    for case in &CASES {
        let (trace, jobs) = match case.is_large {
            true => (&traces[1], MILLION * TIMES),
            false => (&traces[0], MILLION),
        };
        let runs = if case.is_large { 1 } else { runs.max(1) };
        let (mut seconds, mut memory) = (f64::INFINITY, 0.0f64);
        for _ in 0..runs {
            let one = run(program, trace, case.policy)?;
            (seconds, memory) = (seconds.min(one.0), memory.max(one.1));
        }
        let over =
            case.cpu_seconds_max.is_some_and(|most| seconds > most) || memory > case.memory_mib_max;
        missed += usize::from(over);
        let bound =
            case.cpu_seconds_max.map_or_else(|| "-".to_owned(), |most| format!("{most:.2}"));
        println!(
            "{:<8} {jobs:>8} {seconds:>7.2} {bound:>8} {memory:>9.0} {:>10.0}{}",
            case.policy,
            case.memory_mib_max,
            mark(over)
        );
    }
    Ok(missed)
}

/// CPU seconds and peak memory in MiB of one command. It runs below a process of its own: the system counts the largest
/// of all children of one.
fn run(program: &Path, trace: &Path, policy: &str) -> Result<(f64, f64)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--alone").arg(program);
    command.args(["sim", "--policy", policy, "--cluster", CLUSTER, "--json", "--trace"]).arg(trace);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{policy}: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let (seconds, memory) = text.trim().split_once(' ').context("two numbers")?;
    Ok((seconds.parse()?, memory.parse()?))
}

/// Runs a command and prints what it took: CPU seconds, of the program and of the system for it, and MiB.
fn measure(command: &[String]) -> Result<()> {
    let status = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{status}");
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cpu = seconds(usage.user_time()) + seconds(usage.system_time());
    println!("{cpu} {}", usage.max_rss() as f64 / 1024.0);
    Ok(())
}
