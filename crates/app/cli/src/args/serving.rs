//! `serving ...`: requests for models, and the disciplines that serve them.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `serving ...`.
#[derive(Debug, Subcommand)]
pub enum ServingCommand {
    /// List the disciplines, or explain one of them with its settings.
    #[command(
        after_help = "Examples:\n  trainyard serving list\n  trainyard serving list clockwork --json"
    )]
    List(DisciplineArgs),
    /// Simulate disciplines on the same requests, side by side.
    #[command(after_help = SIM)]
    Sim(ServingSimArgs),
    /// Latency over load: each discipline at several rates, as a table and a picture.
    #[command(after_help = CURVE)]
    Curve(CurveArgs),
    /// Read a trace in any known form, or generate one, and write it in ours.
    #[command(after_help = TRACE)]
    Trace(RequestTraceArgs),
    /// List the models with measured latencies, or show the table of one.
    #[command(
        after_help = "Examples:\n  trainyard serving models\n  trainyard serving models resnet50"
    )]
    Models(DisciplineArgs),
}

const SIM: &str = "\
Examples:
  trainyard serving sim --gpus 8 --generate 'rate=20000 slo=100ms'
  trainyard serving sim -d fifo -d triton:delay=2ms -d clockwork --models resnet50,bert_base --generate 'rate=3000 slo=50ms like=on-off burst=8'
  trainyard serving sim --models llama-8b --gpus 4 --generate 'rate=60 requests=6000' -d paged -d chunked:budget=1024
  trainyard serving sim --trace AzureLLMInferenceTrace_conv.csv --models llama-8b --gpus 4

Words of --generate, all with defaults:
  requests=N rate=PER_SECOND seed=N skew=S slo=100ms|5x clients=N priorities=0.2,0.8
  like=poisson | gamma cv=2 | on-off burst=5 on=1 off=4 | diurnal depth=0.8 day=86400     (lengths in seconds)
  prompt=TOKENS output=TOKENS spread=S output-max=TOKENS prefixes=N prefix-tokens=TOKENS  (language models)
slo=5x gives each request five times the latency of its model alone.";

const CURVE: &str = "\
Examples:
  trainyard serving curve --gpus 8 --generate 'requests=50000 slo=100ms' --rates 10000,20000,40000,60000 --out curve.svg
  trainyard serving curve --models llama-8b --gpus 4 --rates 20,40,60,80 -d paged -d chunked -d split --out curve.html";

const TRACE: &str = "\
Examples:
  trainyard serving trace --generate 'requests=1000 rate=50 like=diurnal day=600' --out requests.csv
  trainyard serving trace --trace invocations_per_function_md.anon.d01.csv --models resnet50,bert_base --limit 100000 --out requests.csv

Known forms: trainyard, azure-functions-2019, azure-functions-2021, azure-llm; the heading tells which, or --format.";

/// `serving list` and `serving models`.
#[derive(Debug, Args)]
pub struct DisciplineArgs {
    /// One to explain.
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Requests and GPUs.
#[derive(Debug, Args)]
pub struct ServingGiven {
    /// Models by name, separated by commas; llama-8b is a language model [default: the eight measured ones].
    #[arg(long, value_name = "NAMES", help_heading = "Requests")]
    pub models: Option<String>,
    /// A trace of requests, in a form that its heading tells; may be packed with gzip, zstd or xz.
    #[arg(long, value_name = "FILE", help_heading = "Requests", conflicts_with = "generate")]
    pub trace: Option<PathBuf>,
    /// The form of the trace.
    #[arg(long, value_name = "FORM", help_heading = "Requests", requires = "trace")]
    pub format: Option<String>,
    /// Only the first requests of the trace.
    #[arg(long, value_name = "N", help_heading = "Requests", requires = "trace")]
    pub limit: Option<String>,
    /// Generate requests by words `key=value`.
    #[arg(long, value_name = "WORDS", help_heading = "Requests")]
    pub generate: Option<String>,
    /// How long a request of a trace has, where the trace does not say [default: no limit].
    #[arg(long, value_name = "SPAN", help_heading = "Requests", requires = "trace")]
    pub slo: Option<String>,
    /// GPUs that serve [default: 1].
    #[arg(long, value_name = "N", help_heading = "GPUs")]
    pub gpus: Option<String>,
    /// Memory of a GPU for models, or for the cache of a language model, in MiB.
    #[arg(long, value_name = "MIB", help_heading = "GPUs")]
    pub memory_mib: Option<String>,
    /// The most requests that wait; more are refused [default: 100000].
    #[arg(long, value_name = "N", help_heading = "GPUs")]
    pub waiting: Option<String>,
    /// Latencies are the median each time, instead of spreading as they were measured.
    #[arg(long, help_heading = "GPUs")]
    pub median: bool,
    /// What a GPU costs in an hour.
    #[arg(long, value_name = "PRICE", help_heading = "GPUs")]
    pub price: Option<String>,
    /// Disciplines with settings if wanted, NAME or NAME:key=value,...; may be repeated [default: all that serve these requests].
    #[arg(short = 'd', long = "discipline", value_name = "NAME", help_heading = "Disciplines")]
    pub disciplines: Vec<String>,
}

/// `serving sim`.
#[derive(Debug, Args)]
pub struct ServingSimArgs {
    #[command(flatten)]
    pub given: ServingGiven,
    /// Print JSON; errors too.
    #[arg(long)]
    pub json: bool,
}

/// `serving curve`.
#[derive(Debug, Args)]
pub struct CurveArgs {
    #[command(flatten)]
    pub given: ServingGiven,
    /// Requests a second, separated by commas; 2 to 64 of them.
    #[arg(long, value_name = "RATES")]
    pub rates: String,
    /// Write the picture to a file: `.svg`, or `.html` with the table.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON; errors too.
    #[arg(long)]
    pub json: bool,
}

/// `serving trace`.
#[derive(Debug, Args)]
pub struct RequestTraceArgs {
    #[command(flatten)]
    pub given: ServingGiven,
    /// Where it is written.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}
