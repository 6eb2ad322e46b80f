//! What the options of a script ask for, and the job that it becomes.

use super::directive::Given;
use super::option::Meaning;
use crate::field::SIGNALS;
use crate::form::Remark;
use crate::moment::{Context, MOMENT, moment};
use crate::size::mebibytes;
use crate::value::is_variable;
use trainyard_api::{JobSpec, parse_array};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// Amounts as the options state them, before it is known how many GPUs the job has.
#[derive(Debug, Default)]
pub(super) struct Wish {
    job: JobSpec,
    nodes: Option<u32>,
    tasks: Option<u32>,
    tasks_per_node: Option<u32>,
    cpus_per_task: Option<u32>,
    cpus_per_gpu: Option<u32>,
    gpus: Option<(u64, u32)>,
    gpus_per_node: Option<u32>,
    gpus_per_task: Option<u32>,
    memory_per_node: Option<u32>,
    memory_per_gpu: Option<u32>,
    memory_per_cpu: Option<u32>,
    named: bool,
    constraint: Option<Given>,
}

/// What was understood without effect, and why.
type Said = Result<Option<String>, InputError>;

const COUNT_MAX: u32 = 1_000_000;

impl Wish {
    /// Takes note of one option; the answer says why it has no effect, if it has none.
    pub fn take(&mut self, meaning: Meaning, given: &Given, context: &Context) -> Said {
        let value = given.value.as_deref().unwrap_or_default();
        match meaning {
            Meaning::Nodes => return self.nodes(given, value),
            Meaning::Tasks => self.tasks = Some(count(given, value)?),
            Meaning::TasksPerNode => self.tasks_per_node = Some(count(given, value)?),
            Meaning::CpusPerTask => self.cpus_per_task = Some(count(given, value)?),
            Meaning::CpusPerGpu => self.cpus_per_gpu = Some(count(given, value)?),
            Meaning::Gpus => self.gpus = Some((given.line, self.typed(given, value)?)),
            Meaning::GpusPerNode => self.gpus_per_node = Some(self.typed(given, value)?),
            Meaning::GpusPerTask => self.gpus_per_task = Some(self.typed(given, value)?),
            Meaning::Gres => return self.gres(given, value),
            Meaning::Time => self.job.time_limit_seconds = time_limit(given, value)?,
            Meaning::Account => self.job.tenant = Some(value.to_owned()),
            Meaning::Name => {
                self.job.name = value.to_owned();
                self.named = true;
            }
            Meaning::Signal => self.signal(given, value)?,
            Meaning::Requeue => self.job.preemptible = true,
            Meaning::NoRequeue => {
                self.job.preemptible = false;
                self.job.retries = 0;
            }
            Meaning::Array => {
                parse_array(value)
                    .map_err(|error| wrong(given, value, format!("an array ({error})")))?;
                self.job.array = Some(value.to_owned());
            }
            Meaning::Dependency => self.job.after = dependency(given, value)?,
            Meaning::Begin => {
                let at = moment(value, context).ok_or_else(|| wrong(given, value, MOMENT))?;
                self.job.begin = Some(at);
            }
            Meaning::Deadline => {
                let now = context.now.as_microsecond() as f64 / 1e6;
                let left = moment(value, context).map(|at| at - now).filter(|left| *left > 0.0);
                let expected = format!("{MOMENT}, and still to come");
                self.job.deadline_seconds =
                    Some(left.ok_or_else(|| wrong(given, value, expected))?);
            }
            Meaning::Constraint => self.constraint = Some(given.clone()),
            Meaning::MemoryPerNode => self.memory_per_node = memory(given, value)?,
            Meaning::MemoryPerGpu => self.memory_per_gpu = memory(given, value)?,
            Meaning::MemoryPerCpu => self.memory_per_cpu = memory(given, value)?,
            Meaning::Folder => self.job.cwd = Some(value.to_owned()),
            // A nicer job is a less important one; without a value it is by a hundred.
            Meaning::Nice => self.job.priority = -integer(given, value, 100)?,
            Meaning::Priority => self.job.priority = integer(given, value, 0)?,
            Meaning::Hold => self.job.hold = true,
            Meaning::Export => return self.export(given, value),
            Meaning::Nothing(why) => return Ok(Some(why.to_owned())),
        }
        Ok(None)
    }

    /// Puts everything into a job; the remarks say what was assumed.
    pub fn fill(self, job: &mut JobSpec) -> Result<Vec<Remark>, InputError> {
        let mut remarks = Vec::new();
        let wish = self.constrained(&mut remarks);
        let nodes = wish.nodes.unwrap_or(1);
        let per_node = wish.tasks_per_node.map(|tasks| tasks.saturating_mul(nodes));
        let tasks = wish.tasks.or(per_node).unwrap_or(nodes);
        let (gpus, nodes_max) = wish.gpus_and_nodes(nodes, tasks, &mut remarks)?;
        let asks_cpus = wish.cpus_per_task.or(wish.tasks).or(wish.tasks_per_node).is_some();
        let cpus = asks_cpus.then(|| tasks.saturating_mul(wish.cpus_per_task.unwrap_or(1)));
        let cpus_each = wish.cpus_per_gpu.or(cpus.map(|cpus| cpus.div_ceil(gpus)));
        let memory = wish.memory_per_gpu.map(u64::from).or_else(|| {
            let of_nodes = wish.memory_per_node.map(|each| u64::from(each) * u64::from(nodes));
            let of_cpus =
                wish.memory_per_cpu.map(|each| u64::from(each) * u64::from(cpus.unwrap_or(1)));
            of_nodes.or(of_cpus).map(|memory| memory.div_ceil(u64::from(gpus)))
        });
        let (name, argv, script) =
            (job.name.clone(), std::mem::take(&mut job.argv), job.script.take());
        let name = if wish.named { wish.job.name.clone() } else { name };
        *job = JobSpec { name, argv, script, gpus, nodes_max, ..wish.job };
        job.cpus_per_gpu = u16::try_from(cpus_each.unwrap_or(0)).unwrap_or(u16::MAX);
        job.memory_mib_per_gpu = u32::try_from(memory.unwrap_or(0)).unwrap_or(u32::MAX);
        Ok(remarks)
    }

    fn gpus_and_nodes(
        &self,
        nodes: u32,
        tasks: u32,
        remarks: &mut Vec<Remark>,
    ) -> Result<(u32, u16), InputError> {
        let nodes_max = |nodes: u32| u16::try_from(nodes).unwrap_or(u16::MAX);
        if let Some((line, gpus)) = self.gpus {
            return match self.gpus_per_node {
                Some(each) if gpus % each != 0 => {
                    let expected = format!("a multiple of --gpus-per-node, which is {each}");
                    Err(InputError::wrong(line, "--gpus", &gpus.to_string(), expected))
                }
                Some(each) => Ok((gpus, nodes_max(gpus / each))),
                None => Ok((gpus, self.nodes.map_or(0, nodes_max))),
            };
        }
        if let Some(each) = self.gpus_per_node {
            return Ok((each.saturating_mul(nodes).min(COUNT_MAX), nodes_max(nodes)));
        }
        if let Some(each) = self.gpus_per_task {
            return Ok((
                each.saturating_mul(tasks).min(COUNT_MAX),
                self.nodes.map_or(0, nodes_max),
            ));
        }
        let text = format!("the script asks for no GPU and gets {nodes}, one on each node");
        remarks.push(Remark { line: 1, text, unknown: false });
        Ok((nodes.min(COUNT_MAX), self.nodes.map_or(0, nodes_max)))
    }

    /// A constraint names types of GPU where nothing else does.
    fn constrained(mut self, remarks: &mut Vec<Remark>) -> Wish {
        let Some(given) = self.constraint.take() else { return self };
        let names: Vec<String> =
            given.value.iter().flat_map(|value| value.split('|')).map(str::to_owned).collect();
        let plain = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
        };
        let why = if !self.job.gpu_types.is_empty() {
            "the type of GPU is named already"
        } else if !names.iter().all(plain) {
            "only types of GPU, as in `a100|h100`, are understood"
        } else {
            self.job.gpu_types = names;
            return self;
        };
        let text = format!("{} has no effect: {why}", given.shown);
        remarks.push(Remark { line: given.line, text, unknown: false });
        self
    }

    fn nodes(&mut self, given: &Given, value: &str) -> Said {
        let Some((least, most)) = value.split_once('-') else {
            self.nodes = Some(count(given, value)?);
            return Ok(None);
        };
        let (least, most) = (count(given, least)?, count(given, most)?);
        if most < least {
            return Err(wrong(given, value, "the smaller number of nodes first"));
        }
        self.nodes = Some(least);
        let why = format!("the larger number is not used; the job gets {least}");
        Ok((most > least).then_some(why))
    }

    /// `4` or `a100:4`.
    fn typed(&mut self, given: &Given, value: &str) -> Result<u32, InputError> {
        match value.rsplit_once(':') {
            None => count(given, value),
            Some((kind, number)) if !kind.is_empty() && !kind.contains([':', ',']) => {
                self.job.gpu_types = vec![kind.to_owned()];
                count(given, number)
            }
            Some(_) => Err(wrong(given, value, "a number of GPUs such as 4 or a100:4")),
        }
    }

    fn gres(&mut self, given: &Given, value: &str) -> Said {
        let mut others = Vec::new();
        for part in value.split(',') {
            let name = part.split(':').next().unwrap_or_default();
            if name != "gpu" {
                others.push(part.to_owned());
                continue;
            }
            // A socket list behind the number says how, not how many.
            let part = part.split('(').next().unwrap_or_default();
            let rest = part.strip_prefix("gpu").unwrap_or_default().trim_start_matches(':');
            self.gpus_per_node = Some(match rest {
                "" => 1,
                _ if rest.starts_with(|c: char| c.is_ascii_alphabetic()) && !rest.contains(':') => {
                    self.job.gpu_types = vec![rest.to_owned()];
                    1
                }
                rest => self.typed(given, rest)?,
            });
        }
        let why = format!("`{}` is nothing that is handed out here", others.join(","));
        Ok((!others.is_empty()).then_some(why))
    }

    /// `[B:]USR1[@SECONDS]`: the signal that asks the job to save, and how long it has.
    fn signal(&mut self, given: &Given, value: &str) -> Result<(), InputError> {
        let (signal, seconds) = match value.split_once('@') {
            Some((signal, seconds)) => (signal, f64::from(count(given, seconds)?)),
            None => (value, 60.0),
        };
        let signal = signal.rsplit(':').next().unwrap_or_default().to_ascii_uppercase();
        let name = match signal.trim_start_matches("SIG") {
            "2" => "INT",
            "10" => "USR1",
            "12" => "USR2",
            "15" => "TERM",
            name => SIGNALS.iter().find(|known| **known == name).copied().unwrap_or_default(),
        };
        if name.is_empty() {
            let expected = format!("one of {}, as in B:USR1@120", SIGNALS.join(", "));
            return Err(wrong(given, value, expected));
        }
        self.job.checkpoint.signal = name.to_owned();
        self.job.checkpoint.grace_seconds = seconds;
        Ok(())
    }

    fn export(&mut self, given: &Given, value: &str) -> Said {
        let mut copied = Vec::new();
        for part in value.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((name, value)) if is_variable(name) => {
                    self.job.env.insert(name.to_owned(), value.to_owned());
                }
                Some(_) => return Err(wrong(given, part, "NAME=VALUE")),
                None => copied.push(part),
            }
        }
        let why = format!("`{}` copies nothing; state NAME=VALUE", copied.join(","));
        Ok((!copied.is_empty()).then_some(why))
    }
}

fn wrong(given: &Given, value: &str, expected: impl Into<String>) -> InputError {
    let value = if value.is_empty() { "\"\"" } else { value };
    InputError::wrong(given.line, &given.shown, value, expected)
}

fn count(given: &Given, value: &str) -> Result<u32, InputError> {
    let number = value.parse().ok().filter(|number| (1..=COUNT_MAX).contains(number));
    number.ok_or_else(|| wrong(given, value, format!("a whole number from 1 to {COUNT_MAX}")))
}

fn integer(given: &Given, value: &str, absent: i32) -> Result<i32, InputError> {
    let bounds = -1_000_000_000..=1_000_000_000;
    match value {
        "" => Ok(absent),
        _ => match value.parse::<i32>().ok().filter(|number| bounds.contains(number)) {
            Some(number) => Ok(number),
            None => Err(wrong(given, value, "a whole number")),
        },
    }
}

/// Nothing for 0, which means all the memory there is.
fn memory(given: &Given, value: &str) -> Result<Option<u32>, InputError> {
    // A number without a unit is mebibytes.
    match mebibytes(value, Some(1048576.0)) {
        Some(0) => Ok(None),
        Some(amount) => Ok(Some(amount)),
        None => Err(wrong(given, value, "an amount of memory such as 64G or 4000M")),
    }
}

/// `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS[:MINUTES[:SECONDS]]`; 0 is without limit.
/// A length with units, such as `12h`, is what it is everywhere else.
fn time_limit(given: &Given, value: &str) -> Result<Option<f64>, InputError> {
    if ["infinite", "unlimited"].contains(&value.to_ascii_lowercase().as_str()) {
        return Ok(None);
    }
    let expected = "a time limit such as 30, 90:00, 12:00:00, 2-12:00:00 or 12h";
    let bad = || wrong(given, value, expected);
    if value.contains(|letter: char| letter.is_ascii_alphabetic()) {
        let seconds = value.parse::<Span>().map_err(|_| bad())?.as_secs_f64();
        return if seconds > 1e9 { Err(bad()) } else { Ok((seconds > 0.0).then_some(seconds)) };
    }
    let (days, clock) = match value.split_once('-') {
        Some((days, clock)) => (Some(number(days).ok_or_else(bad)?), clock),
        None => (None, value),
    };
    let parts: Option<Vec<f64>> = clock.split(':').map(number).collect();
    let seconds = match (days, parts.ok_or_else(bad)?.as_slice()) {
        (None, [minutes]) => minutes * 60.0,
        (None, [minutes, seconds]) => minutes * 60.0 + seconds,
        (_, [hours, minutes, seconds]) => hours * 3600.0 + minutes * 60.0 + seconds,
        (Some(_), [hours]) => hours * 3600.0,
        (Some(_), [hours, minutes]) => hours * 3600.0 + minutes * 60.0,
        _ => return Err(bad()),
    };
    let seconds = days.unwrap_or(0.0) * 86_400.0 + seconds;
    if seconds > 1e9 {
        return Err(bad());
    }
    Ok((seconds > 0.0).then_some(seconds))
}

fn number(text: &str) -> Option<f64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// `afterok:12:13,afterok:14`: a wish that cannot be kept is refused, for the job would start too early.
fn dependency(given: &Given, value: &str) -> Result<Vec<u32>, InputError> {
    let expected = "afterok:JOB[:JOB...]; other kinds of dependency are not offered";
    let mut after = Vec::new();
    for part in value.split(',') {
        let ids = part.strip_prefix("afterok:").ok_or_else(|| wrong(given, value, expected))?;
        for id in ids.split(':') {
            after.push(id.parse().map_err(|_| wrong(given, value, expected))?);
        }
    }
    Ok(after)
}
