//! What policies are told: speeds and sizes, each with a stated error.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;
use trainyard_framework::Beliefs;
use trainyard_profile::training::StepTime;
use trainyard_profile::{
    BatchLimits, Batches, ChangeCost, Features, HostTable, Monitored, PairSource, Speeds,
    StageTimes, SuspendCost, UsageSource,
};
use trainyard_types::{Config, GpuType, Job, ModelId, Rate, Span, Traffic, Work};

/// Beliefs of a simulated run.
#[derive(Clone)]
pub(crate) struct Estimates {
    speeds: Arc<Speeds>,
    work: Vec<f64>,
    speed_errors: SpeedErrors,
}

/// By how much speeds that policies are told differ from the truth: a log-normal factor of median 1 for each model,
/// GPU type and number of GPUs. A profile errs for all jobs of its model alike.
#[derive(Copy, Clone, Debug)]
struct SpeedErrors {
    /// The standard deviation of the logarithm.
    error: f64,
    seed: u64,
}

impl SpeedErrors {
    fn factor(self, job: &Job, on: &Config) -> f64 {
        if self.error == 0.0 {
            return 1.0;
        }
        // One stream for each combination, so that a factor does not depend on what was asked before.
        let kinds = on.kinds.iter().fold(0u64, |sum, (kind, gpus)| {
            let one = (u64::from(kind.0) << 32) | u64::from(*gpus);
            sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(one + 1)
        });
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed ^ kinds.rotate_left(17));
        rng.set_stream(u64::from(job.model.0));
        libm::exp(self.error * normal(&mut rng))
    }
}

impl Estimates {
    /// Sizes are those known, by id, times a log-normal factor of median 1, drawn once for each job; the errors are
    /// those of sizes and of speeds.
    pub(crate) fn new(
        known: impl Iterator<Item = Work>,
        speeds: Arc<Speeds>,
        (error, speed_error): (f64, f64),
        seed: u64,
    ) -> Estimates {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        rng.set_stream(u64::MAX);
        // A declared size may err as much as an estimated one.
        let work = known.map(|Work(known)| {
            if error == 0.0 { known } else { known * libm::exp(error * normal(&mut rng)) }
        });
        let speed_errors = SpeedErrors { error: speed_error, seed };
        Estimates { work: work.collect(), speeds, speed_errors }
    }

    fn true_rate(&self, job: &Job, on: &Config, source: PairSource) -> Option<Rate> {
        if on.batch.is_none() && job.want.batch.is_some() && self.speeds.follows_batch(job.model) {
            let own = Config { batch: job.want.batch, ..on.clone() };
            return self.speeds.rate_by(source, job.model, &own);
        }
        self.speeds.rate_by(source, job.model, on)
    }
}

impl Beliefs for Estimates {
    fn version(&self) -> Option<u64> {
        Some(0)
    }

    fn learns(&self) -> bool {
        false
    }

    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }

    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        self.rate_by(job, on, PairSource::Measured)
    }

    fn rate_by(&self, job: &Job, on: &Config, source: PairSource) -> Option<Rate> {
        let true_rate = self.true_rate(job, on, source)?;
        Some(Rate(true_rate.0 * self.speed_errors.factor(job, on)))
    }

    fn traffic(&self, job: &Job) -> Option<Traffic> {
        self.speeds.traffic(job.model)
    }

    fn rate_on_links(&self, job: &Job, on: &Config, mbps: f64) -> Option<Rate> {
        let true_rate = self.speeds.rate_on_links(job.model, on, mbps)?;
        Some(Rate(true_rate.0 * self.speed_errors.factor(job, on)))
    }

    fn utilisation(&self, job: &Job, source: UsageSource) -> Option<f64> {
        self.speeds.utilisation(job.model, source)
    }

    fn monitored(&self, job: &Job, after: Span) -> Option<Monitored> {
        self.speeds.monitored(job.model, after)
    }

    fn features(&self, job: &Job) -> Option<&Features> {
        self.speeds.features(job.model)
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.speeds.change(job.model, from, to)
    }

    fn suspend(&self, _job: &Job, _on: &Config, memory_mib: u64) -> Option<SuspendCost> {
        Some(self.speeds.suspend(memory_mib))
    }

    fn skew(&self, job: &Job) -> Option<f64> {
        self.speeds.skew(job.model)
    }

    fn batches(&self, job: &Job) -> Option<&Batches> {
        self.speeds.batches(job.model)
    }

    fn host_table(&self, job: &Job, gpus: u32) -> Option<&HostTable> {
        self.speeds.host_table(job.model, gpus)
    }

    fn iteration_seconds(&self, job: &Job, on: &Config, accumulated_least: u32) -> Option<f64> {
        let own = Config { batch: Some(job.want.batch?), ..on.clone() };
        let seconds = self.speeds.iteration_seconds(job.model, &own, accumulated_least)?;
        Some(seconds / self.speed_errors.factor(job, on))
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

    fn period(&self, jobs: &[&Job], on: &Config) -> Option<f64> {
        let models: Vec<ModelId> = jobs.iter().map(|job| job.model).collect();
        // Speeds that are told with an error are told one by one.
        if self.speed_errors.error == 0.0 { self.speeds.period(&models, on) } else { None }
    }

    fn stages(&self, job: &Job, gpus: u32) -> Option<StageTimes> {
        self.speeds.stages(job.model, gpus)
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
    use trainyard_types::{JobId, ModelId, Time};

    #[test]
    fn a_speed_errs_by_model_type_and_number_alike_for_all_jobs_and_whenever_it_is_asked() {
        let job =
            |id, model| Job { model: ModelId(model), ..Job::simple(JobId(id), Time::ZERO, 1) };
        let on = |kind, gpus| Config::packed(GpuType(kind), gpus, 8);
        let errors = SpeedErrors { error: 0.5, seed: 3 };
        let one = errors.factor(&job(1, 4), &on(0, 2));
        assert_eq!(one, errors.factor(&job(2, 4), &on(0, 2)));
        for other in [errors.factor(&job(1, 5), &on(0, 2)), errors.factor(&job(1, 4), &on(1, 2))] {
            assert_ne!(one, other);
        }
        assert_ne!(one, errors.factor(&job(1, 4), &on(0, 4)));
        let logs: Vec<f64> =
            (0..2000).map(|model| libm::log(errors.factor(&job(1, model), &on(0, 1)))).collect();
        let deviation = libm::sqrt(logs.iter().map(|log| log * log).sum::<f64>() / 2000.0);
        assert!((deviation - 0.5).abs() < 0.03, "{deviation}");
        let none = SpeedErrors { error: 0.0, seed: 3 };
        assert_eq!(none.factor(&job(1, 4), &on(0, 2)), 1.0);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let sample: Vec<f64> = (0..20_000).map(|_| normal(&mut rng)).collect();
        let mean = sample.iter().sum::<f64>() / 20_000.0;
        let variance = sample.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
