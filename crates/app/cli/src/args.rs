//! The command line.

pub mod collective;
mod form;
mod overview;
mod profile;
pub mod serving;
pub mod slurm;
mod split;
pub mod store;
pub mod trace;

pub use profile::{
    CheckArgs, CompleteArgs, ImportArgs, InterferenceArgs, ListArgs, ProfileCommand, ProfileFormat,
    ShowArgs,
};

pub use split::{PlannersArgs, SplitArgs};

use crate::failure::{EXIT_CODES, Failure};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use trainyard_experiment::args::{GivenArgs, StageArgs, WorldArgs};
use trainyard_report::groups::By;

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
    #[command(after_help = trainyard_experiment::sweep::HELP)]
    Sweep(Box<trainyard_experiment::sweep::SweepArgs>),
    /// Redo published results: paper, ours and the ratio for every row.
    #[command(after_help = crate::commands::reproduce::HELP)]
    Reproduce(crate::commands::reproduce::ReproduceArgs),
    /// List policies, placers, admission controls and tuners, or explain one of them.
    Policies(PoliciesArgs),
    /// Divide one model over a cluster: the best plans side by side, with time and memory.
    #[command(after_help = split::HELP)]
    Split(SplitArgs),
    /// List the planners that divide models, or explain one of them.
    Planners(PlannersArgs),
    /// Serve models: disciplines of inference on generated or recorded requests.
    #[command(subcommand)]
    Serving(serving::ServingCommand),
    /// Look at clusters.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Say how long an all-reduce takes, by which algorithm, and what binds it.
    #[command(after_help = collective::HELP)]
    Collective(collective::CollectiveArgs),
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
    /// Print the version, the same as `--version`.
    Version,
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  trainyard completions bash > ~/.local/share/bash-completion/completions/trainyard"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    #[command(
        after_help = "Example:\n  trainyard man ~/.local/share/man/man1 && man trainyard-sim"
    )]
    Man {
        /// The folder for the pages; made where it is missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
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
    /// Write which job held which GPU when as a Chrome trace, which Perfetto opens.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub chrome_trace: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What `compare` and `sim` have in common.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Show how far each run is from what no schedule can do better than.
    #[arg(long, help_heading = "Output")]
    pub bound: bool,
    #[command(flatten)]
    pub stages: StageArgs,
    #[command(flatten)]
    pub given: GivenArgs,
    #[command(flatten)]
    pub world: WorldArgs,
    #[command(flatten)]
    pub out: OutArgs,
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
    /// Show the links of a cluster: switches with what they carry, and how GPUs are joined inside nodes.
    #[command(
        after_help = "Examples:\n  trainyard cluster show '8x8 v100 over leaf-spine 2 racks 100g 4:1'\n  trainyard cluster show cluster.toml --svg network.svg"
    )]
    Show {
        /// One line such as '8x8 v100 over fat-tree 4 ports 100g', or a TOML file.
        #[arg(value_name = "LINE|FILE")]
        cluster: String,
        /// Write a drawing to this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

/// What jobs are grouped by in a second table.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Breakdown {
    /// The tenant they belong to.
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

/// Reads the command line; `compare` is put in where no command is given.
pub fn parse(arguments: Vec<OsString>) -> Result<Command, clap::Error> {
    let arguments = with_command(arguments);
    let matches = whole().try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches).map(|cli| cli.command)
}

fn with_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_flag = |text: &OsStr| text.to_string_lossy().starts_with('-');
    let asks = ["-h", "--help", "-V", "--version"];
    let means_compare = match arguments.get(1) {
        None => true,
        Some(first) => is_flag(first) && !asks.iter().any(|ask| first == *ask),
    };
    if means_compare {
        arguments.insert(arguments.len().min(1), "compare".into());
    }
    arguments
}

/// The arguments with `--json` where they say the same in another way.
pub fn plain(arguments: Vec<OsString>) -> Vec<OsString> {
    form::plain(&whole(), with_command(arguments))
}

/// Help and version are answers; everything else is a malformed command line.
pub fn explain(refused: clap::Error, as_json: bool) -> Result<(), Failure> {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that closed the pipe is no failure.
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

/// The whole command line, for completions and manual pages.
pub fn whole() -> clap::Command {
    overview::grouped(form::with_form(Cli::command()))
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
