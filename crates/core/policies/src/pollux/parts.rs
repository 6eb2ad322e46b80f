//! Nodes as the search sees them: whole, or cut into equal parts where all types of GPU count alike.

use super::problem::gpus;
use super::types::TypeRules;
use crate::prelude::*;
use std::sync::Arc;
use trainyard_profile::goodput::Size;

/// A node, or a part of one.
pub(super) struct Part {
    pub(super) node: NodeId,
    /// Its GPUs.
    pub(super) mask: u64,
    pub(super) kind: GpuType,
}

/// All columns of a state.
pub(super) struct Parts {
    pub(super) all: Vec<Part>,
}

impl Parts {
    pub(super) fn new(view: &View<'_>, free: &Free, types: &dyn TypeRules) -> Parts {
        let nodes = &view.cluster().nodes;
        let each = types.part_gpus(nodes);
        let mut all = Vec::with_capacity(nodes.len());
        for node in (0..free.nodes()).map(NodeId) {
            let gpus = u32::from(view.cluster().node(node).gpus);
            for first in (0..gpus).step_by(each as usize) {
                let count = each.min(gpus - first);
                let mask = (u64::MAX >> (u64::BITS - count)) << first;
                all.push(Part { node, mask, kind: free.kind(node) });
            }
        }
        Parts { all }
    }

    /// Free GPUs of each part.
    pub(super) fn capacity(&self, free: &Free) -> Vec<u8> {
        let of = |part: &Part| (free.mask(part.node) & part.mask).count_ones() as u8;
        self.all.iter().map(of).collect()
    }

    /// The type of each part, as far as it counts.
    pub(super) fn kinds(&self, types: &dyn TypeRules) -> Vec<u8> {
        self.all.iter().map(|part| types.number(part.kind)).collect()
    }

    /// The most GPUs of each part that a job could have.
    pub(super) fn room(&self, job: JobRef<'_>, capacity: &[u8], free: &Free) -> Arc<[u8]> {
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
        let mut held = vec![0; self.all.len()];
        let masks = job.state.planned.iter().flat_map(|planned| planned.placement.masks());
        for (node, mask) in masks {
            let first = self.all.partition_point(|part| part.node < *node);
            let parts = self.all[first..].iter().zip(&mut held[first..]);
            for (part, cell) in parts.take_while(|(part, _)| part.node == *node) {
                *cell = (mask & part.mask).count_ones() as u8;
            }
        }
        held
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

    /// Parts of which a row has GPUs, and how many.
    pub(super) fn used<'a>(
        &'a self,
        cells: &'a [u8],
    ) -> impl Iterator<Item = (&'a Part, u32)> + 'a {
        let all = self.all.iter().zip(cells).filter(|(_, cell)| **cell > 0);
        all.map(|(part, cell)| (part, u32::from(*cell)))
    }
}
