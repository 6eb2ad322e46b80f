//! What an experiment is given, as flags of a command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trainyard_sim::Semantics;
use trainyard_workload::Elasticity;
use trainyard_workload::import::FORMATS;

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
    #[arg(long, value_name = "NAME", value_parser = formats(), default_value = "auto", requires = "trace")]
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
    #[arg(long, value_parser = presets(), default_value = Semantics::Native.name())]
    pub semantics: Semantics,
    /// What stopping and starting costs: profile, 'profile x2', free, 'flat save=5s start=25s' [default: profile].
    #[arg(long, value_name = "MODEL")]
    pub costs: Option<String>,
    /// The error of estimates of sizes, as the standard deviation of its logarithm; 0 is exact [default: 0.3].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub estimate_error: Option<String>,
    /// The error of the speeds that policies are told, for each model, GPU type and number of GPUs, in the same unit [default: 0].
    #[arg(long, value_name = "SIGMA", allow_hyphen_values = true)]
    pub speed_error: Option<String>,
    /// Jobs on several types of GPU cut their batch by the speed of each GPU, instead of waiting for the slowest.
    #[arg(long)]
    pub splits_by_speed: bool,
    /// The part of the measured speeds of pairs that policies are told, such as 0.3; they estimate the rest [default: 1].
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    pub pairs_known: Option<String>,
    /// Of models that are described, policies are told one run on few GPUs instead of the best division over any; the
    /// world keeps the truth.
    #[arg(long)]
    pub without_plans: bool,
    /// What jobs on the same GPU leave each other of their speed: time-sliced or mps, by measured pairs; stages or stages-guarded, by measured stages; token, by requests and limits [default: time-sliced].
    #[arg(long, value_name = "MODEL")]
    pub colocation: Option<String>,
    /// The part of its speed that a job on several nodes loses beside another such job on one of them, such as 0.25 [default: 0].
    #[arg(long, value_name = "PART", allow_hyphen_values = true)]
    pub interference: Option<String>,
    /// Jobs on shared links slow each other only while they send at the same time, instead of all the time.
    #[arg(long)]
    pub phases: bool,
    /// Decide only every so often, such as 5m, instead of at every event.
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub round: Option<String>,
    /// Nodes fail: mtbf=30d,repair=4h are mean times for each node; gpu_mtbf=90d: so do single GPUs.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub failures: Option<String>,
    /// A pool is lent as its owner needs it: pool=inference,low=0.4,high=0.95,period=1d,headroom=0.02,every=5m,noise=0; trace=FILE for a demand of its own.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub lend: Option<String>,
    /// How long a decision takes: fixed=50ms,per-job=10us, or one span [default: no time].
    #[arg(long, value_name = "COST")]
    pub decision_cost: Option<String>,
    /// Measure only jobs FROM..TO in order of arrival, such as 4000..5000; the run ends when they have ended.
    #[arg(long, value_name = "FROM..TO")]
    pub measure: Option<String>,
    /// Jobs of different tenants share a GPU only where both tenants say `shares_gpus`, as under `serve`.
    #[arg(long)]
    pub isolate_tenants: bool,
    /// Nodes put jobs aside in so much of their host memory instead of letting them save and exit, where that is cheaper: 64GiB, or 64GiB,away=10m for how long a job waits for its own GPUs [default: they cannot].
    #[arg(long, value_name = "MEMORY", allow_hyphen_values = true)]
    pub suspend_memory: Option<String>,
    /// How often running jobs save, so that a failure loses no more [default: 30m].
    #[arg(long, value_name = "SPAN", allow_hyphen_values = true)]
    pub checkpoint_every: Option<String>,
}

impl WorldArgs {
    /// What no flag says otherwise.
    pub fn usual() -> WorldArgs {
        WorldArgs {
            semantics: Semantics::Native,
            costs: None,
            estimate_error: None,
            speed_error: None,
            splits_by_speed: false,
            pairs_known: None,
            without_plans: false,
            colocation: None,
            interference: None,
            phases: false,
            round: None,
            failures: None,
            lend: None,
            decision_cost: None,
            measure: None,
            isolate_tenants: false,
            suspend_memory: None,
            checkpoint_every: None,
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

/// `auto` and the names of all formats.
pub fn formats() -> PossibleValuesParser {
    let auto = PossibleValue::new("auto").help("by the first bytes");
    let all = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(std::iter::once(auto).chain(all))
}

/// Published simulators to behave as, by name.
fn presets() -> impl TypedValueParser<Value = Semantics> {
    let values =
        Semantics::ALL.iter().map(|preset| PossibleValue::new(preset.name()).help(preset.about()));
    PossibleValuesParser::new(values)
        .map(|name| Semantics::find(&name).expect("only names of presets are possible"))
}
