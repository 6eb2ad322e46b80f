//! Jobs that are put aside in host memory: how much of it they may take, and where each of them can go on.

use crate::{Free, JobRef};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_types::{
    Allocation, Cluster, Grant, Job, JobId, NodeId, Phase, Placement, Shape, Share, SuspendRule,
    Suspended, Time,
};

/// What is put aside, and what may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aside {
    /// How the host does it, if it can.
    pub rule: Option<SuspendRule>,
    /// Jobs that are put aside or about to be, with the node whose memory they take and how much. Few: the memory of a
    /// node bounds them.
    pub taken: BTreeMap<JobId, (NodeId, u64)>,
    /// Jobs whose present attempt could not be put aside.
    pub refused: BTreeSet<JobId>,
}

impl Aside {
    /// Host memory of a node that jobs put aside take.
    pub fn used_mib(&self, node: NodeId) -> u64 {
        self.taken.values().filter(|(other, _)| *other == node).map(|(_, memory)| memory).sum()
    }

    /// Whether so much more may be taken on a node.
    pub fn has_room(&self, node: NodeId, memory_mib: u64) -> bool {
        self.rule.is_some_and(|rule| self.used_mib(node) + memory_mib <= rule.memory_mib)
    }

    /// The node whose memory a job would take and how much, if jobs like it were ever put aside: one process on one GPU
    /// that it has for itself. Nothing else was tried.
    pub fn need(&self, spec: &Job, held: &Allocation, cluster: &Cluster) -> Option<(NodeId, u64)> {
        if held.placement.gpus() != 1
            || held.shares.iter().any(|share| *share != Share::Whole)
            || self.refused.contains(&spec.id)
        {
            return None;
        }
        let node = held.placement.masks().first()?.0;
        let of_type = cluster.kinds[cluster.node(node).kind.index()].memory_mib;
        // What its user stated, else as much as there can be in such a GPU.
        let stated = [spec.want.gpu_memory_mib, held.gpu_memory_mib, of_type];
        let known = stated.into_iter().find(|memory| *memory > 0).map(u64::from);
        let all = self.rule.map_or(0, |rule| rule.memory_mib);
        Some((node, known.unwrap_or(all)))
    }

    /// Whether a job that holds GPUs can be put aside now.
    pub fn takes(&self, job: JobRef<'_>, cluster: &Cluster) -> bool {
        let held = job.state.held.as_ref();
        let need = held.and_then(|held| self.need(job.spec, held, cluster));
        need.is_some_and(|(node, memory)| self.has_room(node, memory))
    }

    /// Until when a job that was put aside at a moment waits for its own GPUs.
    pub fn tied_until(&self, since: Time) -> Time {
        since + self.rule.map_or(SuspendRule::AWAY_MAX, |rule| rule.away_max)
    }

    /// Where a job that is put aside can go on, while it waits for that place: neither for too long, nor where its GPUs
    /// take no work.
    pub fn tie<'a>(&self, job: JobRef<'a>, now: Time, free: &Free) -> Option<&'a Placement> {
        let own = put_aside(job)?;
        let placement = &own.home.placement;
        let mut masks = placement.masks().iter();
        let in_service = masks.all(|(node, mask)| mask & !free.up(*node) == 0);
        (in_service && now < self.tied_until(own.since)).then_some(placement)
    }
}

/// Where a job is put aside, if it is and neither comes back nor leaves already.
pub(crate) fn put_aside(job: JobRef<'_>) -> Option<&Suspended> {
    job.state.suspended.as_deref().filter(|_| job.state.phase == Phase::Suspended)
}

/// Whether a grant can be kept by going on at a place.
pub(crate) fn suits(grant: &Grant, place: &Placement, free: &Free) -> bool {
    match &grant.shape {
        Shape::Exact(other) => other == place,
        Shape::PerNode(parts) => {
            place.masks().len() == parts.len()
                && parts.iter().all(|(node, count)| place.mask(*node).count_ones() == *count)
        }
        Shape::PerKind(parts) => {
            let of = |kind| {
                let masks = place.masks().iter().filter(|(node, _)| free.kind(*node) == kind);
                masks.map(|(_, mask)| mask.count_ones()).sum::<u32>()
            };
            parts.iter().map(|(_, count)| *count).sum::<u32>() == place.gpus()
                && parts.iter().all(|(kind, count)| of(*kind) == *count)
        }
        Shape::Gpus { count, kind, nodes_max } => {
            let mut masks = place.masks().iter();
            place.gpus() == *count
                && (*nodes_max == 0 || place.nodes() <= u32::from(*nodes_max))
                && masks.all(|(node, _)| {
                    kind.is_none_or(|kind| free.kind(*node) == kind)
                        && grant.pool.is_none_or(|pool| free.pool(*node) == pool)
                })
        }
    }
}
