//! How busy a model keeps a GPU, from its description alone: batch, parameters, precision and operators.
//!
//! After Horus (TPDS 2021), which trains an ensemble of trees on features of the computation graph, so that no job has
//! to be profiled before it is placed.

use super::Alone;
use super::forest::Forest;
use crate::features::{Feature, Features};
use std::collections::BTreeSet;

/// What the description of a model tells without a run. FLOPs and numbers of operators are told by an exporter where
/// there is one; parameters and batch stand for them here, because no table at hand has them.
pub const GRAPH: &[Feature] = &[
    Feature::Batch,
    Feature::Parameters,
    Feature::HalfPrecision,
    Feature::Convolution,
    Feature::Matrix,
    Feature::Recurrent,
    Feature::Embedding,
];

/// Utilisation by features of the graph.
#[derive(Clone, Debug, Default)]
pub struct UtilisationModel {
    forest: Forest,
    /// So many jobs.
    learnt: usize,
}

impl UtilisationModel {
    /// Learns from jobs whose utilisation was measured.
    pub fn fit<'a>(jobs: impl Iterator<Item = &'a Alone>) -> UtilisationModel {
        let known = jobs.filter_map(|job| {
            let measured = job.features.get(Feature::Utilisation)?;
            job.features.tell(GRAPH).then(|| (job.features.scaled(GRAPH).collect(), measured))
        });
        let (rows, values): (Vec<Vec<f64>>, Vec<f64>) = known.unzip();
        let forest = Forest::grow(&rows, &values);
        UtilisationModel { forest, learnt: rows.len() }
    }

    /// The utilisation of a job with such features.
    pub fn of(&self, features: &Features) -> f64 {
        let row: Vec<f64> = features.scaled(GRAPH).collect();
        self.forest.value(&row).clamp(0.0, 1.0)
    }

    /// The same; nothing where the features are not known, or nothing was learnt.
    pub fn tells(&self, features: &Features) -> Option<f64> {
        (self.learnt > 0 && features.tell(GRAPH)).then(|| self.of(features))
    }

    /// How far it was off on jobs by the trees that had not seen them.
    pub fn spread(&self) -> f64 {
        self.forest.spread
    }
}

/// How far utilisation from the graph is off.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct UtilisationErrors {
    /// Jobs that were asked about.
    pub jobs: usize,
    /// Mean absolute error, and the root of the mean square of the difference of `ln(1 + percent)` as Horus states its
    /// own, for networks that were not seen.
    pub new_network: (f64, f64),
    /// The same where the network was seen at other batches or in another precision.
    pub known_network: (f64, f64),
    /// The same of the mean utilisation of all jobs of other networks, which looks at nothing.
    pub mean_of_others: (f64, f64),
}

/// Holds out each network in turn, and each job in turn.
pub fn utilisation_study(jobs: &[Alone]) -> UtilisationErrors {
    let asked: Vec<(&Alone, f64)> = jobs
        .iter()
        .filter(|job| job.features.tell(GRAPH))
        .filter_map(|job| Some((job, job.features.get(Feature::Utilisation)?)))
        .collect();
    let networks: BTreeSet<&str> = asked.iter().map(|(job, _)| job.architecture.as_str()).collect();
    let mut told: [Vec<(f64, f64)>; 3] = Default::default();
    for network in networks {
        let others = || asked.iter().filter(|(job, _)| job.architecture != network);
        let model = UtilisationModel::fit(others().map(|(job, _)| *job));
        let mean = others().map(|(_, busy)| busy).sum::<f64>() / others().count().max(1) as f64;
        for (job, truth) in asked.iter().filter(|(job, _)| job.architecture == network) {
            told[0].push((model.of(&job.features), *truth));
            told[2].push((mean, *truth));
        }
    }
    for (place, (job, truth)) in asked.iter().enumerate() {
        let others = asked.iter().enumerate().filter(|(other, _)| *other != place);
        let model = UtilisationModel::fit(others.map(|(_, (job, _))| *job));
        told[1].push((model.of(&job.features), *truth));
    }
    let [new_network, known_network, mean_of_others] = told.map(|told| errors(&told));
    UtilisationErrors { jobs: asked.len(), new_network, known_network, mean_of_others }
}

/// The mean absolute and the logarithmic error of what was told beside the truth.
fn errors(told: &[(f64, f64)]) -> (f64, f64) {
    let count = told.len().max(1) as f64;
    let percent = |part: f64| libm::log1p(100.0 * part);
    let log = |(told, truth): &(f64, f64)| {
        let error = percent(*told) - percent(*truth);
        error * error
    };
    let absolute = told.iter().map(|(told, truth)| (told - truth).abs()).sum::<f64>() / count;
    (absolute, libm::sqrt(told.iter().map(log).sum::<f64>() / count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::alone_rows;

    #[test]
    fn the_description_of_a_model_tells_more_than_the_mean_where_its_network_was_seen() {
        let errors = utilisation_study(&alone_rows());
        assert!(errors.jobs > 60, "{errors:?}");
        assert!(errors.known_network.1 < 0.8 * errors.mean_of_others.1, "{errors:?}");
        assert!(errors.known_network.1 < errors.new_network.1, "{errors:?}");
    }
}
