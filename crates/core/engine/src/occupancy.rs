//! What is really in use, as opposed to what the plan says.

use trainyard_types::placement::bits;
use trainyard_types::{Allocation, Cluster, GpuAt, NodeId};

/// Thousandths in use of every GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occupancy {
    base: Vec<u32>,
    used: Vec<u16>,
}

impl Occupancy {
    pub(crate) fn new(cluster: &Cluster) -> Occupancy {
        let mut base = Vec::with_capacity(cluster.nodes.len());
        let mut total = 0;
        for node in &cluster.nodes {
            base.push(total);
            total += u32::from(node.gpus);
        }
        Occupancy { base, used: vec![0; total as usize] }
    }

    /// Whether all its GPUs have room for it.
    pub(crate) fn fits(&self, allocation: &Allocation) -> bool {
        let mut gpus = allocation.placement.each_gpu().enumerate();
        gpus.all(|(index, at)| {
            self.used[self.slot(at)] + allocation.share(index).permille() <= 1000
        })
    }

    /// Whether a job that is there may have other shares of the same GPUs.
    pub(crate) fn fits_instead(&self, held: &Allocation, planned: &Allocation) -> bool {
        let mut gpus = planned.placement.each_gpu().enumerate();
        gpus.all(|(index, at)| {
            let others = self.used[self.slot(at)] - held.share(index).permille();
            others + planned.share(index).permille() <= 1000
        })
    }

    pub(crate) fn take(&mut self, allocation: &Allocation) {
        for (index, at) in allocation.placement.each_gpu().enumerate() {
            let slot = self.slot(at);
            self.used[slot] += allocation.share(index).permille();
            assert!(self.used[slot] <= 1000, "{at} is oversubscribed in reality");
        }
    }

    pub(crate) fn give(&mut self, allocation: &Allocation) {
        for (index, at) in allocation.placement.each_gpu().enumerate() {
            let slot = self.slot(at);
            let share = allocation.share(index).permille();
            assert!(self.used[slot] >= share, "{at} was given back more than once");
            self.used[slot] -= share;
        }
    }

    /// Those of the given GPUs of a node that are in use.
    pub(crate) fn used(&self, node: NodeId, mask: u64) -> u64 {
        let is_used = |gpu: &u8| self.used[self.slot(GpuAt { node, gpu: *gpu })] > 0;
        bits(mask).filter(is_used).fold(0, |all, gpu| all | 1 << gpu)
    }

    fn slot(&self, at: GpuAt) -> usize {
        self.base[at.node.index()] as usize + usize::from(at.gpu)
    }
}
