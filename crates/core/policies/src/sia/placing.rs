//! Which GPUs, with as few moves as possible (Sia, section 3.5).
//!
//! A job that keeps its configuration keeps its GPUs. Of the others, those of several nodes take whole free nodes from
//! the last one down, and those within a node the fullest node that holds them, from the first one up. Where that fails
//! because what is free is scattered, the smallest jobs in the way give way and are placed anew; as a last resort all
//! jobs of that type are.

use std::cmp::Reverse;
use trainyard_framework::Free;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Cluster, GpuType, NodeId, Placement};

/// What a job is to have.
#[derive(Clone, Debug)]
pub struct Need {
    /// The caller's number.
    pub index: usize,
    pub kind: GpuType,
    pub gpus: u32,
    /// What it has.
    pub current: Option<Placement>,
}

/// The nodes, with what is free on them.
#[derive(Clone, Debug)]
pub struct FreeMap {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    id: NodeId,
    kind: GpuType,
    /// GPUs that may be given to any job.
    all: u64,
    free: u64,
    /// Whether all of the node may be given: no job is there that may not be moved.
    whole: bool,
}

impl FreeMap {
    /// All nodes, with what is free now.
    pub fn new(cluster: &Cluster, free: &Free) -> FreeMap {
        let node = |index: u32| {
            let id = NodeId(index);
            let all = free.mask(id);
            Node { id, kind: cluster.node(id).kind, all, free: all, whole: all == free.up(id) }
        };
        FreeMap { nodes: (0..free.nodes()).map(node).collect() }
    }

    /// The GPUs of a job that may be moved, as far as they are in service.
    pub fn give(&mut self, placement: &Placement, free: &Free) {
        for &(id, mask) in placement.masks() {
            let node = &mut self.nodes[id.index()];
            node.all |= mask & free.up(id);
            node.free = node.all;
            node.whole = node.all == free.up(id);
        }
    }

    /// Of nodes with so many GPUs of one type; for tests.
    #[cfg(test)]
    pub fn of_sizes(sizes: &[u32]) -> FreeMap {
        let node = |(index, size): (usize, &u32)| {
            let all = lowest_bits(u64::MAX, *size);
            Node { id: NodeId(index as u32), kind: GpuType(0), all, free: all, whole: true }
        };
        FreeMap { nodes: sizes.iter().enumerate().map(node).collect() }
    }

    /// A placement for each need, in their order; nothing for one that cannot be placed.
    pub fn place(mut self, needs: &[Need]) -> Vec<Option<Placement>> {
        let mut placed: Vec<Option<Placement>> = vec![None; needs.len()];
        let mut kinds: Vec<GpuType> = needs.iter().map(|need| need.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let mut room = Room {
                nodes: self.nodes.iter_mut().filter(|node| node.kind == kind).collect(),
                needs,
                placed: &mut placed,
            };
            room.settle(kind);
        }
        placed
    }
}

/// The nodes of one type.
struct Room<'a> {
    nodes: Vec<&'a mut Node>,
    needs: &'a [Need],
    placed: &'a mut [Option<Placement>],
}

impl Room<'_> {
    fn settle(&mut self, kind: GpuType) {
        let of_kind = |at: &usize| self.needs[*at].kind == kind;
        let all: Vec<usize> = (0..self.needs.len()).filter(of_kind).collect();
        let mut queue: Vec<usize> = Vec::new();
        for &at in &all {
            match self.needs[at].current.clone().filter(|current| self.may_keep(at, current)) {
                Some(current) => self.take(at, current),
                None => queue.push(at),
            }
        }
        // An eviction puts smaller jobs into the queue, so this ends; the bound is for odd nodes.
        let mut tries = 4 * all.len() + 16;
        let mut failed = false;
        while let Some(at) = self.largest(&mut queue) {
            tries = tries.saturating_sub(1);
            let found = self.fit(self.needs[at].gpus);
            let found = found.or_else(|| match tries {
                0 => None,
                _ => self.evict(at, &mut queue),
            });
            match found {
                Some(placement) => self.take(at, placement),
                None => failed = true,
            }
        }
        if failed {
            self.pack_anew(&all);
        }
    }

    /// Takes the largest job out of a queue, the first of equals.
    fn largest(&self, queue: &mut Vec<usize>) -> Option<usize> {
        let place = (0..queue.len())
            .min_by_key(|place| (Reverse(self.needs[queue[*place]].gpus), queue[*place]))?;
        Some(queue.remove(place))
    }

    /// Whether a job may stay where it is: as many GPUs, all of them there and of this type.
    fn may_keep(&self, at: usize, current: &Placement) -> bool {
        let there = |&(id, mask): &(NodeId, u64)| {
            self.place_of(id).is_some_and(|place| self.nodes[place].free & mask == mask)
        };
        current.gpus() == self.needs[at].gpus && current.masks().iter().all(there)
    }

    /// Where a node is among those of the room, which are in order of their ids.
    fn place_of(&self, id: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }

    fn take(&mut self, at: usize, placement: Placement) {
        for &(id, mask) in placement.masks() {
            let place = self.place_of(id).expect("a node of the room");
            self.nodes[place].free &= !mask;
        }
        self.placed[at] = Some(placement);
    }

    fn give(&mut self, at: usize) {
        let Some(placement) = self.placed[at].take() else { return };
        for &(id, mask) in placement.masks() {
            let place = self.place_of(id).expect("a node of the room");
            self.nodes[place].free |= mask;
        }
    }

    /// GPUs of the largest node.
    fn per_node(&self) -> u32 {
        self.nodes.iter().map(|node| node.all.count_ones()).max().unwrap_or(0)
    }

    /// Free GPUs for so many: within one node if one could hold them, else whole nodes and a rest.
    fn fit(&self, gpus: u32) -> Option<Placement> {
        let per_node = self.per_node();
        if gpus <= per_node {
            return self.fullest(gpus, &[]).map(|node| {
                Placement::on(self.nodes[node].id, lowest_bits(self.nodes[node].free, gpus))
            });
        }
        let mut taken: Vec<usize> = Vec::new();
        let mut left = gpus;
        for place in (0..self.nodes.len()).rev() {
            let node = &self.nodes[place];
            let size = node.all.count_ones();
            if node.whole && node.free == node.all && size == per_node && left >= size && size > 0 {
                taken.push(place);
                left -= size;
            }
        }
        let mut masks: Vec<(NodeId, u64)> =
            taken.iter().map(|place| (self.nodes[*place].id, self.nodes[*place].free)).collect();
        if left >= per_node {
            return None;
        }
        if left > 0 {
            let node = &self.nodes[self.fullest(left, &taken)?];
            masks.push((node.id, lowest_bits(node.free, left)));
        }
        Some(Placement::from_masks(masks))
    }

    /// The node with the fewest free GPUs that hold so many, the first of equals.
    fn fullest(&self, gpus: u32, but: &[usize]) -> Option<usize> {
        let fits =
            |place: &usize| self.nodes[*place].free.count_ones() >= gpus && !but.contains(place);
        let places = (0..self.nodes.len()).filter(fits);
        places.min_by_key(|place| (self.nodes[*place].free.count_ones(), *place))
    }

    /// Makes room for a job at the expense of the smallest in the way, which join the queue.
    fn evict(&mut self, at: usize, queue: &mut Vec<usize>) -> Option<Placement> {
        let gpus = self.needs[at].gpus;
        let per_node = self.per_node();
        let mut costs: Vec<(u32, usize, Vec<usize>)> = Vec::new();
        let smaller = self.smaller_inside(gpus);
        for (place, smaller) in smaller.into_iter().enumerate() {
            let size = self.nodes[place].all.count_ones();
            let wanted = if gpus <= per_node { gpus } else { per_node };
            if size >= wanted
                && (gpus <= per_node || self.nodes[place].whole)
                && let Some((cost, victims)) = self.victims(place, wanted, smaller)
            {
                costs.push((cost, place, victims));
            }
        }
        costs.sort();
        let nodes = if gpus <= per_node { 1 } else { (gpus / per_node) as usize };
        if costs.len() < nodes {
            return None;
        }
        for (_, _, victims) in costs.into_iter().take(nodes) {
            for victim in victims {
                self.give(victim);
                queue.push(victim);
            }
        }
        self.fit(gpus)
    }

    /// For each node, the jobs within it that have fewer than so many GPUs, the smallest first.
    fn smaller_inside(&self, gpus: u32) -> Vec<Vec<usize>> {
        let mut inside = vec![Vec::new(); self.nodes.len()];
        for (at, placement) in self.placed.iter().enumerate() {
            if let Some([(id, _)]) = placement.as_ref().map(Placement::masks)
                && let Some(place) = self.place_of(*id).filter(|_| self.needs[at].gpus < gpus)
            {
                inside[place].push(at);
            }
        }
        for there in &mut inside {
            there.sort_by_key(|at| (self.needs[*at].gpus, *at));
        }
        inside
    }

    /// Of the jobs of a node that are smaller than the one that comes, those whose going leaves so many GPUs free, and how
    /// many GPUs they have.
    fn victims(&self, place: usize, wanted: u32, there: Vec<usize>) -> Option<(u32, Vec<usize>)> {
        let mut free = self.nodes[place].free.count_ones();
        let mut victims = Vec::new();
        let mut cost = 0;
        for at in there {
            if free >= wanted {
                break;
            }
            free += self.needs[at].gpus;
            cost += self.needs[at].gpus;
            victims.push(at);
        }
        (free >= wanted).then_some((cost, victims))
    }

    /// Places all jobs anew, the largest first, if then all of them fit.
    fn pack_anew(&mut self, all: &[usize]) {
        let before: Vec<Option<Placement>> =
            all.iter().map(|at| self.placed[*at].clone()).collect();
        all.iter().for_each(|at| self.give(*at));
        let mut order = all.to_vec();
        order.sort_by_key(|at| (Reverse(self.needs[*at].gpus), *at));
        let mut packed = true;
        for at in order {
            match self.fit(self.needs[at].gpus) {
                Some(placement) => self.take(at, placement),
                None => packed = false,
            }
        }
        if packed {
            return;
        }
        all.iter().for_each(|at| self.give(*at));
        for (at, placement) in all.iter().zip(before) {
            if let Some(placement) = placement {
                self.take(*at, placement);
            }
        }
    }
}
