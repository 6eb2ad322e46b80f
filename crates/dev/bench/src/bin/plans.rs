//! What described models cost a policy: CPU time of a decision at 512 GPUs whose jobs are as fast as the best division of
//! their model, beside the same jobs with measured points.
//!
//! Beside it, how long searches take: PTD-P on 3,072 GPUs, DAPPLE on the profiles of its authors, Pesto on 1,000 operators.
//!
//! `cargo run --release -p trainyard-bench --bin plans` prints both for Gavel and Sia; `--gate` fails when a decision
//! takes more than twice as long. Divisions are found at the first question about a configuration and looked up after it,
//! so the first half of the moments of a run is left out as warm-up, and shown apart.

use anyhow::{Context, Result};
use clap::Parser;
use cpu_time::ProcessTime;
use std::sync::Arc;
use trainyard_bench::{Flags, mark, reference_seconds};
use trainyard_planner::devices::DAPPLE_A;
use trainyard_planner::{
    DeviceGraph, Edge, Graph, KindFigures, LinkSpeeds, Operator, PlanError, Request, Transformer,
    dapple, layer_profile, pesto, ptd_p,
};
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
    println!("\nsearch                       cpu s  bound s");
    for (name, bound, seconds) in searches()? {
        missed += usize::from(seconds > bound);
        println!("{name:26}  {seconds:6.2}  {bound:7.1}{}", mark(seconds > bound));
    }
    flags.conclude(missed)
}

/// CPU seconds of a search.
fn timed(search: impl FnOnce() -> Result<(), PlanError>) -> Result<f64> {
    let start = ProcessTime::now();
    search()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Searches with their bounds and the CPU seconds they took. The profiles are beside the repository, or left out.
fn searches() -> Result<Vec<(String, f64, f64)>> {
    let mut all = Vec::new();
    let speeds = LinkSpeeds {
        inside: 300e9,
        network: 200e9,
        between_two: f64::INFINITY,
        host: 16e9,
        latency: 0.0,
    };
    let a100 = KindFigures { speed: 1.0, memory_bytes: 80e9, peak_flops: 312e12 };
    let many = DeviceGraph::uniform((384, 8), "a100", a100, &speeds);
    let model = Transformer::named("gpt-1t").context("a model that has a name")?;
    let graph = model.graph("a100", 1)?;
    let request = Request {
        graph: &graph,
        transformer: Some(&model),
        devices: &many,
        batch: 3072,
        state_factor: 9.0,
    };
    all.push(("ptd-p 1008 B on 3072".to_owned(), 2.0, timed(|| ptd_p::plan(&request).map(drop))?));
    let v100 = KindFigures { speed: 1.0, memory_bytes: 16e9, peak_flops: 125e12 };
    let branches = in_branches(1000, 6)?;
    let four = DeviceGraph::uniform((1, 4), "v100", v100, &DAPPLE_A);
    let request = Request {
        graph: &branches,
        transformer: None,
        devices: &four,
        batch: 1,
        state_factor: 4.0,
    };
    all.push(("pesto 1000 operators".to_owned(), 10.0, timed(|| pesto::plan(&request).map(drop))?));
    let folder =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/data/dapple/profiling_results");
    let Ok(files) = std::fs::read_dir(folder) else {
        println!("profiles of DAPPLE are not beside the repository: left out");
        return Ok(all);
    };
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.sort();
    let two = DeviceGraph::uniform((2, 8), "v100", v100, &DAPPLE_A);
    for file in files {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.context("a file has a name")?;
        let batch = layer_profile::batch_in(&name).unwrap_or(64);
        let graph = layer_profile::parse(&name, &std::fs::read_to_string(&file)?, batch)?;
        let batch = 16 * batch;
        let request =
            Request { graph: &graph, transformer: None, devices: &two, batch, state_factor: 4.0 };
        let seconds = timed(|| dapple::plan(&request).map(drop))?;
        all.push((format!("dapple {}", name.trim_end_matches(".txt")), 1.0, seconds));
    }
    Ok(all)
}

/// Operators in branches between a first and a last one; sizes follow a fixed pattern.
fn in_branches(count: usize, branches: usize) -> Result<Graph> {
    let operator = |at: usize| {
        let seconds = 1e-3 * (1 + at * 7 % 11) as f64;
        Operator {
            name: format!("o{at}"),
            forward: seconds,
            backward: 2.0 * seconds,
            parameter_bytes: 1e6,
            activation_bytes: 1e5,
        }
    };
    let operators: Vec<Operator> = (0..count).map(operator).collect();
    let bytes = |at: usize| 1e5 * (1 + at * 5 % 13) as f64;
    let mut edges: Vec<Edge> = Vec::new();
    for at in 1..count - 1 {
        let from = at.saturating_sub(branches);
        edges.push(Edge { from, to: at, bytes: bytes(at) });
    }
    for at in count - 1 - branches..count - 1 {
        edges.push(Edge { from: at, to: count - 1, bytes: bytes(at) });
    }
    Ok(Graph::new(("branches", "v100"), 1, operators, edges)?)
}
