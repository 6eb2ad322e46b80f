//! Speed of one choice of configurations: Sia's program by the solver that knows its structure.
//!
//! `cargo run --release -p trainyard-bench --bin choice` prints every case with its bound, the gap that was proven, what
//! was published, and a reference loop; `--gate` fails when a bound is missed. Times are CPU time of one core, the least
//! of several runs over all drawn problems of a case, for the slowest of these.

use anyhow::Result;
use clap::Parser;
use cpu_time::ProcessTime;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use trainyard_bench::{Flags, mark, reference_seconds};
use trainyard_solver::choice::{Aim, Choice, Choices, Chosen};

#[derive(Parser)]
#[command(about)]
struct Args {
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
    #[command(flatten)]
    flags: Flags,
}

/// A size of cluster and queue.
struct Case {
    name: &'static str,
    /// GPUs on a node and nodes, by type.
    nodes: [(u32, u32); 3],
    jobs: usize,
    /// The most configurations of a type.
    configurations_max: usize,
    /// Whether values are rounded to two decimals, as by the authors.
    rounded: bool,
    drawn: u64,
    bound_ms: f64,
    gap_max: f64,
    published_ms: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        name: "64-gpus",
        nodes: [(4, 6), (8, 2), (8, 3)],
        jobs: 50,
        configurations_max: 64,
        rounded: false,
        drawn: 20,
        bound_ms: 3.0,
        gap_max: 1e-3,
        published_ms: "96",
    },
    Case {
        name: "64-gpus-rounded",
        nodes: [(4, 6), (8, 2), (8, 3)],
        jobs: 50,
        configurations_max: 64,
        rounded: true,
        drawn: 20,
        bound_ms: 3.0,
        gap_max: 1e-3,
        published_ms: "96",
    },
    Case {
        name: "2048-gpus",
        nodes: [(4, 192), (8, 64), (8, 96)],
        jobs: 1280,
        configurations_max: 64,
        rounded: false,
        drawn: 3,
        bound_ms: 60.0,
        gap_max: 5e-3,
        published_ms: "about 1000",
    },
    Case {
        name: "2048-gpus-300-jobs",
        nodes: [(4, 192), (8, 64), (8, 96)],
        jobs: 300,
        configurations_max: 64,
        rounded: false,
        drawn: 3,
        bound_ms: 60.0,
        gap_max: 5e-3,
        published_ms: "about 1000",
    },
    Case {
        name: "16384-gpus",
        nodes: [(4, 1536), (8, 512), (8, 768)],
        jobs: 10_000,
        configurations_max: 64,
        rounded: false,
        drawn: 1,
        bound_ms: 2000.0,
        gap_max: 5e-3,
        published_ms: "-",
    },
];

fn main() -> Result<()> {
    let args = Args::parse();
    println!(
        "{:<20} {:>6} {:>9} {:>10} {:>10} {:>10} {:>10} {:>12}  reference s",
        "case", "jobs", "choices", "cpu ms", "bound ms", "gap", "gap max", "published ms"
    );
    let mut missed = 0;
    for case in CASES.iter().filter(|case| case.name.contains(&args.filter)) {
        missed += usize::from(!show(case, args.flags.runs));
    }
    args.flags.conclude(missed)
}

fn show(case: &Case, runs: u32) -> bool {
    let problems: Vec<Choices> = (0..case.drawn).map(|seed| draw(case, seed)).collect();
    let aim = Aim { gap_max: 1e-4, work_max: 60_000, grain: if case.rounded { 0.01 } else { 0.0 } };
    let (mut slowest, mut gap): (f64, f64) = (0.0, 0.0);
    for problem in &problems {
        let mut least = f64::INFINITY;
        for _ in 0..runs.max(1) {
            let start = ProcessTime::now();
            let found: Chosen = std::hint::black_box(problem).best(&aim);
            least = least.min(start.elapsed().as_secs_f64() * 1e3);
            gap = gap.max(found.gap());
        }
        slowest = slowest.max(least);
    }
    let choices: usize = (0..case.jobs).map(|job| problems[0].of(job).len()).sum();
    let met = slowest <= case.bound_ms && gap <= case.gap_max;
    println!(
        "{:<20} {:>6} {:>9} {:>10.3} {:>10.0} {:>10.1e} {:>10.1e} {:>12}  {:.3}{}",
        case.name,
        case.jobs,
        choices,
        slowest,
        case.bound_ms,
        gap,
        case.gap_max,
        case.published_ms,
        reference_seconds(),
        mark(!met),
    );
    met
}

/// Jobs with concave goodputs that differ by type, some of which already run somewhere and lose by a restart.
fn draw(case: &Case, seed: u64) -> Choices {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut part = move || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut choices = Choices::new(case.nodes.map(|(per_node, nodes)| per_node * nodes));
    for _ in 0..case.jobs {
        let speeds = [1.0, 1.5 + 3.0 * part(), 1.0 + part()];
        let scaling = 0.3 + 0.65 * part();
        let restart = if part() < 0.5 { 0.3 + 0.7 * part() } else { 1.0 };
        let most = 1_u32 << (part() * 7.0) as u32;
        let at = (part() * 3.0) as usize;
        let mut row = Vec::new();
        for (kind, (per_node, nodes)) in case.nodes.into_iter().enumerate() {
            let single = (0..).map(|power| 1 << power).take_while(|gpus| *gpus <= per_node);
            let whole = (2..=nodes).map(|nodes| nodes * per_node);
            for gpus in single.chain(whole).take(case.configurations_max) {
                if gpus > most {
                    break;
                }
                let stays = kind == at && gpus == most.min(per_node);
                let factor = if stays { 1.0 } else { restart };
                let goodput = speeds[kind] * f64::from(gpus).powf(scaling) * factor;
                let price = 1.0 / goodput.sqrt();
                let price = if case.rounded { (price * 100.0).round() / 100.0 } else { price };
                row.push(Choice { kind, gpus, value: 1.1 - price });
            }
        }
        choices.job(row);
    }
    choices
}
