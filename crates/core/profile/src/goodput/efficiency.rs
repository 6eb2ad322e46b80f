//! What a batch is worth, by the noise of the gradient.

/// What was measured of the gradient at one moment of a training.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Noise {
    /// The squared norm of the gradient.
    pub sqr: f64,
    /// The variance of the gradient at the first batch size.
    pub var: f64,
}

/// Statistical efficiency by batch size (Pollux, section 3.1).
///
/// With the gradient noise scale `phi = M0 * var / sqr`, one sample at batch `M` is worth `(phi + M0) / (phi + M)` of
/// a sample at the first batch `M0`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Efficiency {
    first: f64,
    sqr: f64,
    var: f64,
}

impl Efficiency {
    /// For a job whose first batch size is `first`.
    ///
    /// Nothing that is not a positive number says anything about noise: without noise a larger batch is worth no more
    /// than the first, and that is what is believed of a job that has reported none.
    pub fn new(first: u32, noise: Option<Noise>) -> Efficiency {
        let usable = |value: f64| if value.is_finite() && value > 0.0 { value } else { 0.0 };
        let (sqr, var) = noise.map_or((0.0, 0.0), |noise| (usable(noise.sqr), usable(noise.var)));
        // A gradient that is nothing but noise, or nothing at all: no batch is too large, or none is worth more.
        let sqr = if sqr == 0.0 && var == 0.0 { 1.0 } else { sqr };
        Efficiency { first: f64::from(first.max(1)), sqr, var }
    }

    /// The same from the gradient noise scale, in samples, as jobs report it.
    pub fn of_scale(first: u32, scale: Option<f64>) -> Efficiency {
        let noise = |scale: f64| Noise { sqr: 1.0, var: scale / f64::from(first.max(1)) };
        Efficiency::new(first, scale.map(noise))
    }

    /// The first batch size.
    pub fn first(&self) -> f64 {
        self.first
    }

    /// The gradient noise scale phi in samples; infinite where the gradient is all noise.
    pub fn noise_scale(&self) -> f64 {
        if self.sqr > 0.0 { self.first * self.var / self.sqr } else { f64::INFINITY }
    }

    /// What an iteration at a batch is worth in iterations at the first batch: AdaScale's gain, by which the learning
    /// rate is multiplied.
    ///
    /// It lies between 1 and the ratio of the batches.
    pub fn gain(&self, batch: f64) -> f64 {
        let scale = batch / self.first;
        (self.var + self.sqr) / (self.var / scale + self.sqr)
    }

    /// What a sample at a batch is worth in samples at the first batch: EFFICIENCY(M) of section 3.1.
    pub fn at(&self, batch: f64) -> f64 {
        self.gain(batch) * self.first / batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sqr: f64, var: f64) -> Efficiency {
        Efficiency::new(100, Some(Noise { sqr, var }))
    }

    #[test]
    fn efficiency_is_the_ratio_of_noise_scales() {
        let efficiency = of(2.0, 6.0);
        assert_eq!(efficiency.noise_scale(), 300.0);
        let by_scale = Efficiency::of_scale(100, Some(300.0));
        assert!((by_scale.gain(800.0) - efficiency.gain(800.0)).abs() < 1e-12);
        for batch in [100.0, 150.0, 400.0, 6400.0] {
            let expected = (300.0 + 100.0) / (300.0 + batch);
            assert!((efficiency.at(batch) - expected).abs() < 1e-12, "{batch}");
        }
    }

    #[test]
    fn the_gain_lies_between_one_and_the_growth_of_the_batch() {
        for (sqr, var) in [(1.0, 0.0), (1.0, 1e-9), (1.0, 1.0), (1.0, 1e9), (0.0, 1.0)] {
            let efficiency = of(sqr, var);
            assert!((efficiency.gain(100.0) - 1.0).abs() < 1e-12);
            let gain = efficiency.gain(800.0);
            assert!((1.0..=8.0 + 1e-9).contains(&gain), "{sqr} {var}: {gain}");
        }
        assert_eq!(of(1.0, 0.0).gain(800.0), 1.0);
        assert_eq!(of(0.0, 1.0).gain(800.0), 8.0);
    }

    #[test]
    fn noise_that_is_no_number_is_no_noise() {
        for noise in [None, Some(Noise { sqr: f64::NAN, var: -1.0 })] {
            let efficiency = Efficiency::new(100, noise);
            assert_eq!(efficiency.gain(800.0), 1.0);
            assert_eq!(efficiency.at(800.0), 0.125);
        }
    }
}
