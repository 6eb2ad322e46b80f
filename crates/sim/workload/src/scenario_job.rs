//! The `job` line of a scenario.

use crate::TraceJob;
use crate::Workload;
use crate::reference::Reference;
use crate::scenario::Line;
use crate::tells::{Learning, TrainingSignals};
use crate::trace_row::{CLASSES, class_named};
use std::collections::BTreeMap;
use std::str::FromStr;
use trainyard_diagnostic::InputError;
use trainyard_types::{Cluster, GroupId, Job, JobId, Labels, PoolId, Span, Time, Want, Work};

const KEYS: [&str; 24] = [
    "at",
    "wants",
    "work",
    "model",
    "tenant",
    "priority",
    "min",
    "max",
    "kinds",
    "deadline",
    "value",
    "after",
    "not-before",
    "limit",
    "min-run",
    "fixed",
    "share",
    "class",
    "weight",
    "nodes",
    "memory",
    "retries",
    "fails",
    "declares",
];
const MORE_KEYS: [&str; 12] = [
    "saves-nothing",
    "pool",
    "group",
    "batch",
    "noise",
    "learns",
    "share-max",
    "persistent",
    "affinity",
    "anti-affinity",
    "exclusion",
    "across-types",
];

/// A job's name and the words after it, by key.
pub(crate) struct JobWords<'a> {
    pub label: &'a str,
    line: u64,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> JobWords<'a> {
    pub fn new(line: &Line<'a>) -> Result<JobWords<'a>, InputError> {
        let mut words = line.rest.split_whitespace();
        let label = words.next().filter(|label| !label.contains(['|', ','])).ok_or_else(|| {
            InputError::wrong(line.number, "job", line.rest, "a name for the job")
        })?;
        let mut values = BTreeMap::new();
        while let Some(key) = words.next() {
            if !KEYS.contains(&key) && !MORE_KEYS.contains(&key) {
                let keys = KEYS.iter().chain(&MORE_KEYS).copied();
                return Err(InputError::unknown(line.number, "job", key, keys));
            }
            let value = match key {
                "fixed" => "fixed",
                "across-types" => "across-types",
                "saves-nothing" => "saves-nothing",
                _ => {
                    words.next().ok_or_else(|| InputError::missing(line.number, key, "a value"))?
                }
            };
            if values.insert(key, value).is_some() {
                return Err(InputError::wrong(line.number, key, value, "every word once"));
            }
        }
        Ok(JobWords { label, line: line.number, values })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).copied()
    }

    fn wrong(&self, key: &str, expected: impl Into<String>) -> InputError {
        InputError::wrong(self.line, key, self.get(key).unwrap_or(""), expected)
    }

    fn number<T: FromStr + PartialOrd>(
        &self,
        key: &str,
        (least, expected): (T, &str),
    ) -> Result<Option<T>, InputError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &T| *number >= least);
        number.map(Some).ok_or_else(|| self.wrong(key, expected))
    }

    fn span(&self, key: &str) -> Result<Option<Span>, InputError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| {
            let error: trainyard_types::time::SpanError = error;
            self.wrong(key, format!("a length of time ({error})"))
        })
    }

    fn moment(&self, key: &str) -> Result<Option<Time>, InputError> {
        Ok(self.span(key)?.map(|span| Time::ZERO + span))
    }
}

/// One job, not yet numbered, and the names of those it follows.
pub(crate) fn read_job(
    words: JobWords<'_>,
    (cluster, reference): (&Cluster, &Reference),
    workload: &mut Workload,
) -> Result<(TraceJob, Vec<String>), InputError> {
    let submitted = words.moment("at")?.unwrap_or(Time::ZERO);
    let mut job = Job { want: read_want(&words, cluster)?, ..Job::simple(JobId(0), submitted, 1) };
    if let Some(name) = words.get("model") {
        job.model = workload.catalog.lookup(words.line, "model", name)?;
    }
    job.tenant = workload.tenants.intern(words.get("tenant").unwrap_or("default"));
    read_rules(&words, &mut job)?;
    read_times(&words, &mut job)?;
    reference.settle(&mut job);
    let amount = |key: &str| read_work(&words, key, &job, reference);
    let work = amount("work")?.ok_or_else(|| words.wrong("work", "a length of time, or steps"))?;
    let fails_at = amount("fails")?;
    job.declared = amount("declares")?;
    let after = words.get("after").unwrap_or("").split(',').filter(|name| !name.is_empty());
    let after = after.map(str::to_owned).collect();
    let tells = read_tells(&words)?.map(Box::new);
    Ok((TraceJob { fails_at, tells, ..TraceJob::new(job, work) }, after))
}

/// What a job tells of its training: `noise 64,2048` from its start to its end, `learns 0.9,0.5,0.7` as a curve.
fn read_tells(words: &JobWords<'_>) -> Result<Option<TrainingSignals>, InputError> {
    let numbers = |key: &str| -> Option<Vec<f64>> {
        words
            .get(key)?
            .split(',')
            .map(|part| part.parse().ok().filter(|x: &f64| x.is_finite()))
            .collect()
    };
    let mut tells = TrainingSignals::default();
    if words.get("noise").is_some() {
        let expected = "two numbers above 0, such as `64,2048`: the noise at the start and the end";
        tells.noise = match numbers("noise").as_deref() {
            Some([first, last]) if *first > 0.0 && *last > 0.0 => Some((*first, *last)),
            _ => return Err(words.wrong("noise", expected)),
        };
    }
    if words.get("learns").is_some() {
        let expected = "best, gap and bend of the accuracy, such as `0.9,0.5,0.7`";
        tells.learning = match numbers("learns").as_deref() {
            Some([best, gap, bend]) if *gap >= 0.0 && *bend > 0.0 => {
                Some(Learning { best: *best, gap: *gap, bend: *bend })
            }
            _ => return Err(words.wrong("learns", expected)),
        };
    }
    Ok((tells != TrainingSignals::default()).then_some(tells))
}

/// A bare number is steps, a number with a unit is time at the wanted size.
fn read_work(
    words: &JobWords<'_>,
    key: &str,
    job: &Job,
    reference: &Reference,
) -> Result<Option<Work>, InputError> {
    let Some(text) = words.get(key) else { return Ok(None) };
    let work = match text.parse::<f64>() {
        Ok(steps) => Work(steps),
        Err(_) => {
            let span = words.span(key)?.unwrap_or(Span::ZERO);
            reference.work_in(job.model, &job.want, span.as_secs_f64())
        }
    };
    match work.0 > 0.0 && work.0 <= 1e18 {
        true => Ok(Some(work)),
        false => Err(words.wrong(key, "more than 0, as a length of time or steps")),
    }
}

fn read_want(words: &JobWords<'_>, cluster: &Cluster) -> Result<Want, InputError> {
    let gpus = words.number("wants", (1u32, "a whole number of GPUs, at least 1"))?;
    let gpus = gpus.ok_or_else(|| words.wrong("wants", "a whole number of GPUs"))?;
    let mut want = Want::gpus(gpus);
    let least = format!("1 to {gpus} GPUs");
    want.gpus_min = words.number("min", (1, &least))?.unwrap_or(gpus);
    if want.gpus_min > gpus {
        return Err(words.wrong("min", least));
    }
    want.gpus_max = words.number("max", (gpus, &format!("at least {gpus} GPUs")))?.unwrap_or(gpus);
    want.permille = words.number("share", (1, "thousandths of a GPU, 1 to 1000"))?.unwrap_or(1000);
    if want.permille > 1000 {
        return Err(words.wrong("share", "thousandths of a GPU, 1 to 1000"));
    }
    if words.get("share-max").is_some() {
        let expected = format!("thousandths of a GPU, {} to 1000", want.permille);
        let most = words.number("share-max", (want.permille, &expected))?.unwrap_or(0);
        if most > 1000 {
            return Err(words.wrong("share-max", expected));
        }
        want.permille_max = most;
    }
    want.nodes_max = words.number("nodes", (1, "a whole number of nodes"))?.unwrap_or(0);
    want.gpu_memory_mib = words.number("memory", (0, "memory of each GPU in MiB"))?.unwrap_or(0);
    let expected = "memory in MiB, at most `memory`";
    want.gpu_memory_persistent_mib = words.number("persistent", (0, expected))?.unwrap_or(0);
    if want.gpu_memory_persistent_mib > want.gpu_memory_mib {
        return Err(words.wrong("persistent", expected));
    }
    want.across_kinds = words.get("across-types").is_some();
    want.batch = words.number("batch", (1u32, "a whole number of samples, at least 1"))?;
    for name in words.get("kinds").unwrap_or("").split(',').filter(|name| !name.is_empty()) {
        let kind = cluster.kind(&name.to_lowercase()).ok_or_else(|| {
            let known = cluster.kinds.iter().map(|kind| kind.name.as_str());
            InputError::unknown(words.line, "kinds", name, known)
        })?;
        want.kinds.push(kind);
    }
    if let Some(name) = words.get("pool") {
        let index = cluster.pools.iter().position(|pool| pool == name).ok_or_else(|| {
            InputError::unknown(words.line, "pool", name, cluster.pools.iter().map(String::as_str))
        })?;
        want.pool = Some(PoolId(index as u16));
    }
    Ok(want)
}

fn read_rules(words: &JobWords<'_>, job: &mut Job) -> Result<(), InputError> {
    job.priority = words.number("priority", (i32::MIN, "a whole number"))?.unwrap_or(0);
    job.weight = words.number("weight", (1e-9, "a number, more than 0"))?.unwrap_or(1.0);
    if !job.weight.is_finite() {
        return Err(words.wrong("weight", "a number, more than 0"));
    }
    if let Some(name) = words.get("class") {
        job.class = class_named(name).ok_or_else(|| {
            InputError::unknown(words.line, "class", name, CLASSES.iter().map(|(name, _)| *name))
        })?;
    }
    job.preemptible = words.get("fixed").is_none();
    job.saves = words.get("saves-nothing").is_none();
    job.retries_max = words.number("retries", (0, "a whole number"))?.unwrap_or(job.retries_max);
    let name = |key: &str| match words.get(key) {
        Some(name) if !Labels::is_name(name) => Err(words.wrong(key, Labels::NAME)),
        found => Ok(found),
    };
    job.labels = Labels::of(name("affinity")?, name("anti-affinity")?, name("exclusion")?);
    job.group = words.number("group", (0, "a whole number"))?.map(GroupId);
    Ok(())
}

fn read_times(words: &JobWords<'_>, job: &mut Job) -> Result<(), InputError> {
    job.not_before = words.moment("not-before")?;
    job.run_max = words.span("limit")?;
    job.min_run = words.span("min-run")?.unwrap_or(Span::ZERO);
    if let Some(deadline) = words.moment("deadline")? {
        job.value.push((deadline, 1.0));
    }
    for item in words.get("value").unwrap_or("").split(',').filter(|item| !item.is_empty()) {
        let pair = item.split_once(':').and_then(|(moment, value)| {
            let moment: Span = moment.parse().ok()?;
            let value: f64 = value.parse().ok()?;
            value.is_finite().then_some((Time::ZERO + moment, value))
        });
        let pair = pair.filter(|(time, _)| job.value.last().is_none_or(|last| last.0 < *time));
        let expected = "moments and values such as `5m:10,10m:5`, ascending";
        job.value.push(pair.ok_or_else(|| words.wrong("value", expected))?);
    }
    Ok(())
}
