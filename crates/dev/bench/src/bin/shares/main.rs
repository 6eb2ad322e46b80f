//! Speed of one decision about time shares: solvers that know the structure beside a general engine.
//!
//! `cargo run --release -p trainyard-bench --bin shares` prints every case with its bound, the time of the general way on
//! the same problem in the same run, how far the two objectives are apart, and what was published; `--gate` fails when a
//! bound is missed or the objectives differ. Times are CPU seconds of one core, the least of several runs.

mod cases;
mod instance;

use anyhow::{Result, bail};
use cases::{Case, Way};
use clap::Parser;
use cpu_time::ProcessTime;

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// How many runs; the least counts. The general way is run once where it takes seconds.
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Fail when a case misses its bound or its objective.
    #[arg(long)]
    gate: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    println!(
        "{:<24} {:>10} {:>10} {:>12} {:>8} {:>12} {:>12}",
        "case", "cpu ms", "bound ms", "general ms", "x", "difference", "published ms"
    );
    let mut missed = 0;
    for case in cases::all().into_iter().filter(|case| case.name.contains(&args.filter)) {
        missed += u32::from(!show(case, args.runs));
    }
    if args.gate && missed > 0 {
        bail!("{missed} cases missed their bound or their objective");
    }
    Ok(())
}

/// Measures a case, prints its row, and says whether it keeps its bounds.
fn show(mut case: Case, runs: u32) -> bool {
    let (ours, found) = timed(&mut case.ours, runs);
    let mut met = ours <= case.bound_ms;
    let or_dash = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let general = case.general.as_mut().map(|general| timed(general, runs));
    let difference = general.as_ref().map(|(_, expected)| apart(&found, expected));
    if let Some(difference) = difference {
        met &= difference <= case.difference_max;
    }
    let time = general.map(|(time, _)| time);
    println!(
        "{:<24} {:>10.2} {:>10.0} {:>12} {:>8} {:>12} {:>12}{}",
        case.name,
        ours,
        case.bound_ms,
        or_dash(time, 1),
        or_dash(time.map(|time| time / ours), 0),
        difference.map_or("-".to_owned(), |difference| format!("{difference:.1e}")),
        or_dash(case.published_ms, 0),
        if met { "" } else { "  MISSED" },
    );
    met
}

/// CPU milliseconds, the least of several runs, and the objective.
fn timed(way: &mut Way, runs: u32) -> (f64, Vec<f64>) {
    let mut least = f64::INFINITY;
    let mut found = Vec::new();
    for _ in 0..runs.max(1) {
        let start = ProcessTime::now();
        found = way();
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
        if least > 1000.0 {
            break;
        }
    }
    (least, found)
}

/// The largest difference of two lists of objectives, each in parts of the expected one or of their mean.
fn apart(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "both ways have the same objectives");
    let mean = expected.iter().sum::<f64>() / expected.len().max(1) as f64;
    let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / b.max(mean));
    differences.fold(0.0, f64::max)
}
