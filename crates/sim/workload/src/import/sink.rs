//! Where readers put what they read: jobs that are kept, rows that are dropped, and what is to be said about them.

use super::report::{Count, ImportReport};
use super::{Compact, ImportContext, moment};
use crate::cluster::{default_kind, kind_name};
use crate::compact::CompactWorkload;
use crate::intake::Intake;
use crate::tenant_ids::TenantIds;
use crate::trace::Rows;
use crate::{BatchPhase, ReadError, TraceJob, Workload};
use smallvec::SmallVec;
use std::borrow::Cow;
use trainyard_diagnostic::InputError;
use trainyard_profile::ModelProfile;
use trainyard_types::{Cluster, GpuKind, GpuType, Job, JobId, ModelId, TenantId, Time, Want, Work};

/// Why a row gives no job.
pub(crate) enum Skip {
    /// It is left out and counted.
    Drop(Cow<'static, str>),
    /// It is wrong, and the import ends.
    Fault(InputError),
}

impl Skip {
    pub fn missing(field: &str) -> Skip {
        Skip::Drop(format!("`{field}` is missing").into())
    }

    pub fn because(reason: &'static str) -> Skip {
        Skip::Drop(Cow::Borrowed(reason))
    }
}

impl From<InputError> for Skip {
    fn from(fault: InputError) -> Skip {
        Skip::Fault(fault)
    }
}

/// One job on its way: what the row says about it.
pub(crate) struct Draft<'a> {
    /// Its name.
    pub id: Cow<'a, str>,
    /// The job; its id is filled in later.
    pub job: Job,
    /// Its work.
    pub work: Work,
    /// Its batches on the way.
    pub batches: Box<[BatchPhase]>,
}

impl<'a> Draft<'a> {
    /// A job that ran for so many seconds on so many GPUs; none and no time are reasons to drop it.
    pub fn new(
        id: impl Into<Cow<'a, str>>,
        submitted: f64,
        (gpus, seconds): (u32, f64),
    ) -> Result<Draft<'a>, Skip> {
        if gpus == 0 {
            return Err(Skip::because(NO_GPU));
        }
        let job = Job {
            want: Want::gpus(gpus),
            ..Job::simple(JobId(0), Time::from_secs_f64(submitted), gpus)
        };
        let draft = Draft { id: id.into(), job, work: Work(seconds), batches: Box::default() };
        if seconds < 0.0 {
            return Err(Skip::because("it ends before it starts"));
        }
        if seconds < 1e-6 {
            return Err(Skip::because("it ran for no time"));
        }
        Ok(draft)
    }
}

/// The reason to drop a row without GPUs.
pub(crate) const NO_GPU: &str = "it asks for no GPU";

/// Where readers put what they read.
pub(crate) struct Sink {
    workload: Workload,
    intake: Intake,
    cluster: Cluster,
    /// Whether a cluster was given, so that no type of GPU is added.
    is_closed: bool,
    tenants: TenantIds,
    pub report: ImportReport,
    /// Whether times are seconds since 1970, to be counted from the first submission.
    pub is_calendar: bool,
}

impl Sink {
    pub fn new(format: &'static str, context: ImportContext<'_>) -> Sink {
        let open = || Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
        let tenants = TenantIds::of(&context.tenants);
        let workload = Workload {
            catalog: context.catalog,
            tenants: context.tenants,
            ..Workload::empty(&context.name)
        };
        Sink {
            workload,
            intake: Intake::default(),
            cluster: context.cluster.cloned().unwrap_or_else(open),
            is_closed: context.cluster.is_some(),
            tenants,
            report: ImportReport { format: format.to_owned(), ..ImportReport::default() },
            is_calendar: false,
        }
    }

    /// Takes what a row gave.
    pub fn take(&mut self, line: u64, draft: Result<Draft<'_>, Skip>) -> Result<(), ReadError> {
        self.report.rows += 1;
        match draft {
            Ok(mut draft) => {
                // Work of the generic model is what a whole GPU does in a second.
                draft.work.0 *= f64::from(draft.job.want.permille) / 1000.0;
                let job =
                    TraceJob { batches: draft.batches, ..TraceJob::new(draft.job, draft.work) };
                // `|` separates names in lists of our own format.
                let id = match draft.id.contains('|') {
                    true => Cow::Owned(draft.id.replace('|', "/")),
                    false => draft.id,
                };
                if self.intake.add(line, &id, job).is_err() {
                    self.drop(line, "an earlier row has the same id".into());
                }
                Ok(())
            }
            Err(Skip::Drop(reason)) => {
                self.drop(line, reason);
                Ok(())
            }
            Err(Skip::Fault(fault)) => Err(fault.into()),
        }
    }

    fn drop(&mut self, line: u64, reason: Cow<'static, str>) {
        Count::add(&mut self.report.dropped, &reason, line);
    }

    /// Notes that a field which would have helped is not there.
    pub fn note_missing(&mut self, line: u64, field: &str) {
        Count::add(&mut self.report.missing, field, line);
    }

    /// Notes how a job ended.
    pub fn note_end(&mut self, line: u64, state: &str) {
        // A field of free text must not grow the report without bound.
        let known = self.report.ends.iter().any(|end| end.what == state);
        let state = if known || self.report.ends.len() < 32 { state } else { "other" };
        Count::add(&mut self.report.ends, state, line);
    }

    /// The tenant of that name, added if it is new.
    pub fn tenant(&mut self, name: &str) -> TenantId {
        self.tenants.intern(&mut self.workload.tenants, name)
    }

    /// The types of GPU of these names: those of the cluster if one was given, or else new ones.
    ///
    /// A row none of whose types is there is dropped: it can never run.
    pub fn kinds<'a>(
        &mut self,
        (line, field): (u64, &str),
        names: impl Iterator<Item = &'a str>,
    ) -> Result<SmallVec<[GpuType; 4]>, Skip> {
        let mut kinds = SmallVec::new();
        let mut is_asked = false;
        for name in names {
            is_asked = true;
            let name = kind_name(line, field, name)?;
            let kind = match self.cluster.kind(&name) {
                Some(kind) => kind,
                None if self.is_closed => continue,
                None => self.add_kind(line, &name)?,
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if is_asked && kinds.is_empty() {
            return Err(Skip::because("the cluster has no type of GPU that it accepts"));
        }
        Ok(kinds)
    }

    fn add_kind(&mut self, line: u64, name: &str) -> Result<GpuType, InputError> {
        let unknown =
            || GpuKind { name: name.to_owned(), memory_mib: 0, price_per_hour: 0.0, watts: 0 };
        let kind = default_kind(name).unwrap_or_else(unknown);
        crate::cluster::add_kind(&mut self.cluster, line, kind)
    }

    /// Without a cluster, the type on which the authors of the trace measured is the reference.
    pub fn measured_on(&mut self, kind: &str) {
        if !self.is_closed && self.cluster.kinds.is_empty() {
            // The first of a list without any cannot be one too many.
            let _ = self.add_kind(0, kind);
        }
    }

    /// The model of that name, if it is known.
    pub fn model(&self, name: &str) -> Option<ModelId> {
        self.workload.catalog.find(name)
    }

    /// Adds a model that the trace brings along.
    pub fn add_model(&mut self, profile: ModelProfile) -> ModelId {
        self.workload.catalog.add(profile)
    }

    /// The catalog, the tenants and the cluster as they are now, for readers that build whole workloads.
    pub fn ground(&self) -> (&Workload, &Cluster, bool) {
        (&self.workload, &self.cluster, self.is_closed)
    }

    /// Takes a whole workload in place of single jobs.
    pub fn take_whole(&mut self, workload: Workload) {
        self.report.rows = workload.jobs.len() as u64;
        self.tenants = TenantIds::of(&workload.tenants);
        self.intake = Intake::of(&workload);
        self.workload = Workload { jobs: Vec::new(), labels: Vec::new(), ..workload };
    }

    /// Takes the rows of our own formats, with the cluster that has the types they name if none was given.
    pub fn take_rows(&mut self, rows: Rows) {
        self.report.rows = rows.intake.len() as u64;
        self.tenants = TenantIds::of(&rows.tenants);
        (self.workload.catalog, self.workload.tenants) = (rows.catalog, rows.tenants);
        self.intake = rows.intake;
        self.cluster = rows.found.unwrap_or_else(|| self.cluster.clone());
    }

    /// Numbers the jobs and completes the report, but for what the jobs look like.
    pub fn finish(self) -> Result<Compact, ReadError> {
        let Sink { workload, intake, cluster, mut report, is_calendar, .. } = self;
        let (mut jobs, labels) = intake.finish_compact()?;
        let first = jobs.submitted(0).unwrap_or(Time::ZERO);
        let last = jobs.len().checked_sub(1).and_then(|last| jobs.submitted(last));
        let text = |time: Time| match is_calendar {
            true => moment::text(time.as_secs_f64()),
            false => format!("{} s", time.as_secs_f64()),
        };
        if let Some(last) = last {
            (report.first, report.last) = (text(first), text(last));
        }
        if report.time_zone.is_empty() {
            report.time_zone =
                if is_calendar { "UTC" } else { "none: times are seconds" }.to_owned();
        }
        if is_calendar {
            jobs.count_from(first);
        }
        report.kept = jobs.len() as u64;
        let Workload { name, tenants, catalog, .. } = workload;
        let workload = CompactWorkload { name, jobs, tenants, catalog, labels };
        Ok(Compact { workload, cluster, report })
    }
}
