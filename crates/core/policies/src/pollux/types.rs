//! How types of GPU are distinguished. Here they are apart; `alike` has them all as one.

use super::alike::Alike;
use super::parts::Parts;
use super::problem::Problem;
use crate::prelude::*;
use trainyard_profile::goodput::{FitError, Fitted, Observation, Size, fit};
use trainyard_types::{Measured, Node, Shape, StepSeen};

/// How types of GPU are distinguished.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Types {
    /// A job has a fit for each type it was seen on, and never mixes types.
    Apart,
    /// All count as one type. A row that mixes types loses all but those of which it has most, and what is lost
    /// stays idle: Pollux as Sia's authors ran it on several types.
    Alike,
}

impl Types {
    /// What follows from the choice.
    pub(super) fn rules(self) -> &'static dyn TypeRules {
        match self {
            Types::Apart => &Apart,
            Types::Alike => &Alike,
        }
    }
}

/// What was fitted to the times that a job reported on a type.
pub(super) type Fits = Vec<(GpuType, Result<Fitted, FitError>)>;

/// What depends on how types are distinguished.
pub(super) trait TypeRules: Sync {
    /// The most GPUs of a part of a node.
    fn part_gpus(&self, nodes: &[Node]) -> u32;

    /// Whether a job that fits on a node may fit on no part of it.
    fn are_nodes_cut(&self) -> bool;

    /// The number of a type in the search.
    fn number(&self, kind: GpuType) -> u8;

    /// Makes of a state what can be granted.
    fn settle(&self, parts: &Parts, view: &View<'_>, problem: &Problem, state: &mut [u8]);

    /// Where a row is put.
    fn shape(&self, parts: &Parts, cells: &[u8], free: &Free) -> Shape;

    /// The fits of what was measured.
    fn fits(&self, measured: &Measured) -> Fits;
}

/// A type is a type.
struct Apart;

impl TypeRules for Apart {
    fn part_gpus(&self, _nodes: &[Node]) -> u32 {
        u64::BITS
    }

    fn are_nodes_cut(&self) -> bool {
        false
    }

    fn number(&self, kind: GpuType) -> u8 {
        kind.0
    }

    fn settle(&self, _parts: &Parts, _view: &View<'_>, _problem: &Problem, _state: &mut [u8]) {}

    fn shape(&self, parts: &Parts, cells: &[u8], _free: &Free) -> Shape {
        Shape::PerNode(parts.used(cells).map(|(part, count)| (part.node, count)).collect())
    }

    fn fits(&self, measured: &Measured) -> Fits {
        let mut kinds: Vec<GpuType> = measured.steps.iter().map(|step| step.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let on = |kind: GpuType| {
            let steps = measured.steps.iter().filter(|step| step.kind == kind);
            (kind, fit(&observations(steps)))
        };
        kinds.into_iter().map(on).collect()
    }
}

/// Measured times as the fit needs them; the first one in a place speaks for it.
pub(super) fn observations<'s>(steps: impl Iterator<Item = &'s StepSeen>) -> Vec<Observation> {
    let mut all: Vec<Observation> = Vec::new();
    for step in steps {
        let size = Size { nodes: step.nodes, gpus: step.gpus };
        if !all.iter().any(|one| one.size == size && one.local == step.local) {
            let sync = if step.gpus > 1 { step.sync } else { 0.0 };
            all.push(Observation { size, local: step.local, step: step.step, sync });
        }
    }
    all
}
