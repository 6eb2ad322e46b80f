//! Sizes for many jobs at once, put where they fit: a job that keeps its size stays where it is, unless that leaves no
//! room for a larger one.

use crate::prelude::*;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use trainyard_types::{Grant, Shape, Share};

/// A size for a job on a type of GPU.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) job: JobId,
    pub(crate) kind: GpuType,
    pub(crate) gpus: u32,
    /// Smaller sizes it can have if there is no room after all, largest first.
    pub(crate) less: SmallVec<[u32; 4]>,
}

/// GPUs on nodes.
type Spot = SmallVec<[(NodeId, u32); 2]>;

/// Grants every wish, in place of all that was granted before.
///
/// Jobs of the same size stay. Where the others do not fit beside them, the smallest of these move too, then those twice
/// as large, until every job fits: sizes that are powers of two always do on nodes that are. O(n log n + k m) for n
/// wishes that need k nodes out of m, times the doublings of the largest size.
pub(crate) fn regrant(view: &View<'_>, offer: &mut Offer<'_>, wishes: &[Wish]) {
    offer.everything();
    let (plain, limited): (Vec<&Wish>, Vec<&Wish>) =
        wishes.iter().partition(|wish| view.job(wish.job).is_some_and(is_plain));
    // What the number of GPUs of a node does not decide is left to the placer.
    for wish in limited {
        grant_or_less(view, offer, wish, None);
    }
    let spots = spots(view, offer, &plain);
    let mut order: Vec<usize> = (0..plain.len()).collect();
    order.sort_by_key(|&index| (!spots[index].stays, Reverse(plain[index].gpus), plain[index].job));
    for index in order {
        let (wish, found) = (plain[index], &spots[index]);
        let shape = match (found.stays, &found.spot) {
            (true, _) => {
                let planned = view.job(wish.job).and_then(|job| job.state.planned.as_ref());
                planned.map(|planned| Shape::Exact(planned.placement.clone()))
            }
            (false, Some(spot)) => Some(Shape::PerNode(spot.clone())),
            (false, None) => None,
        };
        grant_or_less(view, offer, wish, shape);
    }
}

/// Whether only the number of wholly free GPUs decides where a job may run.
fn is_plain(job: JobRef<'_>) -> bool {
    let want = &job.spec.want;
    let host = want.cpus_per_gpu > 0 || want.memory_mib_per_gpu > 0 || want.gpu_memory_mib > 0;
    !host && want.nodes_max == 0 && want.pool.is_none() && want.permille == 1000
}

fn grant_or_less(view: &View<'_>, offer: &mut Offer<'_>, wish: &Wish, shape: Option<Shape>) {
    let Some(job) = view.job(wish.job) else { return };
    let grant = |gpus: u32| {
        let mut grant = Grant::gpus(wish.job, gpus).of(wish.kind);
        if job.spec.want.permille < 1000 {
            grant = grant.share(Share::Permille(job.spec.want.permille));
        }
        grant.pool = job.spec.want.pool;
        grant
    };
    if let Some(shape) = shape {
        let exact = Grant { shape, ..grant(wish.gpus) };
        if offer.grant(&exact) == GrantOutcome::Taken {
            return;
        }
    }
    let sizes = std::iter::once(&wish.gpus).chain(&wish.less);
    for gpus in sizes {
        if offer.grant(&grant(*gpus)) == GrantOutcome::Taken {
            return;
        }
    }
}

/// Where one wish goes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    stays: bool,
    spot: Option<Spot>,
}

/// Spots for all wishes; those for which there is none are left to the placer.
fn spots(view: &View<'_>, offer: &Offer<'_>, wishes: &[&Wish]) -> Vec<Found> {
    let free = offer.free();
    let holds = |wish: &&Wish| {
        let planned = view.job(wish.job).and_then(|job| job.state.planned.clone());
        planned.map(|planned| planned.placement).filter(|placement| {
            let there = |&(node, mask): &(NodeId, u64)| {
                free.kind(node) == wish.kind && mask & !free.mask(node) == 0
            };
            placement.gpus() == wish.gpus && placement.masks().iter().all(there)
        })
    };
    let held: Vec<Option<Placement>> = wishes.iter().map(holds).collect();
    let largest = wishes.iter().map(|wish| wish.gpus).max().unwrap_or(0);
    let mut moves_up_to = 0;
    loop {
        let stays = |index: usize| held[index].is_some() && wishes[index].gpus > moves_up_to;
        let mut room = Room::new(free);
        let mut found = vec![Found::default(); wishes.len()];
        for index in (0..wishes.len()).filter(|index| stays(*index)) {
            found[index].stays = true;
            room.take(
                held[index]
                    .iter()
                    .flat_map(|placement| placement.masks().iter())
                    .map(|(node, mask)| (*node, mask.count_ones())),
            );
        }
        let mut others: Vec<usize> = (0..wishes.len()).filter(|index| !stays(*index)).collect();
        others.sort_by_key(|&index| (Reverse(wishes[index].gpus), wishes[index].job));
        for &index in &others {
            found[index].spot = room.find(wishes[index].kind, wishes[index].gpus);
        }
        let fits = others.iter().all(|index| found[*index].spot.is_some());
        if fits || moves_up_to >= largest {
            return found;
        }
        moves_up_to = (moves_up_to * 2).max(1);
    }
}

/// Free GPUs of each node, by type.
struct Room {
    /// Nodes of a type by what is free on them.
    by_kind: Vec<(GpuType, BTreeSet<(u32, NodeId)>)>,
    /// What is free on a node, and how much that is at most.
    free: Vec<(GpuType, u32, u32)>,
}

impl Room {
    fn new(free: &Free) -> Room {
        let mut room = Room { by_kind: Vec::new(), free: Vec::new() };
        for node in (0..free.nodes()).map(NodeId) {
            let (kind, count) = (free.kind(node), free.mask(node).count_ones());
            room.free.push((kind, count, free.up(node).count_ones()));
            if count > 0 {
                room.of(kind).insert((count, node));
            }
        }
        room
    }

    fn of(&mut self, kind: GpuType) -> &mut BTreeSet<(u32, NodeId)> {
        let index = self.by_kind.iter().position(|(other, _)| *other == kind);
        let index = index.unwrap_or_else(|| {
            self.by_kind.push((kind, BTreeSet::new()));
            self.by_kind.len() - 1
        });
        &mut self.by_kind[index].1
    }

    fn take(&mut self, parts: impl Iterator<Item = (NodeId, u32)>) {
        for (node, count) in parts {
            let (kind, free, _) = self.free[node.index()];
            self.of(kind).remove(&(free, node));
            let left = free.saturating_sub(count);
            self.free[node.index()].1 = left;
            if left > 0 {
                self.of(kind).insert((left, node));
            }
        }
    }

    /// The fullest node that has room; for more than a node has, idle nodes and the fullest one for the rest.
    fn find(&mut self, kind: GpuType, gpus: u32) -> Option<Spot> {
        let mut spot = Spot::new();
        let mut rest = gpus;
        while rest > 0 {
            let nodes = self.of(kind);
            let tightest = nodes.range((rest, NodeId(0))..).next().copied();
            let (free, node) = tightest.or_else(|| nodes.last().copied())?;
            if tightest.is_none() && free < self.free[node.index()].2 {
                // A gang that spans nodes takes whole ones.
                self.give_back(&spot);
                return None;
            }
            let count = free.min(rest);
            self.take(std::iter::once((node, count)));
            spot.push((node, count));
            rest -= count;
        }
        spot.sort_unstable();
        Some(spot)
    }

    fn give_back(&mut self, spot: &Spot) {
        for &(node, count) in spot {
            let (kind, free, _) = self.free[node.index()];
            self.of(kind).remove(&(free, node));
            self.free[node.index()].1 = free + count;
            self.of(kind).insert((free + count, node));
        }
    }
}
