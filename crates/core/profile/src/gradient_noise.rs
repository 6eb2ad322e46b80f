//! The gradient noise scale from what data-parallel workers see: the batch at which noise and signal are alike.
//!
//! Each of several workers has a gradient of a small batch, and all together have that of the large one. The difference
//! between the two squared lengths tells how much of them is noise (McCandlish et al. 2018; KungFu, OSDI 2020). Both
//! estimates vary much from step to step and are averaged before they are divided.

/// The weight of the past that KungFu's optimiser uses.
pub const ALPHA: f64 = 0.9;

/// Batches and squared lengths of gradients of one step.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Samples of one worker.
    pub small_batch: f64,
    /// Samples of all workers.
    pub large_batch: f64,
    /// The squared length of one worker's gradient; the mean over workers.
    pub small_squared: f64,
    /// The squared length of the mean gradient.
    pub large_squared: f64,
}

impl Gradients {
    /// Whether anything can be told: two different batches and lengths that are numbers.
    fn is_sound(&self) -> bool {
        let lengths = self.small_squared.is_finite() && self.large_squared.is_finite();
        lengths && self.small_batch > 0.0 && self.large_batch > self.small_batch
    }

    /// The squared length of the true gradient; one step's estimate may be below zero.
    pub fn signal(&self) -> Option<f64> {
        let weighted =
            self.large_batch * self.large_squared - self.small_batch * self.small_squared;
        self.is_sound().then(|| weighted / (self.large_batch - self.small_batch))
    }

    /// The sum of the variances of the gradient of one sample.
    pub fn noise(&self) -> Option<f64> {
        let inverse = 1.0 / self.small_batch - 1.0 / self.large_batch;
        self.is_sound().then(|| (self.small_squared - self.large_squared) / inverse)
    }
}

/// The noise scale over many steps.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct NoiseScale {
    alpha: f64,
    /// Averages of signal and noise.
    averages: Option<(f64, f64)>,
}

impl NoiseScale {
    /// Nothing seen yet; `alpha` is the weight of the past, from 0 to below 1.
    pub fn new(alpha: f64) -> NoiseScale {
        NoiseScale { alpha: alpha.clamp(0.0, 0.999_999), averages: None }
    }

    /// Takes note of a step; one that tells nothing changes nothing.
    pub fn observe(&mut self, step: &Gradients) {
        let (Some(signal), Some(noise)) = (step.signal(), step.noise()) else { return };
        let mixed = |old: f64, new: f64| self.alpha * old + (1.0 - self.alpha) * new;
        // The first step stands for all before it, so that a short history is not drawn to zero.
        let (s, n) = self.averages.unwrap_or((signal, noise));
        self.averages = Some((mixed(s, signal), mixed(n, noise)));
    }

    /// The batch at which noise and signal are alike; nothing before both are above zero.
    pub fn scale(&self) -> Option<f64> {
        let (signal, noise) = self.averages?;
        let scale = noise / signal;
        (signal > 0.0 && noise >= 0.0 && scale.is_finite()).then_some(scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What workers see if the true gradient has squared length `signal` and one sample adds variance `noise`.
    fn seen(signal: f64, noise: f64, small: f64, large: f64) -> Gradients {
        Gradients {
            small_batch: small,
            large_batch: large,
            small_squared: signal + noise / small,
            large_squared: signal + noise / large,
        }
    }

    #[test]
    fn signal_and_noise_are_found_again_from_two_batches() {
        let step = seen(4.0, 1000.0, 32.0, 256.0);
        assert!((step.signal().unwrap() - 4.0).abs() < 1e-9);
        assert!((step.noise().unwrap() - 1000.0).abs() < 1e-9);
        let mut scale = NoiseScale::new(ALPHA);
        scale.observe(&step);
        assert!((scale.scale().unwrap() - 250.0).abs() < 1e-9);
    }

    #[test]
    fn averages_follow_a_change_by_the_weight_of_the_past() {
        let mut scale = NoiseScale::new(0.9);
        scale.observe(&seen(1.0, 100.0, 8.0, 64.0));
        scale.observe(&seen(2.0, 100.0, 8.0, 64.0));
        // 0.9 * 1 + 0.1 * 2 of signal, noise as before.
        assert!((scale.scale().unwrap() - 100.0 / 1.1).abs() < 1e-9);
    }

    #[test]
    fn one_worker_alone_or_nonsense_tells_nothing() {
        let mut scale = NoiseScale::new(0.6);
        scale.observe(&seen(1.0, 100.0, 64.0, 64.0));
        scale.observe(&Gradients { small_squared: f64::NAN, ..seen(1.0, 1.0, 8.0, 64.0) });
        scale.observe(&Gradients { small_batch: 0.0, ..seen(1.0, 1.0, 8.0, 64.0) });
        assert_eq!(scale.scale(), None);
        // A gradient that is all noise has no scale.
        scale.observe(&Gradients { large_squared: 0.0, ..seen(0.0, 100.0, 8.0, 64.0) });
        assert_eq!(scale.scale(), None);
    }
}
