//! All types of GPU as one: Pollux as Sia's authors ran it on several types (`multi_simulator_unaware.py`).
//!
//! Nodes are cut into parts as small as the smallest node, so that all columns of a state are alike.

use super::parts::Parts;
use super::problem::{Problem, gpus};
use super::types::{Fits, TypeRules, observations};
use crate::prelude::*;
use trainyard_profile::goodput::fit;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Measured, Node, Placement, Shape};

/// Types do not count.
pub(super) struct Alike;

impl TypeRules for Alike {
    fn part_gpus(&self, nodes: &[Node]) -> u32 {
        let least = nodes.iter().map(|node| u32::from(node.gpus)).filter(|gpus| *gpus > 0).min();
        least.unwrap_or(u64::BITS)
    }

    fn are_nodes_cut(&self) -> bool {
        true
    }

    fn number(&self, _kind: GpuType) -> u8 {
        0
    }

    /// Takes all types but one from rows that mix them: the one of which there is most, of equals the dearest. A job
    /// that is left with less than it runs on loses that too.
    fn settle(&self, parts: &Parts, view: &View<'_>, problem: &Problem, state: &mut [u8]) {
        for (cells, row) in state.chunks_exact_mut(parts.all.len()).zip(&problem.rows) {
            keep_most(parts, view, cells);
            if gpus(cells) < row.least {
                cells.fill(0);
            }
        }
    }

    /// The very GPUs are named, or the row would not be found there again; where another job has them already, the
    /// placer finds others.
    fn shape(&self, parts: &Parts, cells: &[u8], free: &Free) -> Shape {
        let masks = parts
            .used(cells)
            .map(|(part, count)| (part.node, lowest_bits(free.mask(part.node) & part.mask, count)));
        let placement = Placement::from_masks(masks);
        let count = gpus(cells);
        match placement.gpus() == count {
            true => Shape::Exact(placement),
            false => Shape::Gpus { count, kind: None, nodes_max: 0 },
        }
    }

    /// One fit of all times, under the name of the first type.
    fn fits(&self, measured: &Measured) -> Fits {
        let first = measured.steps.iter().map(|step| step.kind).min();
        first.map(|kind| (kind, fit(&observations(measured.steps.iter())))).into_iter().collect()
    }
}

fn keep_most(parts: &Parts, view: &View<'_>, cells: &mut [u8]) {
    let price = |kind: GpuType| view.cluster().kinds[kind.index()].price_per_hour;
    let mut counts = vec![0u32; view.cluster().kinds.len()];
    for (cell, part) in cells.iter().zip(&parts.all) {
        counts[part.kind.index()] += u32::from(*cell);
    }
    let kinds = (0..counts.len()).rev().map(|kind| GpuType(kind as u8));
    let most = kinds.max_by(|a, b| {
        let by_count = counts[a.index()].cmp(&counts[b.index()]);
        by_count.then(price(*a).total_cmp(&price(*b)))
    });
    for (cell, part) in cells.iter_mut().zip(&parts.all) {
        if Some(part.kind) != most {
            *cell = 0;
        }
    }
}
