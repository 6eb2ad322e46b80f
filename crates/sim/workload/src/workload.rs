//! The jobs of a run, with the truth about each.

use crate::reference::Reference;
use crate::tells::TrainingSignals;
use crate::tenant_ids::TenantIds;
use std::sync::Arc;
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, Job, JobId, Span, Tenants, Time, Work};

/// One job, and what only the simulated world knows about it.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceJob {
    /// What its user asked for.
    pub job: Arc<Job>,
    /// How much work it really is.
    pub work: Work,
    /// How much of it is done when it fails by its own fault.
    pub fails_at: Option<Work>,
    /// Its batch sizes over its life, by the part of its work that is done; empty for the profile's own throughout.
    pub batches: Box<[BatchPhase]>,
    /// What it tells of its training, besides how fast it is. Boxed, because few jobs do and there may be millions.
    pub tells: Option<Box<TrainingSignals>>,
}

impl TraceJob {
    /// A job that does not fail and keeps its batch.
    pub fn new(job: impl Into<Arc<Job>>, work: Work) -> TraceJob {
        TraceJob { job: job.into(), work, fails_at: None, batches: Box::default(), tells: None }
    }

    /// The phase it is in when so much is done; `None` before the first.
    pub fn phase(&self, done: Work) -> Option<usize> {
        self.batches.partition_point(|phase| phase.begins(self.work).0 <= done.0).checked_sub(1)
    }
}

/// From a part of a job's work on, its batch size.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct BatchPhase {
    /// The part of the work that is done when it begins, from 0 to below 1; phases come in ascending order.
    pub from: f64,
    /// The batch size, as the model's profile counts it.
    pub batch: u32,
}

impl BatchPhase {
    /// The work done when it begins.
    pub fn begins(&self, work: Work) -> Work {
        Work(self.from * work.0)
    }
}

/// The jobs of a run. Sorted by submission; the id of each is its index.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is called in reports.
    pub name: String,
    /// The jobs, by [`JobId`].
    pub jobs: Vec<TraceJob>,
    /// The tenants they belong to.
    pub tenants: Tenants,
    /// The models they train.
    pub catalog: Catalog,
    /// Their names outside, by [`JobId`]; empty when each is its number.
    pub labels: Vec<String>,
}

impl Workload {
    /// A workload without jobs.
    pub fn empty(name: &str) -> Workload {
        Workload {
            name: name.to_owned(),
            jobs: Vec::new(),
            tenants: Tenants::default(),
            catalog: Catalog::default(),
            labels: Vec::new(),
        }
    }

    /// The same jobs with tenants that were declared elsewhere; those that are not declared are added by name.
    pub fn owned_by(mut self, mut declared: Tenants) -> Workload {
        let mut known = TenantIds::of(&declared);
        let own = self.tenants.iter();
        let ids: Vec<_> =
            own.map(|(_, tenant)| known.intern(&mut declared, &tenant.name)).collect();
        for one in &mut self.jobs {
            let job = Arc::make_mut(&mut one.job);
            job.tenant = ids[job.tenant.index()];
        }
        self.tenants = declared;
        self
    }

    /// What a job is called outside.
    pub fn label(&self, job: JobId) -> String {
        match self.labels.get(job.index()) {
            Some(label) => label.clone(),
            None => job.0.to_string(),
        }
    }

    /// The time from the first submission to the last.
    pub fn span(&self) -> Span {
        let at = |job: Option<&TraceJob>| job.map_or(Time::ZERO, |job| job.job.submitted);
        at(self.jobs.last()).since(at(self.jobs.first()))
    }

    /// How long each job runs undisturbed as its user asked for it, packed on its reference type; by [`JobId`].
    pub fn ideal(&self, cluster: &Cluster) -> Vec<Span> {
        let reference = Reference::new(&self.catalog, cluster);
        let seconds = |one: &TraceJob| reference.seconds_for(one, one.work);
        self.jobs.iter().map(|one| Span::from_secs_f64(seconds(one))).collect()
    }

    /// The part of the cluster that the jobs need on the average between the first submission and the last.
    ///
    /// A job counts by its GPU time on its reference type against the GPUs of the cluster, each type weighed by
    /// the model's speed there; 1 means that arrivals just fill the cluster. Infinite when all come at once.
    pub fn offered_load(&self, cluster: &Cluster) -> f64 {
        let reference = Reference::new(&self.catalog, cluster);
        let demand: f64 = self
            .jobs
            .iter()
            .map(|one| reference.demand(&one.job, reference.seconds_for(one, one.work)))
            .sum();
        demand / self.span().as_secs_f64()
    }
}
