//! Predictors of the part of its speed that a job keeps beside another, each with the spread of its errors.

use super::Met;
use crate::nnls::nnls;

/// What is predicted: a value, and how far such predictions were off in the mean where they were learnt.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The part of its speed that the job keeps.
    pub kept: f64,
    /// The standard deviation of the error on what was learnt from.
    pub spread: f64,
}

/// Something that learns from pairs and predicts others.
pub trait Predictor {
    /// What it goes by.
    fn name(&self) -> &'static str;
    /// Learns from pairs, and forgets what it learnt before.
    fn fit(&mut self, seen: &[Met]);
    /// Predicts; only the two jobs are looked at.
    fn predict(&self, met: &Met) -> Prediction;
}

/// All predictors that are compared.
pub fn all() -> Vec<Box<dyn Predictor>> {
    let linear = |name, features| Box::new(Linear::new(name, features)) as Box<dyn Predictor>;
    vec![
        linear("the mean of all", |_| Vec::new()),
        linear("hinge on summed utilisation", |met| {
            hinge(met.own.utilisation + met.other.utilisation)
        }),
        linear("hinge on summed memory utilisation", |met| {
            hinge(met.own.memory_utilisation + met.other.memory_utilisation)
        }),
        linear("hinge on summed power", |met| hinge(met.own.power + met.other.power)),
        linear("utilisation of each", |met| vec![met.own.utilisation, met.other.utilisation]),
        linear("power of each", |met| vec![met.own.power, met.other.power]),
        linear("all of each", |met| both(met).to_vec()),
        Box::new(FairShare { spread: 0.0 }),
        Box::new(Nearest { seen: Vec::new(), spread: 0.0 }),
    ]
}

fn hinge(sum: f64) -> Vec<f64> {
    vec![sum, (sum - 1.0).max(0.0)]
}

fn both(met: &Met) -> [f64; 6] {
    let (own, other) = (&met.own, &met.other);
    [
        own.utilisation,
        own.memory_utilisation,
        own.power,
        other.utilisation,
        other.memory_utilisation,
        other.power,
    ]
}

/// A constant and a weight for each feature, by least squares.
struct Linear {
    name: &'static str,
    features: fn(&Met) -> Vec<f64>,
    weights: Vec<f64>,
    spread: f64,
}

impl Linear {
    fn new(name: &'static str, features: fn(&Met) -> Vec<f64>) -> Linear {
        Linear { name, features, weights: Vec::new(), spread: 0.0 }
    }

    fn row(&self, met: &Met) -> Vec<f64> {
        let mut row = vec![1.0];
        row.extend((self.features)(met));
        row
    }

    fn value(&self, met: &Met) -> f64 {
        self.row(met).iter().zip(&self.weights).map(|(x, weight)| x * weight).sum()
    }
}

impl Predictor for Linear {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fit(&mut self, seen: &[Met]) {
        let rows: Vec<Vec<f64>> = seen.iter().map(|met| self.row(met)).collect();
        // A weight of either sign is the difference of two that are not negative.
        let signed: Vec<Vec<f64>> = rows
            .iter()
            .map(|row| row.iter().copied().chain(row.iter().map(|x| -x)).collect())
            .collect();
        let values: Vec<f64> = seen.iter().map(|met| met.kept).collect();
        let count = rows.first().map_or(0, Vec::len);
        let found = nnls(&signed, &values).unwrap_or_else(|| vec![0.0; 2 * count]);
        self.weights = (0..count).map(|index| found[index] - found[count + index]).collect();
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

/// Turns of equal length: a job has the time that the other leaves idle, half of the GPU at least, and needs as much of
/// it as it is busy alone. Nothing is learnt.
struct FairShare {
    spread: f64,
}

impl FairShare {
    fn value(met: &Met) -> f64 {
        let left = (1.0 - met.other.utilisation).max(0.5);
        (left / met.own.utilisation.max(1e-3)).min(1.0)
    }
}

impl Predictor for FairShare {
    fn name(&self) -> &'static str {
        "fair share of the time, by utilisation of each"
    }

    fn fit(&mut self, seen: &[Met]) {
        self.spread = spread(seen, FairShare::value);
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: FairShare::value(met), spread: self.spread }
    }
}

/// The mean of the most similar pairs that were seen, by all that is known of both jobs.
struct Nearest {
    seen: Vec<Met>,
    spread: f64,
}

/// So many are the most similar.
const NEAREST: usize = 5;

impl Nearest {
    fn value(&self, met: &Met) -> f64 {
        let at = both(met);
        let distance = |other: &Met| -> f64 {
            both(other).iter().zip(at).map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let mut by_distance: Vec<(f64, f64)> =
            self.seen.iter().map(|other| (distance(other), other.kept)).collect();
        by_distance.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        by_distance.truncate(NEAREST);
        let count = by_distance.len().max(1) as f64;
        by_distance.iter().map(|(_, kept)| kept).sum::<f64>() / count
    }
}

impl Predictor for Nearest {
    fn name(&self) -> &'static str {
        "the five nearest pairs, by all of each"
    }

    fn fit(&mut self, seen: &[Met]) {
        self.seen = seen.to_vec();
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

fn spread(seen: &[Met], value: impl Fn(&Met) -> f64) -> f64 {
    let squares = seen.iter().map(|met| (value(met) - met.kept) * (value(met) - met.kept));
    libm::sqrt(squares.sum::<f64>() / seen.len().max(1) as f64)
}
