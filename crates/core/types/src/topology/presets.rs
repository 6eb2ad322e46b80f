//! Networks that are usual: leaf and spine, fat tree, BiGraph.

use super::{Inside, Link, LinkEnd, Switch, Wiring};
use crate::{Cluster, NodeId};

/// Racks under a core.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LeafSpine {
    /// How many racks the nodes are put into in order; nothing to take the racks that were declared.
    pub racks: Option<u16>,
    /// What a node is plugged in with.
    pub mbps: u64,
    /// Capacity of the nodes of a rack over that of its uplinks; 1 is none.
    pub oversubscription: f64,
    /// How many spines the uplinks of a rack are divided among.
    pub spines: u16,
}

/// A network of racks, each under all spines. One rack needs no spine.
pub fn leaf_spine(cluster: &mut Cluster, shape: LeafSpine, text: &str) -> Wiring {
    if let Some(racks) = shape.racks {
        let count = cluster.nodes.len().max(1);
        for (index, node) in cluster.nodes.iter_mut().enumerate() {
            node.rack = (index * usize::from(racks) / count) as u16;
        }
    }
    let mut racks: Vec<(u16, u64)> = Vec::new();
    for node in &cluster.nodes {
        match racks.iter_mut().find(|(rack, _)| *rack == node.rack) {
            Some((_, nodes)) => *nodes += 1,
            None => racks.push((node.rack, 1)),
        }
    }
    let mut wiring = bare(cluster, text);
    for (rack, _) in &racks {
        wiring.switches.push(Switch { name: format!("rack{rack}"), level: 1 });
    }
    for node in &cluster.nodes {
        let leaf = racks.iter().position(|(rack, _)| *rack == node.rack).unwrap_or(0);
        wiring.plug(&node.name, node.id, leaf as u32, shape.mbps);
    }
    if racks.len() > 1 {
        let spines = shape.spines.max(1);
        for spine in 0..spines {
            let index = wiring.switches.len() as u32;
            wiring.switches.push(Switch { name: format!("spine{spine}"), level: 2 });
            for (leaf, (rack, nodes)) in (0..).zip(&racks) {
                let down = (nodes * shape.mbps) as f64;
                let mbps = (down / shape.oversubscription / f64::from(spines)).max(1.0) as u64;
                wiring.cable(format!("rack{rack}-spine{spine}"), (leaf, index), mbps);
            }
        }
    }
    wiring
}

/// A fat tree of switches with so many ports, all links alike; nothing if the nodes are too many for it or its number
/// of ports is odd. Nodes under one switch are a rack.
pub fn fat_tree(cluster: &mut Cluster, ports: u16, mbps: u64, text: &str) -> Option<Wiring> {
    let half = u32::from(ports / 2);
    let room = half * half * u32::from(ports);
    if ports < 2 || !ports.is_multiple_of(2) || cluster.nodes.len() as u32 > room {
        return None;
    }
    for (index, node) in (0..).zip(&mut cluster.nodes) {
        node.rack = (index / half) as u16;
    }
    let mut wiring = bare(cluster, text);
    let edges = half * u32::from(ports);
    for pod in 0..u32::from(ports) {
        for edge in 0..half {
            wiring.switches.push(Switch { name: format!("rack{}", pod * half + edge), level: 1 });
        }
    }
    for pod in 0..u32::from(ports) {
        for above in 0..half {
            wiring.switches.push(Switch { name: format!("pod{pod}-{above}"), level: 2 });
        }
    }
    for core in 0..half * half {
        wiring.switches.push(Switch { name: format!("core{core}"), level: 3 });
    }
    for node in &cluster.nodes {
        wiring.plug(&node.name, node.id, u32::from(node.rack), mbps);
    }
    for pod in 0..u32::from(ports) {
        for above in 0..half {
            let at = edges + pod * half + above;
            for edge in 0..half {
                let rack = pod * half + edge;
                wiring.cable(format!("rack{rack}-pod{pod}-{above}"), (rack, at), mbps);
            }
            for core in above * half..(above + 1) * half {
                wiring.cable(format!("pod{pod}-{above}-core{core}"), (at, 2 * edges + core), mbps);
            }
        }
    }
    Some(wiring)
}

/// A BiGraph (Dong et al., EFLOPS, HPCA 2020): so many switches on each of two sides, each joined to all of the other
/// side, none to its own; half of a node's bandwidth goes to one switch of each side. Two nodes on opposite switches have
/// one way over that side's link. Nodes on the same two switches are a rack.
pub fn bigraph(cluster: &mut Cluster, switches: u16, mbps: u64, text: &str) -> Wiring {
    let side = u32::from(switches.max(1));
    let per = (cluster.nodes.len() as u32).div_ceil(side).max(1);
    for (index, node) in (0..).zip(&mut cluster.nodes) {
        node.rack = (index / per) as u16;
    }
    let mut wiring = bare(cluster, text);
    for (letter, _) in [("u", 0), ("l", 1)] {
        for index in 0..side {
            wiring.switches.push(Switch { name: format!("{letter}{index}"), level: 1 });
        }
    }
    let half = (mbps / 2).max(1);
    for node in &cluster.nodes {
        let (upper, lower) = (u32::from(node.rack), side + u32::from(node.rack));
        wiring.plug(&format!("{}-u", node.name), node.id, upper, half);
        wiring.plug(&format!("{}-l", node.name), node.id, lower, half);
    }
    // As much goes out of a switch to the other side as comes in from its nodes.
    let across = (half * u64::from(per) / u64::from(side)).max(1);
    for upper in 0..side {
        for lower in 0..side {
            wiring.cable(format!("u{upper}-l{lower}"), (upper, side + lower), across);
        }
    }
    wiring
}

/// The nodes of a cluster without a link, with their usual insides.
pub fn bare(cluster: &Cluster, text: &str) -> Wiring {
    let mut wiring = Wiring { preset: text.to_owned(), ..Wiring::default() };
    for node in &cluster.nodes {
        let kind = &cluster.kinds[node.kind.index()].name;
        let inside = Inside::usual(kind, node.gpus);
        let index = wiring.inside(inside);
        wiring.inside_of.push(index);
    }
    wiring
}

impl Wiring {
    /// The index of an inside, added if it is new.
    pub fn inside(&mut self, inside: Inside) -> u16 {
        let found = self.insides.iter().position(|other| *other == inside);
        found.unwrap_or_else(|| {
            self.insides.push(inside);
            self.insides.len() - 1
        }) as u16
    }

    fn plug(&mut self, name: &str, node: NodeId, switch: u32, mbps: u64) {
        let ends = [LinkEnd::Node(node), LinkEnd::Switch(switch)];
        self.links.push(Link { name: name.to_owned(), ends, mbps });
    }

    fn cable(&mut self, name: String, (a, b): (u32, u32), mbps: u64) {
        self.links.push(Link { name, ends: [LinkEnd::Switch(a), LinkEnd::Switch(b)], mbps });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;

    fn length(topology: &Topology, from: u32, to: u32) -> usize {
        let mut count = 0;
        topology.way(NodeId(from), NodeId(to), &mut |_| count += 1);
        count
    }

    #[test]
    fn a_fat_tree_of_four_ports_joins_sixteen_nodes() {
        let mut cluster = Cluster::uniform(16, 8, "h100");
        let topology = Topology::new(fat_tree(&mut cluster, 4, 100_000, "").unwrap()).unwrap();
        // Under one switch, in one pod, over the core.
        assert_eq!([1, 2, 4, 15].map(|to| length(&topology, 0, to)), [2, 4, 6, 6]);
        assert_eq!(topology.wiring().links.len(), 16 + 16 + 16);
        assert!(fat_tree(&mut Cluster::uniform(17, 8, "h100"), 4, 1, "").is_none());
        assert!(fat_tree(&mut Cluster::uniform(2, 8, "h100"), 5, 1, "").is_none());
    }

    #[test]
    fn a_bigraph_crosses_one_link_between_its_sides() {
        let mut cluster = Cluster::uniform(8, 8, "h100");
        let topology = Topology::new(bigraph(&mut cluster, 4, 200_000, "")).unwrap();
        // In by one switch, across, out by another; never more than one link between switches.
        let lengths: Vec<usize> = (1..8).map(|to| length(&topology, 0, to)).collect();
        assert_eq!(lengths, [2, 3, 3, 3, 3, 3, 3]);
        assert_eq!(topology.wiring().links.len(), 16 + 16);
    }
}
