//! A job as its user describes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A job as its user describes it. Job files, batch scripts and flags all become this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobSpec {
    /// What people call it; its command's name by default.
    pub name: String,
    /// The command and its arguments. Never a shell string.
    pub argv: Vec<String>,
    /// The text of a script that is kept with the job and run in place of `argv[0]`, by the interpreter of its `#!`
    /// line: every attempt runs what was submitted, whatever became of the file since. `argv[0]` is then only its
    /// name, and the rest are its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Where it runs; the submitter's directory by default.
    pub cwd: Option<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// The container image it runs in, by podman, docker or Apptainer, whichever the machine has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Directories that the image sees beside the working directory and the checkpoints: `PATH` or `PATH:ro`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// The virtual environment of Python that it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub venv: Option<String>,
    /// Its working directory is copied at its submission, and it runs in the copy. The client makes the copy and takes
    /// this back: the daemon copies nothing, and refuses what still asks for it.
    #[serde(skip_serializing_if = "is_false")]
    pub snapshot: bool,
    /// The tenant that pays; the submitting user by default.
    pub tenant: Option<String>,
    /// GPUs asked for.
    pub gpus: u32,
    /// The least it can run on; `gpus` by default.
    pub gpus_min: Option<u32>,
    /// The most it can use; `gpus` by default.
    pub gpus_max: Option<u32>,
    /// Whether it goes over to other GPUs while it runs when it is told of them, without being stopped and started.
    #[serde(skip_serializing_if = "is_false")]
    pub resizes_in_place: bool,
    /// The batch size over all GPUs that it trains with, where a policy should know it.
    pub batch: Option<u32>,
    /// The largest batch size that a policy may choose, `batch` being the least; without it the batch is fixed.
    pub batch_max: Option<u32>,
    /// The fewest samples that one GPU may train on at once; 1 by default.
    pub batch_per_gpu_min: Option<u32>,
    /// The most samples that one GPU can hold at once, more being accumulated; `batch_max` by default.
    pub batch_per_gpu_max: Option<u32>,
    /// Acceptable types; any by default.
    pub gpu_types: Vec<String>,
    /// Thousandths of one GPU, for a job that needs less than a whole one.
    pub gpu_permille: Option<u16>,
    /// The most thousandths of the GPU that it may use where others leave it; its share by default.
    pub gpu_permille_max: Option<u16>,
    /// Memory needed on each GPU.
    pub gpu_memory_mib: u32,
    /// It shares a GPU only with jobs that have the same name here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<String>,
    /// It shares no GPU with a job that has the same name here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<String>,
    /// It shares a GPU with jobs that have the same name here and no others, not even with jobs without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusion: Option<String>,
    /// Host CPUs for each GPU.
    pub cpus_per_gpu: u16,
    /// Host memory for each GPU.
    pub memory_mib_per_gpu: u32,
    /// The most nodes it may span; 0 means any.
    pub nodes_max: u16,
    /// How many processes are started.
    pub processes: Processes,
    /// Larger is more important.
    pub priority: i32,
    /// Its weight in fair shares.
    pub weight: f64,
    /// The profile of what it trains, for policies that look at speeds.
    pub model: Option<String>,
    /// Work it is, in steps, as far as its user knows.
    pub steps: Option<f64>,
    /// How long its user thinks it runs on what it asks for; used where `steps` is not given.
    pub expected_seconds: Option<f64>,
    /// Worth nothing when it ends later than so many seconds after its submission.
    pub deadline_seconds: Option<f64>,
    /// How many seconds after its deadline it may still end: its worth falls in steps, to 0.8 of it after the deadline,
    /// to 0.5 after a third of this time and to 0.2 after two thirds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance_seconds: Option<f64>,
    /// What it has a right to, for policies that look at that.
    #[serde(skip_serializing_if = "JobClass::is_default")]
    pub class: JobClass,
    /// The rule by which it changes its batch size by itself, for policies that look ahead.
    #[serde(skip_serializing_if = "BatchRule::is_default")]
    pub batch_mode: BatchRule,
    /// The search it is a trial of: jobs of one user with the same name here are compared with one another, and those
    /// that lag may be ended by a policy for searches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Jobs, by id, that must finish well before it starts.
    pub after: Vec<u32>,
    /// The earliest start, in seconds of Unix time.
    pub begin: Option<f64>,
    /// The longest time it may hold GPUs, all attempts together.
    pub time_limit_seconds: Option<f64>,
    /// How long it runs undisturbed after each start.
    pub min_run_seconds: f64,
    /// Whether it may be stopped and resumed.
    pub preemptible: bool,
    /// Whether it saves its state when it is asked to stop. One that does not is stopped for others only where it can be
    /// put aside in host memory.
    pub saves: bool,
    /// How often it is tried again after a failure of its own; 3 by default.
    pub retries: u16,
    /// What follows when it hangs: it told of its steps and tells of none any more.
    #[serde(skip_serializing_if = "OnHang::is_default")]
    pub on_hang: OnHang,
    /// It hangs after so many times what it usually takes from one step told to the next; the daemon's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_times: Option<f64>,
    /// It does not hang before so many seconds without a step; the daemon's own by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang_min_seconds: Option<f64>,
    /// It ends when its GPUs have done nothing for so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
    /// Who is told when it has ended.
    #[serde(skip_serializing_if = "Notify::is_default")]
    pub notify: Notify,
    /// How it saves its state.
    pub checkpoint: Checkpoint,
    /// Submitted but not to be started before it is released.
    pub hold: bool,
    /// Its indices if it is an array: `0-9`, `1,3,5`, `0-9:2`, with `%4` for at most four at once.
    pub array: Option<String>,
    /// What it is called where it already waits, such as `slurm:1234`: it is taken over, not started anew. Operators
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// Whose job it is, where an operator takes over the job of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Default for JobSpec {
    fn default() -> JobSpec {
        JobSpec {
            name: String::new(),
            argv: Vec::new(),
            script: None,
            cwd: None,
            env: BTreeMap::new(),
            image: None,
            mounts: Vec::new(),
            venv: None,
            snapshot: false,
            tenant: None,
            gpus: 1,
            gpus_min: None,
            gpus_max: None,
            resizes_in_place: false,
            batch: None,
            batch_max: None,
            batch_per_gpu_min: None,
            batch_per_gpu_max: None,
            gpu_types: Vec::new(),
            gpu_permille: None,
            gpu_permille_max: None,
            gpu_memory_mib: 0,
            affinity: None,
            anti_affinity: None,
            exclusion: None,
            cpus_per_gpu: 0,
            memory_mib_per_gpu: 0,
            nodes_max: 0,
            processes: Processes::default(),
            priority: 0,
            weight: 1.0,
            model: None,
            steps: None,
            expected_seconds: None,
            deadline_seconds: None,
            tolerance_seconds: None,
            class: JobClass::default(),
            batch_mode: BatchRule::default(),
            search: None,
            after: Vec::new(),
            begin: None,
            time_limit_seconds: None,
            min_run_seconds: 0.0,
            preemptible: true,
            saves: true,
            retries: trainyard_types::RETRIES_DEFAULT,
            on_hang: OnHang::default(),
            hang_times: None,
            hang_min_seconds: None,
            idle_seconds: None,
            notify: Notify::default(),
            checkpoint: Checkpoint::default(),
            hold: false,
            array: None,
            external: None,
            owner: None,
        }
    }
}

impl JobSpec {
    /// The first of its batch sizes that contradicts the others: its name, its value, and what was expected.
    pub fn batch_fault(&self) -> Option<(&'static str, u32, String)> {
        let (Some(batch), Some(most)) = (self.batch, self.batch_max) else {
            let alone = [
                ("batch_max", self.batch_max),
                ("batch_per_gpu_min", self.batch_per_gpu_min),
                ("batch_per_gpu_max", self.batch_per_gpu_max),
            ];
            let needed = if self.batch.is_none() { "batch" } else { "batch_max" };
            let (name, value) = alone.into_iter().find_map(|(name, value)| Some((name, value?)))?;
            return Some((name, value, format!("`{needed}` beside it")));
        };
        if most < batch {
            return Some(("batch_max", most, format!("at least `batch`, which is {batch}")));
        }
        let least = self.batch_per_gpu_min.unwrap_or(1);
        let hold = self.batch_per_gpu_max.unwrap_or(most);
        if least > hold.min(most) {
            let expected = format!("at most {}, which one GPU can have", hold.min(most));
            return Some(("batch_per_gpu_min", least, expected));
        }
        let gpus = u64::from(self.gpus_min.unwrap_or(self.gpus));
        if u64::from(least) * gpus > u64::from(most) {
            let expected =
                format!("so many on each of {gpus} GPUs to be at most `batch_max`, {most}");
            return Some(("batch_per_gpu_min", least, expected));
        }
        None
    }
}

/// What follows when a job hangs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnHang {
    /// It is told, and the job goes on as it is.
    #[default]
    Tell,
    /// It is stopped and started again, which counts as a failure against its retries.
    Restart,
    /// It is stopped and ends as failed.
    Fail,
}

impl OnHang {
    fn is_default(&self) -> bool {
        *self == OnHang::Tell
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Who is told when a job has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Notify {
    /// The address that gets a POST with the end as JSON; it begins with one that the operator allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The address that gets a mail: a user of the daemon's machine, or one of a domain that the operator allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail: Option<String>,
    /// After which ends.
    pub on: NotifyOn,
}

impl Notify {
    fn is_default(&self) -> bool {
        *self == Notify::default()
    }
}

/// After which ends of a job a message is sent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotifyOn {
    /// After any.
    #[default]
    End,
    /// After any but a finish.
    Failure,
}

/// What a job has a right to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobClass {
    /// To what it asked for.
    Guaranteed,
    /// To its turn.
    #[default]
    BestEffort,
    /// To nothing: it lives on what is left over.
    Opportunistic,
}

impl JobClass {
    fn is_default(&self) -> bool {
        *self == JobClass::default()
    }
}

/// The rule by which a job changes its own batch size.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BatchRule {
    /// It keeps its batch size.
    #[default]
    Static,
    /// Large batches outside of critical regimes, as in Accordion (MLSys 2021).
    Accordion,
    /// Batches that grow with the gradient noise scale.
    Gns,
}

impl BatchRule {
    fn is_default(&self) -> bool {
        *self == BatchRule::default()
    }
}

/// How many processes of a job are started on a node.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// One in all, on the first node: a batch script, a plain program, `torchrun` on one node. A job that fits on one
    /// node is put on one, unless it says how many it may have.
    #[default]
    PerJob,
    /// One on each node, which sees all GPUs of the job there: `torchrun`.
    PerNode,
    /// One for each GPU, each with its own `RANK` and `LOCAL_RANK`.
    PerGpu,
}

/// How a job saves its state when it must stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// The signal that asks it to save and exit: `TERM`, `USR1`, `USR2`, `INT`.
    pub signal: String,
    /// How long it has to do so before it is killed.
    pub grace_seconds: f64,
    /// Where it keeps its checkpoints; a directory of its own by default.
    pub dir: Option<String>,
    /// The exit code that means "saved, start me again". 0 after the signal means the same.
    pub exit_code: i32,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint { signal: "TERM".to_owned(), grace_seconds: 30.0, dir: None, exit_code: 85 }
    }
}
