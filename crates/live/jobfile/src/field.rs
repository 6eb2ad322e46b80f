//! The keys of a job: one table for the reader and for the schema.

/// What may stand under a key.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A text that is not empty.
    Text,
    /// A list of texts; one text alone is a list of one.
    Texts,
    /// The command as a list: a text is refused with the list it should become.
    Argv,
    /// A table of texts and whole numbers.
    Env,
    /// A whole number within bounds.
    Whole(i64, i64),
    /// A number within bounds.
    Real(f64, f64),
    /// True or false.
    Flag,
    /// A length of time, which becomes seconds.
    Span,
    /// An amount of memory, which becomes mebibytes.
    Size,
    /// A share of one GPU, which becomes thousandths.
    Share,
    /// A name that users agree on.
    Label,
    /// A moment, which becomes seconds of Unix time.
    Moment,
    /// A moment or a length of time from now, which becomes seconds from now.
    Until,
    /// A list of ids of jobs.
    Ids,
    /// The indices of an array.
    Array,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// A table of its own.
    Table(&'static [Field]),
}

/// A key.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// As it is written.
    pub name: &'static str,
    /// The field of the job that it sets.
    pub target: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What it means; empty where the field of the job says it.
    pub about: &'static str,
}

/// A key that is named as the field of the job it sets.
const fn same(name: &'static str, kind: Kind) -> Field {
    Field { name, target: name, kind, about: "" }
}

/// A friendlier key for a field of the job.
const fn friendly(
    name: &'static str,
    target: &'static str,
    kind: Kind,
    about: &'static str,
) -> Field {
    Field { name, target, kind, about }
}

const GPUS: Kind = Kind::Whole(1, 1_000_000);
const BATCH: Kind = Kind::Whole(1, 1_000_000_000);
const MEBIBYTES: Kind = Kind::Whole(0, u32::MAX as i64);
const SECONDS: Kind = Kind::Real(0.0, 1e9);

/// Host memory and CPUs of the whole job, which are shared out over its GPUs.
pub(crate) const MEMORY_OF_JOB: &str = "memory_mib";
pub(crate) const CPUS_OF_JOB: &str = "cpus";

/// All keys of a job.
pub(crate) const JOB: &[Field] = &[
    same("name", Kind::Text),
    friendly(
        "command",
        "argv",
        Kind::Argv,
        "The command and its arguments as a list. Never a shell string.",
    ),
    same("argv", Kind::Argv),
    same("script", Kind::Text),
    same("cwd", Kind::Text),
    same("env", Kind::Env),
    same("image", Kind::Text),
    same("mounts", Kind::Texts),
    same("venv", Kind::Text),
    same("snapshot", Kind::Flag),
    same("tenant", Kind::Text),
    same("gpus", GPUS),
    same("gpus_min", GPUS),
    same("gpus_max", GPUS),
    same("resizes_in_place", Kind::Flag),
    same("batch", BATCH),
    same("batch_max", BATCH),
    same("batch_per_gpu_min", BATCH),
    same("batch_per_gpu_max", BATCH),
    friendly(
        "gpu_type",
        "gpu_types",
        Kind::Texts,
        "The acceptable type of GPU, or a list of them.",
    ),
    same("gpu_types", Kind::Texts),
    friendly(
        "gpu_share",
        "gpu_permille",
        Kind::Share,
        "A share of one GPU, such as 0.5, for a job that needs less than a whole one.",
    ),
    friendly("share", "gpu_permille", Kind::Share, "The same as `gpu_share`."),
    same("gpu_permille", Kind::Whole(1, 1000)),
    friendly(
        "share_limit",
        "gpu_permille_max",
        Kind::Share,
        "How much of the GPU's time it may use where others leave it, such as 1.0; its share by default.",
    ),
    same("gpu_permille_max", Kind::Whole(1, 1000)),
    same("affinity", Kind::Label),
    same("anti_affinity", Kind::Label),
    same("exclusion", Kind::Label),
    friendly("gpu_memory", "gpu_memory_mib", Kind::Size, "Memory needed on each GPU."),
    same("gpu_memory_mib", MEBIBYTES),
    friendly(CPUS_OF_JOB, CPUS_OF_JOB, Kind::Whole(0, 1_000_000), "Host CPUs of the whole job."),
    same("cpus_per_gpu", Kind::Whole(0, 65_535)),
    friendly("memory", MEMORY_OF_JOB, Kind::Size, "Host memory of the whole job."),
    friendly("memory_per_gpu", "memory_mib_per_gpu", Kind::Size, "Host memory for each GPU."),
    same("memory_mib_per_gpu", MEBIBYTES),
    same("nodes_max", Kind::Whole(0, 65_535)),
    same("processes", Kind::Choice(&["per-job", "per-node", "per-gpu"])),
    same("priority", Kind::Whole(i32::MIN as i64, i32::MAX as i64)),
    same("weight", Kind::Real(1e-6, 1e6)),
    same("model", Kind::Text),
    same("steps", Kind::Real(0.0, 1e18)),
    friendly(
        "expected",
        "expected_seconds",
        Kind::Span,
        "How long its user thinks it runs on what it asks for; used where `steps` is not given.",
    ),
    same("expected_seconds", SECONDS),
    friendly(
        "deadline",
        "deadline_seconds",
        Kind::Until,
        "Worth nothing when it ends later than this: a length of time from its submission, or a moment.",
    ),
    same("deadline_seconds", SECONDS),
    friendly(
        "tolerance",
        "tolerance_seconds",
        Kind::Span,
        "How long after its deadline it may still end, worth 0.8, then 0.5, then 0.2 of what it was.",
    ),
    same("tolerance_seconds", SECONDS),
    same("class", Kind::Choice(&["guaranteed", "best-effort", "opportunistic"])),
    same("batch_mode", Kind::Choice(&["static", "accordion", "gns"])),
    same("search", Kind::Text),
    same("after", Kind::Ids),
    friendly(
        "begin",
        "begin",
        Kind::Moment,
        "The earliest start: a moment, `now+2h`, or seconds of Unix time.",
    ),
    friendly(
        "time_limit",
        "time_limit_seconds",
        Kind::Span,
        "The longest time it may hold GPUs, all attempts together.",
    ),
    same("time_limit_seconds", SECONDS),
    friendly(
        "min_run",
        "min_run_seconds",
        Kind::Span,
        "How long it runs undisturbed after each start.",
    ),
    same("min_run_seconds", SECONDS),
    same("preemptible", Kind::Flag),
    same("saves", Kind::Flag),
    same("retries", Kind::Whole(0, 65_535)),
    same("on_hang", Kind::Choice(&["tell", "restart", "fail"])),
    same("hang_times", Kind::Real(1.0, 1e6)),
    friendly(
        "hang_min",
        "hang_min_seconds",
        Kind::Span,
        "It does not hang before this long without a step; the daemon's own by default.",
    ),
    same("hang_min_seconds", SECONDS),
    friendly(
        "idle",
        "idle_seconds",
        Kind::Span,
        "It ends when its GPUs have done nothing for this long.",
    ),
    same("idle_seconds", SECONDS),
    same("notify", Kind::Table(NOTIFY)),
    same("checkpoint", Kind::Table(CHECKPOINT)),
    same("hold", Kind::Flag),
    same("array", Kind::Array),
];

/// The signals that may ask a job to save.
pub(crate) const SIGNALS: &[&str] = &["TERM", "USR1", "USR2", "INT"];

/// All keys of a job's `notify` table.
pub(crate) const NOTIFY: &[Field] = &[
    same("url", Kind::Text),
    same("mail", Kind::Text),
    same("on", Kind::Choice(&["end", "failure"])),
];

/// All keys of a job's `checkpoint` table.
pub(crate) const CHECKPOINT: &[Field] = &[
    same("signal", Kind::Choice(SIGNALS)),
    friendly("grace", "grace_seconds", Kind::Span, "How long it has to save before it is killed."),
    same("grace_seconds", SECONDS),
    same("dir", Kind::Text),
    same("exit_code", Kind::Whole(0, 255)),
];
