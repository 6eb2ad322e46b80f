//! What policies are told: true speeds, and sizes with a stated error.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_framework::Beliefs;
use trainyard_profile::training::StepTime;
use trainyard_profile::{BatchLimits, Batches, ChangeCost, Speeds};
use trainyard_types::{Config, GpuType, Job, Rate, Work};
use trainyard_workload::Workload;

/// Beliefs of a simulated run.
#[derive(Clone)]
pub(crate) struct Estimates {
    speeds: Arc<Speeds>,
    work: Vec<f64>,
}

impl Estimates {
    /// Sizes are the truth times a log-normal factor of median 1, drawn once for each job.
    pub(crate) fn new(
        workload: &Workload,
        speeds: Arc<Speeds>,
        error: f64,
        seed: u64,
    ) -> Estimates {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        rng.set_stream(u64::MAX);
        let work = workload.jobs.iter().map(|one| {
            // Whoever declared a size may err as much as whoever estimates one.
            let known = one.job.declared.unwrap_or(one.work).0;
            if error == 0.0 { known } else { known * libm::exp(error * normal(&mut rng)) }
        });
        Estimates { work: work.collect(), speeds }
    }
}

impl Beliefs for Estimates {
    fn version(&self) -> Option<u64> {
        Some(0)
    }

    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }

    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        if on.batch.is_none() && job.want.batch.is_some() && self.speeds.follows_batch(job.model) {
            let own = Config { batch: job.want.batch, ..on.clone() };
            return self.speeds.rate(job.model, &own);
        }
        self.speeds.rate(job.model, on)
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.speeds.change(job.model, from, to)
    }

    fn skew(&self, job: &Job) -> Option<f64> {
        self.speeds.skew(job.model)
    }

    fn batches(&self, job: &Job) -> Option<&Batches> {
        self.speeds.batches(job.model)
    }

    fn iteration_seconds(&self, job: &Job, on: &Config, accumulated_least: u32) -> Option<f64> {
        let own = Config { batch: Some(job.want.batch?), ..on.clone() };
        self.speeds.iteration_seconds(job.model, &own, accumulated_least)
    }

    fn iterations_ahead(&self, job: &Job, done: Work) -> Option<f64> {
        self.speeds.iterations_ahead(job.model, job.want.batch?, done)
    }

    fn batch_limits(&self, job: &Job, kind: GpuType) -> Option<BatchLimits> {
        self.speeds.batch_limits(job.model, kind)
    }

    fn trial(&self, job: &Job, on: &Config, local: u32) -> Option<StepTime> {
        self.speeds.pass(job.model, on, local)
    }

    fn work(&self, job: &Job) -> Option<Work> {
        self.work.get(job.id.index()).map(|work| Work(*work))
    }
}

/// A standard normal number by the method of Box and Muller.
fn normal(rng: &mut ChaCha12Rng) -> f64 {
    let uniform =
        |rng: &mut ChaCha12Rng| ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    let (a, b) = (uniform(rng), uniform(rng));
    libm::sqrt(-2.0 * libm::log(a)) * libm::cos(2.0 * std::f64::consts::PI * b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let sample: Vec<f64> = (0..20_000).map(|_| normal(&mut rng)).collect();
        let mean = sample.iter().sum::<f64>() / 20_000.0;
        let variance = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
