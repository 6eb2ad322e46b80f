//! Beliefs as the truth of a world, and as they stand still while it goes on.

use crate::sizes::Sizes;
use std::sync::Arc;
use trainyard_framework::Beliefs;
use trainyard_profile::training::StepTime;
use trainyard_profile::{
    BatchLimits, Batches, ChangeCost, Features, HostTable, Monitored, Pace, PairSource, StageTimes,
    SuspendCost, UsageSource,
};
use trainyard_sim::Truth;
use trainyard_types::{Config, GpuType, Job, JobId, ModelId, Rate, Span, Work};
use trainyard_workload::TraceJob;

/// A world in which everything is as it is believed to be.
pub(crate) struct Believed<'a> {
    pub(crate) beliefs: Arc<dyn Beliefs>,
    pub(crate) sizes: &'a Sizes,
}

impl Truth for Believed<'_> {
    fn job(&self, job: JobId) -> &TraceJob {
        self.sizes.job(job)
    }

    fn pace(&self, job: &TraceJob, on: &Config, _done: Work) -> Option<Pace> {
        self.beliefs.rate(&job.job, on).map(|rate| Pace { rate, until: None })
    }

    fn change(&self, job: &TraceJob, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.beliefs.change(&job.job, from, to)
    }

    fn suspend(&self, job: &TraceJob, on: &Config, memory_mib: u64) -> SuspendCost {
        let believed = self.beliefs.suspend(&job.job, on, memory_mib);
        believed.unwrap_or_else(|| SuspendCost::by_driver(memory_mib))
    }
}

/// What policies are told in a forecast: what they are told now. A simulated run teaches nothing new.
#[derive(Clone)]
pub(crate) struct Frozen(pub(crate) Arc<dyn Beliefs>);

impl Beliefs for Frozen {
    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        self.0.rate(job, on)
    }

    fn rate_by(&self, job: &Job, on: &Config, source: PairSource) -> Option<Rate> {
        self.0.rate_by(job, on, source)
    }

    fn utilisation(&self, job: &Job, source: UsageSource) -> Option<f64> {
        self.0.utilisation(job, source)
    }

    fn monitored(&self, job: &Job, after: Span) -> Option<Monitored> {
        self.0.monitored(job, after)
    }

    fn features(&self, job: &Job) -> Option<&Features> {
        self.0.features(job)
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.0.change(job, from, to)
    }

    fn suspend(&self, job: &Job, on: &Config, memory_mib: u64) -> Option<SuspendCost> {
        self.0.suspend(job, on, memory_mib)
    }

    fn work(&self, job: &Job) -> Option<Work> {
        self.0.work(job)
    }

    fn skew(&self, job: &Job) -> Option<f64> {
        self.0.skew(job)
    }

    fn profiled(&self, job: &Job) -> Option<ModelId> {
        self.0.profiled(job)
    }

    fn version(&self) -> Option<u64> {
        Some(0)
    }

    fn batches(&self, job: &Job) -> Option<&Batches> {
        self.0.batches(job)
    }

    fn host_table(&self, job: &Job, gpus: u32) -> Option<&HostTable> {
        self.0.host_table(job, gpus)
    }

    fn batch_limits(&self, job: &Job, kind: GpuType) -> Option<BatchLimits> {
        self.0.batch_limits(job, kind)
    }

    fn trial(&self, job: &Job, on: &Config, local: u32) -> Option<StepTime> {
        self.0.trial(job, on, local)
    }

    fn period(&self, jobs: &[&Job], on: &Config) -> Option<f64> {
        self.0.period(jobs, on)
    }

    fn stages(&self, job: &Job, gpus: u32) -> Option<StageTimes> {
        self.0.stages(job, gpus)
    }

    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }
}
