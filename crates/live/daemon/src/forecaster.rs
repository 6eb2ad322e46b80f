//! Forecasts, as the daemon sees them: a fork of the engine goes in, expectations come out.
//!
//! The daemon does not know how that is done; the program that starts it hands over a [`Forecaster`], as it hands over
//! the factory of policies.

use std::sync::Arc;
use trainyard_api::forecast::WhatIfRow;
use trainyard_engine::Engine;
use trainyard_types::{End, Job, JobId, JobState, Span, Time};

/// Whether a run may go on; asked now and then.
pub type GoesOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// Simulates forks of the engine forward. Called from threads where waiting does not delay other requests.
pub trait Forecaster: Send + Sync {
    /// What is expected of all jobs of a moment under a policy.
    fn foresee(
        &self,
        fork: Engine,
        policy: &str,
        goes_on: GoesOn<'_>,
    ) -> Result<Arc<dyn Forecast>, String>;

    /// The same of a moment that is only supposed, such as one with jobs that were not submitted: nothing is learnt
    /// from what comes of it.
    fn suppose(
        &self,
        fork: Engine,
        policy: &str,
        goes_on: GoesOn<'_>,
    ) -> Result<Arc<dyn Forecast>, String>;

    /// What would come of a moment under a policy, within a horizon if one is given.
    fn compare(
        &self,
        fork: Engine,
        policy: &str,
        horizon: Option<Span>,
        goes_on: GoesOn<'_>,
    ) -> WhatIfRow;

    /// Jobs of which something was expected and whose end is waited for.
    fn awaited(&self) -> Vec<JobId>;

    /// Learns how jobs ended. How those that are `gone` ended is not known any more.
    fn learn(&self, ended: Vec<Ended>, gone: &[JobId]);

    /// What was learnt, as a text that survives a restart.
    fn kept(&self) -> String;
}

/// What is expected of all jobs of a moment.
pub trait Forecast: Send + Sync {
    /// What is expected of some jobs, with intervals that are right so much of the time. Jobs that are not of the
    /// moment are left out.
    fn etas(&self, jobs: &[JobId], confidence: f64) -> Vec<Eta>;
}

/// A length of time that is not known exactly, in seconds from the moment of the forecast.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Interval {
    /// The lower end of the interval.
    pub low: f64,
    /// The best guess.
    pub likely: f64,
    /// The upper end.
    pub high: f64,
}

/// What is expected of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Eta {
    /// The job.
    pub job: JobId,
    /// Its first start, if that is to come.
    pub starts: Option<Interval>,
    /// Its end.
    pub ends: Option<Interval>,
    /// What it rests on, or why nothing can be told.
    pub basis: String,
}

/// A job that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// What was asked for.
    pub job: Arc<Job>,
    /// As it was at its end.
    pub state: JobState,
    /// When.
    pub at: Time,
    /// How.
    pub end: End,
    /// The work it turned out to be over the work that was told, where it was told and done.
    pub over_told: Option<f64>,
}
