//! Placers: which GPUs.
//!
//! All share these rules. A gang is of one type of GPU. A node's pool, GPU memory, CPUs and host memory are respected.
//! Where a placer has no better rule, types are tried in the order of the cluster.

pub mod best_fit;
pub mod buddy;
pub mod even;
pub mod fewest_nodes;
pub mod fgd;
pub mod first_fit;
pub mod mapa;
pub mod skew;
pub mod spread;
pub mod step_time;
#[cfg(test)]
mod tests;

pub use fewest_nodes::FewestNodes;

use crate::prelude::{Ask, Deserialize, Family, Free, GpuType, Objective, Serialize, Taxonomy};
use serde::de::{Deserializer, Error};

/// Where every placer stands.
pub(crate) const CLASS: Taxonomy = Taxonomy::rigid(Objective::Locality, Family::Placer);

/// The acceptable types with enough wholly free GPUs for the gang, in the order of the cluster.
pub(crate) fn kinds(ask: &Ask<'_>, free: &Free) -> impl Iterator<Item = GpuType> + Clone {
    let mut kinds = free.kinds();
    kinds.retain(|kind| ask.accepts(*kind) && free.gpus(*kind) >= ask.count);
    kinds.into_iter()
}

/// The settings of a placer that has none.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Nothing {}

/// Reads a setting that is a part of something.
pub(crate) fn part<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    let part = f64::deserialize(value)?;
    match (0.0..=1.0).contains(&part) {
        true => Ok(part),
        false => Err(Error::custom("expected a number from 0 to 1")),
    }
}
