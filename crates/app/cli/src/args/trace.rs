//! The command line of `trace`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trainyard_experiment::args::formats;

const IMPORT_HELP: &str = "\
Examples:
  trainyard trace import cluster_job_log.json.gz --out philly.csv
  trainyard trace import pods.csv.xz --format openb --out jobs.jsonl.gz --cluster nodes.toml --json
  sacct -a -P --format=JobIDRaw,User,Account,State,Submit,Start,End,ElapsedRaw,AllocTRES > s.txt
  trainyard trace import s.txt --strict --out jobs.csv
  trainyard trace import s.txt --cluster '4x8 a100' --drop-unfit --out small.csv

Files packed with gzip, zstd or xz are unpacked while they are read.";

/// `trace ...`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Generate a trace from distributions of arrivals, durations and sizes.
    #[command(after_help = trainyard_experiment::spec::LAWS_HELP)]
    Generate(GenerateArgs),
    /// Read a trace of another system, report on every row, and write it in our own format.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Read a trace and say what is wrong with it; the exit code is 3 when a job can never run on the cluster.
    #[command(
        after_help = "Example:\n  trainyard trace check jobs.csv --cluster '16x8 a100' --strict"
    )]
    Check(LookArgs),
    /// Describe a trace: sizes, durations, load.
    #[command(
        after_help = "Example:\n  trainyard trace stats jobs.csv.gz --cluster '16x8 a100' --json"
    )]
    Stats(LookArgs),
    /// Draw some of the jobs of a trace.
    #[command(
        after_help = "Example:\n  trainyard trace sample jobs.csv --jobs 1000 --seed 7 --out few.csv"
    )]
    Sample(SampleArgs),
    /// Keep the jobs of a stretch of time, counted from its beginning.
    #[command(
        after_help = "Example:\n  trainyard trace slice jobs.csv --from 7d --to 14d --out week.csv"
    )]
    Slice(SliceArgs),
    /// Let the jobs of a trace arrive faster or slower.
    #[command(
        after_help = "Examples:\n  trainyard trace scale-load jobs.csv --factor 1.5 --out more.csv\n  trainyard trace scale-load jobs.csv --load 0.9 --cluster '16x8 a100' --out full.csv"
    )]
    ScaleLoad(ScaleArgs),
    /// Replace names of jobs and tenants by pseudonyms and models by durations.
    #[command(
        after_help = "Example:\n  trainyard trace anonymise jobs.csv --key 'keep this secret' --out shared.csv"
    )]
    Anonymise(AnonymiseArgs),
}

/// A trace that is read.
#[derive(Debug, Args)]
pub struct SourceArgs {
    /// The trace, packed or not.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its format.
    #[arg(long, value_name = "NAME", value_parser = formats(), default_value = "auto")]
    pub format: String,
    /// The cluster it is meant for: a line or a TOML file [default: none in particular].
    #[arg(long, value_name = "LINE|FILE")]
    pub cluster: Option<String>,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Take any row that is dropped for an error.
    #[arg(long)]
    pub strict: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `trace import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    /// Where the trace goes: .csv or .jsonl, with .gz to pack it [default: only the report].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Leave out jobs that ask for more GPUs than --cluster has for them.
    #[arg(long, requires = "cluster")]
    pub drop_unfit: bool,
    /// Make such jobs as large as --cluster allows, and so much longer that their GPU-hours stay the same.
    #[arg(long, requires = "cluster", conflicts_with = "drop_unfit")]
    pub cap_unfit: bool,
}

/// `trace check` and `trace stats`.
#[derive(Debug, Args)]
pub struct LookArgs {
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Where a reshaped trace goes.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// Where the trace goes: .csv or .jsonl, with .gz to pack it.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// `trace sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// How many jobs.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub jobs: String,
    /// The seed of the draw.
    #[arg(long, value_name = "NUMBER", default_value = "1", allow_hyphen_values = true)]
    pub seed: String,
}

/// `trace slice`.
#[derive(Debug, Args)]
pub struct SliceArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Jobs submitted so long after the first one, or later [default: from the first].
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Jobs submitted earlier than so long after the first one [default: to the last].
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// `trace scale-load`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// So many times as fast.
    #[arg(
        long,
        value_name = "NUMBER",
        allow_hyphen_values = true,
        required_unless_present = "load"
    )]
    pub factor: Option<String>,
    /// So that this part of the cluster is asked for: 0.85 is 85 %.
    #[arg(
        long,
        value_name = "PART",
        allow_hyphen_values = true,
        conflicts_with = "factor",
        requires = "cluster"
    )]
    pub load: Option<String>,
}

/// `trace anonymise`.
#[derive(Debug, Args)]
pub struct AnonymiseArgs {
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// A secret text; the same one gives the same pseudonyms.
    #[arg(long, value_name = "TEXT", env = "TRAINYARD_KEY", hide_env_values = true)]
    pub key: String,
}

/// `trace generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Jobs as the generator of others draws them, seed by seed: gavel-single, gavel-multiple or elasticflow.
    #[arg(long, value_name = "WHOSE")]
    pub like: Option<String>,
    /// How many jobs.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub jobs: Option<String>,
    /// Arrivals so that this part of the cluster is asked for: 0.85 is 85 %.
    #[arg(long, value_name = "PART", conflicts_with = "per_hour", allow_hyphen_values = true)]
    pub load: Option<String>,
    /// Arrivals: so many jobs an hour.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub per_hour: Option<String>,
    /// Durations: gavel, elasticflow, philly, log-normal:median=40m,sigma=1.5, ...
    #[arg(long, value_name = "DISTRIBUTION")]
    pub duration: Option<String>,
    /// GPUs of a job: one, gavel, elasticflow, or weights 1:0.7,8:0.3.
    #[arg(long, value_name = "DISTRIBUTION")]
    pub size: Option<String>,
    /// Models by name, drawn alike; `gavel-*` for all that begin so.
    #[arg(long, value_name = "NAMES")]
    pub models: Option<String>,
    /// How many tenants.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub tenants: Option<String>,
    /// Any other setting (repeatable): KEY=VALUE, such as daily=0.5 or deadline_share=0.2.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
    /// The seed of every draw.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        env = "TRAINYARD_SEED",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub seed: String,
    /// The cluster the load is meant for: a line or a TOML file [default: 4x8 a100, 8x8 v100].
    #[arg(long, value_name = "LINE|FILE", env = "TRAINYARD_CLUSTER", hide_env_values = true)]
    pub cluster: Option<String>,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Where the trace goes: .csv or .jsonl, with .gz to pack it [default: CSV on standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Without --out, write JSON lines; with it, print what was written as JSON.
    #[arg(long)]
    pub json: bool,
}
