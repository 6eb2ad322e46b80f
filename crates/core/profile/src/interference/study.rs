//! How far predictors are off for models that they have not seen, beside the error that nothing can avoid.

use super::{Alone, Met, predictor};
use std::collections::{BTreeMap, BTreeSet};

/// How far one predictor is off.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictorErrors {
    /// What it goes by.
    pub name: &'static str,
    /// Mean absolute error.
    pub mean: f64,
    /// Root of the mean square of the relative error.
    pub relative: f64,
    /// 95 % of all absolute errors are at most this.
    pub p95: f64,
    /// The part of the measured values within two spreads of the prediction.
    pub covered: f64,
}

/// What came of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Pairs, seen from both sides.
    pub pairs: usize,
    /// Architectures, each of which was held out in turn.
    pub architectures: usize,
    /// The predictors, the least relative error first.
    pub predictors: Vec<PredictorErrors>,
    /// The relative error of an oracle that knows all values measured for exactly the same two jobs (O-err): what no
    /// predictor can avoid. Nothing where no two jobs were measured twice.
    pub oracle: Option<f64>,
}

impl Study {
    /// The least relative error of all predictors (BoM-err).
    pub fn best(&self) -> Option<&PredictorErrors> {
        self.predictors.first()
    }
}

/// Holds out each architecture in turn: predictors learn from pairs without it and are asked about pairs with it.
/// A predictor that needs what is not known of every job is left out.
pub fn study(met: &[Met]) -> Study {
    let architectures: BTreeSet<&str> =
        met.iter().map(|met| met.own.architecture.as_str()).collect();
    let mut predictors: Vec<PredictorErrors> = Vec::new();
    let all =
        |met: &Met, holds: &dyn Fn(&Alone) -> bool| holds(&met.own) && met.others.iter().all(holds);
    for mut predictor in predictor::all() {
        let needs = predictor.needs();
        if !met.iter().all(|met| all(met, &|alone| alone.features.tell(needs))) {
            continue;
        }
        let mut errors: Vec<(f64, f64, bool)> = Vec::new();
        for held_out in &architectures {
            let is_of = |met: &&Met| !all(met, &|alone| alone.architecture != *held_out);
            let seen: Vec<Met> = met.iter().filter(|met| !is_of(met)).cloned().collect();
            predictor.fit(&seen);
            // Asked about the one that is new, beside whatever there is.
            for asked in met.iter().filter(|met| met.own.architecture == *held_out) {
                let told = predictor.predict(asked);
                let error = (told.kept - asked.kept).abs();
                errors.push((error, error / asked.kept.max(1e-9), error <= 2.0 * told.spread));
            }
        }
        predictors.push(summed(predictor.name(), &errors));
    }
    predictors.sort_by(|a, b| a.relative.total_cmp(&b.relative));
    Study { pairs: met.len(), architectures: architectures.len(), predictors, oracle: oracle(met) }
}

fn summed(name: &'static str, errors: &[(f64, f64, bool)]) -> PredictorErrors {
    let count = errors.len().max(1) as f64;
    let mut absolute: Vec<f64> = errors.iter().map(|error| error.0).collect();
    absolute.sort_by(f64::total_cmp);
    let at = (absolute.len() as f64 * 0.95) as usize;
    PredictorErrors {
        name,
        mean: absolute.iter().sum::<f64>() / count,
        relative: libm::sqrt(errors.iter().map(|error| error.1 * error.1).sum::<f64>() / count),
        p95: absolute.get(at.min(absolute.len().saturating_sub(1))).copied().unwrap_or(0.0),
        covered: errors.iter().filter(|error| error.2).count() as f64 / count,
    }
}

/// The oracle of Fu, Gupta, Mittal and Ratnasamy (NSDI 2021): for equal inputs the value with the least mean square of
/// the relative error, which is the sum of 1/y over the sum of 1/y^2.
fn oracle(met: &[Met]) -> Option<f64> {
    let mut same: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for met in met {
        let asked = format!("{:?} {:?} {:?}", met.own, met.others, met.on);
        same.entry(asked).or_default().push(met.kept);
    }
    let mut squares: Vec<f64> = Vec::new();
    for values in same.values().filter(|values| values.len() > 1) {
        let inverse: f64 = values.iter().map(|y| 1.0 / y).sum();
        let best = inverse / values.iter().map(|y| 1.0 / (y * y)).sum::<f64>();
        squares.extend(values.iter().map(|y| (y - best) / y * ((y - best) / y)));
    }
    let count = squares.len() as f64;
    (count > 0.0).then(|| libm::sqrt(squares.iter().sum::<f64>() / count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sharing;
    use crate::interference::{PairSource, measured};

    #[test]
    fn what_each_job_does_alone_tells_more_than_the_mean_of_all_pairs() {
        for sharing in [Sharing::TimeSliced, Sharing::Mps] {
            let study = study(&measured(sharing));
            assert!(study.pairs > 100 && study.architectures >= 9, "{study:?}");
            let error = |name: &str| {
                let found = study.predictors.iter().find(|errors| errors.name.contains(name));
                found.expect("it is compared").relative
            };
            let best = study.best().expect("predictors").relative;
            assert!(best < 0.7 * error("mean of all"), "{sharing:?}: {study:#?}");
            let oracle = study.oracle.expect("a job beside its like is measured from both sides");
            assert!(oracle < best, "nothing beats the oracle: {study:#?}");
            let source = PairSource::best(sharing).predictor().expect("a predictor wins");
            assert_eq!(
                study.best().map(|best| best.name),
                Some(source.name()),
                "beliefs go by the winner: {study:#?}"
            );
        }
    }

    #[test]
    fn an_exact_law_is_found() {
        let alone = |name: &str, utilisation: f64| Alone {
            architecture: name.to_owned(),
            features: crate::Features::default().with(crate::Feature::Utilisation, utilisation),
        };
        let names = ["a", "b", "c", "d", "e"];
        let mut met = Vec::new();
        for (i, one) in names.iter().enumerate() {
            for (j, two) in names.iter().enumerate() {
                let (own, other) = (0.1 + 0.1 * i as f64, 0.2 + 0.07 * j as f64);
                let kept = 1.0 - 0.3 * own - 0.2 * other;
                let (own, others) = (alone(one, own), vec![alone(two, other)]);
                met.push(Met { own, others, on: crate::interference::Machine::default(), kept });
            }
        }
        let study = study(&met);
        let found = study.predictors.iter().find(|errors| errors.name == "utilisation of each");
        assert!(found.is_some_and(|errors| errors.relative < 1e-6), "{study:#?}");
    }
}
