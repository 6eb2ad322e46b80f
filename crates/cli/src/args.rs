//! The command line.

mod profile;
pub mod slurm;
pub mod store;
pub mod trace;

pub use profile::{
    CheckArgs, CompleteArgs, ImportArgs, ListArgs, ProfileCommand, ProfileFormat, ShowArgs,
};

use crate::failure::{EXIT_CODES, Failure};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use trainyard_report::groups::By;
use trainyard_sim::Semantics;
use trainyard_workload::Elasticity;

/// The version, with the commit where it is known.
pub const VERSION: &str = env!("TRAINYARD_VERSION");

const EXAMPLES: &str = "\
Examples:
  trainyard                                      compare policies on an embedded workload
  trainyard --policies fifo,srtf,tiresias        compare only these
  trainyard --trace jobs.csv --cluster '16x8 a100, 4x4 t4'
  trainyard sim --policy las --place fgd --admit load=1.2 --set 'las.thresholds=[1h,10h]'
  trainyard compare --seeds 5 --generate jobs=2000        means and significant differences
  trainyard sweep --loads 0.5,0.8,1.1 --generate jobs=2000 --out runs
  trainyard policies tiresias                    what a policy is, knows and can be told
  trainyard trace generate --jobs 5000 --load 0.9 --out jobs.csv
  trainyard trace import sacct.txt --out jobs.csv    the trace of your own cluster
  trainyard serve                                run real jobs on the GPUs of this machine
  trainyard submit train.toml                    submit jobs to a running daemon
  trainyard run --gpus 2 -- python train.py      submit a command, follow it, end as it ends
  trainyard top                                  watch the cluster in the terminal
  trainyard why 12                               why a job waits, and what would change that";

/// A scheduler for deep-learning clusters: compare policies on a trace, simulate, run real jobs.
///
/// Without a command, `compare` is meant.
#[derive(Debug, Parser)]
#[command(name = "trainyard", version = VERSION, override_usage = "trainyard [COMMAND] [OPTIONS]")]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run several policies on the same jobs and show them side by side.
    #[command(after_help = COMPARE_HELP)]
    Compare(CompareArgs),
    /// Run one policy and show everything about the run.
    #[command(after_help = SIM_HELP)]
    Sim(SimArgs),
    /// Run a cross product of policies, loads, seeds, clusters and settings; can be interrupted and taken up again.
    #[command(after_help = crate::sweep::HELP)]
    Sweep(Box<crate::sweep::SweepArgs>),
    /// Redo published results: paper, ours and the ratio for every row.
    #[command(after_help = crate::commands::reproduce::HELP)]
    Reproduce(crate::commands::reproduce::ReproduceArgs),
    /// List policies, placers, admission controls and tuners, or explain one of them.
    Policies(PoliciesArgs),
    /// Look at clusters.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Make, import, check and reshape traces.
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    /// Look at models, and bring in published tables of speeds.
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Back up, restore, check, repair and compact the store of a daemon.
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Look at a Slurm cluster without touching it, and hand jobs over.
    #[command(subcommand)]
    Slurm(slurm::SlurmCommand),
    /// Everything that asks a running daemon, and job files.
    #[cfg(feature = "live")]
    #[command(flatten)]
    Live(crate::live::LiveCommand),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  trainyard completions bash > ~/.local/share/bash-completion/completions/trainyard"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether an interrupt is its own affair.
    pub fn ends_by_itself(&self) -> bool {
        #[cfg(feature = "live")]
        if let Command::Live(command) = self {
            use crate::live::LiveCommand::{Serve, Top};
            return matches!(command, Serve(_) | Top(_));
        }
        matches!(self, Command::Slurm(slurm::SlurmCommand::Shadow(_)))
    }
}

const COMPARE_HELP: &str = "\
Examples:
  trainyard compare --policies all --report all.html
  trainyard compare --policies fifo,fifo:fill=backfill,easy --generate jobs=2000 load=1.1
  trainyard compare --trace jobs.csv.gz --cluster cluster.toml --estimate-error 1.0 --json
  trainyard compare --failures mtbf=30d,repair=4h --costs 'flat save=5s start=25s'

The same input, settings and seed give the same bytes, on any number of threads.
The report is one HTML file that needs nothing else; it is written to trainyard-report.html unless --report says
otherwise, or --json or --csv is given without --report.";

const SIM_HELP: &str = "\
Examples:
  trainyard sim --policy srtf
  trainyard sim --policy tiresias --trace 480.csv --format tiresias --semantics tiresias --cluster '15x4 p100'
  trainyard sim --policy las --set las.mode=changes --jobs-out jobs-las.csv --log actions.txt";

/// `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Policies by name, with settings if wanted: a,b:key=value; `all` for every one [default: one of each family].
    #[arg(long, value_name = "NAMES", help_heading = "Policies")]
    pub policies: Vec<String>,
    /// Repeat with several seeds and show means with 95 % intervals: a count, a range 1..5 or a list.
    #[arg(long, value_name = "SEEDS", help_heading = "Jobs and cluster")]
    pub seeds: Option<String>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// `sim`.
#[derive(Debug, Args)]
pub struct SimArgs {
    /// The policy, with settings if wanted: NAME or NAME:key=value,...
    #[arg(long, value_name = "NAME", help_heading = "Policies")]
    pub policy: String,
    /// Write every action of the run to a text file.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Write who held which GPU when as a Chrome trace, which Perfetto opens.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub chrome_trace: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What `compare` and `sim` have in common.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub stages: StageArgs,
    #[command(flatten)]
    pub given: GivenArgs,
    #[command(flatten)]
    pub world: WorldArgs,
    #[command(flatten)]
    pub out: OutArgs,
}

/// What is put around or beside a policy.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Policies")]
pub struct StageArgs {
    /// Another placer than the policy's own: NAME or NAME:key=value,...
    #[arg(long, value_name = "NAME")]
    pub place: Option<String>,
    /// Admission control for new jobs (repeatable): NAME, NAME=VALUE or NAME:key=value,...
    #[arg(long, value_name = "NAME")]
    pub admit: Vec<String>,
    /// A tuner (repeatable): NAME or NAME:key=value,...
    #[arg(long, value_name = "NAME")]
    pub tune: Vec<String>,
    /// A setting (repeatable): OWNER.KEY=VALUE, such as las.quantum=10m; see `trainyard policies NAME`.
    #[arg(long = "set", value_name = "SETTING")]
    pub sets: Vec<String>,
}

/// The jobs and the cluster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Jobs and cluster")]
pub struct GivenArgs {
    /// The cluster: one line such as '16x8 a100, 4x4 t4', or a TOML file [default: 4x8 a100, 8x8 v100].
    #[arg(long, value_name = "LINE|FILE", env = "TRAINYARD_CLUSTER", hide_env_values = true)]
    pub cluster: Option<String>,
    /// Jobs from a file of any known format, packed or not [default: an embedded workload].
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    pub trace: Option<PathBuf>,
    /// The format of the trace.
    #[arg(long, value_name = "NAME", value_parser = trace::formats(), default_value = "auto", requires = "trace")]
    pub format: String,
    /// Generate jobs from distributions: key=value ..., such as jobs=2000 load=0.9 duration=gavel; see `trace generate --help`.
    #[arg(long, value_name = "KEY=VALUE", num_args = 0..)]
    pub generate: Option<Vec<String>>,
    /// Models of your own from a TOML file (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// What a policy may choose for jobs that the trace states one size of.
    #[arg(long, value_enum, default_value_t = ElasticityArg::Rigid)]
    pub elasticity: ElasticityArg,
    /// The seed of all randomness: generated jobs, errors of estimates, failures.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        env = "TRAINYARD_SEED",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub seed: String,
}

/// How the simulated world behaves.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Simulated world")]
pub struct WorldArgs {
    /// Behave as a published simulator; flags below change single points of it.
    #[arg(long, value_enum, default_value_t = Preset::Native)]
    pub semantics: Preset,
    /// What stopping and starting costs: profile, 'profile x2', free, 'flat save=5s start=25s' [default: profile].
    #[arg(long, value_name = "MODEL")]
    pub costs: Option<String>,
    /// The error of estimates of sizes, as the standard deviation of its logarithm; 0 is exact [default: 0.3].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub estimate_error: Option<String>,
    /// The part of the measured speeds of pairs that policies are told, such as 0.3; they estimate the rest [default: 1].
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    pub pairs_known: Option<String>,
    /// The part of its speed that a job on several nodes loses beside another such job on one of them, such as 0.25 [default: 0].
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    pub interference: Option<String>,
    /// Decide only every so often, such as 5m, instead of at every event.
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub round: Option<String>,
    /// Nodes fail: mtbf=30d,repair=4h are mean times for each node; gpu_mtbf=90d: so do single GPUs.
    #[arg(long, value_name = "LAW")]
    pub failures: Option<String>,
    /// A pool is lent as its owner needs it: pool=inference,low=0.4,high=0.95,period=1d,headroom=0.02,every=5m,noise=0.
    #[arg(long, value_name = "LAW")]
    pub lend: Option<String>,
    /// How long a decision takes: fixed=50ms,per-job=10us, or one span [default: no time].
    #[arg(long, value_name = "COST")]
    pub decision_cost: Option<String>,
    /// Measure only jobs FROM..TO in order of arrival, such as 4000..5000; the run ends when they are over.
    #[arg(long, value_name = "FROM..TO")]
    pub measure: Option<String>,
    /// How often running jobs save, so that a failure loses no more [default: 30m].
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub checkpoint_every: Option<String>,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutArgs {
    /// Print JSON instead of a table; errors too.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV instead of a table, every measure in base units.
    #[arg(long)]
    pub csv: bool,
    /// A second table by tenant, type of GPU or size of gang.
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "csv")]
    pub by: Option<Breakdown>,
    /// Where the HTML report goes; `none` for no report.
    #[arg(long, value_name = "FILE|none", env = "TRAINYARD_REPORT", hide_env_values = true)]
    pub report: Option<PathBuf>,
    /// Write every figure of the report to a folder, each as an SVG file.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// The same as PNG files; only in a build with the feature `png`.
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,
    /// Write what came of every job to a CSV file.
    #[arg(long, value_name = "FILE")]
    pub jobs_out: Option<PathBuf>,
    /// Threads to use; results do not depend on it [default: all cores].
    #[arg(
        long,
        value_name = "NUMBER",
        env = "TRAINYARD_THREADS",
        hide_env_values = true,
        allow_hyphen_values = true
    )]
    pub threads: Option<String>,
}

/// `policies`.
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// A policy, placer, admission control or tuner to explain.
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `cluster ...`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Read a cluster and say what was understood.
    #[command(
        after_help = "Examples:\n  trainyard cluster check '16x8 a100, 4x4 t4'\n  trainyard cluster check cluster.toml --json"
    )]
    Check {
        /// One line such as '16x8 a100, 4x4 t4', or a TOML file.
        #[arg(value_name = "LINE|FILE")]
        cluster: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// What jobs are grouped by in a second table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Breakdown {
    /// Who they belong to.
    Tenant,
    /// The type of GPU they spent most time on.
    Type,
    /// How many GPUs they asked for.
    Size,
}

impl Breakdown {
    /// The same for the report.
    pub fn by(self) -> By {
        match self {
            Breakdown::Tenant => By::Tenant,
            Breakdown::Type => By::Type,
            Breakdown::Size => By::Size,
        }
    }
}

/// What a policy may choose for jobs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum ElasticityArg {
    /// What each job itself allows.
    Rigid,
    /// The number of GPUs too, from one up.
    Elastic,
    /// The number of GPUs and, of jobs that follow a measured training, the batch.
    Adaptive,
}

impl ElasticityArg {
    /// The elasticity of the workload.
    pub fn elasticity(self) -> Elasticity {
        match self {
            ElasticityArg::Rigid => Elasticity::Rigid,
            ElasticityArg::Elastic => Elasticity::Elastic,
            ElasticityArg::Adaptive => Elasticity::Adaptive,
        }
    }
}

/// Published simulators to behave as.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Ours: costs from profiles, estimates with an error, what runs keeps its place.
    Native,
    /// Tiresias (NSDI'19): free preemption, exact sizes, refilled at every event.
    Tiresias,
    /// Muri (SIGCOMM'22): the same, with a start overhead charged at every event.
    Muri,
    /// Pollux (OSDI'21): decisions every minute, 30 s for each start, whole seconds, exact sizes.
    Pollux,
    /// Gavel (OSDI'20): rounds that end with the slowest, free preemption, whole steps, exact sizes.
    Gavel,
    /// Shockwave (NSDI'23): rounds of two minutes, 20 s for each start, exact sizes.
    Shockwave,
    /// ElasticFlow (ASPLOS'23): decisions 240 s apart at least, each costs what runs a few seconds, exact sizes.
    Elasticflow,
    /// Chronus (SoCC'21): half a minute times 1 + log2 of the GPUs for each resume, exact sizes, placement not felt.
    Chronus,
    /// Sia (SOSP'23): decisions every minute, restarts that cost what each model's take, whole seconds.
    Sia,
}

impl Preset {
    /// The preset of the simulator.
    pub fn semantics(self) -> Semantics {
        match self {
            Preset::Native => Semantics::Native,
            Preset::Tiresias => Semantics::Tiresias,
            Preset::Muri => Semantics::Muri,
            Preset::Pollux => Semantics::Pollux,
            Preset::Gavel => Semantics::Gavel,
            Preset::Shockwave => Semantics::Shockwave,
            Preset::Elasticflow => Semantics::Elasticflow,
            Preset::Chronus => Semantics::Chronus,
            Preset::Sia => Semantics::Sia,
        }
    }
}

/// Reads the command line; `compare` is put in where no command is given.
pub fn parse(mut arguments: Vec<OsString>) -> Result<Command, clap::Error> {
    let is_flag = |text: &OsStr| text.to_string_lossy().starts_with('-');
    let asks = ["-h", "--help", "-V", "--version"];
    let means_compare = match arguments.get(1) {
        None => true,
        Some(first) => is_flag(first) && !asks.iter().any(|ask| first == *ask),
    };
    if means_compare {
        arguments.insert(arguments.len().min(1), "compare".into());
    }
    Cli::try_parse_from(arguments).map(|cli| cli.command)
}

/// Help and version are answers; everything else is a malformed command line.
pub fn explain(refused: clap::Error, as_json: bool) -> Result<(), Failure> {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nobody reads on: that is no failure.
            let _ = refused.print();
            Ok(())
        }
        _ if as_json => {
            let text = refused.to_string();
            Err(Failure::Usage(text.trim().trim_start_matches("error: ").to_owned()))
        }
        _ => {
            let _ = refused.print();
            Err(Failure::Usage(String::new()))
        }
    }
}

/// The whole command line, for completions.
pub fn whole() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        whole().debug_assert();
    }

    #[test]
    fn without_a_command_compare_is_meant() {
        let parsed = |line: &str| parse(line.split(' ').map(OsString::from).collect());
        assert!(matches!(parsed("trainyard"), Ok(Command::Compare(_))));
        assert!(matches!(parsed("trainyard --policies fifo"), Ok(Command::Compare(_))));
        assert!(matches!(parsed("trainyard policies fifo"), Ok(Command::Policies(_))));
        let version = parsed("trainyard --version").map_err(|error| error.kind());
        assert_eq!(version.err(), Some(ErrorKind::DisplayVersion));
    }
}
