//! Nodes as the search sees them: whole, or cut into equal parts where all types of GPU count alike.

use super::problem::{Problem, gpus};
use crate::prelude::*;
use trainyard_profile::goodput::Size;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Placement, Shape};

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

/// A node, or a part of one.
struct Part {
    node: NodeId,
    /// Its GPUs.
    mask: u64,
    kind: GpuType,
}

/// All columns of a state.
pub(super) struct Parts {
    all: Vec<Part>,
    types: Types,
}

impl Parts {
    pub(super) fn new(view: &View<'_>, free: &Free, types: Types) -> Parts {
        let nodes = &view.cluster().nodes;
        let least = nodes.iter().map(|node| u32::from(node.gpus)).filter(|gpus| *gpus > 0).min();
        let each = match types {
            Types::Apart => u64::BITS,
            Types::Alike => least.unwrap_or(u64::BITS),
        };
        let mut all = Vec::with_capacity(nodes.len());
        for node in (0..free.nodes()).map(NodeId) {
            let gpus = u32::from(view.cluster().node(node).gpus);
            for first in (0..gpus).step_by(each as usize) {
                let count = each.min(gpus - first);
                let mask = (u64::MAX >> (u64::BITS - count)) << first;
                all.push(Part { node, mask, kind: free.kind(node) });
            }
        }
        Parts { all, types }
    }

    /// Free GPUs of each part.
    pub(super) fn capacity(&self, free: &Free) -> Vec<u8> {
        let of = |part: &Part| (free.mask(part.node) & part.mask).count_ones() as u8;
        self.all.iter().map(of).collect()
    }

    /// The type of each part, as far as it counts.
    pub(super) fn kinds(&self) -> Vec<u8> {
        let of = |part: &Part| if self.types == Types::Apart { part.kind.0 } else { 0 };
        self.all.iter().map(of).collect()
    }

    /// The most GPUs of each part that a job could have.
    pub(super) fn room(&self, job: JobRef<'_>, capacity: &[u8], free: &Free) -> Vec<u8> {
        let want = &job.spec.want;
        let by_host = |left: Option<u64>, each: u64| match (left, each) {
            (Some(left), 1..) => left / each,
            _ => u64::MAX,
        };
        let of = |(part, capacity): (&Part, &u8)| {
            let node = part.node;
            let in_pool = want.pool.is_none_or(|pool| free.pool(node) == pool);
            let cpus = by_host(free.cpus_left(node).map(u64::from), u64::from(want.cpus_per_gpu));
            let memory = by_host(free.host_memory_left(node), u64::from(want.memory_mib_per_gpu));
            let most = u64::from(*capacity).min(cpus).min(memory);
            if want.accepts(part.kind) && in_pool { most as u8 } else { 0 }
        };
        self.all.iter().zip(capacity).map(of).collect()
    }

    /// What a job holds or is to hold of each part.
    pub(super) fn held(&self, job: JobRef<'_>) -> Vec<u8> {
        let Some(planned) = &job.state.planned else { return vec![0; self.all.len()] };
        let of = |part: &Part| (planned.placement.mask(part.node) & part.mask).count_ones() as u8;
        self.all.iter().map(of).collect()
    }

    /// The most GPUs of one type that a job could have, by the room it has in each part.
    pub(super) fn most(&self, room: &[u8]) -> u32 {
        let kinds = self.all.iter().map(|part| part.kind.index() + 1).max().unwrap_or(0);
        let mut by_kind = vec![0u32; kinds];
        for (part, room) in self.all.iter().zip(room) {
            by_kind[part.kind.index()] += u32::from(*room);
        }
        by_kind.into_iter().max().unwrap_or(0)
    }

    /// Takes all types but one from rows that mix them: the one of which there is most, of equals the dearest. Whoever
    /// is left with less than it runs on loses that too.
    pub(super) fn one_type_each(&self, view: &View<'_>, problem: &Problem, state: &mut [u8]) {
        if self.types == Types::Apart {
            return;
        }
        for (cells, row) in state.chunks_exact_mut(self.all.len()).zip(&problem.rows) {
            self.keep_most(view, cells);
            if gpus(cells) < row.least {
                cells.fill(0);
            }
        }
    }

    /// Whether nodes are cut, so that a job which fits on a node may fit on no part of it.
    pub(super) fn are_cut(&self) -> bool {
        self.types == Types::Alike
    }

    fn keep_most(&self, view: &View<'_>, cells: &mut [u8]) {
        let price = |kind: GpuType| view.cluster().kinds[kind.index()].price_per_hour;
        let mut counts = vec![0u32; view.cluster().kinds.len()];
        for (cell, part) in cells.iter().zip(&self.all) {
            counts[part.kind.index()] += u32::from(*cell);
        }
        let kinds = (0..counts.len()).rev().map(|kind| GpuType(kind as u8));
        let most = kinds.max_by(|a, b| {
            let by_count = counts[a.index()].cmp(&counts[b.index()]);
            by_count.then(price(*a).total_cmp(&price(*b)))
        });
        for (cell, part) in cells.iter_mut().zip(&self.all) {
            if Some(part.kind) != most {
                *cell = 0;
            }
        }
    }

    /// The type of a row's GPUs.
    pub(super) fn kind(&self, cells: &[u8]) -> GpuType {
        let first = cells.iter().position(|cell| *cell > 0).unwrap_or(0);
        self.all[first].kind
    }

    /// Nodes and GPUs of a row.
    pub(super) fn size(&self, cells: &[u8]) -> Size {
        let mut nodes: Vec<NodeId> = self.used(cells).map(|(part, _)| part.node).collect();
        nodes.dedup();
        Size { nodes: nodes.len() as u32, gpus: gpus(cells) }
    }

    /// Where a row is put. In parts of nodes the very GPUs are named, or the row would not be found there again;
    /// where somebody else has them already, the placer finds others.
    pub(super) fn shape(&self, cells: &[u8], free: &Free) -> Shape {
        if self.types == Types::Apart {
            return Shape::PerNode(
                self.used(cells).map(|(part, count)| (part.node, count)).collect(),
            );
        }
        let masks = self
            .used(cells)
            .map(|(part, count)| (part.node, lowest_bits(free.mask(part.node) & part.mask, count)));
        let placement = Placement::from_masks(masks);
        let count = gpus(cells);
        match placement.gpus() == count {
            true => Shape::Exact(placement),
            false => Shape::Gpus { count, kind: None, nodes_max: 0 },
        }
    }

    fn used<'a>(&'a self, cells: &'a [u8]) -> impl Iterator<Item = (&'a Part, u32)> + 'a {
        let all = self.all.iter().zip(cells).filter(|(_, cell)| **cell > 0);
        all.map(|(part, cell)| (part, u32::from(*cell)))
    }
}
