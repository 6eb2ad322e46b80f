//! What is true in a world, and known to neither the engine nor the policy inside it.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use trainyard_profile::{ChangeCost, Pace, Speeds, SuspendCost};
use trainyard_types::{Config, JobId, Rate, Sample, Span, Traffic, Work};
use trainyard_workload::TraceJob;
use trainyard_workload::tells::TrainingSignals;

/// How much work jobs really are, how fast they really run, and what moving them really costs.
pub trait Truth {
    /// A job of this world.
    fn job(&self, job: JobId) -> &TraceJob;

    /// How fast a job runs when so much is done, and until where that holds; nothing if it cannot be told.
    fn pace(&self, job: &TraceJob, on: &Config, done: Work) -> Option<Pace>;

    /// What an iteration of a job moves over links, where links are declared; by default nothing that is known.
    fn traffic(&self, _job: &TraceJob) -> Option<Traffic> {
        None
    }

    /// The part of its pace that a job keeps where its slowest link gives it so much bandwidth; by default all of it.
    fn kept_on_links(&self, _job: &TraceJob, _on: &Config, _pace: Rate, _mbps: f64) -> f64 {
        1.0
    }

    /// What a job that runs there would report of its iterations; by default nothing.
    fn sample(&self, _job: &TraceJob, _on: &Config, _done: Work) -> Sample {
        Sample::default()
    }

    /// What it costs to move a job: from nothing to start, to nothing to stop.
    fn change(&self, job: &TraceJob, from: Option<&Config>, to: Option<&Config>) -> ChangeCost;

    /// Whether a job's saved state is cut as its model was divided, so that a start elsewhere may have to cut it anew.
    fn is_planned(&self, _job: &TraceJob) -> bool {
        false
    }

    /// The time to cut its saved state anew, beside that of its start; by default none.
    fn recut(&self, _job: &TraceJob, _from: &Config, _to: &Config) -> Span {
        Span::ZERO
    }

    /// What it costs to put a job aside that has so much in its GPU's memory, and to bring it back.
    fn suspend(&self, _job: &TraceJob, _on: &Config, memory_mib: u64) -> SuspendCost {
        SuspendCost::by_driver(memory_mib)
    }
}

/// The truth of a workload: sizes from its trace, speeds and costs from its profiles.
pub(crate) struct Written<'a> {
    pub(crate) jobs: &'a [TraceJob],
    pub(crate) speeds: Arc<Speeds>,
}

/// A truth, and the jobs that are there where it does not list them.
pub(crate) struct Known<'a> {
    truth: &'a dyn Truth,
    here: Option<FxHashMap<JobId, TraceJob>>,
}

impl<'a> Known<'a> {
    /// A truth that lists all jobs.
    pub(crate) fn listed(truth: &'a dyn Truth) -> Known<'a> {
        Known { truth, here: None }
    }

    /// A truth that is told of jobs as they come and go.
    pub(crate) fn told(truth: &'a dyn Truth) -> Known<'a> {
        Known { truth, here: Some(FxHashMap::default()) }
    }

    pub(crate) fn come(&mut self, job: TraceJob) {
        if let Some(here) = &mut self.here {
            here.insert(job.job.id, job);
        }
    }

    pub(crate) fn gone(&mut self, job: JobId) {
        if let Some(here) = &mut self.here {
            here.remove(&job);
        }
    }
}

impl Truth for Known<'_> {
    fn job(&self, job: JobId) -> &TraceJob {
        match &self.here {
            Some(here) => &here[&job],
            None => self.truth.job(job),
        }
    }

    fn pace(&self, job: &TraceJob, on: &Config, done: Work) -> Option<Pace> {
        self.truth.pace(job, on, done)
    }

    fn traffic(&self, job: &TraceJob) -> Option<Traffic> {
        self.truth.traffic(job)
    }

    fn kept_on_links(&self, job: &TraceJob, on: &Config, pace: Rate, mbps: f64) -> f64 {
        self.truth.kept_on_links(job, on, pace, mbps)
    }

    fn sample(&self, job: &TraceJob, on: &Config, done: Work) -> Sample {
        self.truth.sample(job, on, done)
    }

    fn change(&self, job: &TraceJob, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.truth.change(job, from, to)
    }

    fn is_planned(&self, job: &TraceJob) -> bool {
        self.truth.is_planned(job)
    }

    fn recut(&self, job: &TraceJob, from: &Config, to: &Config) -> Span {
        self.truth.recut(job, from, to)
    }

    fn suspend(&self, job: &TraceJob, on: &Config, memory_mib: u64) -> SuspendCost {
        self.truth.suspend(job, on, memory_mib)
    }
}

impl Truth for Written<'_> {
    fn job(&self, job: JobId) -> &TraceJob {
        &self.jobs[job.index()]
    }

    fn pace(&self, job: &TraceJob, on: &Config, done: Work) -> Option<Pace> {
        self.speeds.pace(job.job.model, on, done)
    }

    fn traffic(&self, job: &TraceJob) -> Option<Traffic> {
        self.speeds.traffic(job.job.model)
    }

    fn kept_on_links(&self, job: &TraceJob, on: &Config, pace: Rate, mbps: f64) -> f64 {
        self.speeds.kept_on_links(job.job.model, on, pace, mbps)
    }

    fn sample(&self, job: &TraceJob, on: &Config, done: Work) -> Sample {
        let told = told(job, done);
        let Some(iteration) = self.speeds.iteration(job.job.model, on, done) else {
            return told;
        };
        Sample {
            step: Some(Span::from_secs_f64(iteration.seconds)),
            sync: Some(Span::from_secs_f64(iteration.sync)),
            batch: Some(iteration.split.batch),
            accumulation: Some(iteration.split.accumulated),
            noise: told.noise.or(iteration.noise),
            epoch: told.epoch.or(Some(iteration.epoch)),
            ..told
        }
    }

    fn change(&self, job: &TraceJob, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.speeds.change(job.job.model, from, to)
    }

    fn is_planned(&self, job: &TraceJob) -> bool {
        self.speeds.is_planned(job.job.model)
    }

    fn recut(&self, job: &TraceJob, from: &Config, to: &Config) -> Span {
        self.speeds.recut(job.job.model, Some(from), Some(to))
    }

    fn suspend(&self, _job: &TraceJob, _on: &Config, memory_mib: u64) -> SuspendCost {
        self.speeds.suspend(memory_mib)
    }
}

/// What a job tells of its training when so much is done.
fn told(job: &TraceJob, done: Work) -> Sample {
    let Some(tells) = &job.tells else { return Sample::default() };
    let report = TrainingSignals::report(done, job.work);
    let curve = tells.learning.filter(|_| report > 0);
    Sample {
        noise: tells.noise_at(done, job.work),
        loss: curve.map(|curve| 1.0 - curve.accuracy(report)),
        epoch: curve.map(|_| report),
        ..Sample::default()
    }
}
