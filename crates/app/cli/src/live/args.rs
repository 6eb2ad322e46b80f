//! The commands of the live side.

use super::surroundings::SurroundingsArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use trainyard_types::RETRIES_DEFAULT;

/// What can be asked of a running daemon.
#[derive(Debug, Subcommand)]
pub enum LiveCommand {
    /// Submit the jobs of files: TOML, YAML, JSON or batch scripts; all are accepted or none.
    #[command(after_help = SUBMIT_HELP)]
    Submit(SubmitArgs),
    /// Submit one command, follow its log and end with its exit code.
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Dry-run a submission: where and when it would start, and which jobs it would move.
    #[command(after_help = "Example:\n  trainyard plan train.toml")]
    Plan(PlanArgs),
    /// List jobs.
    #[command(
        visible_alias = "queue",
        after_help = "Examples:\n  trainyard ps\n  trainyard ps -a --user ada --limit 20\n  trainyard ps --state waiting --json"
    )]
    Ps(PsArgs),
    /// Show all about one job, the same as `job show`.
    #[command(after_help = "Example:\n  trainyard describe 12")]
    Describe(OneJob),
    /// Say why a job waits, what blocks it, and the nearest change that would admit it.
    #[command(after_help = "Example:\n  trainyard why 12")]
    Why(OneJob),
    /// Say when a job is expected to start and to end, with intervals.
    #[command(
        after_help = "Examples:\n  trainyard eta 12\n  trainyard eta 12 --confidence 0.95\n  trainyard eta --all"
    )]
    Eta(EtaArgs),
    /// Simulate the current queue forward under other policies and compare, or the jobs of a trace on another cluster; nothing is changed.
    #[command(
        after_help = "Examples:\n  trainyard whatif --policy srtf,tiresias\n  trainyard whatif --policy 'las:quantum=10m' --horizon 12h\n  trainyard whatif --policy srtf --trace jobs.csv --present now.toml --cluster next.toml"
    )]
    Whatif(Box<WhatIfArgs>),
    /// Print the log of a job.
    #[command(
        after_help = "Examples:\n  trainyard logs 12\n  trainyard logs -f 12 --tail 20\n  trainyard logs 12 --attempt 1 --rank 3"
    )]
    Logs(LogsArgs),
    /// End jobs.
    #[command(
        after_help = "Examples:\n  trainyard cancel 12 13 --reason 'wrong data'\n  trainyard cancel 3-7\n  trainyard cancel --name sweep\n  trainyard cancel --all"
    )]
    Cancel(CancelArgs),
    /// Set jobs aside; running ones save and stop.
    #[command(
        after_help = "Examples:\n  trainyard hold 12\n  trainyard hold 3-7 --json\n  trainyard hold --user ada"
    )]
    Hold(SomeJobs),
    /// Let held jobs go on.
    #[command(after_help = "Example:\n  trainyard release 12")]
    Release(SomeJobs),
    /// Stop jobs and put them back into the queue; failed ones are tried again.
    #[command(after_help = "Example:\n  trainyard requeue 12")]
    Requeue(SomeJobs),
    /// List nodes and what their GPUs do.
    #[command(after_help = "Example:\n  trainyard nodes")]
    Nodes(ConnectionArgs),
    /// Let a node, or one GPU of it, take no new work.
    #[command(
        after_help = "Examples:\n  trainyard drain n3 --reason 'new driver'\n  trainyard drain n3:2 --reason 'fan is loud'"
    )]
    Drain(DrainArgs),
    /// Put a node back into service, or one GPU that is in quarantine.
    #[command(after_help = "Examples:\n  trainyard resume n3\n  trainyard resume n3:2")]
    Resume(OneNode),
    /// Declare, list and remove maintenance windows and reservations of nodes.
    #[command(subcommand)]
    Window(super::windows::WindowCommand),
    /// List pools of nodes that their owners lend, and say how many an owner needs.
    #[command(subcommand)]
    Pool(super::pools::PoolCommand),
    /// Show the shares of tenants: entitled, used, now.
    #[command(after_help = "Example:\n  trainyard fair")]
    Fair(ConnectionArgs),
    /// Show what users and tenants used over a period, and what it cost.
    #[command(
        after_help = "Examples:\n  trainyard acct --since 7d\n  trainyard acct --since 2026-05-01 --until 2026-06-01 --user ada"
    )]
    Acct(AcctArgs),
    /// Show what happened.
    #[command(
        after_help = "Examples:\n  trainyard events\n  trainyard events --follow --since 1200\n  trainyard events --follow --json | jq .kind"
    )]
    Events(EventsArgs),
    /// Show the policy, or change it while everything goes on.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  trainyard policy\n  trainyard policy tiresias\n  trainyard policy 'las:quantum=10m' --place best-fit\n  trainyard policy try srtf --for 1h"
    )]
    Policy(PolicyArgs),
    /// Make, list and drop tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show where the page is, with a token that ends by itself; `--open` opens it.
    #[command(
        after_help = "Examples:\n  trainyard web\n  trainyard web --open --role viewer --expires 8h\n\nA daemon that was started with --listen serves the page where one of them is ADDRESS:PORT:\n  trainyard serve --listen unix:PATH --listen 127.0.0.1:7780"
    )]
    Web(WebArgs),
    /// Show the daemon as a whole.
    #[command(after_help = "Example:\n  trainyard status --json")]
    Status(ConnectionArgs),
    /// Watch the cluster in the terminal: map, jobs, shares, events; look into a job, cancel or hold it.
    #[command(after_help = super::top::HELP)]
    Top(TopArgs),
    /// Write the record of decisions to a file, to run them again offline.
    #[command(after_help = "Example:\n  trainyard capture -o record.jsonl")]
    Capture(CaptureArgs),
    /// Check job files, and print their schema.
    #[command(subcommand)]
    Job(JobCommand),
    /// Run the daemon: schedule real jobs on the GPUs of this machine.
    #[command(after_help = super::host_args::SERVE_HELP)]
    Serve(Box<super::host_args::ServeArgs>),
    /// Take all decisions of a flight record again and compare them with those that were taken.
    #[command(
        after_help = "Example:\n  trainyard capture -o record.jsonl && trainyard replay record.jsonl"
    )]
    Replay(super::host_args::ReplayArgs),
    /// Check an installation: store, sockets, rights, cgroups, users, GPUs, disk, clock, policy.
    #[command(after_help = "Example:\n  trainyard doctor")]
    Doctor(super::host_args::DoctorArgs),
    /// Tell whether this program can take over the folder of a daemon of another version; changes nothing in it.
    #[command(after_help = super::host_args::UPGRADE_HELP)]
    UpgradeCheck(super::host_args::UpgradeCheckArgs),
}

const SUBMIT_HELP: &str = "\
Examples:
  trainyard submit train.toml
  trainyard submit --wait prepare.yaml train.sh      ends with the code of the first job that failed
  trainyard submit train.toml --key nightly-2026-05-01

A smallest job file:
  command = [\"python\", \"train.py\"]
  gpus = 2
  time_limit = \"4h\"

With the same --key the same ids come back, however often it is sent; without one, a key is made for each call.";

const RUN_HELP: &str = "\
Examples:
  trainyard run -- python train.py
  trainyard run --gpus 8 --type h100 --time-limit 4h -- torchrun train.py
  trainyard run --detach --name night -- python train.py

Everything after -- is the command, as it is: no shell reads it.
An interrupt ends the following, not the job.";

/// How the daemon is reached, and how it is answered.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Daemon")]
pub struct ConnectionArgs {
    /// Where it is: unix:/path, https://host:port or http://127.0.0.1:port; a path may be the folder of its --state
    /// [default: the socket in TRAINYARD_STATE, or where `serve` listens by itself].
    #[arg(long, value_name = "ADDRESS", env = "TRAINYARD_SERVER", hide_env_values = true)]
    pub server: Option<String>,
    /// A file that holds the token; TRAINYARD_TOKEN may hold the token itself.
    #[arg(long, value_name = "FILE", env = "TRAINYARD_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// Certificates to trust, as PEM, instead of the public ones.
    #[arg(long, value_name = "FILE", env = "TRAINYARD_CA", hide_env_values = true)]
    pub ca: Option<PathBuf>,
    /// Print JSON; errors too.
    #[arg(long)]
    pub json: bool,
}

/// `submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub files: JobFiles,
    /// Wait until all have ended; ends with the exit code of the first that failed.
    #[arg(long)]
    pub wait: bool,
    /// A key of your own: the same key gives the same ids, however often it is sent.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Submit them held: `release` starts them.
    #[arg(long)]
    pub hold: bool,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Files of jobs.
#[derive(Debug, Args)]
pub struct JobFiles {
    /// Job files; `-` reads standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Refuse batch scripts with directives that are not known.
    #[arg(long)]
    pub strict: bool,
}

/// `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub files: JobFiles,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// GPUs asked for.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub gpus: String,
    /// An acceptable type of GPU (repeatable).
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// What people call it.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The tenant that pays.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Larger is more important.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_hyphen_values = true)]
    pub priority: i32,
    /// The longest time it may hold GPUs, such as 4h.
    #[arg(long, visible_alias = "time", value_name = "SPAN")]
    pub time_limit: Option<String>,
    /// Any other key of a job file, such as share=0.3, gpu_memory=20GiB or checkpoint.signal=USR1 (repeatable).
    #[arg(long = "with", value_name = "KEY=VALUE")]
    pub with: Vec<String>,
    /// How often it is tried again after a failure of its own.
    #[arg(long, value_name = "NUMBER", default_value_t = RETRIES_DEFAULT)]
    pub retries: u16,
    /// What follows when it has reported steps and reports none any more.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = HangAction::Tell)]
    pub on_hang: HangAction,
    /// A variable of its environment (repeatable); kept with the job, so not for secrets.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Where it runs [default: here].
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Start one process for each GPU, each with its own rank, instead of one in all.
    #[arg(long)]
    pub per_gpu: bool,
    /// Start one process on each node, as for torchrun, instead of one in all.
    #[arg(long, conflicts_with = "per_gpu")]
    pub per_node: bool,
    /// Print the id and return at once.
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub surroundings: SurroundingsArgs,
    /// A key of your own, as for `submit`.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = "Command")]
    pub command: Vec<String>,
}

/// `ps`.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Jobs that have ended too, newest first.
    #[arg(short, long)]
    pub all: bool,
    /// Of this user only.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Of this tenant only.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// In these states only: waiting, running, failed, ...; several with commas. Slurm's words are taken too, such as
    /// pending.
    #[arg(long, value_name = "STATES", value_delimiter = ',')]
    pub state: Vec<String>,
    /// At most so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub limit: u32,
    /// Only ids below this one, to page on.
    #[arg(long, value_name = "JOB")]
    pub before: Option<u32>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// One job.
#[derive(Debug, Args)]
pub struct OneJob {
    /// Its id.
    pub job: u32,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `eta`.
#[derive(Debug, Args)]
pub struct EtaArgs {
    /// The job.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub job: Option<u32>,
    /// All jobs that have not ended.
    #[arg(long)]
    pub all: bool,
    /// How much of the time intervals are right, from 0.01 to 0.99.
    #[arg(long, value_name = "PART", default_value_t = trainyard_daemon::service_impl::CONFIDENCE)]
    pub confidence: f64,
    /// With --all, at most so many.
    #[arg(long, value_name = "NUMBER", default_value_t = 200)]
    pub limit: u32,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `whatif`.
#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// Policies to compare with the running one: NAME or NAME:key=value, separated by commas (repeatable).
    #[arg(long = "policy", visible_alias = "policies", value_name = "POLICIES", required = true)]
    pub policies: Vec<String>,
    /// How far ahead, such as 12h [default: until all jobs have ended].
    #[arg(long, value_name = "SPAN")]
    pub horizon: Option<String>,
    #[command(flatten)]
    pub other: super::other_cluster::OtherClusterArgs,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Several jobs.
#[derive(Debug, Args)]
pub struct SomeJobs {
    /// Their ids, or ranges of them such as 3-7; of a range, those that are there and have not ended.
    #[arg(required_unless_present_any = ["all", "user", "name"], conflicts_with_all = ["all", "user", "name"], value_name = "JOB")]
    pub jobs: Vec<super::selection::JobRange>,
    /// All of your jobs that have not ended, or of those that --user and --name leave.
    #[arg(long)]
    pub all: bool,
    /// All of this user that have not ended; '*' for every user.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// All of this name that have not ended: yours, or those of --user.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    pub jobs: SomeJobs,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The job.
    pub job: u32,
    /// Go on until the job has ended, from one attempt to the next.
    #[arg(short, long, conflicts_with = "json")]
    pub follow: bool,
    /// Which launch [default: the newest].
    #[arg(long, value_name = "NUMBER")]
    pub attempt: Option<u32>,
    /// Which process.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub rank: u32,
    /// Only the last lines.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<usize>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// What follows when a job hangs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HangAction {
    /// It is told.
    Tell,
    /// It is stopped and started again, which counts against its retries.
    Restart,
    /// It is stopped and ends as failed.
    Fail,
}

impl From<HangAction> for trainyard_api::OnHang {
    fn from(action: HangAction) -> trainyard_api::OnHang {
        match action {
            HangAction::Tell => trainyard_api::OnHang::Tell,
            HangAction::Restart => trainyard_api::OnHang::Restart,
            HangAction::Fail => trainyard_api::OnHang::Fail,
        }
    }
}

/// One node.
#[derive(Debug, Args)]
pub struct OneNode {
    /// Its name, or NODE:GPU for one GPU of it.
    pub node: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub node: OneNode,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `acct`.
#[derive(Debug, Args)]
pub struct AcctArgs {
    /// From: a time such as 2026-05-01, or how long ago, such as 7d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Until, in the same form.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Of this user only.
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on as things happen; with --json one object a line.
    #[arg(short, long)]
    pub follow: bool,
    /// Only events after this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub since: u64,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    pub command: Option<PolicyCommand>,
    /// The new policy: NAME or NAME:key=value,...
    pub policy: Option<String>,
    /// Another placer than the policy's own.
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub place: Option<String>,
    /// Admission control for new jobs (repeatable).
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub admit: Vec<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `policy ...`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Change the policy for a while; the one before comes back by itself.
    #[command(after_help = TRY_HELP)]
    Try(TryArgs),
}

const TRY_HELP: &str = "\
Examples:
  trainyard policy try srtf --for 1h
  trainyard policy try 'las:quantum=10m' --for 4h --measure wait --worse-by 20%
  trainyard policy try --keep        the policy on trial stays
  trainyard policy try --back        the one before comes back at once

Measures, all of which are better when smaller:
  wait      mean time that jobs waited before each launch
  jct       mean time from submission to the end of jobs that finished
  restarts  stops for other jobs or to move, per hour

A measure is compared with the same time before the trial, as far as the daemon has run for it, once a tenth of the
trial is over and it has three values. The trial survives a restart of the daemon; `trainyard status` shows it, and
`trainyard events` says why it ended.";

/// `policy try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// The policy: NAME or NAME:key=value,...
    #[arg(required_unless_present_any = ["keep", "back"], conflicts_with_all = ["keep", "back"])]
    pub policy: Option<String>,
    /// For how long, such as 1h.
    #[arg(long = "for", value_name = "SPAN", requires = "policy", required_unless_present_any = ["keep", "back"])]
    pub length: Option<String>,
    /// Go back sooner if this worsens: wait, jct or restarts.
    #[arg(long, value_name = "MEASURE", requires = "policy")]
    pub measure: Option<String>,
    /// By how much it may worsen at most.
    #[arg(long, value_name = "PERCENT", default_value = "20%", requires = "measure")]
    pub worse_by: String,
    /// Let the policy on trial stay.
    #[arg(long, conflicts_with = "back")]
    pub keep: bool,
    /// Go back at once.
    #[arg(long)]
    pub back: bool,
    /// Another placer than the policy's own.
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub place: Option<String>,
    /// Admission control for new jobs (repeatable).
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub admit: Vec<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often to look.
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub every: String,
    /// What to begin with.
    #[arg(long, value_enum, value_name = "VIEW", default_value_t = trainyard_terminal::View::Cluster)]
    pub view: trainyard_terminal::View,
    /// Show only rows with these words, as / does: ada resnet, or exactly user:ada is:waiting node:n3.
    #[arg(long, value_name = "WORDS")]
    pub filter: Option<String>,
    /// Begin with this job.
    #[arg(long, value_name = "JOB")]
    pub job: Option<u32>,
    /// Print one frame as plain text and end; so does output that is no terminal.
    #[arg(long)]
    pub once: bool,
    /// The size of that frame [default: that of the terminal, or 80x24].
    #[arg(long, value_name = "COLUMNSxROWS")]
    pub size: Option<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Where it goes; `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `token ...`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; it is shown once.
    #[command(
        after_help = "Example:\n  trainyard token create ci --user ada --role user --expires 30d -o ci.token"
    )]
    Create(TokenArgs),
    /// List tokens that are good.
    List(ConnectionArgs),
    /// Make a token worthless.
    #[command(after_help = "Example:\n  trainyard token drop ci")]
    Drop {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

/// `token create`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What people call it.
    pub name: String,
    /// Whose requests it makes [default: yours].
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// What it allows: viewer, user, operator or admin.
    #[arg(long, value_name = "ROLE", default_value = "user")]
    pub role: String,
    /// How long it is good, such as 30d [default: until it is dropped].
    #[arg(long, value_name = "SPAN")]
    pub expires: Option<String>,
    /// Write the token to a file that only you can read, instead of printing it.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `web`.
#[derive(Debug, Args)]
pub struct WebArgs {
    /// Open it in a browser of this machine.
    #[arg(long)]
    pub open: bool,
    /// What the token allows: viewer, user, operator or admin [default: what you may do].
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// How long the token is good.
    #[arg(long, value_name = "SPAN", default_value = "12h")]
    pub expires: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `job ...`.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Read job files and say what was understood; no daemon is asked.
    #[command(
        after_help = "Examples:\n  trainyard job validate train.toml\n  trainyard job validate train.sh --strict --json"
    )]
    Validate {
        #[command(flatten)]
        files: JobFiles,
        /// Print the jobs as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show all about one job of the daemon: its launches, what it last said, and its measured costs.
    #[command(after_help = "Examples:\n  trainyard job show 12\n  trainyard job show 12 --json")]
    Show(OneJob),
    /// Print the JSON Schema of job files.
    #[command(after_help = "Example:\n  trainyard job schema > job-v1.json")]
    Schema,
}
