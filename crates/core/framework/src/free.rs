//! What is free by the plan, indexed so that a placer never scans the cluster.

use crate::{JobRef, Windows};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;
use trainyard_types::placement::bits;
use trainyard_types::{
    Allocation, Cluster, GpuAt, GpuType, HostShare, IdSet, NodeId, Placement, PoolId, Share, Time,
    Window,
};

/// A whole GPU, in thousandths.
const WHOLE: u16 = 1000;

/// What is free by the plan: GPUs of jobs that are being stopped count as free, those planned but not yet
/// launched do not. Nodes are bucketed by type and number of wholly free GPUs, partly used GPUs by what is left of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Free {
    nodes: Vec<NodeFree>,
    left: Vec<u16>,
    memory_left: Vec<u32>,
    buckets: Vec<Vec<Bucket>>,
    partial: Vec<BTreeSet<(u16, NodeId, u8)>>,
    whole: Vec<u32>,
    in_service: Vec<u32>,
    windows: Arc<Windows>,
    now: Time,
}

#[derive(Clone, Debug, PartialEq)]
struct NodeFree {
    kind: GpuType,
    pool: PoolId,
    rack: u16,
    gpus: u8,
    base: u32,
    /// GPUs in service.
    up: u64,
    /// GPUs in service of which nothing is taken.
    whole: u64,
    /// `None` when the node's CPUs were not stated.
    cpus: Option<u32>,
    memory_mib: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Bucket(IdSet<NodeId>);

impl PartialEq for Bucket {
    fn eq(&self, other: &Bucket) -> bool {
        self.0.len() == other.0.len() && self.0.iter().eq(other.0.iter())
    }
}

/// Why an allocation cannot be taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A GPU that does not exist or is out of service.
    NoSuchGpu(GpuAt),
    /// Too little is left of a GPU.
    Gpu(GpuAt),
    /// Too little memory is left on a GPU.
    GpuMemory(GpuAt),
    /// Too few CPUs or too little memory is left on a node.
    Host(NodeId),
}

impl Free {
    /// Everything free and in service.
    pub fn new(cluster: &Cluster) -> Free {
        let kinds = cluster.kinds.len();
        let mut free = Free {
            nodes: Vec::with_capacity(cluster.nodes.len()),
            left: Vec::new(),
            memory_left: Vec::new(),
            buckets: vec![vec![Bucket::default(); 65]; kinds],
            partial: vec![BTreeSet::new(); kinds],
            whole: vec![0; kinds],
            in_service: vec![0; kinds],
            windows: Arc::default(),
            now: Time::ZERO,
        };
        for node in &cluster.nodes {
            let base = free.left.len() as u32;
            let memory = match cluster.kinds[node.kind.index()].memory_mib {
                0 => u32::MAX,
                stated => stated,
            };
            free.left.resize(free.left.len() + usize::from(node.gpus), WHOLE);
            free.memory_left.resize(free.left.len(), memory);
            free.nodes.push(NodeFree {
                kind: node.kind,
                pool: node.pool,
                rack: node.rack,
                gpus: node.gpus,
                base,
                up: node.mask(),
                whole: 0,
                cpus: (node.cpus > 0).then_some(u32::from(node.cpus)),
                memory_mib: (node.memory_mib > 0).then_some(u64::from(node.memory_mib)),
            });
            free.in_service[node.kind.index()] += u32::from(node.gpus);
            free.set_whole(node.id, node.mask());
        }
        free
    }

    /// The window that keeps a job from starting on a node now, if one does: its GPUs are not there for that job.
    pub fn shut(&self, node: NodeId, job: JobRef<'_>) -> Option<&Window> {
        self.windows.shut(node, job, self.now)
    }

    /// Maintenance and reservations.
    pub fn windows(&self) -> &Arc<Windows> {
        &self.windows
    }

    /// Maintenance and reservations change.
    pub fn set_windows(&mut self, windows: Arc<Windows>) {
        self.windows = windows;
    }

    /// Time passes.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Wholly free GPUs of one type.
    pub fn gpus(&self, kind: GpuType) -> u32 {
        self.whole[kind.index()]
    }

    /// Wholly free GPUs of all types.
    pub fn total(&self) -> u32 {
        self.whole.iter().sum()
    }

    /// GPUs of one type in service, free or not.
    pub fn in_service(&self, kind: GpuType) -> u32 {
        self.in_service[kind.index()]
    }

    /// GPUs of all types in service, free or not.
    pub fn in_service_total(&self) -> u32 {
        self.in_service.iter().sum()
    }

    /// The wholly free GPUs of a node.
    pub fn mask(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].whole
    }

    /// GPUs of a node in service.
    pub fn up(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].up
    }

    /// The type of a node's GPUs.
    pub fn kind(&self, node: NodeId) -> GpuType {
        self.nodes[node.index()].kind
    }

    /// The pool a node belongs to.
    pub fn pool(&self, node: NodeId) -> PoolId {
        self.nodes[node.index()].pool
    }

    /// The rack a node stands in.
    pub fn rack(&self, node: NodeId) -> u16 {
        self.nodes[node.index()].rack
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether nothing of a node is taken, in service or not.
    pub fn is_untouched(&self, id: NodeId) -> bool {
        let node = &self.nodes[id.index()];
        let base = node.base as usize;
        self.left[base..base + usize::from(node.gpus)].iter().all(|left| *left == WHOLE)
    }

    /// Thousandths left of a GPU.
    pub fn left(&self, at: GpuAt) -> u16 {
        self.left[self.slot(at)]
    }

    /// Memory left on a GPU; the largest number when its size was not stated.
    pub fn memory_left(&self, at: GpuAt) -> u32 {
        self.memory_left[self.slot(at)]
    }

    /// CPUs left on a node, if they were stated.
    pub fn cpus_left(&self, node: NodeId) -> Option<u32> {
        self.nodes[node.index()].cpus
    }

    /// Host memory left on a node, if it was stated.
    pub fn host_memory_left(&self, node: NodeId) -> Option<u64> {
        self.nodes[node.index()].memory_mib
    }

    /// Nodes of a type with exactly `count` wholly free GPUs.
    pub fn nodes_with(&self, kind: GpuType, count: u32) -> &IdSet<NodeId> {
        &self.buckets[kind.index()][count as usize].0
    }

    /// Partly used GPUs of a type with at least `permille` left, least left first.
    pub fn partial(&self, kind: GpuType, permille: u16) -> impl Iterator<Item = (u16, GpuAt)> + '_ {
        self.partial[kind.index()]
            .range((permille, NodeId(0), 0)..)
            .map(|&(left, node, gpu)| (left, GpuAt { node, gpu }))
    }

    /// Whether `allocation` could be taken, with all its GPUs in service.
    pub fn fits(&self, allocation: &Allocation) -> Result<(), Shortage> {
        let mut gpus = allocation.placement.each_gpu();
        let out = gpus.find(|at| {
            let node = self.nodes.get(at.node.index());
            node.is_none_or(|node| node.up >> at.gpu & 1 == 0)
        });
        match out {
            Some(at) => Err(Shortage::NoSuchGpu(at)),
            None => self.fits_again(allocation),
        }
    }

    /// Whether a job may keep what it had though its policy no longer grants it: there is room, and a job that takes
    /// only what others leave is beside none, for a policy that separates two jobs means it.
    pub fn may_keep(&self, allocation: &Allocation) -> bool {
        let beside_none = || {
            let gpus = allocation
                .placement
                .masks()
                .iter()
                .flat_map(|(node, mask)| bits(*mask).map(|gpu| GpuAt { node: *node, gpu }));
            gpus.into_iter().all(|at| self.left[self.slot(at)] == WHOLE)
        };
        self.fits_again(allocation).is_ok() && (!allocation.is_on_leftovers() || beside_none())
    }

    /// Whether `allocation` could be taken by a job that is already there: its node may be on its way out of service.
    pub fn fits_again(&self, allocation: &Allocation) -> Result<(), Shortage> {
        if self.has_whole(allocation) {
            return Ok(());
        }
        let mut index = 0;
        for &(id, mask) in allocation.placement.masks() {
            let node = self
                .nodes
                .get(id.index())
                .ok_or(Shortage::NoSuchGpu(GpuAt { node: id, gpu: 0 }))?;
            let count = mask.count_ones();
            for gpu in bits(mask) {
                let at = GpuAt { node: id, gpu };
                if gpu >= node.gpus {
                    return Err(Shortage::NoSuchGpu(at));
                }
                if self.left[self.slot(at)] < allocation.share(index).permille() {
                    return Err(Shortage::Gpu(at));
                }
                if self.memory_left[self.slot(at)] < allocation.gpu_memory_mib {
                    return Err(Shortage::GpuMemory(at));
                }
                index += 1;
            }
            let host = allocation.host_per_gpu;
            let short = node.cpus.is_some_and(|cpus| cpus < host.cpus * count)
                || node.memory_mib.is_some_and(|left| left < host.memory_mib * u64::from(count));
            if short {
                return Err(Shortage::Host(id));
            }
        }
        Ok(())
    }

    /// Takes what an allocation needs.
    ///
    /// # Panics
    /// When it does not fit: callers ask [`Free::fits`] first, so this is a broken invariant.
    pub fn take(&mut self, allocation: &Allocation) {
        if let Err(shortage) = self.fits_again(allocation) {
            panic!("took {} which is not free: {shortage:?}", allocation.placement);
        }
        if is_plain(allocation) {
            for &(id, mask) in allocation.placement.masks() {
                self.set_gpus(id, mask, 0);
                self.set_whole(id, self.nodes[id.index()].whole & !mask);
            }
            return;
        }
        let mut index = 0;
        for &(id, mask) in allocation.placement.masks() {
            for gpu in bits(mask) {
                let at = GpuAt { node: id, gpu };
                let slot = self.slot(at);
                self.set_left(at, self.left[slot] - allocation.share(index).permille());
                if self.memory_left[slot] != u32::MAX {
                    self.memory_left[slot] -= allocation.gpu_memory_mib;
                }
                index += 1;
            }
            self.change_host(id, allocation, mask.count_ones(), false);
            self.refresh_whole(id);
        }
    }

    /// Gives back what an allocation took.
    ///
    /// # Panics
    /// When more comes back than was taken.
    pub fn give(&mut self, allocation: &Allocation) {
        if is_plain(allocation) {
            for &(id, mask) in allocation.placement.masks() {
                self.set_gpus(id, mask, WHOLE);
                let node = &self.nodes[id.index()];
                self.set_whole(id, node.whole | mask & node.up);
            }
            return;
        }
        let mut index = 0;
        for &(id, mask) in allocation.placement.masks() {
            for gpu in bits(mask) {
                let at = GpuAt { node: id, gpu };
                let slot = self.slot(at);
                let left = self.left[slot] + allocation.share(index).permille();
                assert!(left <= WHOLE, "{at} was given back more than once");
                self.set_left(at, left);
                if self.memory_left[slot] != u32::MAX {
                    self.memory_left[slot] += allocation.gpu_memory_mib;
                }
                index += 1;
            }
            self.change_host(id, allocation, mask.count_ones(), true);
            self.refresh_whole(id);
        }
    }

    /// Puts GPUs of a node into or out of service; what is taken stays taken.
    pub fn set_up(&mut self, id: NodeId, up: u64) {
        let node = &mut self.nodes[id.index()];
        let kind = node.kind.index();
        let old = node.up;
        node.up = up;
        self.in_service[kind] = self.in_service[kind] + up.count_ones() - old.count_ones();
        for gpu in bits(old ^ up) {
            let left = self.left[self.slot(GpuAt { node: id, gpu })];
            if left > 0 && left < WHOLE {
                if up >> gpu & 1 == 1 {
                    self.partial[kind].insert((left, id, gpu));
                } else {
                    self.partial[kind].remove(&(left, id, gpu));
                }
            }
        }
        self.refresh_whole(id);
    }

    /// Withdraws the wholly free GPUs of `placement` for good; used on copies that serve as a hint.
    pub fn block(&mut self, placement: &Placement) {
        for &(id, mask) in placement.masks() {
            let whole = self.nodes[id.index()].whole;
            self.set_whole(id, whole & !mask);
        }
    }

    /// Whether an allocation is of whole GPUs and nothing else, and all of them are free and in service: the usual
    /// case, answered without looking at single GPUs.
    fn has_whole(&self, allocation: &Allocation) -> bool {
        let free = |&(id, mask): &(NodeId, u64)| {
            self.nodes.get(id.index()).is_some_and(|node| mask & !node.whole == 0)
        };
        is_plain(allocation) && allocation.placement.masks().iter().all(free)
    }

    /// All of these GPUs, each wholly free or wholly taken, become the other.
    fn set_gpus(&mut self, node: NodeId, mask: u64, left: u16) {
        let NodeFree { gpus, base, .. } = self.nodes[node.index()];
        let slots = &mut self.left[base as usize..base as usize + usize::from(gpus)];
        for gpu in bits(mask) {
            let old = std::mem::replace(&mut slots[usize::from(gpu)], left);
            let is_other = old + left == WHOLE;
            assert!(is_other, "{} was taken or given back more than once", GpuAt { node, gpu });
        }
    }

    fn slot(&self, at: GpuAt) -> usize {
        let node = &self.nodes[at.node.index()];
        assert!(at.gpu < node.gpus, "{at} does not exist");
        node.base as usize + usize::from(at.gpu)
    }

    fn set_left(&mut self, at: GpuAt, left: u16) {
        let slot = self.slot(at);
        let node = &self.nodes[at.node.index()];
        let (kind, up) = (node.kind.index(), node.up >> at.gpu & 1 == 1);
        let old = std::mem::replace(&mut self.left[slot], left);
        if old > 0 && old < WHOLE {
            self.partial[kind].remove(&(old, at.node, at.gpu));
        }
        if left > 0 && left < WHOLE && up {
            self.partial[kind].insert((left, at.node, at.gpu));
        }
    }

    fn change_host(&mut self, id: NodeId, allocation: &Allocation, gpus: u32, back: bool) {
        let host = allocation.host_per_gpu;
        let node = &mut self.nodes[id.index()];
        let (cpus, memory) = (host.cpus * gpus, host.memory_mib * u64::from(gpus));
        if let Some(left) = &mut node.cpus {
            *left = if back { *left + cpus } else { *left - cpus };
        }
        if let Some(left) = &mut node.memory_mib {
            *left = if back { *left + memory } else { *left - memory };
        }
    }

    fn refresh_whole(&mut self, id: NodeId) {
        let node = &self.nodes[id.index()];
        let base = node.base as usize;
        let mut whole = 0u64;
        for gpu in bits(node.up) {
            if self.left[base + usize::from(gpu)] == WHOLE {
                whole |= 1 << gpu;
            }
        }
        self.set_whole(id, whole);
    }

    fn set_whole(&mut self, id: NodeId, whole: u64) {
        let node = &mut self.nodes[id.index()];
        let kind = node.kind.index();
        let (old, new) = (node.whole.count_ones(), whole.count_ones());
        node.whole = whole;
        if old == new {
            return;
        }
        self.whole[kind] = self.whole[kind] + new - old;
        if old > 0 {
            self.buckets[kind][old as usize].0.remove(id);
        }
        if new > 0 {
            self.buckets[kind][new as usize].0.insert(id);
        }
    }

    /// The nodes of a type with at least `count` wholly free GPUs, those with the fewest first.
    pub fn tightest(&self, kind: GpuType, count: u32) -> impl Iterator<Item = NodeId> + '_ {
        (count.max(1)..=64).flat_map(move |free| self.nodes_with(kind, free).iter())
    }

    /// The nodes of a type with any wholly free GPU, those with the most first.
    pub fn roomiest(&self, kind: GpuType) -> impl Iterator<Item = NodeId> + '_ {
        (1..=64).rev().flat_map(move |free| self.nodes_with(kind, free).iter())
    }

    /// The types that have nodes at all, ascending.
    pub fn kinds(&self) -> SmallVec<[GpuType; 8]> {
        (0..self.whole.len()).map(|kind| GpuType(kind as u8)).collect()
    }
}

/// Whether an allocation takes whole GPUs, and nothing else of GPUs and nodes that is counted.
fn is_plain(allocation: &Allocation) -> bool {
    allocation.shares[..] == [Share::Whole]
        && allocation.gpu_memory_mib == 0
        && allocation.host_per_gpu == HostShare::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;
    use trainyard_types::Share;

    fn shared(node: u32, mask: u64, permille: u16) -> Allocation {
        let mut allocation = Allocation::whole(Placement::on(NodeId(node), mask));
        allocation.shares = smallvec![Share::Permille(permille)];
        allocation
    }

    #[test]
    fn free_returns_to_its_first_state_when_all_is_given_back() {
        let cluster = Cluster::uniform(3, 8, "v100");
        let mut free = Free::new(&cluster);
        let first = free.clone();
        let whole =
            Allocation::whole(Placement::from_masks([(NodeId(0), 0b11), (NodeId(2), 0xff)]));
        let parts = [shared(1, 0b1, 300), shared(1, 0b1, 700)];
        free.take(&whole);
        for part in &parts {
            free.take(part);
        }
        assert_eq!(free.gpus(GpuType(0)), 13);
        assert_eq!(free.fits(&parts[0]), Err(Shortage::Gpu(GpuAt { node: NodeId(1), gpu: 0 })));
        assert_eq!(free.nodes_with(GpuType(0), 6).first(), Some(NodeId(0)));
        free.give(&parts[1]);
        assert_eq!(free.partial(GpuType(0), 500).count(), 1);
        free.give(&parts[0]);
        free.give(&whole);
        assert_eq!(free, first);
    }

    #[test]
    fn free_keeps_a_lost_gpu_out_of_every_index() {
        let cluster = Cluster::uniform(1, 4, "v100");
        let mut free = Free::new(&cluster);
        let held = Allocation::whole(Placement::on(NodeId(0), 0b1));
        free.take(&held);
        free.set_up(NodeId(0), 0b1110);
        free.give(&held);
        assert_eq!((free.gpus(GpuType(0)), free.in_service(GpuType(0))), (3, 3));
        assert!(matches!(free.fits(&held), Err(Shortage::NoSuchGpu(_))));
        free.set_up(NodeId(0), 0b1111);
        assert_eq!(free.gpus(GpuType(0)), 4);
    }

    #[test]
    #[should_panic(expected = "not free")]
    fn free_refuses_to_oversubscribe() {
        let mut free = Free::new(&Cluster::uniform(1, 2, "v100"));
        let held = Allocation::whole(Placement::on(NodeId(0), 0b1));
        free.take(&held);
        free.take(&held);
    }
}
