//! Our own trace format, out.

use crate::trace_columns::{COLUMNS, Column};
use crate::trace_row::CLASSES;
use crate::{TraceJob, Workload};
use serde_json::{Map, Value};
use std::io::{self, Write};
use trainyard_profile::GENERIC;
use trainyard_types::{BatchMode, Class, Cluster, Job, Labels};

/// Writes CSV, with only the columns that say anything.
pub fn write_csv(workload: &Workload, cluster: &Cluster, out: impl Write) -> io::Result<()> {
    let writer = Writer { workload, cluster };
    let columns: Vec<Column> = COLUMNS
        .iter()
        .map(|(column, _)| *column)
        .filter(|column| writer.is_used(*column))
        .collect();
    let mut out = csv::Writer::from_writer(out);
    out.write_record(columns.iter().map(|column| column.name()))?;
    for one in &workload.jobs {
        out.write_record(
            columns.iter().map(|column| writer.text(one, *column).unwrap_or_default()),
        )?;
    }
    out.flush()
}

/// Writes JSON lines, each with only the keys that say anything.
pub fn write_jsonl(workload: &Workload, cluster: &Cluster, mut out: impl Write) -> io::Result<()> {
    let writer = Writer { workload, cluster };
    writeln!(out, "{{\"trainyard_trace\":1}}")?;
    for one in &workload.jobs {
        let mut object = Map::new();
        for (column, name) in COLUMNS {
            if let Some(text) = writer.text(one, *column) {
                object.insert((*name).to_owned(), json(*column, &text));
            }
        }
        serde_json::to_writer(&mut out, &object)?;
        writeln!(out)?;
    }
    out.flush()
}

struct Writer<'a> {
    workload: &'a Workload,
    cluster: &'a Cluster,
}

impl Writer<'_> {
    fn is_used(&self, column: Column) -> bool {
        matches!(column, Column::Id | Column::Submit | Column::Gpus | Column::Steps)
            || self.workload.jobs.iter().any(|one| self.text(one, column).is_some())
    }

    /// The text of a field, or nothing where the default says the same.
    fn text(&self, one: &TraceJob, column: Column) -> Option<String> {
        let job: &Job = &one.job;
        let want = &job.want;
        let seconds = |micros: u64| Some(seconds_text(micros));
        match column {
            Column::Id => Some(self.workload.label(job.id)),
            Column::Submit => seconds(job.submitted.0),
            Column::Gpus => Some(want.gpus.to_string()),
            Column::Steps => Some(one.work.0.to_string()),
            Column::Duration => None,
            Column::Model => named(&self.workload.catalog.get(job.model).name, GENERIC),
            Column::Tenant => named(&self.workload.tenants.get(job.tenant).name, "default"),
            Column::Kinds => {
                joined(want.kinds.iter().map(|kind| self.cluster.kinds[kind.index()].name.clone()))
            }
            Column::GpusMin => unless(want.gpus_min, want.gpus),
            Column::GpusMax => unless(want.gpus_max, want.gpus),
            Column::Permille => unless(want.permille, 1000),
            Column::GpuMemory => unless(want.gpu_memory_mib, 0),
            Column::Cpus => unless(want.cpus_per_gpu, 0),
            Column::Memory => unless(want.memory_mib_per_gpu, 0),
            Column::NodesMax => unless(want.nodes_max, 0),
            Column::Pool => want.pool.map(|pool| self.cluster.pools[pool.index()].clone()),
            Column::Batch => want.batch.map(|batch| batch.to_string()),
            Column::Priority => unless(job.priority, 0),
            Column::Weight => unless(job.weight, 1.0),
            Column::Class => class_text(job.class),
            Column::Deadline => match job.value[..] {
                [(time, 1.0)] => seconds(time.0),
                _ => None,
            },
            Column::Value => match job.value[..] {
                [(_, 1.0)] => None,
                _ => joined(
                    job.value
                        .iter()
                        .map(|(time, value)| format!("{}:{value}", seconds_text(time.0))),
                ),
            },
            Column::After => joined(job.after.iter().map(|other| self.workload.label(*other))),
            Column::NotBefore => job.not_before.map(|time| seconds_text(time.0)),
            Column::RunMax => job.run_max.map(|span| seconds_text(span.0)),
            Column::MinRun => unless(job.min_run.0, 0).map(|_| seconds_text(job.min_run.0)),
            Column::Preemptible => unless(job.preemptible, true),
            Column::AcrossKinds => unless(want.across_kinds, false),
            Column::RetriesMax => unless(job.retries_max, trainyard_types::RETRIES_DEFAULT),
            Column::Group => job.group.map(|group| group.0.to_string()),
            Column::Declared => job.declared.map(|work| work.0.to_string()),
            Column::FailsAt => one.fails_at.map(|work| work.0.to_string()),
            Column::BatchMode => named(job.batch_mode.name(), BatchMode::Static.name()),
            Column::PermilleMax => unless(want.permille_max, 0),
            Column::GpuMemoryPersistent => unless(want.gpu_memory_persistent_mib, 0),
            Column::Affinity => label(job, |labels| &labels.affinity),
            Column::AntiAffinity => label(job, |labels| &labels.anti_affinity),
            Column::Exclusion => label(job, |labels| &labels.exclusion),
            Column::Batches => {
                joined(one.batches.iter().map(|phase| format!("{}:{}", phase.from, phase.batch)))
            }
        }
    }
}

fn unless<T: PartialEq + ToString>(value: T, default: T) -> Option<String> {
    (value != default).then(|| value.to_string())
}

fn named(name: &str, default: &str) -> Option<String> {
    (name != default).then(|| name.to_owned())
}

fn label(job: &Job, which: impl Fn(&Labels) -> &Option<Box<str>>) -> Option<String> {
    which(job.labels.as_ref()?).as_ref().map(|name| name.to_string())
}

fn joined(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join("|"))
}

fn class_text(class: Class) -> Option<String> {
    let name = CLASSES.iter().find(|(_, known)| *known == class).map(|(name, _)| *name);
    name.filter(|_| class != Class::BestEffort).map(str::to_owned)
}

/// Microseconds as seconds, exactly and without needless zeros.
fn seconds_text(micros: u64) -> String {
    let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:06}").trim_end_matches('0').to_owned()
}

/// Numbers as numbers, lists as lists, the rest as text.
fn json(column: Column, text: &str) -> Value {
    match column {
        Column::Id
        | Column::Model
        | Column::Tenant
        | Column::Pool
        | Column::Class
        | Column::BatchMode
        | Column::Affinity
        | Column::AntiAffinity
        | Column::Exclusion => text.into(),
        Column::Preemptible | Column::AcrossKinds => (text == "true").into(),
        Column::Kinds | Column::After | Column::Value | Column::Batches => {
            text.split('|').map(Value::from).collect::<Vec<Value>>().into()
        }
        _ => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}
