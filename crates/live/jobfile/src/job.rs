//! A tree as jobs.

use crate::field::{CPUS_OF_JOB, Field, JOB, MEMORY_OF_JOB};
use crate::moment::Context;
use crate::tree::{Entry, Node, Value};
use crate::value;
use serde_json::Map;
use std::collections::BTreeMap;
use trainyard_api::JobSpec;
use trainyard_diagnostic::InputError;

/// A file with more jobs than this is refused.
pub(crate) const JOBS_MAX: usize = 100_000;

/// Keys of a file that are not keys of a job.
pub(crate) const AROUND: &[&str] = &["$schema", "schema_version", "defaults", "job", "jobs"];

/// The jobs of a tree: one at the top, or a list with defaults.
pub(crate) fn jobs(root: &Node, context: &Context) -> Result<Vec<JobSpec>, InputError> {
    let entries = match &root.value {
        Value::Table(entries) => entries,
        Value::List(list) => return listed(list, &Wishes::default(), context),
        _ => {
            return Err(root.wrong("", "a table of keys, such as command = [\"python\", \"a.py\"]"));
        }
    };
    check_version(entries)?;
    let get = |key: &str| entries.iter().find(|entry| entry.key == key);
    let Some(list) = get("job").or_else(|| get("jobs")) else {
        if let Some(defaults) = get("defaults") {
            let expected = "a list of jobs beside it, as [[job]] tables or under jobs";
            return Err(InputError::wrong(defaults.line, "defaults", "alone", expected));
        }
        let own = entries.iter().filter(|entry| !AROUND.contains(&entry.key.as_str()));
        return Ok(vec![Wishes::read(own, context)?.job(root.line)?]);
    };
    let stray = entries.iter().find(|entry| !AROUND.contains(&entry.key.as_str()));
    if let Some(entry) = stray {
        let is_key = JOB.iter().any(|field| field.name == entry.key);
        return Err(if is_key {
            let expected =
                "a place under `defaults` or in one of the jobs, since the file is a list";
            InputError::wrong(entry.line, &entry.key, &entry.node.shown(), expected)
        } else {
            InputError::unknown(entry.line, "key", &entry.key, AROUND.iter().copied())
        });
    }
    let defaults = match get("defaults") {
        None => Wishes::default(),
        Some(entry) => match &entry.node.value {
            Value::Table(entries) => Wishes::read(entries.iter(), context)?,
            _ => return Err(entry.node.wrong("defaults", "a table of keys of a job")),
        },
    };
    match &list.node.value {
        Value::List(nodes) => listed(nodes, &defaults, context),
        _ => Err(list.node.wrong(&list.key, "a list of jobs, as [[job]] tables or under jobs")),
    }
}

fn check_version(entries: &[Entry]) -> Result<(), InputError> {
    let Some(entry) = entries.iter().find(|entry| entry.key == "schema_version") else {
        return Ok(());
    };
    let ours = i64::from(trainyard_api::SCHEMA_VERSION);
    match entry.node.value {
        Value::Whole(version) if version == ours => Ok(()),
        _ => Err(entry.node.wrong("schema_version", format!("{ours}, the version known here"))),
    }
}

fn listed(
    nodes: &[Node],
    defaults: &Wishes,
    context: &Context,
) -> Result<Vec<JobSpec>, InputError> {
    if nodes.is_empty() || nodes.len() > JOBS_MAX {
        let expected = format!("from 1 to {JOBS_MAX} jobs");
        let count = nodes.len().to_string();
        return Err(InputError::wrong(
            nodes.first().map_or(0, |n| n.line),
            "jobs",
            &count,
            expected,
        ));
    }
    let one = |node: &Node| match &node.value {
        Value::Table(entries) => {
            Wishes::read(entries.iter(), context)?.over(defaults).job(node.line)
        }
        _ => Err(node.wrong("job", "a table of keys of a job")),
    };
    nodes.iter().map(one).collect()
}

/// What was said of one job: the value of each field, and where it stands.
#[derive(Clone, Debug, Default)]
struct Wishes(BTreeMap<&'static str, Wish>);

#[derive(Clone, Debug)]
struct Wish {
    name: &'static str,
    line: u64,
    value: serde_json::Value,
}

impl Wishes {
    fn read<'a>(
        entries: impl Iterator<Item = &'a Entry>,
        context: &Context,
    ) -> Result<Wishes, InputError> {
        let mut wishes = Wishes::default();
        for entry in entries {
            let field: &Field = JOB
                .iter()
                .find(|field| field.name == entry.key)
                .ok_or_else(|| value::unknown_key("key", JOB, entry))?;
            if entry.node.value == Value::Null {
                continue;
            }
            let value = value::read(field, &entry.node, context)?;
            let wish = Wish { name: field.name, line: entry.line, value };
            if wishes.0.insert(field.target, wish).is_some() {
                return Err(value::said_twice(entry.line, field));
            }
        }
        Ok(wishes)
    }

    /// These wishes, and the defaults where nothing is said. Tables are joined key by key.
    fn over(mut self, defaults: &Wishes) -> Wishes {
        // What a job says of itself in one way displaces what the defaults say in the other.
        let rivals = [(MEMORY_OF_JOB, "memory_mib_per_gpu"), (CPUS_OF_JOB, "cpus_per_gpu")];
        let displaced = |target: &str| {
            let rival = rivals.iter().find_map(|(one, other)| match target {
                _ if target == *one => Some(*other),
                _ if target == *other => Some(*one),
                _ => None,
            });
            rival.is_some_and(|rival| self.0.contains_key(rival))
        };
        let wanted: Vec<_> = defaults.0.iter().filter(|(target, _)| !displaced(target)).collect();
        for (target, default) in wanted {
            match self.0.get_mut(target) {
                None => drop(self.0.insert(target, default.clone())),
                Some(own) => {
                    let base = default.value.as_object();
                    if let (Some(own), Some(base)) = (own.value.as_object_mut(), base) {
                        for (key, value) in base {
                            own.entry(key).or_insert_with(|| value.clone());
                        }
                    }
                }
            }
        }
        self
    }

    /// The job, once everything fits together.
    fn job(mut self, line: u64) -> Result<JobSpec, InputError> {
        self.share_out(MEMORY_OF_JOB, "memory_mib_per_gpu", u32::MAX.into())?;
        self.share_out(CPUS_OF_JOB, "cpus_per_gpu", u16::MAX.into())?;
        let fields: Map<String, serde_json::Value> = self
            .0
            .iter()
            .map(|(target, wish)| ((*target).to_owned(), wish.value.clone()))
            .collect();
        let mut job: JobSpec = serde_json::from_value(fields.into()).map_err(|error| {
            InputError::wrong(line, "", "the job", format!("values that fit ({error})"))
        })?;
        if job.argv.is_empty() && job.script.is_none() {
            let expected = "what is to be run, such as command = [\"python\", \"train.py\"]";
            return Err(InputError::missing(line, "command", expected));
        }
        self.check(&job)?;
        if job.argv.is_empty() {
            job.argv.push(if job.name.is_empty() { "script".to_owned() } else { job.name.clone() });
        }
        if job.name.is_empty() {
            job.name = file_name(&job.argv[0]).to_owned();
        }
        Ok(job)
    }

    /// What the whole job needs, for each of its GPUs.
    fn share_out(
        &mut self,
        whole: &'static str,
        each: &'static str,
        most: u64,
    ) -> Result<(), InputError> {
        let Some(wish) = self.0.remove(whole) else { return Ok(()) };
        if let Some(other) = self.0.get(each) {
            let expected = format!("either it or `{}`, not both", other.name);
            return Err(InputError::wrong(wish.line, wish.name, "given too", expected));
        }
        let gpus = self.0.get("gpus").and_then(|wish| wish.value.as_u64()).unwrap_or(1).max(1);
        let amount = wish.value.as_u64().unwrap_or(0).div_ceil(gpus).min(most);
        self.0.insert(each, Wish { value: amount.into(), ..wish });
        Ok(())
    }

    fn check(&self, job: &JobSpec) -> Result<(), InputError> {
        let wrong = |target: &str, expected: String| {
            let wish = self.0.get(target);
            let (line, name) = wish.map_or((0, "gpus"), |wish| (wish.line, wish.name));
            let value = wish.map_or_else(|| job.gpus.to_string(), |wish| wish.value.to_string());
            InputError::wrong(line, name, &value, expected)
        };
        if job.gpus_min.is_some_and(|least| least > job.gpus) {
            return Err(wrong("gpus_min", format!("at most `gpus`, which is {}", job.gpus)));
        }
        if job.gpus_max.is_some_and(|most| most < job.gpus) {
            return Err(wrong("gpus_max", format!("at least `gpus`, which is {}", job.gpus)));
        }
        if let Some((name, _, expected)) = job.batch_fault() {
            return Err(wrong(name, expected));
        }
        let shares = job.gpu_permille.is_some_and(|permille| permille < 1000);
        if shares && job.gpus.max(job.gpus_max.unwrap_or(1)) > 1 {
            return Err(wrong("gpu_permille", "a job of one GPU, for a share of it".to_owned()));
        }
        if let Some(most) = job.gpu_permille_max {
            if !shares {
                return Err(wrong(
                    "gpu_permille_max",
                    "a share below the whole GPU beside it".to_owned(),
                ));
            }
            let share = job.gpu_permille.unwrap_or(1000);
            if most < share {
                let expected =
                    format!("at least its share, {} of a GPU", f64::from(share) / 1000.0);
                return Err(wrong("gpu_permille_max", expected));
            }
        }
        if job.script.as_ref().is_some_and(|script| !script.starts_with("#!")) {
            let expected = "a text that begins with the line of its interpreter, #!/bin/bash";
            return Err(wrong("script", expected.to_owned()));
        }
        Ok(())
    }
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}
