//! Co-location by measured pairs, and by the predictor that errs least where a pair was not measured.
//!
//! A job whose time on the GPU is limited slows others in proportion to its limit: between alone and the measured pair.
//! Of groups of three and four the delays add up: an iteration is longer by what each neighbour alone would make it
//! longer. Measured on an H200 under time slicing that is off by 11 and 17 % (rMSRE), where the product of the pairs is
//! off by 19 and 36 % (`tests/groups.rs`); under MPS, and beyond four, it is an assumption.

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
        kept_in_group(others.iter().map(beside))
    }

    fn by(&self, source: PairSource) -> Option<&dyn Colocation> {
        self.predictions.by(source).map(|found| found as &dyn Colocation)
    }
}

/// The part of its speed that a job keeps beside several, from what it keeps beside each of them alone: the time of an
/// iteration grows by the sum of what each adds to it. 0 if it does not fit beside one of them.
pub fn kept_in_group(beside_each: impl IntoIterator<Item = f64>) -> f64 {
    let mut parts = beside_each.into_iter();
    let Some(first) = parts.next() else { return 1.0 };
    let Some(second) = parts.next() else { return first };
    let delay = |kept: f64| 1.0 / kept - 1.0;
    let delays = delay(first) + delay(second) + parts.map(delay).sum::<f64>();
    // Pairs that were measured a little faster than alone must not make a group faster without end.
    1.0 / (1.0 + delays).max(0.5)
}
