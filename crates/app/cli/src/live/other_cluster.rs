//! `whatif --cluster`: the same jobs on another cluster, and what each part of the change gains.

use super::args::WhatIfArgs;
use crate::commands::compare::conclude;
use crate::failure::Failure;
use crate::output::Output;
use crate::side_by_side::load;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_experiment::args::{ElasticityArg, GivenArgs, StageArgs, WorldArgs, formats};
use trainyard_experiment::choice::{self, Entrant};
use trainyard_experiment::cluster_change::ClusterChange;
use trainyard_experiment::given::{Given, load_cluster, refuse_problems};
use trainyard_experiment::options;
use trainyard_experiment::runs::{self, Done, How, Record};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;
use trainyard_report::units::Unit;
use trainyard_sim::Options;
use trainyard_types::Cluster;
use trainyard_workload::cluster::line_of;

/// What `whatif` takes where it is about another cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "The jobs of a trace on another cluster, without a daemon")]
pub struct OtherClusterArgs {
    /// The other cluster: one line such as '8x8 v100 over leaf-spine 2 racks 100g 4:1', or a TOML file; with --trace or --generate.
    #[arg(long, value_name = "LINE|FILE", requires = "jobs", conflicts_with = "horizon")]
    pub cluster: Option<String>,
    /// The present cluster [default: 4x8 a100, 8x8 v100].
    #[arg(long, value_name = "LINE|FILE", requires = "cluster")]
    pub present: Option<String>,
    /// The jobs, from a file of any known format.
    #[arg(
        long,
        value_name = "FILE",
        requires = "cluster",
        conflicts_with = "generate",
        group = "jobs"
    )]
    pub trace: Option<PathBuf>,
    /// The format of the trace.
    #[arg(long, value_name = "NAME", value_parser = formats(), default_value = "auto", requires = "trace")]
    pub format: String,
    /// Generate jobs for the present cluster: key=value ..., such as jobs=2000 load=0.9.
    #[arg(long, value_name = "KEY=VALUE", num_args = 0.., requires = "cluster", group = "jobs")]
    pub generate: Option<Vec<String>>,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub profiles: Vec<PathBuf>,
    /// The seed of all randomness [default: 1].
    #[arg(long, value_name = "NUMBER", requires = "cluster", allow_hyphen_values = true)]
    pub seed: Option<String>,
    /// Another placer than the policy's own: NAME or NAME:key=value,...
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub place: Option<String>,
    /// A tuner (repeatable): NAME or NAME:key=value,...
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub tune: Vec<String>,
    /// Jobs on shared links slow each other only while they send at the same time, instead of all the time.
    #[arg(long, requires = "cluster")]
    pub phases: bool,
    /// The error of estimates of sizes [default: 0.3].
    #[arg(long, value_name = "SIGMA", requires = "cluster", allow_hyphen_values = true)]
    pub estimate_error: Option<String>,
}

/// A cluster that the jobs run on.
struct Variant {
    what: &'static str,
    text: String,
    cluster: Cluster,
}

/// What came of a policy on one of them.
struct VariantRow {
    /// The place of its variant.
    variant: usize,
    mean_seconds: f64,
    makespan_seconds: f64,
    finished: u64,
}

/// Runs the command with `--cluster`.
pub fn run(args: &WhatIfArgs, changed: &str, output: &Output) -> Result<(), Failure> {
    let other = &args.other;
    let seed_text = other.seed.clone().unwrap_or_else(|| "1".to_owned());
    let seed = options::whole("--seed", &seed_text, options::SEED_MAX)?;
    let world = WorldArgs {
        phases: other.phases,
        estimate_error: other.estimate_error.clone(),
        ..WorldArgs::usual()
    };
    let options = options::read(&world, seed)?;
    let stages = StageArgs {
        place: other.place.clone(),
        admit: Vec::new(),
        tune: other.tune.clone(),
        sets: Vec::new(),
    };
    let given_args = GivenArgs {
        cluster: other.present.clone(),
        trace: other.trace.clone(),
        format: other.format.clone(),
        generate: other.generate.clone(),
        profiles: other.profiles.clone(),
        elasticity: ElasticityArg::Rigid,
        seed: seed_text,
    };
    let given = load(&given_args)?;
    let change = compared(&given, changed)?;
    let variants = variants(&change);
    for variant in &variants {
        let source = format!("--cluster, {}: {}", variant.what, variant.text);
        refuse_problems(&source, &given.workload, &variant.cluster, &given_args)?;
    }
    let jobs = choice::traits_of(&given.workload);
    let entrants = choice::entrants(&args.policies, &stages, (world.semantics, jobs))?;
    let (rows, troubles) = simulated(&given, &variants, (&entrants, &options))?;
    if args.connection.json {
        output.print_json(&as_json(&given, (&change, &variants), &entrants, &rows))?;
    } else {
        output.print(&format!(
            "{} jobs ({}), seed {seed}\npresent: {}\nchanged: {}\n\n{}\n{}",
            Unit::Count.text(given.workload.jobs.len() as f64),
            given.workload.name,
            line_of(change.present()),
            line_of(change.changed()),
            table(&variants, &entrants, &rows, output),
            "gain: how many times as long it takes on the present cluster\n",
        ))?;
    }
    match troubles.is_empty() {
        true => Ok(()),
        false => Err(Failure::Operation(troubles.join("; "))),
    }
}

/// Both clusters beside each other; refused where nothing differs, or where names do not show what differs.
fn compared(given: &Given, changed: &str) -> Result<ClusterChange, Failure> {
    let (other, _) = load_cluster(Some(changed))?;
    let refused = |value: &str, expected: String| {
        Failure::input("--cluster", InputError::wrong(0, "cluster", value, expected))
    };
    let line = line_of(&other);
    let change = ClusterChange::new(given.cluster.as_ref().clone(), other)
        .map_err(|expected| refused(&line, expected))?;
    if change.parts().is_empty() {
        return Err(refused(&line, "a cluster that differs from --present".to_owned()));
    }
    Ok(change)
}

/// The present cluster, each part of the change alone where there are several, and all of it.
fn variants(change: &ClusterChange) -> Vec<Variant> {
    let parts = change.parts();
    let mut variants = vec![Variant {
        what: "present",
        text: "the present cluster".to_owned(),
        cluster: change.present().clone(),
    }];
    if parts.len() > 1 {
        variants.extend(parts.iter().map(|part| Variant {
            what: "part",
            text: part.text.clone(),
            cluster: change.with(part),
        }));
    }
    let text = match parts {
        [one] => one.text.clone(),
        _ => "all of these".to_owned(),
    };
    variants.push(Variant { what: "all", text, cluster: change.changed().clone() });
    variants
}

/// Every policy on every cluster, by policy; and what did not work, in words.
fn simulated(
    given: &Given,
    variants: &[Variant],
    (entrants, options): (&[Entrant], &Options),
) -> Result<(Vec<Vec<VariantRow>>, Vec<String>), Failure> {
    let mut rows: Vec<Vec<VariantRow>> = entrants.iter().map(|_| Vec::new()).collect();
    let mut troubles = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        let cluster = Arc::new(variant.cluster.clone());
        let given = Given { workload: given.workload.clone(), cluster, notes: Vec::new() };
        let how = How { threads: None, record: Record::Nothing, progress: &|_, _| {} };
        for (at, result) in runs::run_all(&given, entrants, options, &how)?.into_iter().enumerate()
        {
            match result {
                Ok(done) => {
                    rows[at].push(VariantRow::new(index, &done));
                    if let Err(Failure::Operation(why)) = conclude(&given, &[done], Vec::new()) {
                        troubles.push(format!("{}: {why}", variant.text));
                    }
                }
                Err(panic) => troubles.push(format!(
                    "{}: the run of {} broke down: {panic}",
                    variant.text, entrants[at].label
                )),
            }
        }
    }
    Ok((rows, troubles))
}

impl VariantRow {
    fn new(variant: usize, done: &Done) -> VariantRow {
        let summary = &done.run.summary;
        VariantRow {
            variant,
            mean_seconds: summary.jct_s.mean,
            makespan_seconds: summary.makespan_s,
            finished: summary.jobs - summary.unfinished,
        }
    }

    /// How many times as long it takes on the present cluster: jobs in the mean, and all of them.
    fn gains(&self, present: &VariantRow) -> [f64; 2] {
        let ratio = |present: f64, own: f64| if own > 0.0 { present / own } else { 1.0 };
        [
            ratio(present.mean_seconds, self.mean_seconds),
            ratio(present.makespan_seconds, self.makespan_seconds),
        ]
    }
}

/// The row of the present cluster, if its run came to an end.
fn present(rows: &[VariantRow]) -> Option<&VariantRow> {
    rows.first().filter(|row| row.variant == 0)
}

fn table(
    variants: &[Variant],
    entrants: &[Entrant],
    rows: &[Vec<VariantRow>],
    output: &Output,
) -> String {
    let heading = ["policy", "change", "JCT mean", "gain", "makespan", "gain"];
    let mut cells = Vec::new();
    for (entrant, rows) in entrants.iter().zip(rows) {
        for row in rows {
            let gains = present(rows).map(|present| row.gains(present).map(|g| format!("{g:.3}")));
            let [jct, makespan] = gains.unwrap_or_else(|| ["-", "-"].map(str::to_owned));
            cells.push(vec![
                entrant.label.clone(),
                variants[row.variant].text.clone(),
                Unit::Seconds.text(row.mean_seconds),
                jct,
                Unit::Seconds.text(row.makespan_seconds),
                makespan,
            ]);
        }
    }
    figures(&heading, 2, &cells, output.ink)
}

fn as_json(
    given: &Given,
    (change, variants): (&ClusterChange, &[Variant]),
    entrants: &[Entrant],
    rows: &[Vec<VariantRow>],
) -> Value {
    let row = |row: &VariantRow, rows: &[VariantRow]| {
        let gains = present(rows).map(|present| row.gains(present));
        json!({
            "what": variants[row.variant].what,
            "change": variants[row.variant].text,
            "gpus": variants[row.variant].cluster.gpus(),
            "finished": row.finished,
            "mean_completion_seconds": row.mean_seconds,
            "makespan_seconds": row.makespan_seconds,
            "completion_gain": gains.map(|gains| gains[0]),
            "makespan_gain": gains.map(|gains| gains[1]),
        })
    };
    let policies: Vec<Value> = entrants
        .iter()
        .zip(rows)
        .map(|(entrant, rows)| {
            let own: Vec<Value> = rows.iter().map(|one| row(one, rows)).collect();
            json!({ "policy": entrant.label, "rows": own })
        })
        .collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "whatif-cluster",
        "workload": given.workload.name,
        "jobs": given.workload.jobs.len(),
        "present": line_of(change.present()),
        "changed": line_of(change.changed()),
        "parts": change.parts().iter().map(|part| &part.text).collect::<Vec<_>>(),
        "policies": policies,
    })
}
