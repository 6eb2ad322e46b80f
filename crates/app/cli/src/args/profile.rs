//! The command line of `profile`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const IMPORT_HELP: &str = "\
Examples:
  trainyard profile import simulation_throughputs.json --format gavel --out gavel.toml
  trainyard profile import throughputs_a100/bert.csv --format elasticflow --out bert.toml
  trainyard profile import traces --format pollux --queries throughput_queries.csv --out pollux.toml
  trainyard sim --policy srtf --trace jobs.csv --profiles gavel.toml";

const CHECK_HELP: &str = "\
Example:
  trainyard profile import traces --format pollux --out pollux.toml
  trainyard profile check throughput_queries.csv --profiles pollux.toml

Recorded times in the profiles are not used: the interpolation is asked without them.";

const COMPLETE_HELP: &str = "\
Examples:
  trainyard profile complete
  trainyard profile import simulation_throughputs.json --format gavel --out gavel.toml
  trainyard profile complete --profiles gavel.toml --out filled.toml
  trainyard sim --policy gavel --trace jobs.csv --profiles filled.toml";

/// `profile ...`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Read a published table of speeds and write it as profiles in TOML.
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Compare recorded times with what the interpolation of measured trainings answers: mean, p95 and max error.
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Estimate speeds of pairs that were not measured, and print how far each way is off on pairs that were.
    #[command(after_help = COMPLETE_HELP)]
    Complete(CompleteArgs),
    /// Compare what predicts how much two jobs slow each other on one GPU, on measured pairs with models held out.
    #[command(
        after_help = "Examples:\n  trainyard profile interference\n  trainyard profile interference --mps --json\n  trainyard profile interference --profiles gavel.toml --models gavel-\n  trainyard profile interference --lucid colocate_info.csv --lucid-alone single_data.csv"
    )]
    Interference(InterferenceArgs),
    /// List the models there are.
    List(ListArgs),
    /// Draw one model: its speed over GPUs, and all else that is known of it.
    #[command(after_help = "Example:\n  trainyard profile show gavel-resnet18-b128")]
    Show(ShowArgs),
}

/// `profile interference`.
#[derive(Debug, Args)]
pub struct InterferenceArgs {
    /// Pairs that run at once under MPS, instead of taking turns.
    #[arg(long)]
    pub mps: bool,
    /// The measured pairs of models whose names begin so, instead of those of the H200.
    #[arg(long, value_name = "PREFIX", conflicts_with = "lucid")]
    pub models: Option<String>,
    /// Models of your own from a TOML file (repeatable), for --models.
    #[arg(long, value_name = "FILE", requires = "models")]
    pub profiles: Vec<PathBuf>,
    /// Lucid's table of pairs (colocate_info.csv of its artefact), which you fetch yourself.
    #[arg(long, value_name = "FILE", requires = "lucid_alone")]
    pub lucid: Option<PathBuf>,
    /// Lucid's table of configurations alone (single_data.csv).
    #[arg(long, value_name = "FILE", requires = "lucid")]
    pub lucid_alone: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `profile import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The table, packed with gzip or not; for pollux and sia, the folder of an application or of several.
    pub file: PathBuf,
    /// Whose table it is.
    #[arg(long, value_enum)]
    pub format: ProfileFormat,
    /// The type of GPU, for elasticflow [default: TYPE of a folder throughputs_TYPE].
    #[arg(long, value_name = "TYPE")]
    pub kind: Option<String>,
    /// The name of the model, for elasticflow [default: the name of the file].
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Recorded times for exact replays, for pollux: CSV with app, placement, atomic_bsz, step_time, sync_time.
    #[arg(long, value_name = "FILE")]
    pub queries: Option<PathBuf>,
    /// Where the profiles go [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON: the profiles, or with --out what was written.
    #[arg(long)]
    pub json: bool,
}

/// `profile check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Recorded times: CSV with app, placement, atomic_bsz, step_time, sync_time.
    pub queries: PathBuf,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `profile complete`.
#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Measure the estimates under MPS instead of time slicing; both are filled in.
    #[arg(long)]
    pub mps: bool,
    /// Write the models with all pairs, the estimated ones marked.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `profile list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `profile show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The model.
    pub name: String,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Published tables of speeds.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileFormat {
    /// Gavel's throughputs: JSON by type, job and partner.
    Gavel,
    /// ElasticFlow's throughputs: CSV by batch and GPUs, one model on one type.
    Elasticflow,
    /// Muri's iterations: CSV with model, num_gpu, batch_size and iteration_ms, and the times of stages.
    Muri,
    /// Chronus' placement speeds: JSON by model, GPUs and nodes.
    Chronus,
    /// Pollux' measured trainings: a folder of CSV files for each application.
    Pollux,
    /// Sia's measured trainings: the same for several types of GPU.
    Sia,
    /// Synergy's CPU and memory sensitivity: JSON with a matrix for each model and number of GPUs.
    Synergy,
}
