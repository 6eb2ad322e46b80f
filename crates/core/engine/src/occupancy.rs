//! What is really in use, as opposed to what the plan says.

use trainyard_types::placement::bits;
use trainyard_types::{Allocation, Cluster, GpuAt, HostShare, NodeId};

/// Thousandths in use of every GPU, and host CPUs and memory in use of every node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occupancy {
    base: Vec<u32>,
    used: Vec<u16>,
    hosts: Vec<Host>,
}

/// The host of one node; 0 of what there is means not stated.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Host {
    there: HostShare,
    used: HostShare,
}

impl Occupancy {
    pub(crate) fn new(cluster: &Cluster) -> Occupancy {
        let mut base = Vec::with_capacity(cluster.nodes.len());
        let mut total = 0;
        for node in &cluster.nodes {
            base.push(total);
            total += u32::from(node.gpus);
        }
        let hosts = cluster.nodes.iter().map(|node| Host {
            there: HostShare { cpus: u32::from(node.cpus), memory_mib: u64::from(node.memory_mib) },
            used: HostShare::default(),
        });
        Occupancy { base, used: vec![0; total as usize], hosts: hosts.collect() }
    }

    /// Whether its nodes have the host CPUs and memory for it. A job that grows where it is does not ask: what it grows
    /// into may be in use for as long as another takes to stop.
    pub(crate) fn has_host_for(&self, allocation: &Allocation) -> bool {
        let each = allocation.host_per_gpu;
        each == HostShare::default()
            || allocation.placement.masks().iter().all(|(node, mask)| {
                let Host { there, used } = self.hosts[node.index()];
                let more = of_node(each, *mask);
                let cpus = there.cpus == 0 || more.cpus == 0 || used.cpus + more.cpus <= there.cpus;
                let memory = used.memory_mib + more.memory_mib <= there.memory_mib;
                cpus && (there.memory_mib == 0 || more.memory_mib == 0 || memory)
            })
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
        for (node, more) in hosts_of(allocation) {
            let used = &mut self.hosts[node.index()].used;
            used.cpus += more.cpus;
            used.memory_mib += more.memory_mib;
        }
    }

    pub(crate) fn give(&mut self, allocation: &Allocation) {
        for (index, at) in allocation.placement.each_gpu().enumerate() {
            let slot = self.slot(at);
            let share = allocation.share(index).permille();
            assert!(self.used[slot] >= share, "{at} was given back more than once");
            self.used[slot] -= share;
        }
        for (node, less) in hosts_of(allocation) {
            let used = &mut self.hosts[node.index()].used;
            assert!(less.is_within(*used), "the host of {node} was given back more than once");
            used.cpus -= less.cpus;
            used.memory_mib -= less.memory_mib;
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

/// What an allocation takes of the host of each of its nodes; nothing where it states nothing.
fn hosts_of(allocation: &Allocation) -> impl Iterator<Item = (NodeId, HostShare)> + '_ {
    let each = allocation.host_per_gpu;
    let masks = allocation.placement.masks().iter().filter(move |_| each != HostShare::default());
    masks.map(move |(node, mask)| (*node, of_node(each, *mask)))
}

fn of_node(each: HostShare, mask: u64) -> HostShare {
    let gpus = mask.count_ones();
    HostShare { cpus: each.cpus * gpus, memory_mib: each.memory_mib * u64::from(gpus) }
}
