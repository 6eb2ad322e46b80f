//! Co-location by measured pairs.
//!
//! Groups of three and more were not measured: a job keeps the product of what it keeps beside each of the others.

use super::{Colocation, SharedGpu, Sharing};
use crate::Catalog;
use crate::model::{ANY_KIND, ModelProfile};
use trainyard_types::{Cluster, GpuType, ModelId, Occupant};

/// Measured pairs of all models of a catalog, on the types of a cluster.
#[derive(Clone, Debug)]
pub struct MeasuredPairs {
    /// By model; its pairs by partner and type ascending, what holds on any type first.
    pairs: Vec<Vec<(ModelId, Option<GpuType>, f64)>>,
    sharing: Sharing,
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
        MeasuredPairs { pairs: catalog.iter().map(|(_, model)| of(model)).collect(), sharing }
    }

    /// What was measured on the type, else what holds on any, else the usual part.
    fn pair(&self, own: ModelId, partner: ModelId, kind: Option<GpuType>) -> f64 {
        let Some(pairs) = self.pairs.get(own.index()) else { return self.sharing.part_default() };
        let find = |kind: Option<GpuType>| {
            pairs.binary_search_by_key(&(partner, kind), |pair| (pair.0, pair.1)).ok()
        };
        let found = find(kind).or_else(|| find(None));
        found.map_or_else(|| self.sharing.part_default(), |index| pairs[index].2)
    }
}

impl Colocation for MeasuredPairs {
    fn kept(&self, own: Occupant, on: SharedGpu, others: &[Occupant]) -> f64 {
        others.iter().map(|other| self.pair(own.model, other.model, on.kind)).product()
    }
}
