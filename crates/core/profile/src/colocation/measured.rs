//! Co-location by measured pairs, and by the predictor that errs least where a pair was not measured.
//!
//! A job whose time on the GPU is limited slows others in proportion to its limit: between alone and the measured pair.
//! Groups of three and more were not measured: a job keeps the product of what it keeps beside each of the others.

use super::{Colocation, SharedGpu, Sharing};
use crate::Catalog;
use crate::interference::PairSource;
use crate::interference::source::Predictions;
use crate::model::{ANY_KIND, ModelProfile};
use trainyard_types::{Cluster, GpuType, ModelId, Occupant};

/// Measured pairs of all models of a catalog, on the types of a cluster.
#[derive(Clone, Debug)]
pub struct MeasuredPairs {
    /// By model; its pairs by partner and type ascending, what holds on any type first.
    pairs: Vec<Vec<(ModelId, Option<GpuType>, f64)>>,
    sharing: Sharing,
    predictions: Predictions,
}

impl MeasuredPairs {
    /// What the models of a catalog say of each other under one way of sharing.
    pub fn new(catalog: &Catalog, cluster: &Cluster, sharing: Sharing) -> MeasuredPairs {
        let of = |model: &ModelProfile| {
            let mut pairs: Vec<(ModelId, Option<GpuType>, f64)> = model
                .pairs
                .iter()
                .filter_map(|pair| {
                    let kind = match pair.kind.as_str() {
                        ANY_KIND => None,
                        name => Some(cluster.kind(name)?),
                    };
                    let kept = match sharing {
                        Sharing::TimeSliced => pair.time_sliced,
                        Sharing::Mps => pair.mps,
                    };
                    Some((catalog.find(&pair.partner)?, kind, kept))
                })
                .collect();
            pairs.sort_by_key(|pair| (pair.0, pair.1));
            pairs
        };
        let predictions = Predictions::new(catalog, cluster, sharing);
        let pairs = catalog.iter().map(|(_, model)| of(model)).collect();
        MeasuredPairs { pairs, sharing, predictions }
    }

    /// What was measured on the type, else what holds on any, else what is predicted, else the usual part.
    fn pair(&self, own: ModelId, partner: ModelId, kind: Option<GpuType>) -> f64 {
        let Some(pairs) = self.pairs.get(own.index()) else { return self.sharing.part_default() };
        let predicted = || {
            let best = self.predictions.by(PairSource::best(self.sharing));
            let pair = best.and_then(|best| best.pair(own, partner, kind));
            pair.unwrap_or_else(|| self.sharing.part_default())
        };
        let find = |kind: Option<GpuType>| {
            pairs.binary_search_by_key(&(partner, kind), |pair| (pair.0, pair.1)).ok()
        };
        let found = find(kind).or_else(|| find(None));
        found.map_or_else(predicted, |index| pairs[index].2)
    }
}

impl Colocation for MeasuredPairs {
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        let beside = |other: &Occupant| other.lessened(self.pair(own.model, other.model, on.kind));
        others.iter().map(beside).product()
    }

    fn by(&self, source: PairSource) -> Option<&dyn Colocation> {
        self.predictions.by(source).map(|found| found as &dyn Colocation)
    }
}
