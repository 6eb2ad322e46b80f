//! GPUs as they are planned while a decision is made: which jobs keep which, and what is left for the others.

use super::Pools;
use crate::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Allocation, Grant, HostShare, Job};

/// What is free beside the base of every job that runs: GPUs that no job has, and those that jobs hold beyond their
/// base.
pub(super) struct Board<'p> {
    free: Free,
    pools: &'p Pools,
    /// GPUs of each node that some job holds beyond its base.
    extra: BTreeMap<NodeId, u64>,
}

/// What a job has while it is planned.
pub(super) struct Has<'a> {
    /// What it keeps in any case.
    pub(super) base: &'a Placement,
    /// What it holds now.
    pub(super) held: Option<&'a Placement>,
}

/// Nodes that may be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Own,
    Lent,
    Any,
}

impl<'p> Board<'p> {
    pub(super) fn new(free: &Free, pools: &'p Pools) -> Board<'p> {
        Board { free: free.clone(), pools, extra: BTreeMap::new() }
    }

    /// GPUs of a type that are left.
    pub(super) fn left(&self, kind: GpuType) -> u32 {
        self.free.gpus(kind)
    }

    /// What a job that is to keep `kept` of what it holds would give up.
    pub(super) fn give_up(&mut self, job: &Job, held: &Placement, kept: &Placement) {
        let gone: Vec<(NodeId, u64)> =
            held.masks().iter().map(|&(node, mask)| (node, mask & !kept.mask(node))).collect();
        for (node, mask) in &gone {
            *self.extra.entry(*node).or_default() |= mask;
        }
        let gone = Placement::from_masks(gone);
        if !gone.is_empty() {
            self.free.give(&allocation(job, gone));
        }
    }

    /// Takes GPUs that are left.
    pub(super) fn take(&mut self, job: &Job, placement: &Placement) {
        self.free.take(&allocation(job, placement.clone()));
    }

    /// `count` GPUs of a type: on the tightest node that has them all, else on the fewest nodes.
    pub(super) fn base(&self, ask: &Ask<'_>, kind: GpuType, side: Where) -> Option<Placement> {
        let mut rooms: Vec<(u32, NodeId)> =
            self.nodes(kind, side).map(|node| (ask.usable(node, &self.free), node)).collect();
        rooms.retain(|(room, _)| *room > 0);
        let whole = rooms.iter().filter(|(room, _)| *room >= ask.count);
        // Of nodes that are equally tight, the one where fewest GPUs are taken back from others.
        let tightest = whole.min_by_key(|(room, node)| (*room, self.taken_back(*node), *node));
        if let Some((_, node)) = tightest {
            return Some(Placement::on(*node, self.pick(ask, *node, ask.count)));
        }
        rooms.sort_by_key(|(room, node)| (std::cmp::Reverse(*room), *node));
        self.spread(ask, rooms, ask.count, &Placement::default())
    }

    /// Up to as many more GPUs as are asked for, for a job that has some: first those it holds, then on lent nodes, so
    /// that giving them back is shrinking (Lyra's placement), then on our own.
    pub(super) fn more(
        &self,
        ask: &Ask<'_>,
        kind: GpuType,
        Has { base, held }: Has<'_>,
    ) -> Placement {
        let mut masks: Vec<(NodeId, u64)> = Vec::new();
        let mut rest = ask.count;
        let mut nodes: BTreeSet<NodeId> = base.masks().iter().map(|(node, _)| *node).collect();
        let order = |node: &NodeId| (!self.pools.is_lent(*node), *node);
        let mut own: Vec<(NodeId, u64)> = held.map_or(Vec::new(), |held| held.masks().to_vec());
        own.sort_by_key(|(node, _)| order(node));
        for (node, mask) in own {
            let room = ask.usable_mask(node, &self.free) & mask & !base.mask(node);
            let count = room.count_ones().min(ask.gpus_by_host(node, &self.free)).min(rest);
            if count > 0 && self.allows_node(ask, &nodes, node) {
                nodes.insert(node);
                masks.push((node, lowest_bits(room, count)));
                rest -= count;
            }
        }
        let kept = Placement::from_masks(masks.iter().copied());
        let mut rooms: Vec<NodeId> = self.nodes(kind, Where::Any).collect();
        rooms.sort_by_cached_key(|node| {
            let room = ask.usable(*node, &self.free);
            (!self.pools.is_lent(*node), !nodes.contains(node), std::cmp::Reverse(room), *node)
        });
        for node in rooms {
            let room = ask.usable_mask(node, &self.free) & !kept.mask(node);
            let by_host = ask.gpus_by_host(node, &self.free);
            let by_host = by_host.saturating_sub(kept.mask(node).count_ones());
            let count = room.count_ones().min(by_host).min(rest);
            if count > 0 && self.allows_node(ask, &nodes, node) {
                nodes.insert(node);
                masks.push((node, lowest_bits(room, count)));
                rest -= count;
            }
        }
        Placement::from_masks(masks)
    }

    fn allows_node(&self, ask: &Ask<'_>, nodes: &BTreeSet<NodeId>, node: NodeId) -> bool {
        let most = usize::from(ask.nodes_max);
        most == 0 || nodes.contains(&node) || nodes.len() < most
    }

    fn spread(
        &self,
        ask: &Ask<'_>,
        rooms: Vec<(u32, NodeId)>,
        count: u32,
        beside: &Placement,
    ) -> Option<Placement> {
        let most = match ask.nodes_max {
            0 => usize::MAX,
            most => usize::from(most).saturating_sub(beside.masks().len()),
        };
        let mut rest = count;
        let mut masks = Vec::new();
        for (room, node) in rooms.into_iter().take(most) {
            let here = room.min(rest);
            if here > 0 {
                masks.push((node, self.pick(ask, node, here)));
                rest -= here;
            }
        }
        (rest == 0).then(|| Placement::from_masks(masks))
    }

    /// GPUs of a node: first those that no job holds.
    fn pick(&self, ask: &Ask<'_>, node: NodeId, count: u32) -> u64 {
        let usable = ask.usable_mask(node, &self.free);
        let extra = self.extra.get(&node).copied().unwrap_or(0);
        let idle = lowest_bits(usable & !extra, count);
        idle | lowest_bits(usable & extra, count - idle.count_ones())
    }

    fn taken_back(&self, node: NodeId) -> u32 {
        let extra = self.extra.get(&node).copied().unwrap_or(0);
        (extra & self.free.mask(node)).count_ones()
    }

    fn nodes(&self, kind: GpuType, side: Where) -> impl Iterator<Item = NodeId> + '_ {
        self.free.tightest(kind, 1).filter(move |node| match side {
            Where::Own => !self.pools.is_lent(*node),
            Where::Lent => self.pools.is_lent(*node),
            Where::Any => true,
        })
    }
}

/// What a job needs on whole GPUs.
fn allocation(job: &Job, placement: Placement) -> Allocation {
    let host_per_gpu = HostShare {
        cpus: u32::from(job.want.cpus_per_gpu),
        memory_mib: u64::from(job.want.memory_mib_per_gpu),
    };
    let gpu_memory_mib = job.want.gpu_memory_mib;
    Allocation { host_per_gpu, gpu_memory_mib, ..Allocation::whole(placement) }
}

/// The question for so many GPUs of a job.
pub(super) fn ask<'v>(job: JobRef<'v>, count: u32) -> Ask<'v> {
    Ask::new(job, &Grant::gpus(job.id(), count), count, job.spec.want.kinds.clone())
}

/// The part of a placement that counts as a job's base: on our own nodes first, then where it has most.
pub(super) fn base_part(held: &Placement, count: u32, pools: &Pools) -> Placement {
    let mut parts: Vec<(NodeId, u64)> = held.masks().to_vec();
    let most = |mask: u64| std::cmp::Reverse(mask.count_ones());
    parts.sort_by_key(|(node, mask)| (pools.is_lent(*node), most(*mask), *node));
    let mut rest = count;
    let masks = parts.into_iter().map(|(node, mask)| {
        let here = mask.count_ones().min(rest);
        rest -= here;
        (node, lowest_bits(mask, here))
    });
    Placement::from_masks(masks.collect::<Vec<_>>())
}
