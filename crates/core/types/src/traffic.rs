//! What jobs move over links.

use crate::{LinkId, NodeId, Placement, Topology};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Who sends to whom in one iteration of a job.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Data parallel, gradients summed along a ring.
    #[default]
    Ring,
    /// Data parallel, gradients summed up a binary tree and sent down again.
    Tree,
    /// Each to each, as layers of experts exchange samples.
    AllToAll,
    /// Pipeline parallel: activations to the next, gradients to the one before.
    Pipeline,
    /// Data parallel over one server of parameters, on the first node.
    ParameterServer,
}

impl Pattern {
    /// All of them with their names.
    pub const ALL: [(&'static str, Pattern); 5] = [
        ("ring", Pattern::Ring),
        ("tree", Pattern::Tree),
        ("all-to-all", Pattern::AllToAll),
        ("pipeline", Pattern::Pipeline),
        ("parameter-server", Pattern::ParameterServer),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Pattern::ALL.into_iter().find(|(_, pattern)| *pattern == self);
        found.expect("every pattern is in the table").0
    }

    /// Bytes in the unit of which [`Load`] counts, for a job on so many GPUs that exchanges so many bytes.
    ///
    /// Along a ring each GPU passes on 2 (n - 1) / n of all; of each to each, it sends 1 / n of all to every other.
    pub fn unit(self, bytes: f64, gpus: u32) -> f64 {
        let gpus = f64::from(gpus.max(1));
        match self {
            Pattern::Ring => 2.0 * bytes * (gpus - 1.0) / gpus,
            Pattern::AllToAll => bytes / gpus,
            Pattern::Tree | Pattern::Pipeline | Pattern::ParameterServer => bytes,
        }
    }
}

/// What one iteration of a model moves.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that are exchanged: gradients, activations, samples.
    pub bytes: f64,
    /// Who sends to whom.
    pub pattern: Pattern,
    /// The part of the time of an iteration on an idle cluster that hides communication behind computation.
    pub overlap: f64,
}

/// The directed links that a job uses, one entry for each unit that crosses a link; and its bandwidth inside nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Links, ascending; one that is crossed twice is there twice.
    pub links: Vec<LinkId>,
    /// The bandwidth inside the node where it is least; the largest number for one GPU on each.
    pub inside_mbps: u64,
}

impl Load {
    /// The bandwidth of a unit where no other job is on the links.
    pub fn alone_mbps(&self, topology: &Topology) -> f64 {
        let mut alone = self.inside_mbps as f64;
        for same in self.links.chunk_by(|a, b| a == b) {
            alone = alone.min(topology.mbps(same[0]) as f64 / same.len() as f64);
        }
        alone
    }
}

impl Topology {
    /// What a job with a placement loads. Its nodes come in the order of the switches that they are plugged into, as
    /// collective libraries order them, so that a ring leaves each rack once.
    pub fn load(&self, placement: &Placement, pattern: Pattern) -> Load {
        let inside = |(node, mask): &(NodeId, u64)| self.inside(*node).ring_mbps(*mask);
        let inside_mbps = placement.masks().iter().map(inside).min().unwrap_or(u64::MAX);
        let mut links = Vec::new();
        if placement.nodes() > 1 {
            let mut nodes: SmallVec<[(u32, NodeId, u32); 8]> = placement
                .masks()
                .iter()
                .map(|(node, mask)| (self.port(*node), *node, mask.count_ones()))
                .collect();
            nodes.sort_unstable();
            self.hops(&nodes, pattern, &mut links);
            links.sort_unstable();
        }
        Load { links, inside_mbps }
    }

    fn hops(&self, nodes: &[(u32, NodeId, u32)], pattern: Pattern, links: &mut Vec<LinkId>) {
        let mut hop = |from: usize, to: usize| {
            self.way(nodes[from].1, nodes[to].1, &mut |link| links.push(link));
        };
        let count = nodes.len();
        match pattern {
            Pattern::Ring => (0..count).for_each(|at| hop(at, (at + 1) % count)),
            Pattern::Tree => (1..count).for_each(|at| {
                hop(at, (at - 1) / 2);
                hop((at - 1) / 2, at);
            }),
            Pattern::Pipeline => (1..count).for_each(|at| {
                hop(at - 1, at);
                hop(at, at - 1);
            }),
            Pattern::ParameterServer => (1..count).for_each(|at| {
                hop(0, at);
                hop(at, 0);
            }),
            Pattern::AllToAll => {
                for (from, to) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
                    if from != to {
                        let pairs = nodes[from].2 * nodes[to].2;
                        (0..pairs).for_each(|_| hop(from, to));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use crate::topology::presets::{LeafSpine, leaf_spine};

    fn topology() -> Topology {
        let mut cluster = Cluster::uniform(4, 8, "v100");
        let shape = LeafSpine { racks: Some(2), mbps: 100_000, oversubscription: 4.0, spines: 1 };
        Topology::new(leaf_spine(&mut cluster, shape, "")).unwrap()
    }

    fn load(pattern: Pattern, nodes: &[u32]) -> (f64, String) {
        let topology = topology();
        let masks = nodes.iter().map(|node| (NodeId(*node), 0xff));
        let load = topology.load(&Placement::from_masks(masks), pattern);
        let names: Vec<String> = load
            .links
            .chunk_by(|a, b| a == b)
            .map(|same| format!("{}x{}", topology.link(same[0]).name, same.len()))
            .collect();
        (load.alone_mbps(&topology) / 1000.0, names.join(" "))
    }

    #[test]
    fn a_ring_leaves_and_enters_each_rack_once() {
        let (gbps, links) = load(Pattern::Ring, &[0, 1, 2, 3]);
        assert_eq!(
            links,
            "n0x1 n0x1 n1x1 n1x1 n2x1 n2x1 n3x1 n3x1 rack0-spine0x1 rack0-spine0x1 rack1-spine0x1 rack1-spine0x1"
        );
        assert_eq!(gbps, 50.0, "the uplink of two nodes at four to one");
        assert_eq!(load(Pattern::Ring, &[0, 1]).0, 100.0);
        // In one node: three rings of NVLinks.
        assert_eq!(load(Pattern::Ring, &[2]), (600.0, String::new()));
    }

    #[test]
    fn a_server_of_parameters_is_met_by_all() {
        let (gbps, links) = load(Pattern::ParameterServer, &[0, 1]);
        assert_eq!((gbps, links.as_str()), (100.0, "n0x1 n0x1 n1x1 n1x1"));
        let (gbps, links) = load(Pattern::ParameterServer, &[0, 1, 2]);
        assert!(links.starts_with("n0x2 n0x2 n1x1"), "{links}");
        assert_eq!(gbps, 50.0);
    }

    #[test]
    fn every_pattern_has_a_name_and_a_unit() {
        for (name, pattern) in Pattern::ALL {
            assert_eq!(pattern.name(), name);
            assert!(pattern.unit(100.0, 4) > 0.0);
        }
        assert_eq!(Pattern::Ring.unit(100.0, 4), 150.0);
        assert_eq!(Pattern::AllToAll.unit(100.0, 4), 25.0);
    }
}
