//! Which placements can be launched at all.

use crate::Placement;
use serde::{Deserialize, Serialize};

/// Rules that every placement must keep because the backend that launches jobs supports no others: data of the cluster,
/// so that the simulator can be given them too. A job that runs already keeps its place when they change.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacementRules {
    /// All nodes of a job give the same number of GPUs of one type, as in Slurm.
    pub equal_per_node: bool,
    /// A node is given to one job alone, as in a partition of Slurm that is exclusive.
    pub exclusive_nodes: bool,
}

impl PlacementRules {
    /// Whether anything can be launched.
    pub fn is_none(self) -> bool {
        self == PlacementRules::default()
    }

    /// Whether the parts on each node are as these rules ask.
    pub fn keeps_parts(self, placement: &Placement) -> bool {
        let mut parts = placement.masks().iter().map(|(_, mask)| mask.count_ones());
        let first = parts.next();
        !self.equal_per_node || parts.all(|part| Some(part) == first)
    }
}
