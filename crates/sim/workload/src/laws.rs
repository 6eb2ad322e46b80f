//! Random draws that come out the same on every machine.
//!
//! Each purpose has a stream of its own, so that a change of one law leaves all other draws as they were.

use crate::spec::{DurationLaw, SizeLaw};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::f64::consts::PI;

/// A stream of random numbers for one purpose.
pub struct Draw(ChaCha12Rng);

impl Draw {
    /// The stream of a seed and a purpose.
    pub fn new(seed: u64, purpose: u64) -> Draw {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(purpose);
        Draw(random)
    }

    /// Uniform in [0, 1), in steps of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform in [`low`, `high`).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.uniform())
    }

    /// Standard normal, by Box and Muller; the second value is not kept.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * PI * self.uniform())
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.uniform() < share
    }

    /// An index drawn by cumulated weights, the last of which is the sum.
    pub fn index(&mut self, cumulated: &[f64]) -> usize {
        let sum = cumulated.last().copied().unwrap_or(0.0);
        let at = self.uniform() * sum;
        cumulated.partition_point(|weight| *weight <= at).min(cumulated.len().saturating_sub(1))
    }
}

/// Running sums.
pub fn cumulated(weights: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |weight: f64| {
        sum += weight;
        sum
    };
    weights.into_iter().map(add).collect()
}

impl DurationLaw {
    /// A duration in seconds.
    pub fn draw(&self, draw: &mut Draw) -> f64 {
        match self {
            DurationLaw::Gavel => {
                let exponent =
                    if draw.chance(0.8) { draw.between(1.5, 3.0) } else { draw.between(3.0, 4.0) };
                60.0 * libm::pow(10.0, exponent)
            }
            // Fitted to the 69,351 jobs of the ten public ElasticFlow clusters: median 10,537 s, sigma 1.21.
            DurationLaw::Elasticflow => log_normal(draw, 10_537.0, 1.21),
            // Fitted to 83,152 run times of Philly: median 1,186 s, sigma 2.18.
            DurationLaw::Philly => log_normal(draw, 1_186.0, 2.18),
            // Helios (Hu et al., SC 2021): GPU jobs with a median of 206 s and a mean of 6,652 s, which a log-normal has
            // with sigma = sqrt(2 ln(6,652 / 206)).
            DurationLaw::Helios => log_normal(draw, 206.0, 2.636),
            DurationLaw::LogNormal { median, sigma } => {
                log_normal(draw, median.as_secs_f64(), *sigma)
            }
            DurationLaw::Exponential { mean } => mean.as_secs_f64() * draw.exponential(),
            DurationLaw::Pareto { least, shape } => {
                least.as_secs_f64() * libm::exp(draw.exponential() / shape)
            }
            DurationLaw::Uniform { least, most } => {
                draw.between(least.as_secs_f64(), most.as_secs_f64())
            }
            DurationLaw::Fixed { length } => length.as_secs_f64(),
        }
    }
}

fn log_normal(draw: &mut Draw, median: f64, sigma: f64) -> f64 {
    median * libm::exp(sigma * draw.normal())
}

impl SizeLaw {
    /// Numbers of GPUs with their weights.
    pub fn weights(&self) -> Vec<(u32, f64)> {
        match self {
            SizeLaw::One => vec![(1, 1.0)],
            SizeLaw::Gavel => vec![(1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)],
            // Shares among the 69,351 jobs of the ten public ElasticFlow clusters.
            SizeLaw::Elasticflow => vec![
                (1, 0.8317),
                (2, 0.0214),
                (4, 0.0342),
                (8, 0.1011),
                (16, 0.0055),
                (32, 0.0051),
                (64, 0.0010),
            ],
            SizeLaw::Weights(weights) => weights.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Span;

    const COUNT: usize = 100_000;

    fn mean(mut next: impl FnMut() -> f64) -> f64 {
        (0..COUNT).map(|_| next()).sum::<f64>() / COUNT as f64
    }

    fn assert_near(found: f64, expected: f64, part: f64) {
        assert!((found / expected - 1.0).abs() < part, "{found} is not near {expected}");
    }

    #[test]
    fn draws_have_the_moments_of_their_laws() {
        let mut draw = Draw::new(7, 1);
        assert_near(mean(|| draw.uniform()), 0.5, 0.01);
        assert_near(mean(|| draw.exponential()), 1.0, 0.02);
        assert_near(1.0 + mean(|| draw.normal()), 1.0, 0.02);
        let square = mean(|| {
            let x = draw.normal();
            x * x
        });
        assert_near(square, 1.0, 0.03);
    }

    #[test]
    fn durations_have_the_means_of_their_laws() {
        let of = |law: DurationLaw| {
            let mut draw = Draw::new(7, 2);
            mean(|| law.draw(&mut draw))
        };
        // Mean of 10^U(a, b) is (10^b - 10^a) / ((b - a) ln 10).
        let power = |a: f64, b: f64| (10f64.powf(b) - 10f64.powf(a)) / ((b - a) * 10f64.ln());
        assert_near(
            of(DurationLaw::Gavel),
            60.0 * (0.8 * power(1.5, 3.0) + 0.2 * power(3.0, 4.0)),
            0.03,
        );
        assert_near(of(DurationLaw::Elasticflow), 10_537.0 * (1.21f64 * 1.21 / 2.0).exp(), 0.05);
        assert_near(of(DurationLaw::Exponential { mean: Span::secs(90) }), 90.0, 0.02);
        assert_near(of(DurationLaw::Pareto { least: Span::secs(10), shape: 3.0 }), 15.0, 0.03);
        assert_near(
            of(DurationLaw::Uniform { least: Span::secs(1), most: Span::secs(3) }),
            2.0,
            0.01,
        );
        assert_eq!(of(DurationLaw::Fixed { length: Span::secs(5) }), 5.0);
    }

    #[test]
    fn sizes_have_the_shares_of_their_law() {
        let weights = SizeLaw::Gavel.weights();
        let sums = cumulated(weights.iter().map(|(_, weight)| *weight));
        let mut draw = Draw::new(3, 3);
        let ones = mean(|| f64::from(draw.index(&sums) == 0));
        assert_near(ones, 0.7, 0.02);
    }

    #[test]
    fn a_stream_does_not_depend_on_another() {
        let (mut a, mut b) = (Draw::new(1, 1), Draw::new(1, 2));
        let first = b.uniform();
        let _ = a.uniform();
        assert_eq!(Draw::new(1, 2).uniform(), first);
        assert_ne!(Draw::new(1, 1).uniform(), first);
    }
}
