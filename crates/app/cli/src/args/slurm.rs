//! The command line of `slurm`.

use super::{OutArgs, StageArgs, WorldArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

const SHADOW_HELP: &str = "\
Examples:
  trainyard slurm shadow --for 8h --record week.jsonl      watch for a working day, then compare
  trainyard slurm shadow --once --record week.jsonl        one look, for cron; compares what was seen so far
  trainyard slurm shadow --from week.jsonl --policies fifo,easy,las,srtf --report shadow.html

Only squeue, sinfo and scontrol show are called: nothing is changed. A record can be taken up again.
An interrupt ends the watch, and what was seen so far is compared.";

/// `slurm ...`.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Watch a live Slurm without touching it, and show what other policies would have made of the same jobs.
    #[command(after_help = SHADOW_HELP)]
    Shadow(Box<ShadowArgs>),
    /// Take jobs over that wait in Slurm already: from then on Trainyard says when and where they run.
    #[cfg(feature = "live")]
    #[command(after_help = ADOPT_HELP)]
    Adopt(AdoptArgs),
    /// Give jobs that were taken over back to Slurm's own scheduler; those that run go on.
    #[command(after_help = HAND_BACK_HELP)]
    HandBack(HandBackArgs),
}

#[cfg(feature = "live")]
const ADOPT_HELP: &str = "\
Examples:
  trainyard slurm adopt 1234 1240
  trainyard slurm adopt --all-pending --user ana --dry-run
  trainyard slurm adopt --all-pending --preemptible

A job keeps its number, its script and its user. Jobs that run stay as they are and count as used by others.
It needs the role of an operator at the daemon, and the rights of one in Slurm.";

const HAND_BACK_HELP: &str = "\
Examples:
  trainyard slurm hand-back --dry-run
  trainyard slurm hand-back
  trainyard slurm hand-back 1234

It works with the daemon running or stopped; a running one sees it and closes the jobs on its side.
Jobs that were submitted to Trainyard itself can only be run by it: they are named and left as they are.";

/// `slurm adopt`.
#[cfg(feature = "live")]
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// Numbers of jobs in Slurm.
    #[arg(value_name = "NUMBER", required_unless_present = "all_pending")]
    pub jobs: Vec<u32>,
    /// All jobs that wait and can be taken over.
    #[arg(long, conflicts_with = "jobs")]
    pub all_pending: bool,
    /// Of those, only the jobs of this user.
    #[arg(long, value_name = "NAME", requires = "all_pending")]
    pub user: Option<String>,
    /// Of those, only the jobs of this partition.
    #[arg(long, value_name = "NAME", requires = "all_pending")]
    pub partition: Option<String>,
    /// They may be stopped and started again: their scripts find their own checkpoints.
    #[arg(long)]
    pub preemptible: bool,
    /// The tenant that pays [default: the account, or else the user].
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub client: ClientArgs,
    #[command(flatten)]
    pub connection: crate::live::ConnectionArgs,
}

/// `slurm hand-back`.
#[derive(Debug, Args)]
pub struct HandBackArgs {
    /// Numbers of jobs in Slurm [default: all that were taken over].
    #[arg(value_name = "NUMBER")]
    pub jobs: Vec<u32>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientArgs,
}

/// `slurm shadow`.
#[derive(Debug, Args)]
pub struct ShadowArgs {
    /// Policies by name, with settings if wanted: a,b:key=value; `all` for every one.
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "fifo,easy,las,srtf",
        help_heading = "Policies"
    )]
    pub policies: Vec<String>,
    /// Watch for so long, such as 8h [default: until interrupted].
    #[arg(long = "for", value_name = "SPAN", conflicts_with_all = ["once", "from"], help_heading = "Watch")]
    pub span: Option<String>,
    /// Look once.
    #[arg(long, conflicts_with = "from", help_heading = "Watch")]
    pub once: bool,
    /// The time between two looks; below MinJobAge of slurm.conf, or ends of jobs are missed.
    #[arg(long, value_name = "SPAN", default_value = "15s", help_heading = "Watch")]
    pub every: String,
    /// Keep what is seen in this file, one line of JSON for each look; goes on where the file ends.
    #[arg(long, value_name = "FILE", conflicts_with = "from", help_heading = "Watch")]
    pub record: Option<PathBuf>,
    /// Look at nothing: take what was recorded in this file.
    #[arg(long, value_name = "FILE", help_heading = "Watch")]
    pub from: Option<PathBuf>,
    /// Only nodes and jobs of this partition (repeatable).
    #[arg(long, value_name = "NAME", help_heading = "Watch")]
    pub partition: Vec<String>,
    /// In the simulations no job is stopped once it runs: for jobs that keep no checkpoints.
    #[arg(long, help_heading = "Simulated world")]
    pub keep_running: bool,
    /// The seed of all randomness.
    #[arg(long, value_name = "NUMBER", default_value = "1", help_heading = "Simulated world")]
    pub seed: String,
    #[command(flatten)]
    pub client: ClientArgs,
    #[command(flatten)]
    pub stages: StageArgs,
    #[command(flatten)]
    pub world: WorldArgs,
    #[command(flatten)]
    pub out: OutArgs,
}

/// How Slurm's programs are called.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Slurm")]
pub struct ClientArgs {
    /// The folder of squeue, sinfo and scontrol [default: looked for on PATH].
    #[arg(long, value_name = "DIR")]
    pub slurm_bin: Option<PathBuf>,
    /// The slurm.conf they read [default: SLURM_CONF, or Slurm's own place].
    #[arg(long, value_name = "FILE")]
    pub slurm_conf: Option<PathBuf>,
    /// After this a call is given up.
    #[arg(long, value_name = "SPAN", default_value = "20s")]
    pub slurm_timeout: String,
}
