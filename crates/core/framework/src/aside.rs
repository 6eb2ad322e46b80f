//! Jobs that are put aside in host memory: how much of it they may take, and where each of them can go on.

use crate::{Beliefs, Free, JobRef};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_profile::{ChangeCost, SuspendCost};
use trainyard_types::{
    Allocation, AsideSpans, Cluster, Grant, Job, JobId, NodeId, Phase, Placement, Shape, Share,
    Span, SuspendRule, Suspended, Time,
};

/// How a running job is stopped for another one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It saves and exits.
    Save,
    /// It is put aside, in so much host memory.
    Suspend(u64),
    /// It is killed: it has just begun, and saving takes longer than what it has done.
    Drop,
}

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

    /// Whether a job may take so much on a node. What it takes there now, because it is on its way back, counts as free.
    pub fn has_room(&self, job: JobId, node: NodeId, memory_mib: u64) -> bool {
        let own = self.taken.get(&job).filter(|(other, _)| *other == node);
        let used = self.used_mib(node) - own.map_or(0, |(_, memory)| *memory);
        self.rule.is_some_and(|rule| used + memory_mib <= rule.memory_mib)
    }

    /// The cheapest way that is open to take GPUs from a job for another one and to give them back later, and what that
    /// costs: what stopping takes and what starting takes. `ran` says for how long it ran, where it goes now; without it,
    /// it is asked what the end of a turn will cost.
    ///
    /// This is the one place where a preemption has a price: policies see it by [`View::preemption`](crate::View::preemption)
    /// and the engine goes by it. Linear in the jobs put aside.
    pub fn cheapest(
        &self,
        job: JobRef<'_>,
        held: &Allocation,
        (cluster, beliefs): (&Cluster, &dyn Beliefs),
        ran: Option<Span>,
    ) -> (Way, ChangeCost) {
        let on = held.config(cluster);
        let save = beliefs.change(job.spec, Some(&on), None).save;
        let start = beliefs.change(job.spec, None, Some(&on)).start;
        // What is lost beside the start, in time: its save, or all that it did since it started where that is less.
        let loses = ran.map_or(save, |ran| save.min(ran));
        let suspend = self.price(job, held, (cluster, beliefs), ran);
        match suspend {
            // One that cannot save is never stopped in another way, however short it ran.
            Some((memory, SuspendCost { out, back }))
                if !job.spec.saves || out + back < start + loses =>
            {
                (Way::Suspend(memory), ChangeCost { save: out, start: back, in_place: false })
            }
            _ => {
                let way = if ran.is_some_and(|ran| ran < save) { Way::Drop } else { Way::Save };
                (way, ChangeCost { save, start, in_place: false })
            }
        }
    }

    /// What it costs to put a job aside and to bring it back, and the memory it takes, if that is open to it: by what was
    /// measured of the job before, or else by what is believed.
    fn price(
        &self,
        job: JobRef<'_>,
        held: &Allocation,
        (cluster, beliefs): (&Cluster, &dyn Beliefs),
        ran: Option<Span>,
    ) -> Option<(u64, SuspendCost)> {
        let rule = self.rule?;
        let (node, memory) = self.need(job.spec, held, cluster)?;
        let before = job.state.aside.as_deref();
        let saves = job.spec.saves;
        // One that could save and was away for too long the last time takes memory from others for nothing.
        let away = before.map_or(Span::ZERO, |spans| spans.away);
        if saves && away > rule.away_max || memory > rule.memory_mib {
            return None;
        }
        // One that cannot save waits for room at the end of its turn; it is not stopped without.
        if (saves || ran.is_some()) && !self.has_room(job.spec.id, node, memory) {
            return None;
        }
        let cost = match before {
            Some(AsideSpans { out, back, .. }) if *back > Span::ZERO => {
                SuspendCost { out: *out, back: *back }
            }
            _ => {
                let believed = beliefs.suspend(job.spec, &held.config(cluster), memory);
                // There is no other way for one that cannot save, whatever it costs.
                believed.or((!saves).then(|| SuspendCost::by_driver(memory)))?
            }
        };
        Some((memory, cost))
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
        self.takes_and_leaves(job, cluster, 0)
    }

    /// Whether a job that holds GPUs can be put aside now, so that as much as it takes, so many times, is left after it.
    fn takes_and_leaves(&self, job: JobRef<'_>, cluster: &Cluster, times: u64) -> bool {
        self.needs(job, cluster).is_some_and(|(node, memory)| {
            self.has_room(job.spec.id, node, memory.saturating_mul(1 + times))
        })
    }

    /// What a job would take where it is, if it can be put aside at all: one that is on its way back cannot.
    pub(crate) fn needs(&self, job: JobRef<'_>, cluster: &Cluster) -> Option<(NodeId, u64)> {
        let held = job.state.held.as_ref().filter(|_| job.state.suspended.is_none())?;
        self.need(job.spec, held, cluster)
    }

    /// Whether a job that holds GPUs would lose what it did if it were to go on elsewhere.
    fn is_bound(&self, job: JobRef<'_>) -> bool {
        let goes = job.state.phase == Phase::Saving
            && job.state.suspended.is_none()
            && self.taken.contains_key(&job.spec.id);
        goes || !job.spec.saves && !job.spec.want.resizes_in_place
    }

    /// Whether turns can go on after a job was put aside for the next one. Where none of them can save, the last place in
    /// memory is for a swap: it is taken for one that comes back, which gives up its own place, and not for a new one,
    /// after which no job could leave.
    pub fn turns_go_on(&self, job: JobRef<'_>, next: JobRef<'_>, cluster: &Cluster) -> bool {
        if job.spec.saves || next.state.suspended.is_some() {
            return true;
        }
        let Some((node, _)) = self.needs(job, cluster) else { return true };
        self.used_mib(node) == 0 || self.takes_and_leaves(job, cluster, 1)
    }

    /// Until when a job that was put aside at a moment waits for its own GPUs.
    pub fn tied_until(&self, since: Time) -> Time {
        since + self.rule.map_or(SuspendRule::AWAY_MAX, |rule| rule.away_max)
    }

    /// Where a job that is put aside can go on, while it waits for that place: neither for too long, nor where its GPUs
    /// take no work. One on its way into memory, and one that cannot save and runs, goes on nowhere else either.
    pub fn tie<'a>(&self, job: JobRef<'a>, now: Time, free: &Free) -> Option<&'a Placement> {
        let placement = match put_aside(job) {
            Some(own) => Some(&own.home.placement).filter(|_| now < self.tied_until(own.since)),
            None if self.rule.is_none() || !self.is_bound(job) => None,
            None => job.state.held.as_ref().map(|held| &held.placement),
        }?;
        let mut masks = placement.masks().iter();
        masks.all(|(node, mask)| mask & !free.up(*node) == 0).then_some(placement)
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
