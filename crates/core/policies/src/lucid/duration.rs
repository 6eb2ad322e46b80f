//! How long a job will run, learnt from those that ended: a sum of what is typical of its tenant, model, size and hour.
//!
//! Lucid's model is a generalised additive model with pairs (GA2M). This one is additive too, so that each part can be
//! read by itself, and is learnt job by job: what the parts so far leave unexplained goes to one after the other.

use crate::prelude::*;
use std::collections::BTreeMap;

/// What a job without any history is taken for (Lucid's code puts it in place of predictions below zero).
const DEFAULT: Span = Span::secs(1_000);
/// So many jobs more are needed before a part counts half of what it saw.
const SHRINK: f64 = 4.0;
/// Seconds of an hour and of a day.
const HOUR: u64 = 3_600;

/// A part of a job by which it may be like others.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Feature {
    Tenant(u32),
    Model(u32),
    Gpus(u32),
    Hour(u64),
}

/// A job that has not ended: what it is like, and since when it runs.
#[derive(Clone, Debug)]
struct Open {
    features: [Feature; 4],
    started: Option<Time>,
}

/// What was learnt. O(log n) for each job.
#[derive(Default)]
pub(super) struct Durations {
    open: BTreeMap<JobId, Open>,
    /// Number and sum of the logarithms of all lengths.
    all: (f64, f64),
    parts: BTreeMap<Feature, (f64, f64)>,
}

impl Durations {
    /// Takes note of what changed since the last decision.
    pub(super) fn look(&mut self, view: &View<'_>) {
        for &(job, at) in view.ended() {
            if let Some(open) = self.open.remove(&job)
                && let Some(started) = open.started
            {
                self.learn(&open.features, at.since(started));
            }
        }
        for job in view.changed().iter().filter_map(|job| view.job(*job)) {
            let open = self.open.entry(job.id()).or_insert_with(|| Open::new(job));
            if open.started.is_none() {
                open.started = job.state.last_start;
            }
        }
    }

    /// How long a job will run in all.
    pub(super) fn of(&self, job: JobRef<'_>) -> Span {
        if self.all.0 == 0.0 {
            return DEFAULT;
        }
        Span::from_secs_f64(libm::exp(self.predicted(&features(job)).clamp(0.0, 20.0)))
    }

    pub(super) fn forget(&mut self) {
        *self = Durations::default();
    }

    fn predicted(&self, features: &[Feature; 4]) -> f64 {
        let part = |feature: &Feature| {
            self.parts.get(feature).map_or(0.0, |(count, sum)| sum / (count + SHRINK))
        };
        self.all.1 / self.all.0.max(1.0) + features.iter().map(part).sum::<f64>()
    }

    fn learn(&mut self, features: &[Feature; 4], length: Span) {
        let seen = libm::log(length.as_secs_f64().max(1.0));
        self.all = (self.all.0 + 1.0, self.all.1 + seen);
        for feature in features {
            let rest = seen - self.predicted(features);
            let part = self.parts.entry(*feature).or_default();
            // A part is what its jobs leave unexplained beyond what it says of them already.
            let said = part.1 / (part.0 + SHRINK);
            *part = (part.0 + 1.0, part.1 + rest + said);
        }
    }
}

impl Open {
    fn new(job: JobRef<'_>) -> Open {
        Open { features: features(job), started: job.state.last_start }
    }
}

fn features(job: JobRef<'_>) -> [Feature; 4] {
    let spec = job.spec;
    let hour = spec.submitted.0 / Span::secs(HOUR).0 % 24;
    [
        Feature::Tenant(spec.tenant.0),
        Feature::Model(spec.model.0),
        Feature::Gpus(spec.want.gpus),
        Feature::Hour(hour),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(tenant: u32, gpus: u32) -> [Feature; 4] {
        [Feature::Tenant(tenant), Feature::Model(0), Feature::Gpus(gpus), Feature::Hour(0)]
    }

    #[test]
    fn a_tenant_whose_jobs_are_long_is_told_apart_from_one_whose_jobs_are_short() {
        let mut durations = Durations::default();
        for _ in 0..50 {
            durations.learn(&like(1, 1), Span::secs(100));
            durations.learn(&like(2, 1), Span::secs(10_000));
        }
        let seconds = |tenant| libm::exp(durations.predicted(&like(tenant, 1)));
        assert!((90.0..150.0).contains(&seconds(1)), "{}", seconds(1));
        assert!((7_000.0..11_000.0).contains(&seconds(2)), "{}", seconds(2));
        let unknown = seconds(3);
        assert!((500.0..2_000.0).contains(&unknown), "the mean of all: {unknown}");
    }

    #[test]
    fn parts_add_up_for_a_combination_that_was_never_seen() {
        let mut durations = Durations::default();
        for _ in 0..80 {
            durations.learn(&like(1, 1), Span::secs(100));
            durations.learn(&like(1, 8), Span::secs(1_000));
            durations.learn(&like(2, 1), Span::secs(1_000));
        }
        let unseen = libm::exp(durations.predicted(&like(2, 8)));
        assert!((4_000.0..20_000.0).contains(&unseen), "{unseen}");
    }
}
