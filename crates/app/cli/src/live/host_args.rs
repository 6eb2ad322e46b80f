//! Flags of the daemon and of what looks at it from outside.

use super::surroundings::NotifyArgs;
use crate::args::slurm::ClientArgs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trainyard_daemon::core::OPEN_PER_USER_MAX;

/// What `serve --help` ends with.
pub const SERVE_HELP: &str = "\
Examples:
  trainyard serve                                     the GPUs that NVML finds, for you alone
  trainyard serve --gpus 4                            four slots, with or without a GPU behind them
  trainyard serve --gpus 2xa100,2xv100 --policy las
  trainyard serve --listen unix:/run/trainyard/api.sock --listen 0.0.0.0:8443 --tls self-signed
  trainyard serve --slurm --slurm-dir /shared/trainyard --policy las   the nodes of a Slurm cluster

Running jobs do not depend on the daemon: it may end, or be killed, and finds them again when it is back.
The policy that was set last stays, unless --policy says otherwise; the first is `priority`.";

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// GPUs: a number, or numbers with types such as 2xa100,2xv100 [default: those that NVML finds].
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,
    /// The policy: NAME or NAME:key=value,... [default: the one that was set last].
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Another placer than the policy's own.
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub place: Option<String>,
    /// Admission control for new jobs (repeatable).
    #[arg(long, value_name = "NAME", requires = "policy")]
    pub admit: Vec<String>,
    /// Where to listen (repeatable): unix:PATH or ADDRESS:PORT; the socket where commands look unless another is named
    /// [default: that socket, and 127.0.0.1:7780 or another free port for the page].
    #[arg(long, value_name = "WHERE")]
    pub listen: Vec<String>,
    /// Listen on the socket only: browsers cannot reach the page then.
    #[arg(long, conflicts_with = "listen")]
    pub no_page: bool,
    /// The certificate for ADDRESS:PORT: CERTIFICATE,KEY as PEM files, or `self-signed`.
    #[arg(long, value_name = "FILES")]
    pub tls: Option<String>,
    /// A name of this machine that requests over the network may call it by (repeatable).
    #[arg(long = "host-name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Tenants with weights, ceilings and members: a TOML file with tables called tenant, as in a cluster file.
    #[arg(long, value_name = "FILE")]
    pub tenants: Option<PathBuf>,
    /// Nodes that form a pool, which its owner may take back (repeatable): NAME=NODE,NODE,...
    #[arg(long = "pool", value_name = "POOL")]
    pub pools: Vec<String>,
    /// Profiles of models beside the built-in ones (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// How long a policy may take for a decision before it is cut off.
    #[arg(long, value_name = "SPAN", default_value = "5s")]
    pub decision_limit: String,
    /// The socket of a privileged helper, which starts jobs as their users.
    #[arg(long, value_name = "SOCKET")]
    pub helper: Option<PathBuf>,
    /// The operators: Unix users, or one group as @GROUP; separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub operators: Vec<String>,
    /// The highest priority that jobs of a role may have: ROLE=NUMBER, separated by commas [default: user=0].
    #[arg(long, value_name = "LIMITS", value_delimiter = ',', allow_hyphen_values = true)]
    pub priority_max: Vec<String>,
    /// The largest weight that jobs of a role may have: ROLE=NUMBER, separated by commas [default: user=1].
    #[arg(long, value_name = "LIMITS", value_delimiter = ',')]
    pub weight_max: Vec<String>,
    /// Do not use cgroups, even where they can be had.
    #[arg(long)]
    pub no_cgroups: bool,
    #[command(flatten)]
    pub suspend: SuspendArgs,
    #[command(flatten)]
    pub sharing: SharingArgs,
    #[command(flatten)]
    pub health: HealthArgs,
    /// Processes and threads that one attempt of a job may have.
    #[arg(long, value_name = "NUMBER", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    pub processes_max: u32,
    /// Jobs that one user may have waiting and running at once.
    #[arg(long, value_name = "NUMBER", default_value_t = OPEN_PER_USER_MAX)]
    pub jobs_per_user_max: usize,
    /// How the log is written, to standard error.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogForm::Text)]
    pub log: LogForm,
    #[command(flatten)]
    pub notify: NotifyArgs,
    #[command(flatten)]
    pub slurm: SlurmArgs,
}

/// How jobs are put aside.
#[derive(Debug, Args)]
#[command(next_help_heading = "Jobs put aside")]
pub struct SuspendArgs {
    /// Host memory that jobs put aside by the driver may take, such as 64GiB, or 64GiB,away=10m for how long a job waits
    /// for its own GPU; 0 puts no job aside [default: 0].
    #[arg(long, value_name = "MEMORY", conflicts_with = "slurm", allow_hyphen_values = true)]
    pub suspend_memory: Option<String>,
    /// The driver's library [default: libcuda.so.1, as the system finds it].
    #[arg(long, value_name = "FILE", conflicts_with = "slurm")]
    pub driver_library: Option<PathBuf>,
}

/// How jobs share a GPU.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shared GPUs")]
pub struct SharingArgs {
    /// Jobs with a share of a GPU are clients of NVIDIA's MPS there, each with a part of the GPU's threads, instead of
    /// taking turns.
    #[arg(long, conflicts_with = "slurm")]
    pub mps: bool,
    /// The control program of MPS [default: nvidia-cuda-mps-control, looked for in PATH].
    #[arg(long, value_name = "FILE", requires = "mps")]
    pub mps_control: Option<PathBuf>,
}

/// What is done about machines that break.
#[derive(Debug, Args)]
#[command(next_help_heading = "Health")]
pub struct HealthArgs {
    /// Do not watch the health of GPUs by NVML.
    #[arg(long, conflicts_with = "slurm")]
    pub no_gpu_health: bool,
    /// What follows from a finding (repeatable): CODE=VERDICT, such as xid-63=tell or row-remap-pending=quarantine;
    /// verdicts are application, tell, retire and quarantine.
    #[arg(long = "gpu-verdict", value_name = "RULE", conflicts_with = "slurm")]
    pub verdicts: Vec<String>,
    /// After how long in quarantine a GPU with which nothing is wrong any more returns by itself [default: never].
    #[arg(long, value_name = "SPAN")]
    pub gpu_return_after: Option<String>,
    /// A job hangs that has reported no step for so many times its usual time between two.
    #[arg(long, value_name = "NUMBER", default_value_t = 10.0)]
    pub hang_times: f64,
    /// And for this long at least.
    #[arg(long, value_name = "SPAN", default_value = "5m")]
    pub hang_min: String,
    /// How long a job that resizes in place has to go over to other GPUs, before it is stopped and started.
    #[arg(long, value_name = "SPAN", default_value = "2m")]
    pub resize_wait: String,
}

/// How a Slurm cluster is scheduled.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slurm")]
pub struct SlurmArgs {
    /// Schedule the nodes of the Slurm that answers here, instead of this machine.
    #[arg(long, conflicts_with_all = ["gpus", "helper"])]
    pub slurm: bool,
    /// A folder that every node sees under this name, for attempts and checkpoints [default: in --state].
    #[arg(long, value_name = "FOLDER", requires = "slurm")]
    pub slurm_dir: Option<PathBuf>,
    /// The partition for jobs; only its nodes are used [default: all nodes, Slurm's own default for jobs].
    #[arg(long, value_name = "NAME", requires = "slurm")]
    pub slurm_partition: Option<String>,
    /// The account for jobs.
    #[arg(long, value_name = "NAME", requires = "slurm")]
    pub slurm_account: Option<String>,
    /// Call `scontrol reconfigure` when Slurm counts GPUs as used that no job has, at most once a minute.
    #[arg(long, requires = "slurm")]
    pub slurm_reconfigure: bool,
    /// How often Slurm is looked at when nothing happens.
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub slurm_poll: String,
    #[command(flatten)]
    pub client: ClientArgs,
}

/// How the log is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// Lines for people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// Where a daemon keeps everything.
#[derive(Clone, Debug, Args)]
pub struct StateArgs {
    /// Where everything is kept [default: ~/.trainyard, or /var/lib/trainyard for root].
    #[arg(long, value_name = "FOLDER", env = "TRAINYARD_STATE", hide_env_values = true)]
    pub state: Option<PathBuf>,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The record, as `trainyard capture` writes it.
    pub record: PathBuf,
    /// Profiles that the daemon was given (repeatable).
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub state: StateArgs,
    /// The policy to be tried [default: the one that was set last].
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Look at Slurm too: whether it answers, and what this account may do.
    #[arg(long)]
    pub slurm: bool,
    #[command(flatten)]
    pub client: ClientArgs,
    /// The driver that is asked whether it can put jobs aside [default: libcuda.so.1].
    #[arg(long, value_name = "FILE")]
    pub driver_library: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The example of `upgrade-check`.
pub const UPGRADE_HELP: &str = "\
Example:
  ./trainyard-new upgrade-check /var/lib/trainyard

Run it with the new program, before the daemon is stopped or after. The store is copied to a folder for temporary files
(TMPDIR names another), and the copy is upgraded and read. Ends with 0 when the new program can go on with the folder.";

/// `upgrade-check`.
#[derive(Debug, Args)]
pub struct UpgradeCheckArgs {
    /// Where the daemon keeps everything; without it, what --state says.
    #[arg(value_name = "STATE_DIR")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
