//! From one row of a trace to one job.

use crate::cluster::{add_kind, default_kind, kind_name};
use crate::reference::Reference;
use crate::tenant_ids::TenantIds;
use crate::trace::TraceContext;
use crate::trace_columns::{COLUMN_COUNT, Column};
use crate::{BatchPhase, TraceJob};
use smallvec::SmallVec;
use std::ops::RangeInclusive;
use trainyard_diagnostic::{InputError, nearest};
use trainyard_profile::GENERIC;
use trainyard_types::{
    BatchMode, Class, Cluster, GpuKind, GpuType, GroupId, Job, JobId, Labels, ModelId, PoolId,
    Span, TenantId, Time, Want, Work,
};

/// The values of one row as text; empty ones are `None`.
pub(crate) struct TraceRow<'a> {
    pub line: u64,
    pub values: [Option<&'a str>; COLUMN_COUNT],
}

impl<'a> TraceRow<'a> {
    pub fn get(&self, column: Column) -> Option<&'a str> {
        self.values[column as usize]
    }

    fn needed(&self, column: Column, expected: &str) -> Result<&'a str, InputError> {
        self.get(column).ok_or_else(|| InputError::missing(self.line, column.name(), expected))
    }

    fn wrong(&self, column: Column, expected: impl Into<String>) -> InputError {
        let value = self.get(column).unwrap_or("");
        InputError::wrong(self.line, column.name(), value, expected)
    }

    fn whole(&self, column: Column, range: RangeInclusive<i64>) -> Result<Option<i64>, InputError> {
        let Some(text) = self.get(column) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            self.wrong(column, format!("a whole number from {least} to {most}"))
        })
    }

    fn count(&self, column: Column, least: u32) -> Result<Option<u32>, InputError> {
        let range = i64::from(least)..=i64::from(GPUS_MAX);
        Ok(self.whole(column, range)?.map(|number| number as u32))
    }

    fn seconds(&self, column: Column) -> Result<Option<f64>, InputError> {
        let Some(text) = self.get(column) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (0.0..=1e10).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(column, "seconds from 0 to 10000000000"))
    }

    fn steps(&self, column: Column) -> Result<Option<Work>, InputError> {
        let Some(text) = self.get(column) else { return Ok(None) };
        let number: Option<f64> = text.parse().ok();
        let number = number.filter(|number| *number > 0.0 && *number <= 1e18);
        number
            .map(|number| Some(Work(number)))
            .ok_or_else(|| self.wrong(column, "steps, more than 0 and at most 1e18"))
    }

    fn list(&self, column: Column) -> impl Iterator<Item = &'a str> {
        self.get(column).unwrap_or("").split('|').map(str::trim).filter(|item| !item.is_empty())
    }
}

/// A job larger than this is taken for a slip of the pen.
const GPUS_MAX: u32 = 1_000_000;

/// What turns names into ids.
pub(crate) struct RowReader<'a> {
    pub context: TraceContext<'a>,
    /// In place of the context's cluster: one that gets the types and pools that rows name.
    pub found: Option<Cluster>,
    reference: Reference,
    tenants: TenantIds,
    /// The model of a job that names none.
    generic: ModelId,
}

impl<'a> RowReader<'a> {
    pub fn new(context: TraceContext<'a>) -> RowReader<'a> {
        let reference = Reference::new(&context.catalog, context.cluster);
        let tenants = TenantIds::of(&context.tenants);
        let generic = context.catalog.find(GENERIC).unwrap_or(ModelId(0));
        RowReader { context, found: None, reference, tenants, generic }
    }

    /// For no cluster in particular.
    pub fn open(context: TraceContext<'a>) -> RowReader<'a> {
        let found = Some(context.cluster.clone());
        RowReader { found, ..RowReader::new(context) }
    }

    /// One job, not yet numbered, and the names of the jobs it follows.
    pub fn read(&mut self, row: &TraceRow<'_>) -> Result<(TraceJob, Vec<String>), InputError> {
        let submitted = row.needed(Column::Submit, "seconds").and(row.seconds(Column::Submit))?;
        let want = self.want(row)?;
        let model = match row.get(Column::Model) {
            Some(name) => self.model(row.line, name)?,
            None => self.generic,
        };
        let mut job = Job {
            tenant: self.tenant(row.get(Column::Tenant)),
            model,
            want,
            ..Job::simple(JobId(0), Time::from_secs_f64(submitted.unwrap_or(0.0)), 1)
        };
        read_rules(row, &mut job)?;
        read_times(row, &mut job)?;
        if self.found.is_none() {
            self.reference.settle(&mut job);
        }
        let batches = self.batches(row, &job)?;
        let work = self.work(row, &job, &batches)?;
        let fails_at = row.steps(Column::FailsAt)?;
        let after = row.list(Column::After).map(str::to_owned).collect();
        Ok((TraceJob { fails_at, batches, ..TraceJob::new(job, work) }, after))
    }

    /// A model by its name or its description; one that is described for the first time is bound to the cluster.
    fn model(&mut self, line: u64, name: &str) -> Result<ModelId, InputError> {
        let (model, is_new) = self.context.catalog.resolve(line, Column::Model.name(), name)?;
        if is_new {
            self.reference = Reference::new(&self.context.catalog, self.context.cluster);
        }
        Ok(model)
    }

    /// The batches on its way; a model that does not say what they do to its speed may not have any.
    fn batches(&self, row: &TraceRow<'_>, job: &Job) -> Result<Box<[BatchPhase]>, InputError> {
        let mut phases: Vec<BatchPhase> = Vec::new();
        for item in row.list(Column::Batches) {
            let pair = item.split_once(':').and_then(|(from, batch)| {
                let from = from.trim().parse().ok().filter(|from| (0.0..1.0).contains(from))?;
                let batch = batch.trim().parse().ok().filter(|batch| *batch > 0)?;
                Some(BatchPhase { from, batch })
            });
            let pair = pair.filter(|pair| phases.last().is_none_or(|last| last.from < pair.from));
            let expected = "parts of the work from 0 to below 1, ascending, and the batch from there on, \
                            as `0:32|0.35:256`";
            phases.push(pair.ok_or_else(|| row.wrong(Column::Batches, expected))?);
        }
        if !phases.is_empty() && !self.reference.knows_batches(job.model) {
            let model = &self.context.catalog.get(job.model).name;
            let expected = format!("none: the profile of `{model}` says nothing about `batches`");
            return Err(row.wrong(Column::Batches, expected));
        }
        Ok(phases.into())
    }

    fn work(
        &self,
        row: &TraceRow<'_>,
        job: &Job,
        batches: &[BatchPhase],
    ) -> Result<Work, InputError> {
        match (row.steps(Column::Steps)?, row.seconds(Column::Duration)?) {
            (Some(_), Some(_)) => {
                Err(row.wrong(Column::Duration, "either `steps` or `duration_s`, not both"))
            }
            (Some(steps), None) => Ok(steps),
            (None, Some(0.0)) => Err(row.wrong(Column::Duration, "seconds, more than 0")),
            (None, Some(_)) if self.found.is_some() && self.is_measured(job.model) => {
                let expected = "`steps`, or a cluster (--cluster) that tells how long they take";
                Err(row.wrong(Column::Duration, expected))
            }
            (None, Some(seconds)) => Ok(self.reference.work_with(job, batches, seconds)),
            (None, None) => Err(row.wrong(Column::Steps, "either `steps` or `duration_s`")),
        }
    }

    /// Whether the speed of a model depends on what it runs on.
    fn is_measured(&self, model: ModelId) -> bool {
        self.context.catalog.get(model).name != GENERIC
    }

    fn tenant(&mut self, name: Option<&str>) -> TenantId {
        let name = name.unwrap_or("default");
        self.tenants.intern(&mut self.context.tenants, name)
    }

    fn want(&mut self, row: &TraceRow<'_>) -> Result<Want, InputError> {
        row.needed(Column::Gpus, "a whole number of GPUs")?;
        let mut want = Want::gpus(row.count(Column::Gpus, 1)?.unwrap_or(1));
        if let Some(least) = row.count(Column::GpusMin, 1)? {
            want.gpus_min = least;
        }
        if let Some(most) = row.count(Column::GpusMax, 1)? {
            want.gpus_max = most;
        }
        if want.gpus_min > want.gpus {
            return Err(row.wrong(Column::GpusMin, format!("at most `gpus`, {}", want.gpus)));
        }
        if want.gpus_max < want.gpus {
            return Err(row.wrong(Column::GpusMax, format!("at least `gpus`, {}", want.gpus)));
        }
        want.kinds = self.kinds(row)?;
        want.permille = row.whole(Column::Permille, 1..=1000)?.unwrap_or(1000) as u16;
        if let Some(most) = row.whole(Column::PermilleMax, i64::from(want.permille)..=1000)? {
            want.permille_max = most as u16;
        }
        let u32s = 0..=i64::from(u32::MAX);
        let u16s = 0..=i64::from(u16::MAX);
        want.gpu_memory_mib = row.whole(Column::GpuMemory, u32s.clone())?.unwrap_or(0) as u32;
        let whole = if want.gpu_memory_mib == 0 { u32::MAX } else { want.gpu_memory_mib };
        want.gpu_memory_persistent_mib =
            row.whole(Column::GpuMemoryPersistent, 0..=i64::from(whole))?.unwrap_or(0) as u32;
        want.cpus_per_gpu = row.whole(Column::Cpus, u16s.clone())?.unwrap_or(0) as u16;
        want.memory_mib_per_gpu = row.whole(Column::Memory, u32s)?.unwrap_or(0) as u32;
        want.nodes_max = row.whole(Column::NodesMax, u16s)?.unwrap_or(0) as u16;
        want.batch = row.count(Column::Batch, 1)?;
        if let Some(name) = row.get(Column::Pool) {
            if let Some(found) = &mut self.found
                && !found.pools.iter().any(|pool| pool == name)
                && found.pools.len() < usize::from(u16::MAX)
            {
                found.pools.push(name.to_owned());
            }
            let pools = &self.found.as_ref().unwrap_or(self.context.cluster).pools;
            let index = pools.iter().position(|pool| pool == name).ok_or_else(|| {
                let names = pools.iter().map(String::as_str);
                InputError::unknown(row.line, Column::Pool.name(), name, names)
            })?;
            want.pool = Some(PoolId(index as u16));
        }
        Ok(want)
    }

    fn kinds(&mut self, row: &TraceRow<'_>) -> Result<SmallVec<[GpuType; 4]>, InputError> {
        let mut kinds = SmallVec::new();
        for name in row.list(Column::Kinds) {
            let name = kind_name(row.line, Column::Kinds.name(), name)?;
            if let Some(found) = &mut self.found
                && found.kind(&name).is_none()
            {
                let unknown =
                    GpuKind { name: name.clone(), memory_mib: 0, price_per_hour: 0.0, watts: 0 };
                add_kind(found, row.line, default_kind(&name).unwrap_or(unknown))?;
            }
            let cluster = self.found.as_ref().unwrap_or(self.context.cluster);
            let kind = cluster.kind(&name).ok_or_else(|| {
                let known = self.context.cluster.kinds.iter().map(|kind| kind.name.as_str());
                InputError::unknown(row.line, Column::Kinds.name(), &name, known)
            })?;
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        Ok(kinds)
    }
}

/// How it may be treated.
fn read_rules(row: &TraceRow<'_>, job: &mut Job) -> Result<(), InputError> {
    let i32s = i64::from(i32::MIN)..=i64::from(i32::MAX);
    job.priority = row.whole(Column::Priority, i32s)?.unwrap_or(0) as i32;
    if let Some(text) = row.get(Column::Weight) {
        let weight: Option<f64> = text.parse().ok();
        job.weight = weight
            .filter(|weight| *weight > 0.0 && *weight <= 1e9)
            .ok_or_else(|| row.wrong(Column::Weight, "a number, more than 0"))?;
    }
    if let Some(name) = row.get(Column::Class) {
        job.class = class_named(name).ok_or_else(|| {
            let names = CLASSES.iter().map(|(name, _)| *name);
            let error = InputError::unknown(row.line, Column::Class.name(), name, names.clone());
            InputError { nearest: nearest(name, names).map(str::to_owned), ..error }
        })?;
    }
    job.preemptible = match row.get(Column::Preemptible) {
        None | Some("true" | "1" | "yes") => true,
        Some("false" | "0" | "no") => false,
        Some(_) => return Err(row.wrong(Column::Preemptible, "`true` or `false`")),
    };
    job.want.across_kinds = match row.get(Column::AcrossKinds) {
        Some("true" | "1" | "yes") => true,
        None | Some("false" | "0" | "no") => false,
        Some(_) => return Err(row.wrong(Column::AcrossKinds, "`true` or `false`")),
    };
    if let Some(retries) = row.whole(Column::RetriesMax, 0..=i64::from(u16::MAX))? {
        job.retries_max = retries as u16;
    }
    job.group = row.whole(Column::Group, 0..=i64::from(u32::MAX))?.map(|id| GroupId(id as u32));
    job.declared = row.steps(Column::Declared)?;
    job.labels = read_labels(row)?;
    if let Some(name) = row.get(Column::BatchMode) {
        let names = BatchMode::ALL.iter().map(|mode| mode.name());
        job.batch_mode = BatchMode::named(name)
            .ok_or_else(|| InputError::unknown(row.line, Column::BatchMode.name(), name, names))?;
    }
    Ok(())
}

/// With which jobs it may share a GPU.
fn read_labels(row: &TraceRow<'_>) -> Result<Option<Box<Labels>>, InputError> {
    let name = |column: Column| match row.get(column) {
        Some(name) if !Labels::is_name(name) => Err(row.wrong(column, Labels::NAME)),
        found => Ok(found),
    };
    let (affinity, anti) = (name(Column::Affinity)?, name(Column::AntiAffinity)?);
    Ok(Labels::of(affinity, anti, name(Column::Exclusion)?))
}

/// When it may run, and until when that is worth anything.
fn read_times(row: &TraceRow<'_>, job: &mut Job) -> Result<(), InputError> {
    job.not_before = row.seconds(Column::NotBefore)?.map(Time::from_secs_f64);
    job.run_max = row.seconds(Column::RunMax)?.map(Span::from_secs_f64);
    job.min_run = Span::from_secs_f64(row.seconds(Column::MinRun)?.unwrap_or(0.0));
    if let Some(deadline) = row.seconds(Column::Deadline)? {
        if row.get(Column::Value).is_some() {
            return Err(row.wrong(Column::Deadline, "either `deadline_s` or `value`, not both"));
        }
        job.value = vec![(Time::from_secs_f64(deadline), 1.0)];
    }
    for item in row.list(Column::Value) {
        let expected =
            "deadlines and what meeting them is worth, as `3600:10|7200:5`, times ascending";
        let pair = item.split_once(':').and_then(|(time, value)| {
            let time = time.trim().parse().ok().filter(|time| (0.0..=1e10).contains(time))?;
            let value: f64 = value.trim().parse().ok()?;
            value.is_finite().then_some((Time::from_secs_f64(time), value))
        });
        let pair = pair.filter(|(time, _)| job.value.last().is_none_or(|last| last.0 < *time));
        job.value.push(pair.ok_or_else(|| row.wrong(Column::Value, expected))?);
    }
    Ok(())
}

/// The names of classes.
pub(crate) const CLASSES: [(&str, Class); 3] = [
    ("guaranteed", Class::Guaranteed),
    ("best-effort", Class::BestEffort),
    ("opportunistic", Class::Opportunistic),
];

/// The class of that name.
pub(crate) fn class_named(name: &str) -> Option<Class> {
    CLASSES.iter().find(|(known, _)| *known == name).map(|(_, class)| *class)
}
