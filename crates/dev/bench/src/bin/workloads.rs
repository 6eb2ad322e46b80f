//! How long the policies that think most take for large workloads: 20,000 elastic jobs on 2,048 GPUs, Muri's 5,755 jobs
//! on its 64 GPUs, and Chronus' 30,735 jobs on its 960 GPUs. CPU seconds of the whole simulation, the least of several,
//! beside a reference loop.
//!
//! `cargo run --release -p trainyard-bench --bin workloads -- --runs 1`; `--filter NAME` picks cases, and `--gate` fails
//! when a bound is missed. A bound above the goal is that of a case whose goal is not reached. Cases whose data is not
//! beside the repository are left out, and said to be.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cpu_time::ProcessTime;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trainyard_bench::{Flags, Least, least, mark};
use trainyard_policies::compose::Selection;
use trainyard_profile::Catalog;
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::{Cluster, Time};
use trainyard_workload::elasticity::{Elasticity, loosen};
use trainyard_workload::import::{ImportContext, import_any};
use trainyard_workload::muri::{self, MuriOptions};
use trainyard_workload::{Arrival, DurationLaw, SizeLaw, Spec, Workload, cluster, generate};

/// What the reference loop takes where the bounds were set: on a slower machine they grow with it.
const REFERENCE: f64 = 0.12;
/// A run ends that takes so many times its bound: that it misses it is known by then.
const PATIENCE: f64 = 2.0;

/// Elastic jobs of measured models, and elastic jobs that gain nothing by more GPUs.
const ELASTIC: [(&str, Input, f64); 6] = [
    ("scaling-afs-l", scaling, 30.0),
    ("scaling-gavel", scaling, 10.0),
    ("scaling-sia", scaling, 10.0),
    ("flat-afs-l", flat, 10.0),
    ("flat-gavel", flat, 10.0),
    ("flat-sia", flat, 10.0),
];
const ELASTIC_GOAL: f64 = 10.0;
const MURI_POLICIES: [(&str, f64); 4] =
    [("pollux", 30.0), ("shockwave", 150.0), ("sia", 30.0), ("themis", 30.0)];
const MURI_GOAL: f64 = 30.0;
const CHRONUS_GOAL: f64 = 20.0;
const CHRONUS_BOUND: f64 = 20.0;

#[derive(Parser)]
#[command(about)]
struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Run only cases whose name contains this.
    #[arg(long, default_value = "")]
    filter: String,
}

type Input = fn() -> Result<(Workload, Cluster)>;

/// A workload under a policy, with the CPU seconds that it is to take and the most that it may.
struct Case {
    name: String,
    policy: &'static str,
    input: Input,
    goal: f64,
    bound: f64,
}

fn main() -> Result<()> {
    let Args { flags, filter } = Args::parse();
    println!(
        "case                      jobs     steps    cpu s   goal s  bound s  reference s  x ref"
    );
    let mut missed = 0;
    for case in cases().into_iter().filter(|case| case.name.contains(&filter)) {
        missed += usize::from(run(&case, flags)?);
    }
    flags.conclude(missed)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (label, input, bound) in ELASTIC {
        let policy = label.split_once('-').map_or(label, |(_, policy)| policy);
        cases.push(Case { name: format!("20k-{label}"), policy, input, goal: ELASTIC_GOAL, bound });
    }
    match shared(MURI).exists() {
        true => cases.extend(MURI_POLICIES.map(|(policy, bound)| Case {
            name: format!("muri-{policy}"),
            policy,
            input: on_muri,
            goal: MURI_GOAL,
            bound,
        })),
        false => eprintln!("skipped: cases on Muri's trace, because {MURI} is not here"),
    }
    match shared(CHRONUS).exists() {
        true => cases.push(Case {
            name: "chronus".to_owned(),
            policy: "chronus",
            input: on_chronus,
            goal: CHRONUS_GOAL,
            bound: CHRONUS_BOUND,
        }),
        false => eprintln!("skipped: Chronus on its own trace, because {CHRONUS} is not here"),
    }
    cases
}

/// Ends a run that takes far too long.
struct Patience {
    since: ProcessTime,
    most: f64,
}

impl Observer for Patience {
    fn goes_on(&mut self, _to: Time) -> bool {
        self.since.elapsed().as_secs_f64() < self.most
    }
}

/// Runs a case and prints what it took. True if that is too much.
fn run(case: &Case, flags: Flags) -> Result<bool> {
    let (workload, cluster) = (case.input)()?;
    let cluster = Arc::new(cluster);
    let options = Options { estimate_error: 0.3, ..Options::default() };
    let took = least(flags.runs, || {
        let pipeline = Selection::policy(case.policy).build()?;
        let most = PATIENCE * case.bound;
        let mut patience = Patience { since: ProcessTime::now(), most };
        let outcome = simulate(&workload, &cluster, pipeline, &options, &mut patience);
        let is_over = outcome.unfinished.is_empty();
        ensure!(outcome.stats.faults == 0, "{}: {:?}", case.name, outcome.stats.fault_samples);
        Ok((outcome.steps, is_over))
    })?;
    let Least { seconds, reference, found: (steps, is_over) } = took;
    let over = !is_over || seconds > case.bound * (reference / REFERENCE).max(1.0);
    println!(
        "{:<22} {:>7} {steps:>9} {seconds:>8.3} {:>8.2} {:>8.2} {reference:>12.3} {:>6.1}{}{}",
        case.name,
        workload.jobs.len(),
        case.goal,
        case.bound,
        took.times_reference(),
        if is_over { "" } else { "  not over" },
        mark(over),
    );
    Ok(over)
}

/// Jobs of Gavel's distributions that ask for nine tenths of 2,048 GPUs, as a base of elastic ones.
fn spec() -> Spec {
    Spec {
        jobs: 20_000,
        arrival: Arrival::Load(0.9),
        duration: DurationLaw::Gavel,
        size: SizeLaw::Gavel,
        ..Spec::default()
    }
}

fn scaling() -> Result<(Workload, Cluster)> {
    let (cluster, _) = cluster::parse("256x8 a100")?;
    let spec = Spec { models: vec!["elasticflow-*".to_owned()], ..spec() };
    let workload = generate(&spec, &Catalog::builtin(), &cluster)?;
    Ok((loosen(workload, &cluster, Elasticity::Elastic), cluster))
}

fn flat() -> Result<(Workload, Cluster)> {
    let (cluster, _) = cluster::parse("256x8 a100")?;
    let spec = Spec { elastic_share: 1.0, ..spec() };
    let workload = generate(&spec, &Catalog::builtin(), &cluster)?;
    Ok((workload, cluster))
}

const MURI: &str = "muri/trace2.csv.gz";
const CHRONUS: &str = "chronus/trace_job_Philly_SLO.csv.gz";

fn on_muri() -> Result<(Workload, Cluster)> {
    let trace = muri::read(unpacked(MURI)?, &MuriOptions::named("trace2"))?;
    Ok((trace.workload, Cluster::uniform(8, 8, "v100")))
}

fn on_chronus() -> Result<(Workload, Cluster)> {
    let cluster = Cluster::uniform(120, 8, "v100");
    let imported = import_any(unpacked(CHRONUS)?, ImportContext::new("SLO", Some(&cluster)))?;
    Ok((imported.workload, cluster))
}

fn unpacked(file: &str) -> Result<flate2::read::GzDecoder<File>> {
    let path = shared(file);
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    Ok(flate2::read::GzDecoder::new(file))
}

fn shared(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data").join(file)
}
