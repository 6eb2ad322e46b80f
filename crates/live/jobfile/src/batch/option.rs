//! The options of `#SBATCH` lines, and what each means here: one table.

/// Whether an option has a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// Only after `=`.
    Maybe,
}

/// What an option means here.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Nodes,
    Tasks,
    TasksPerNode,
    CpusPerTask,
    CpusPerGpu,
    Gpus,
    GpusPerNode,
    GpusPerTask,
    Gres,
    Time,
    Account,
    Name,
    Signal,
    Requeue,
    NoRequeue,
    Array,
    Dependency,
    Begin,
    Deadline,
    Constraint,
    MemoryPerNode,
    MemoryPerGpu,
    MemoryPerCpu,
    Folder,
    Nice,
    Priority,
    Hold,
    Export,
    /// Understood, and without effect for this reason.
    Nothing(&'static str),
}

pub(super) struct Directive {
    pub long: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub meaning: Meaning,
}

const fn row(long: &'static str, short: Option<char>, takes: Takes, meaning: Meaning) -> Directive {
    Directive { long, short, takes, meaning }
}

use Takes::{Maybe, Nothing, Value};

const LOGS: &str = "logs are kept by the daemon; read them with `trainyard logs JOB`";
const MAIL: &str = "no mail is sent; `trainyard events --follow` tells what happens";
const POOLS: &str = "there are no partitions; name the GPU with --gres=gpu:TYPE:N or --constraint";
const WHOLE: &str = "a GPU is never shared unless a job asks for a share of one";
const PLACED: &str = "the placer of the policy decides where a job runs";

/// Every option that is known.
pub(super) const OPTIONS: &[Directive] = &[
    row("nodes", Some('N'), Value, Meaning::Nodes),
    row("ntasks", Some('n'), Value, Meaning::Tasks),
    row("ntasks-per-node", None, Value, Meaning::TasksPerNode),
    row("cpus-per-task", Some('c'), Value, Meaning::CpusPerTask),
    row("cpus-per-gpu", None, Value, Meaning::CpusPerGpu),
    row("gpus", Some('G'), Value, Meaning::Gpus),
    row("gpus-per-node", None, Value, Meaning::GpusPerNode),
    row("gpus-per-task", None, Value, Meaning::GpusPerTask),
    row("gres", None, Value, Meaning::Gres),
    row("time", Some('t'), Value, Meaning::Time),
    row("account", Some('A'), Value, Meaning::Account),
    row("job-name", Some('J'), Value, Meaning::Name),
    row("signal", None, Value, Meaning::Signal),
    row("requeue", None, Nothing, Meaning::Requeue),
    row("no-requeue", None, Nothing, Meaning::NoRequeue),
    row("array", Some('a'), Value, Meaning::Array),
    row("dependency", Some('d'), Value, Meaning::Dependency),
    row("begin", Some('b'), Value, Meaning::Begin),
    row("deadline", None, Value, Meaning::Deadline),
    row("constraint", Some('C'), Value, Meaning::Constraint),
    row("mem", None, Value, Meaning::MemoryPerNode),
    row("mem-per-gpu", None, Value, Meaning::MemoryPerGpu),
    row("mem-per-cpu", None, Value, Meaning::MemoryPerCpu),
    row("chdir", Some('D'), Value, Meaning::Folder),
    row("nice", None, Maybe, Meaning::Nice),
    row("priority", None, Value, Meaning::Priority),
    row("hold", Some('H'), Nothing, Meaning::Hold),
    row("export", None, Value, Meaning::Export),
    row("output", Some('o'), Value, Meaning::Nothing(LOGS)),
    row("error", Some('e'), Value, Meaning::Nothing(LOGS)),
    row("open-mode", None, Value, Meaning::Nothing(LOGS)),
    row("input", Some('i'), Value, Meaning::Nothing("a job reads nothing from its input")),
    row("partition", Some('p'), Value, Meaning::Nothing(POOLS)),
    row(
        "qos",
        Some('q'),
        Value,
        Meaning::Nothing("there are no qualities of service; use --priority"),
    ),
    row("mail-type", None, Value, Meaning::Nothing(MAIL)),
    row("mail-user", None, Value, Meaning::Nothing(MAIL)),
    row("exclusive", None, Maybe, Meaning::Nothing(WHOLE)),
    row("oversubscribe", Some('s'), Nothing, Meaning::Nothing(WHOLE)),
    row("switches", None, Value, Meaning::Nothing(PLACED)),
    row("nodelist", Some('w'), Value, Meaning::Nothing(PLACED)),
    row("exclude", Some('x'), Value, Meaning::Nothing(PLACED)),
    row("gpu-bind", None, Value, Meaning::Nothing(PLACED)),
    row("hint", None, Value, Meaning::Nothing(PLACED)),
    row("distribution", Some('m'), Value, Meaning::Nothing(PLACED)),
    row("time-min", None, Value, Meaning::Nothing("a time limit is not shortened")),
    row("comment", None, Value, Meaning::Nothing("it is for people")),
    row("get-user-env", None, Maybe, Meaning::Nothing("the environment is the job's own")),
    row("verbose", Some('v'), Nothing, Meaning::Nothing("it is for the submitting command")),
    row("quiet", Some('Q'), Nothing, Meaning::Nothing("it is for the submitting command")),
    row("parsable", None, Nothing, Meaning::Nothing("use `trainyard submit --json`")),
    row("wait", Some('W'), Nothing, Meaning::Nothing("use `trainyard submit --wait`")),
];
