//! How long two inferences take beside each other, predicted from what is known of each alone.
//!
//! Abacus predicts such times with a small network (section 5); linear regression, neighbours and trees stand beside it,
//! and all are judged on pairs that they have not seen.

mod forest;
mod network;

use crate::zoo::MeasuredPair;

/// One observation: what is known, and what was measured. Positive targets are predicted by their logarithm.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What is known.
    pub known: Vec<f64>,
    /// What was measured, relative to alone.
    pub target: f64,
    /// Samples of one group are held out together.
    pub group: u32,
}

/// A way to predict.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Family {
    /// The geometric mean of all targets.
    Mean,
    /// Ridge regression.
    Linear,
    /// The mean of the nearest in standardised distance.
    Neighbours,
    /// Trees over samples drawn with replacement.
    Forest,
    /// Three hidden layers of 32, as Abacus has it.
    Network,
}

/// All of them.
pub const FAMILIES: [Family; 5] =
    [Family::Mean, Family::Linear, Family::Neighbours, Family::Forest, Family::Network];

/// Something that predicts the logarithm of a target.
pub(crate) trait Fitted {
    fn log(&self, known: &[f64]) -> f64;
}

/// Both directions of measured pairs: the slowdown of one beside the other.
///
/// Known are the logarithms of both times alone and of both batches, of the rate of samples of both, and which models
/// they are.
pub fn samples(pairs: &[MeasuredPair]) -> Vec<Sample> {
    let mut names: Vec<&str> = Vec::new();
    for pair in pairs {
        for name in [&pair.first.0, &pair.second.0] {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    names.sort_unstable();
    let describe = |one: &(String, u32, f64, f64)| {
        let batch = f64::from(one.1);
        vec![libm::log(one.2), libm::log(batch), libm::log(batch / one.2)]
    };
    let which = |one: &(String, u32, f64, f64)| -> Vec<f64> {
        names.iter().map(|name| if *name == one.0 { 1.0 } else { 0.0 }).collect()
    };
    let mut made = Vec::new();
    for (group, pair) in pairs.iter().enumerate() {
        for (one, other) in [(&pair.first, &pair.second), (&pair.second, &pair.first)] {
            let (a, b) = (describe(one), describe(other));
            let relative = vec![a[0] - b[0], f64::max(a[0] - b[0], 0.0), f64::min(a[2], b[2])];
            let known = [a, b, relative, which(one), which(other)].concat();
            made.push(Sample { known, target: one.3 / one.2, group: group as u32 });
        }
    }
    made
}

/// The error that is left to one who knows the truth of each configuration: two that were measured twice under the same
/// description, as a model beside itself is, differ by noise alone. The mean of the relative distances to their mean.
pub fn noise(pairs: &[MeasuredPair]) -> f64 {
    let same =
        pairs.iter().filter(|pair| pair.first.0 == pair.second.0 && pair.first.1 == pair.second.1);
    let errors: Vec<f64> = same
        .map(|pair| {
            let (a, b) = (pair.first.3, pair.second.3);
            (a - b).abs() / (a + b)
        })
        .collect();
    errors.iter().sum::<f64>() / errors.len().max(1) as f64
}

/// Mean relative error of a family on groups that were held out in turn, in as many parts.
pub fn held_out(family: Family, samples: &[Sample], parts: u32, seed: u64) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for part in 0..parts {
        let (test, train): (Vec<&Sample>, Vec<&Sample>) =
            samples.iter().partition(|one| one.group % parts == part);
        let fitted = fit(family, &train, seed);
        for one in test {
            sum += (libm::exp(fitted.log(&one.known)) / one.target - 1.0).abs();
            count += 1.0;
        }
    }
    sum / f64::max(count, 1.0)
}

/// Fits a family.
pub(crate) fn fit(family: Family, samples: &[&Sample], seed: u64) -> Box<dyn Fitted> {
    let scale = Scale::of(samples);
    let x: Vec<Vec<f64>> = samples.iter().map(|one| scale.scaled(&one.known)).collect();
    let y: Vec<f64> = samples.iter().map(|one| libm::log(one.target)).collect();
    let inner: Box<dyn Fitted> = match family {
        Family::Mean => Box::new(Flat(y.iter().sum::<f64>() / y.len().max(1) as f64)),
        Family::Linear => Box::new(linear(&x, &y)),
        Family::Neighbours => Box::new(Neighbours { x, y }),
        Family::Forest => Box::new(forest::Forest::grow(&x, &y, seed)),
        Family::Network => Box::new(network::Network::train(&x, &y, seed)),
    };
    Box::new(Scaled { scale, inner })
}

/// Mean and spread of each thing that is known.
struct Scale(Vec<(f64, f64)>);

impl Scale {
    fn of(samples: &[&Sample]) -> Scale {
        let width = samples.first().map_or(0, |one| one.known.len());
        let count = samples.len().max(1) as f64;
        let column = |at: usize| {
            let mean = samples.iter().map(|one| one.known[at]).sum::<f64>() / count;
            let spread = samples.iter().map(|one| (one.known[at] - mean) * (one.known[at] - mean));
            let spread = libm::sqrt(spread.sum::<f64>() / count);
            (mean, if spread > 1e-9 { spread } else { 1.0 })
        };
        Scale((0..width).map(column).collect())
    }

    fn scaled(&self, known: &[f64]) -> Vec<f64> {
        known.iter().zip(&self.0).map(|(value, (mean, spread))| (value - mean) / spread).collect()
    }
}

struct Scaled {
    scale: Scale,
    inner: Box<dyn Fitted>,
}

impl Fitted for Scaled {
    fn log(&self, known: &[f64]) -> f64 {
        self.inner.log(&self.scale.scaled(known))
    }
}

struct Flat(f64);

impl Fitted for Flat {
    fn log(&self, _: &[f64]) -> f64 {
        self.0
    }
}

struct Linear {
    weights: Vec<f64>,
    constant: f64,
}

impl Fitted for Linear {
    fn log(&self, known: &[f64]) -> f64 {
        self.constant + known.iter().zip(&self.weights).map(|(x, w)| x * w).sum::<f64>()
    }
}

/// Ridge regression by the normal equations; columns have mean 0, so the constant is the mean. O(width^3).
fn linear(x: &[Vec<f64>], y: &[f64]) -> Linear {
    let width = x.first().map_or(0, Vec::len);
    let constant = y.iter().sum::<f64>() / y.len().max(1) as f64;
    let mut rows = vec![vec![0.0; width + 1]; width];
    for (known, target) in x.iter().zip(y) {
        for (row, value) in rows.iter_mut().zip(known) {
            for (cell, other) in row.iter_mut().zip(known) {
                *cell += value * other;
            }
            row[width] += value * (target - constant);
        }
    }
    // Enough to make one-hot columns, which sum to a constant, solvable.
    rows.iter_mut().enumerate().for_each(|(at, row)| row[at] += 1.0);
    for at in 0..width {
        let pivot = rows[at][at];
        let base = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at] / pivot;
            row.iter_mut().zip(&base).for_each(|(cell, from)| *cell -= factor * from);
        }
    }
    let weights = rows.iter().enumerate().map(|(at, row)| row[width] / row[at]).collect();
    Linear { weights, constant }
}

struct Neighbours {
    x: Vec<Vec<f64>>,
    y: Vec<f64>,
}

/// How many neighbours are averaged.
const NEAREST: usize = 4;

impl Fitted for Neighbours {
    fn log(&self, known: &[f64]) -> f64 {
        let far = |one: &[f64]| one.iter().zip(known).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
        let mut near: Vec<(f64, usize)> =
            self.x.iter().enumerate().map(|(at, one)| (far(one), at)).collect();
        near.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let near = &near[..near.len().min(NEAREST)];
        near.iter().map(|(_, at)| self.y[*at]).sum::<f64>() / near.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zoo::pairs;

    /// Abacus reports 5.6 % for its network, 23.8 % for linear regression, on pairs of segments of its own.
    #[test]
    fn predictors_on_pairs_of_the_h200_that_they_have_not_seen() {
        let pairs = pairs();
        let samples = samples(&pairs);
        let noise = noise(&pairs);
        println!("noise of a model beside itself: {:.1} %", 100.0 * noise);
        let found = FAMILIES.map(|family| (family, held_out(family, &samples, 8, 1)));
        for (family, error) in found {
            println!("{family:?}: {:.1} %, {:.2} times the noise", 100.0 * error, error / noise);
        }
        let of = |family| found.iter().find(|one| one.0 == family).unwrap().1;
        assert!(of(Family::Forest) < of(Family::Mean) && of(Family::Network) < of(Family::Mean));
    }

    #[test]
    fn every_family_but_the_mean_learns_a_line() {
        let sample = |at: u32| {
            let x = f64::from(at % 40) / 10.0;
            Sample { known: vec![x, 1.0], target: libm::exp(0.5 * x), group: at }
        };
        let samples: Vec<Sample> = (0..200).map(sample).collect();
        for family in FAMILIES {
            let error = held_out(family, &samples, 5, 1);
            assert!(error < 0.15 || family == Family::Mean, "{family:?}: {error}");
        }
    }
}
