//! Cells: how the GPUs of a type divide into nested blocks, and which of them each virtual cluster owns
//! (Zhao et al., HiveD, OSDI 2020, section 3).

use crate::{Cluster, GpuType, NodeId, TenantId};
use serde::{Deserialize, Serialize};

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellLevel {
    /// Its name; no other level of the cluster has it.
    pub name: String,
    /// GPUs in each block.
    pub gpus: u32,
}

/// How the GPUs of one type divide. Each level is a multiple of the one before it, and each divides a node or is a
/// multiple of one, so that every cell of a level has as many children as any other: what the proof of safety needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellChain {
    /// The type.
    pub kind: GpuType,
    /// Levels, smallest first.
    pub levels: Vec<CellLevel>,
}

/// So many cells of one level.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellCount {
    /// The chain.
    pub chain: u16,
    /// The level in it.
    pub level: u16,
    /// How many.
    pub count: u32,
}

/// What a tenant owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualCluster {
    /// Whose it is, and that of all below it that have none of their own.
    pub tenant: TenantId,
    /// Its cells.
    pub cells: Vec<CellCount>,
}

/// Cells and virtual clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cells {
    /// A chain for each type that has cells.
    pub chains: Vec<CellChain>,
    /// By tenant.
    pub virtual_clusters: Vec<VirtualCluster>,
}

/// A level of which virtual clusters own more cells than there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellShortage {
    /// The name of the level.
    pub level: String,
    /// How many all own.
    pub owned: u64,
    /// How many there are once larger cells are taken.
    pub there: u64,
}

impl CellChain {
    /// The nodes of the type, those of a rack together.
    pub fn line(&self, cluster: &Cluster) -> Vec<NodeId> {
        let mut nodes: Vec<&crate::Node> =
            cluster.nodes.iter().filter(|node| node.kind == self.kind).collect();
        nodes.sort_by_key(|node| (node.rack, node.id));
        nodes.into_iter().map(|node| node.id).collect()
    }

    /// GPUs of each node of the type, if all have the same number.
    pub fn per_node(&self, cluster: &Cluster) -> Option<u32> {
        let mut sizes = cluster.nodes.iter().filter(|node| node.kind == self.kind);
        let first = sizes.next()?.gpus;
        sizes.all(|node| node.gpus == first).then_some(u32::from(first))
    }

    /// The largest cells that the machines divide into: their level and where they begin in the line of GPUs. A cell
    /// that a rack could hold lies in one; a larger one takes racks as they come.
    pub fn roots(&self, cluster: &Cluster) -> Vec<(u16, u32)> {
        let Some(per_node) = self.per_node(cluster) else { return Vec::new() };
        let line = self.line(cluster);
        let racks: Vec<u16> = line.iter().map(|node| cluster.node(*node).rack).collect();
        let sizes = racks.chunk_by(|a, b| a == b).map(|rack| rack.len() as u32 * per_node);
        let largest_rack = sizes.max().unwrap_or(0);
        // Stretches of the line that no cell was cut from yet.
        let mut left = vec![(0u32, line.len() as u32 * per_node)];
        let mut roots = Vec::new();
        for (index, level) in self.levels.iter().enumerate().rev() {
            if level.gpus <= largest_rack {
                left = at_racks(&left, &racks, per_node);
            }
            for (start, end) in &mut left {
                while *end - *start >= level.gpus {
                    roots.push((index as u16, *start));
                    *start += level.gpus;
                }
            }
        }
        roots
    }
}

/// Stretches cut wherever a rack ends.
fn at_racks(stretches: &[(u32, u32)], racks: &[u16], per_node: u32) -> Vec<(u32, u32)> {
    let mut cut = Vec::new();
    for &(start, end) in stretches {
        let mut from = start;
        let nodes = start / per_node + 1..end / per_node;
        for node in nodes.filter(|node| racks[*node as usize] != racks[*node as usize - 1]) {
            cut.push((from, node * per_node));
            from = node * per_node;
        }
        cut.push((from, end));
    }
    cut
}

impl Cells {
    /// The virtual cluster that a tenant belongs to: its own, or the nearest above it.
    pub fn of(&self, path: impl Iterator<Item = TenantId>) -> Option<usize> {
        let mut path = path;
        path.find_map(|tenant| self.virtual_clusters.iter().position(|one| one.tenant == tenant))
    }

    /// A level of which more cells are owned than there are. Without one, all virtual clusters fit the machines at
    /// once, which is what the guarantee starts from.
    pub fn shortage(&self, cluster: &Cluster) -> Option<CellShortage> {
        for (index, chain) in self.chains.iter().enumerate() {
            let roots = chain.roots(cluster);
            let mut left = 0u64;
            let mut above = 0u64;
            for (number, level) in chain.levels.iter().enumerate().rev() {
                let gpus = u64::from(level.gpus);
                let own = roots.iter().filter(|root| usize::from(root.0) == number).count() as u64;
                let there = own + left * above.checked_div(gpus).unwrap_or(0);
                let owned = self.owned(index, number);
                if owned > there {
                    return Some(CellShortage { level: level.name.clone(), owned, there });
                }
                (left, above) = (there - owned, gpus);
            }
        }
        None
    }

    /// How many cells of a level all virtual clusters own.
    fn owned(&self, chain: usize, level: usize) -> u64 {
        let counts = self.virtual_clusters.iter().flat_map(|one| &one.cells);
        let here = counts.filter(|one| usize::from(one.chain) == chain);
        here.filter(|one| usize::from(one.level) == level).map(|one| u64::from(one.count)).sum()
    }

    /// GPUs of a type that a virtual cluster owns.
    pub fn gpus(&self, virtual_cluster: usize, kind: GpuType) -> u32 {
        let cells = self.virtual_clusters[virtual_cluster].cells.iter();
        let gpus = cells.filter_map(|one| {
            let chain = &self.chains[usize::from(one.chain)];
            (chain.kind == kind).then(|| chain.levels[usize::from(one.level)].gpus * one.count)
        });
        gpus.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(levels: &[u32]) -> CellChain {
        let levels = levels.iter().map(|gpus| CellLevel { name: format!("l{gpus}"), gpus: *gpus });
        CellChain { kind: GpuType(0), levels: levels.collect() }
    }

    #[test]
    fn a_rack_that_is_no_multiple_of_a_cell_ends_in_smaller_ones() {
        let mut cluster = Cluster::uniform(5, 8, "v100");
        for node in &mut cluster.nodes {
            node.rack = u16::from(node.id.0 >= 3);
        }
        let roots = chain(&[2, 8, 16]).roots(&cluster);
        assert_eq!(roots, [(2, 0), (2, 24), (1, 16)]);
    }

    #[test]
    fn what_is_owned_is_weighed_against_what_larger_cells_leave() {
        let cluster = Cluster::uniform(4, 8, "v100");
        let own = |cells: &[(u16, u32)]| Cells {
            chains: vec![chain(&[2, 8, 16])],
            virtual_clusters: vec![VirtualCluster {
                tenant: TenantId(0),
                cells: cells
                    .iter()
                    .map(|&(level, count)| CellCount { chain: 0, level, count })
                    .collect(),
            }],
        };
        assert_eq!(own(&[(2, 1), (1, 1), (0, 4)]).shortage(&cluster), None);
        let short = own(&[(2, 1), (1, 1), (0, 5)]).shortage(&cluster).expect("too many pairs");
        assert_eq!((short.level.as_str(), short.owned, short.there), ("l2", 5, 4));
        assert_eq!(own(&[(2, 3)]).shortage(&cluster).map(|short| short.there), Some(2));
    }
}
