//! What there is: nodes, GPU types, links.

use crate::{Cells, GpuType, NodeId, PlacementRules, PoolId, Tier, Topology, Want, Window};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A type of accelerator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuKind {
    /// Its name, in lower case: `a100`, `h200`, `cpu`.
    pub name: String,
    /// Memory of one.
    pub memory_mib: u32,
    /// Price of one for an hour, in the currency of the user.
    pub price_per_hour: f64,
    /// Power of one at full load; 0 means not known.
    pub watts: u32,
}

/// One machine. All its GPUs are of one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its id: its index in [`Cluster::nodes`].
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// The type of its GPUs.
    pub kind: GpuType,
    /// How many GPUs it has, at most 64.
    pub gpus: u8,
    /// Host CPUs; 0 means not stated.
    pub cpus: u16,
    /// Host memory; 0 means not stated.
    pub memory_mib: u32,
    /// The rack it stands in.
    pub rack: u16,
    /// The pool it belongs to.
    pub pool: PoolId,
}

impl Node {
    /// GPUs that its CPUs and memory suffice for.
    pub fn gpus_for(&self, want: &Want) -> u32 {
        let by_cpus = match (want.cpus_per_gpu, self.cpus) {
            (0, _) | (_, 0) => u32::MAX,
            (per_gpu, cpus) => u32::from(cpus / per_gpu),
        };
        let by_memory = match (want.memory_mib_per_gpu, self.memory_mib) {
            (0, _) | (_, 0) => u32::MAX,
            (per_gpu, memory) => memory / per_gpu,
        };
        u32::from(self.gpus).min(by_cpus).min(by_memory)
    }

    /// All its GPUs as a mask.
    pub fn mask(&self) -> u64 {
        mask_of(self.gpus)
    }
}

/// The lowest `count` bits.
pub fn mask_of(count: u8) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Bandwidth of each tier of links, in Mbit/s.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// Between GPUs of one node.
    pub node_mbps: u64,
    /// Between nodes of one rack.
    pub rack_mbps: u64,
    /// Between racks.
    pub core_mbps: u64,
}

impl Default for Links {
    /// NVLink inside a node, 100 Gbit/s inside a rack, half of that between racks.
    fn default() -> Links {
        Links { node_mbps: 2_400_000, rack_mbps: 100_000, core_mbps: 50_000 }
    }
}

impl Links {
    /// The bandwidth of a tier.
    pub fn mbps(&self, tier: Tier) -> u64 {
        match tier {
            Tier::Gpu | Tier::Node => self.node_mbps,
            Tier::Rack => self.rack_mbps,
            Tier::Core => self.core_mbps,
        }
    }
}

/// The whole cluster as it was declared; what is up at the moment is the engine's to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Types of GPU, by [`GpuType`].
    pub kinds: Vec<GpuKind>,
    /// Machines, by [`NodeId`].
    pub nodes: Vec<Node>,
    /// Bandwidths.
    pub links: Links,
    /// Each link, where they are declared one by one; without it links slow no job down but by the ratio above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<Topology>>,
    /// Cells and virtual clusters, where they are declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<Arc<Cells>>,
    /// Names of pools, by [`PoolId`].
    pub pools: Vec<String>,
    /// Which placements can be launched here.
    #[serde(default)]
    pub rules: PlacementRules,
    /// Maintenance and reservations that are known from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

impl Cluster {
    /// `nodes` machines with `gpus` GPUs each, of one type: the usual cluster of a test.
    pub fn uniform(nodes: u32, gpus: u8, kind: &str) -> Cluster {
        let mut cluster = Cluster { pools: vec!["default".to_owned()], ..Cluster::default() };
        let kind = cluster.add_kind(kind);
        for _ in 0..nodes {
            cluster.add_node(kind, gpus);
        }
        cluster
    }

    /// The type of that name, added if it is new.
    pub fn add_kind(&mut self, name: &str) -> GpuType {
        if let Some(kind) = self.kind(name) {
            return kind;
        }
        let kind = GpuKind { name: name.to_owned(), memory_mib: 0, price_per_hour: 0.0, watts: 0 };
        self.kinds.push(kind);
        GpuType((self.kinds.len() - 1) as u8)
    }

    /// Adds a machine with `gpus` GPUs to the first rack and pool.
    pub fn add_node(&mut self, kind: GpuType, gpus: u8) -> NodeId {
        assert!((1..=64).contains(&gpus), "a node has 1 to 64 GPUs, not {gpus}");
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            id,
            name: format!("n{}", id.0),
            kind,
            gpus,
            cpus: 0,
            memory_mib: 0,
            rack: 0,
            pool: PoolId(0),
        });
        id
    }

    /// The type of that name.
    pub fn kind(&self, name: &str) -> Option<GpuType> {
        self.kinds.iter().position(|kind| kind.name == name).map(|index| GpuType(index as u8))
    }

    /// A machine.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The number of GPUs.
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|node| u32::from(node.gpus)).sum()
    }

    /// The number of GPUs of one type.
    pub fn gpus_of(&self, kind: GpuType) -> u32 {
        self.nodes.iter().filter(|node| node.kind == kind).map(|node| u32::from(node.gpus)).sum()
    }

    /// The most GPUs that a job could ever be given: of one type, in its pool, on so many nodes, with its memory and CPUs.
    pub fn most_gpus(&self, want: &Want) -> u32 {
        self.largest_size(want, u32::MAX)
    }

    /// The most GPUs, but not more than `at_most`, that a job could ever be given. Not every size up to it can be: where
    /// all nodes of a job give the same number, seven GPUs do not fit two nodes of four.
    pub fn largest_size(&self, want: &Want, at_most: u32) -> u32 {
        let sizes = self.sizes(want).map(|sizes| match self.rules.equal_per_node {
            true => largest_in_equal_parts(&sizes, at_most),
            false => sizes.iter().sum::<u32>().min(at_most),
        });
        match want.across_kinds && !self.rules.equal_per_node {
            true => sizes.sum::<u32>().min(at_most),
            false => sizes.max().unwrap_or(0),
        }
    }

    /// The fewest GPUs, but not fewer than `at_least`, that a job could be given; nothing where there are too few.
    pub fn smallest_size(&self, want: &Want, at_least: u32) -> Option<u32> {
        let sizes = self.sizes(want).filter_map(|sizes| match self.rules.equal_per_node {
            true => smallest_in_equal_parts(&sizes, at_least),
            false => Some(at_least).filter(|least| sizes.iter().sum::<u32>() >= *least),
        });
        sizes.min()
    }

    /// For each type that a job accepts: how many GPUs each node could give it, most first, for as many nodes as it may
    /// have.
    fn sizes(&self, want: &Want) -> impl Iterator<Item = Vec<u32>> {
        let accepts = |(index, info): (usize, &GpuKind)| {
            let kind = GpuType(index as u8);
            let small = info.memory_mib > 0 && info.memory_mib < want.gpu_memory_mib;
            (!small && want.accepts(kind)).then_some(kind)
        };
        self.kinds.iter().enumerate().filter_map(accepts).map(|kind| {
            let in_pool = |node: &&Node| want.pool.is_none_or(|pool| node.pool == pool);
            let nodes = self.nodes.iter().filter(|node| node.kind == kind).filter(in_pool);
            let mut sizes: Vec<u32> = nodes.map(|node| node.gpus_for(want)).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            if want.nodes_max > 0 {
                sizes.truncate(usize::from(want.nodes_max));
            }
            sizes
        })
    }
}

/// The largest multiple of a number of nodes that each of them can hold its part of; `sizes` descend.
fn largest_in_equal_parts(sizes: &[u32], at_most: u32) -> u32 {
    let in_parts = |(nodes, size): (u32, &u32)| (*size).min(at_most / nodes) * nodes;
    (1..).zip(sizes).map(in_parts).max().unwrap_or(0)
}

/// The smallest such multiple.
fn smallest_in_equal_parts(sizes: &[u32], at_least: u32) -> Option<u32> {
    let in_parts = |(nodes, size): (u32, &u32)| {
        let part = at_least.div_ceil(nodes);
        (part <= *size).then_some(part * nodes)
    };
    (1..).zip(sizes).filter_map(in_parts).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_is_one_that_can_be_launched() {
        let mut cluster = Cluster::uniform(2, 4, "v100");
        let want = Want::gpus(1);
        let sizes = |cluster: &Cluster| [9, 8, 7, 6, 5, 3].map(|n| cluster.largest_size(&want, n));
        assert_eq!(sizes(&cluster), [8, 8, 7, 6, 5, 3]);
        cluster.rules.equal_per_node = true;
        assert_eq!(sizes(&cluster), [8, 8, 6, 6, 4, 3]);
        cluster.add_node(GpuType(0), 2);
        assert_eq!(sizes(&cluster), [8, 8, 6, 6, 4, 3]);
        assert_eq!(cluster.most_gpus(&want), 8);
        let above = [1, 4, 5, 7, 9].map(|least| cluster.smallest_size(&want, least));
        assert_eq!(above, [Some(1), Some(4), Some(6), Some(8), None]);
        let one_node = Want { nodes_max: 1, ..want };
        assert_eq!(cluster.most_gpus(&one_node), 4);
    }
}
