//! Giving out hosts (Synergy-TUNE, section 4.2): the best case where there is room, else the proportional share, for
//! which others give back what they have beyond theirs.

use super::demand::Demand;
use crate::prelude::*;
use std::cmp::Reverse;
use std::sync::Arc;
use trainyard_types::{Allocation, Grant, HostShare, Shape};

/// How hosts are given out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether a job that cannot have its target may run with less.
    pub falls_back: bool,
    /// Whether a job that runs goes elsewhere for its target.
    pub moves: bool,
    /// Whether what is left goes to jobs that have less than their target.
    pub spare: bool,
}

/// One job and what it is to have.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    pub job: JobRef<'a>,
    pub demand: Arc<Demand>,
    /// What it is given if there is room.
    pub target: HostShare,
}

/// Gives the hosts out among jobs of whole GPUs. Jobs that run stay where they are unless rules say otherwise.
///
/// O(n log n) for n wishes, one question to the placer for each new job, and O(n) for each job that others must give
/// back for.
pub fn share_out(wishes: &mut [Wish<'_>], rules: Rules, offer: &mut Offer<'_>) {
    // The largest first, so that what is left in the end is filled with small ones.
    wishes.sort_by_key(|wish| {
        let host = wish.target;
        Reverse((wish.demand.gpus, host.cpus, host.memory_mib, Reverse(wish.job.id())))
    });
    // Twice: what one job gives back, another may need to come up to its least.
    for _ in 0..2 {
        for wish in wishes.iter() {
            offer.set_host(wish.job.id(), wish.demand.least());
        }
    }
    let mut gave_back = false;
    for index in 0..wishes.len() {
        let wish = &wishes[index];
        match offer.plan(wish.job.id()).is_some() {
            true => raise(wish, rules, offer),
            false => gave_back |= place(index, wishes, rules, offer),
        }
    }
    if gave_back || rules.spare {
        for wish in wishes.iter() {
            fill_up(wish, rules, offer);
        }
    }
}

/// Places one more job after the others; whether it runs.
pub fn add<'a>(
    wish: Wish<'a>,
    wishes: &mut Vec<Wish<'a>>,
    rules: Rules,
    offer: &mut Offer<'_>,
) -> bool {
    wishes.push(wish);
    let last = wishes.len() - 1;
    place(last, wishes, rules, offer);
    offer.plan(wishes[last].job.id()).is_some()
}

/// Brings a job that runs to its target, where it is or elsewhere.
fn raise(wish: &Wish<'_>, rules: Rules, offer: &mut Offer<'_>) {
    let id = wish.job.id();
    // One that was not launched yet goes elsewhere at no cost.
    let may_go = rules.moves || wish.job.state.held.is_none();
    if !offer.set_host(id, wish.target) && may_go {
        offer.grant(&grant(wish, wish.target));
    }
}

/// Gives a job after the others what is left: its target, or with spare the fastest cell below it that fits.
fn fill_up(wish: &Wish<'_>, rules: Rules, offer: &mut Offer<'_>) {
    let id = wish.job.id();
    let Some(has) = offer.plan(id).map(|plan| plan.host_per_gpu) else { return };
    if has == wish.target || offer.set_host(id, wish.target) || !rules.spare {
        return;
    }
    let speed = |host| {
        let known = wish.demand.cells.iter().find(|cell| cell.host == host);
        known.map_or(1.0, |cell| cell.speed)
    };
    let mut cells = wish.demand.cells.clone();
    cells.retain(|cell| cell.speed > speed(has));
    cells.sort_by(|a, b| b.speed.total_cmp(&a.speed));
    let _ = cells.iter().any(|cell| offer.set_host(id, cell.host));
}

/// Places a job that does not run; whether others gave back for it.
fn place(index: usize, wishes: &[Wish<'_>], rules: Rules, offer: &mut Offer<'_>) -> bool {
    let wish = &wishes[index];
    if offer.grant(&grant(wish, wish.target)) != GrantOutcome::NoRoom || !rules.falls_back {
        return false;
    }
    let least = wish.demand.least();
    if least != wish.target && offer.grant(&grant(wish, least)) != GrantOutcome::NoRoom {
        return false;
    }
    give_back(index, wishes, offer)
}

/// On nodes that have the GPUs for a job, jobs with more than their proportional share go back to it, one after
/// another, until there is room; whether any did. By design there is room in the end: all that a job on such a node may
/// keep is its part.
fn give_back(index: usize, wishes: &[Wish<'_>], offer: &mut Offer<'_>) -> bool {
    let wish = &wishes[index];
    let nodes = nodes_with_gpus(wish, offer);
    let is_there =
        |plan: &Allocation| plan.placement.masks().iter().any(|(node, _)| nodes.contains(node));
    let mut others: Vec<(u32, Reverse<HostShareKey>, usize)> = Vec::new();
    for (other, one) in wishes.iter().enumerate() {
        let Some(plan) = offer.plan(one.job.id()).filter(|plan| is_there(plan)) else { continue };
        let host = plan.host_per_gpu;
        if !host.is_within(one.demand.proportional) {
            let key = (host.cpus, host.memory_mib);
            others.push((plan.placement.nodes(), Reverse(key), other));
        }
    }
    // Those on the fewest nodes first, then those with the most CPUs for each GPU, then with the most memory.
    others.sort_unstable();
    let mut gave_back = false;
    for (_, _, other) in others {
        let other = &wishes[other];
        gave_back |= offer.set_host(other.job.id(), other.demand.least());
        if offer.grant(&grant(wish, wish.demand.least())) != GrantOutcome::NoRoom {
            break;
        }
    }
    gave_back
}

/// CPUs and memory for each GPU.
type HostShareKey = (u32, u64);

/// The node with the fewest free GPUs that suffice for a job, or the fewest nodes that do together.
fn nodes_with_gpus(wish: &Wish<'_>, offer: &Offer<'_>) -> Vec<NodeId> {
    let (free, want, need) = (offer.free(), &wish.job.spec.want, wish.demand.gpus);
    let is_open = |node: &NodeId| {
        want.pool.is_none_or(|pool| free.pool(*node) == pool)
            && free.shut(*node, wish.job).is_none()
    };
    let kinds = free.kinds().into_iter().filter(|kind| want.accepts(*kind));
    let kinds: Vec<GpuType> = kinds.collect();
    for kind in &kinds {
        if let Some(node) = free.tightest(*kind, need).find(is_open) {
            return vec![node];
        }
    }
    for kind in kinds {
        let mut nodes = Vec::new();
        let mut found = 0;
        for node in free.roomiest(kind).filter(is_open) {
            found += free.mask(node).count_ones();
            nodes.push(node);
            if found >= need {
                return nodes;
            }
        }
    }
    Vec::new()
}

fn grant(wish: &Wish<'_>, host: HostShare) -> Grant {
    let mut grant = wanted(wish.job);
    if let Shape::Gpus { count, .. } = &mut grant.shape {
        *count = wish.demand.gpus;
    }
    grant.host(host)
}
