//! Chance from a seed, a stream for each purpose.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::f64::consts::PI;

/// A stream of draws.
#[derive(Clone, Debug)]
pub(crate) struct Draws(ChaCha12Rng);

impl Draws {
    /// The stream of a seed and a purpose.
    pub fn new(seed: u64, purpose: u64) -> Draws {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(purpose);
        Draws(random)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// A whole number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        (self.unit() * count as f64) as usize
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 - u lies in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.unit())
    }

    /// Standard normal, by Box and Muller; the second value is not kept.
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(2.0 * PI * self.unit())
    }

    /// Gamma with mean 1 and this coefficient of variation (Marsaglia and Tsang 2000).
    pub fn gamma(&mut self, variation: f64) -> f64 {
        let shape = 1.0 / (variation * variation);
        if shape < 1.0 {
            // A shape above 1 times a power of a uniform draw, as they say in section 6.
            let raised = self.gamma_of(shape + 1.0);
            let power = libm::pow(1.0 - self.unit(), 1.0 / shape);
            return raised * power / shape;
        }
        self.gamma_of(shape) / shape
    }

    fn gamma_of(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        // A draw is accepted with a probability above 0.95, so a hundred rejections do not happen.
        for _ in 0..100 {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if libm::log(1.0 - self.unit()) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
        d
    }

    /// An index by cumulated weights, the last of which is the sum.
    pub fn index(&mut self, cumulated: &[f64]) -> usize {
        let at = self.unit() * cumulated.last().copied().unwrap_or(0.0);
        cumulated.partition_point(|weight| *weight <= at).min(cumulated.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_moments_of_their_laws() {
        let mut draws = Draws::new(1, 1);
        let mut moments = |law: &mut dyn FnMut(&mut Draws) -> f64| {
            let drawn: Vec<f64> = (0..100_000).map(|_| law(&mut draws)).collect();
            let mean = drawn.iter().sum::<f64>() / 1e5;
            (mean, drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5)
        };
        let near = |(mean, variance): (f64, f64), (m, v): (f64, f64)| {
            assert!(
                (mean - m).abs() < 0.03 && (variance / v - 1.0).abs() < 0.1,
                "{mean} {variance}"
            );
        };
        near(moments(&mut |draws| draws.exponential()), (1.0, 1.0));
        near(moments(&mut |draws| draws.normal()), (0.0, 1.0));
        near(moments(&mut |draws| draws.gamma(0.5)), (1.0, 0.25));
        near(moments(&mut |draws| draws.gamma(2.0)), (1.0, 4.0));
    }
}
