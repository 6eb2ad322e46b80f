//! Who is on which GPU, and how much it is taken to be used.

use crate::prelude::*;
use trainyard_types::GpuAt;
use trainyard_types::placement::{bits, lowest_bits};

/// What a job with a right to a GPU is taken to use of it. No job is asked.
const OWNER: f64 = 0.1;
/// The part of it that is counted only once the job has all its GPUs.
const STARTED: f64 = 0.01;
/// What an opportunistic job is taken to use.
const GUEST: f64 = 0.9;
/// An opportunistic job comes to GPUs that are used less than this.
const OPEN_BELOW: f64 = 0.8;

/// How a job has a GPU.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Use {
    /// With a right to it, while it gathers the others.
    Gathered,
    /// With a right to it.
    Owned,
    /// On what is left of it.
    Guest,
}

impl Use {
    /// What is counted as used of a GPU.
    fn counts(self) -> f64 {
        match self {
            Use::Gathered => OWNER - STARTED,
            Use::Owned => OWNER,
            Use::Guest => GUEST,
        }
    }
}

/// All GPUs, node by node.
pub(crate) struct Gpus {
    nodes: Vec<Node>,
    /// GPUs on which an opportunistic job may come.
    open: u32,
}

struct Node {
    up: u64,
    /// GPUs that some job has a right to, complete or not.
    owned: u64,
    /// Sums as the authors keep them, with what rounding leaves: the order of equally used GPUs depends on it.
    used: Vec<f64>,
}

impl Gpus {
    pub(crate) fn new(free: &Free) -> Gpus {
        let nodes = (0..free.nodes()).map(|_| Node { up: 0, owned: 0, used: vec![0.0; 64] });
        let mut gpus = Gpus { nodes: nodes.collect(), open: 0 };
        gpus.refresh(free);
        gpus
    }

    /// Takes note of which GPUs are in service.
    pub(crate) fn refresh(&mut self, free: &Free) {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            node.up = free.up(NodeId(id as u32));
        }
        self.count_open();
    }

    fn count_open(&mut self) {
        let open = |node: &Node| bits(node.up).filter(|gpu| node.is_open(*gpu)).count() as u32;
        self.open = self.nodes.iter().map(open).sum();
    }

    /// Whether all GPUs of a placement are in service.
    pub(crate) fn is_up(&self, place: &Placement) -> bool {
        place.masks().iter().all(|&(node, mask)| self.nodes[node.index()].up & mask == mask)
    }

    /// A job takes GPUs.
    pub(crate) fn take(&mut self, place: &Placement, how: Use) {
        self.change(place, how.counts());
        if how != Use::Guest {
            for &(node, mask) in place.masks() {
                self.nodes[node.index()].owned |= mask;
            }
        }
    }

    /// A job that gathered its GPUs has all of them.
    pub(crate) fn complete(&mut self, place: &Placement) {
        self.change(place, STARTED);
    }

    /// A job gives GPUs back.
    pub(crate) fn give(&mut self, place: &Placement, how: Use) {
        self.change(place, -how.counts());
        if how != Use::Guest {
            for &(node, mask) in place.masks() {
                self.nodes[node.index()].owned &= !mask;
            }
        }
    }

    fn change(&mut self, place: &Placement, by: f64) {
        for GpuAt { node, gpu } in place.each_gpu() {
            self.nodes[node.index()].used[usize::from(gpu)] += by;
        }
        self.count_open();
    }

    /// Whether a job that has some GPUs could ever have all it asks for beside them: the nodes that it keeps to are there
    /// for it and large enough.
    pub(crate) fn may_complete(&self, job: JobRef<'_>, has: &Placement, free: &Free) -> bool {
        let Some(&(first, _)) = has.masks().first() else { return true };
        let want = job.spec.want.gpus;
        let size = |node: NodeId| self.nodes[node.index()].up.count_ones();
        let all = || (0..self.nodes.len() as u32).map(NodeId);
        let usable = || all().filter(|node| may_use(job, *node, free));
        if usable().any(|node| size(node) >= want) {
            return has.nodes() == 1 && size(first) >= want && may_use(job, first, free);
        }
        let kind = free.kind(first);
        let of_kind = usable().filter(|node| free.kind(*node) == kind);
        has.masks().iter().all(|(node, _)| may_use(job, *node, free))
            && of_kind.map(size).sum::<u32>() >= want
    }

    /// GPUs that a job with a right can have more than it has: all on one node where one is large enough, the first with
    /// enough of them or else the one with most, to which it then keeps; otherwise whole nodes.
    pub(crate) fn gatherable(&self, job: JobRef<'_>, has: &Placement, free: &Free) -> Placement {
        let need = job.spec.want.gpus - has.gpus();
        let usable = |index: &usize| may_use(job, NodeId(*index as u32), free);
        let nodes: Vec<usize> = (0..self.nodes.len()).filter(usable).collect();
        let idle = |index: usize| {
            let node = &self.nodes[index];
            node.up & !node.owned & free.mask(NodeId(index as u32))
        };
        let some = |index: usize, count: u32| {
            let mask = idle(index);
            let count = count.min(mask.count_ones());
            Placement::from_masks([(NodeId(index as u32), lowest_bits(mask, count))])
        };
        let size = |index: &usize| self.nodes[*index].up.count_ones();
        let large: Vec<usize> =
            nodes.iter().copied().filter(|index| size(index) >= job.spec.want.gpus).collect();
        if !large.is_empty() {
            if let Some((node, _)) = has.masks().first() {
                return some(node.index(), need);
            }
            let first = large.iter().find(|index| idle(**index).count_ones() >= need);
            // Of several with equally many the first.
            let most = large.iter().rev().max_by_key(|index| idle(**index).count_ones());
            return first.or(most).map_or_else(Placement::default, |index| some(*index, need));
        }
        // A gang is of one type: that which it has, or else the first of which there is enough at all.
        let all = |kind: GpuType| {
            nodes.iter().filter(|index| free.kind(NodeId(**index as u32)) == kind).map(size).sum()
        };
        let has_kind = has.masks().first().map(|(node, _)| free.kind(*node));
        let mut kinds = nodes.iter().map(|index| free.kind(NodeId(*index as u32)));
        let kind = has_kind.or_else(|| kinds.find(|kind| need <= all(*kind)));
        let nodes: Vec<usize> = nodes
            .iter()
            .copied()
            .filter(|index| Some(free.kind(NodeId(*index as u32))) == kind)
            .collect();
        let mut masks = Vec::new();
        let mut rest = need;
        for index in &nodes {
            let (whole, idle) = (size(index), idle(*index));
            if whole > 0 && whole <= rest && idle.count_ones() == whole {
                masks.push((NodeId(*index as u32), idle));
                rest -= whole;
            }
        }
        let taken = |index: &usize| masks.iter().any(|(node, _)| node.index() == *index);
        let last = nodes.iter().find(|index| {
            rest > 0 && rest < size(index) && idle(**index).count_ones() >= rest && !taken(index)
        });
        if let Some(index) = last {
            masks.push((NodeId(*index as u32), lowest_bits(idle(*index), rest)));
        }
        masks.sort_unstable_by_key(|(node, _)| *node);
        Placement::from_masks(masks)
    }

    /// As many of the least used GPUs as a job asks for, of one type.
    pub(crate) fn least_used(&self, job: JobRef<'_>, free: &Free) -> Option<Placement> {
        let need = job.spec.want.gpus;
        if need > self.open {
            return None;
        }
        let mut open: Vec<(f64, NodeId, u8)> = Vec::with_capacity(self.open as usize);
        for (index, node) in self.nodes.iter().enumerate() {
            let id = NodeId(index as u32);
            if may_use(job, id, free) {
                let gpus = bits(node.up).filter(|gpu| node.is_open(*gpu));
                open.extend(gpus.map(|gpu| (node.used[usize::from(gpu)], id, gpu)));
            }
        }
        open.sort_by(|one, other| one.0.total_cmp(&other.0));
        let kind = kind_with(&open, need, free)?;
        let chosen = open.iter().filter(|(_, node, _)| free.kind(*node) == kind);
        let mut masks: Vec<(NodeId, u64)> = Vec::new();
        for (_, node, gpu) in chosen.take(need as usize) {
            match masks.iter_mut().find(|(known, _)| known == node) {
                Some((_, mask)) => *mask |= 1 << gpu,
                None => masks.push((*node, 1 << gpu)),
            }
        }
        let nodes_max = u32::from(job.spec.want.nodes_max);
        if nodes_max > 0 && masks.len() as u32 > nodes_max {
            return None;
        }
        masks.sort_unstable_by_key(|(node, _)| *node);
        Some(Placement::from_masks(masks))
    }
}

impl Node {
    fn is_open(&self, gpu: u8) -> bool {
        self.used[usize::from(gpu)] < OPEN_BELOW
    }
}

/// The type of the least used GPU of which there are enough.
fn kind_with(open: &[(f64, NodeId, u8)], need: u32, free: &Free) -> Option<GpuType> {
    let count = |kind: GpuType| open.iter().filter(|(_, node, _)| free.kind(*node) == kind).count();
    let mut kinds = open.iter().map(|(_, node, _)| free.kind(*node));
    kinds.find(|kind| count(*kind) >= need as usize)
}

fn may_use(job: JobRef<'_>, node: NodeId, free: &Free) -> bool {
    let want = &job.spec.want;
    want.accepts(free.kind(node))
        && want.pool.is_none_or(|pool| free.pool(node) == pool)
        && free.shut(node, job).is_none()
}
