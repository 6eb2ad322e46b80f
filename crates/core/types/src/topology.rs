//! Links: between nodes, and between the GPUs inside them.
//!
//! A [`Wiring`] is what was declared: switches, links, the insides of nodes. A [`Topology`] is a wiring that was found
//! to be whole, with the ways between its nodes.
//! Links carry their capacity in both directions at once, so that each is two [`LinkId`]s.
//! Nodes do not forward: a way leads over switches, or over one link that joins two nodes.
//! Of several shortest ways between two nodes one is taken for good, chosen by their ids, as by a hash of addresses.

mod inside;
pub mod presets;
mod routes;

pub use inside::{Inside, Wire, WireKind};

use crate::{LinkId, NodeId};
use routes::Routes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// More switches than this are taken for a slip of the pen: the table of ways grows with their square.
pub const SWITCHES_MAX: usize = 2048;

/// What a link ends at.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkEnd {
    /// A machine.
    Node(NodeId),
    /// A switch: an index into [`Wiring::switches`].
    Switch(u32),
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// How far it is from nodes: 1 where nodes are plugged in, more above.
    pub level: u8,
}

/// A link, or several between the same two ends that are used as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What it joins.
    pub ends: [LinkEnd; 2],
    /// Capacity in each direction.
    pub mbps: u64,
}

/// Links as they were declared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// How it was declared, in the words of the one line; empty if it was not by a preset.
    pub preset: String,
    /// Switches.
    pub switches: Vec<Switch>,
    /// Links.
    pub links: Vec<Link>,
    /// What nodes look like inside.
    pub insides: Vec<Inside>,
    /// By node, which of the insides it has.
    pub inside_of: Vec<u16>,
}

/// Links, whole: every node reaches every other.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Wiring", into = "Wiring")]
pub struct Topology {
    wiring: Wiring,
    routes: Routes,
}

impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        self.wiring == other.wiring
    }
}

/// Why a wiring is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyFault {
    /// Two links of one name.
    #[error("the link `{name}` is there twice")]
    LinkTwice {
        /// The name.
        name: String,
    },
    /// A link that carries nothing.
    #[error("the link `{name}` has no capacity")]
    NoCapacity {
        /// Its name.
        name: String,
    },
    /// A link that joins something that is not there, or something with itself.
    #[error("the link `{name}` does not join two ends that exist")]
    WrongEnds {
        /// Its name.
        name: String,
    },
    /// Nodes that do not reach the others.
    #[error("{} of the nodes do not reach the others, {} first", .nodes.len(), .nodes[0])]
    Disconnected {
        /// The smallest part that is cut off, ascending.
        nodes: Vec<NodeId>,
    },
    /// Too many switches.
    #[error("there are {count} switches, and at most {SWITCHES_MAX} can be")]
    TooManySwitches {
        /// How many.
        count: usize,
    },
    /// A node whose inside is not there or has another number of GPUs.
    #[error("{node} has an inside that is not declared")]
    NoInside {
        /// The node.
        node: NodeId,
    },
}

impl Topology {
    /// A topology out of what was declared.
    pub fn new(wiring: Wiring) -> Result<Topology, TopologyFault> {
        let nodes = wiring.inside_of.len();
        if wiring.switches.len() > SWITCHES_MAX {
            return Err(TopologyFault::TooManySwitches { count: wiring.switches.len() });
        }
        let mut names = BTreeSet::new();
        for link in &wiring.links {
            let name = || link.name.clone();
            let exists = |end: &LinkEnd| match end {
                LinkEnd::Node(node) => node.index() < nodes,
                LinkEnd::Switch(switch) => (*switch as usize) < wiring.switches.len(),
            };
            if !names.insert(&link.name) {
                return Err(TopologyFault::LinkTwice { name: name() });
            }
            if link.mbps == 0 {
                return Err(TopologyFault::NoCapacity { name: name() });
            }
            if !link.ends.iter().all(exists) || link.ends[0] == link.ends[1] {
                return Err(TopologyFault::WrongEnds { name: name() });
            }
        }
        if let Some(node) =
            (0..nodes).find(|node| usize::from(wiring.inside_of[*node]) >= wiring.insides.len())
        {
            return Err(TopologyFault::NoInside { node: NodeId(node as u32) });
        }
        let routes = Routes::new(&wiring);
        match routes.cut_off(nodes) {
            Some(nodes) => Err(TopologyFault::Disconnected { nodes }),
            None => Ok(Topology { wiring, routes }),
        }
    }

    /// What was declared.
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// What a node looks like inside.
    pub fn inside(&self, node: NodeId) -> &Inside {
        &self.wiring.insides[usize::from(self.wiring.inside_of[node.index()])]
    }

    /// How many directed links there are.
    pub fn links(&self) -> usize {
        self.wiring.links.len() * 2
    }

    /// The declared link of a directed one.
    pub fn link(&self, link: LinkId) -> &Link {
        &self.wiring.links[link.index() / 2]
    }

    /// Capacity of a directed link.
    pub fn mbps(&self, link: LinkId) -> u64 {
        self.link(link).mbps
    }

    /// The directed links from one node to another, in order; none from a node to itself.
    pub fn way(&self, from: NodeId, to: NodeId, push: &mut impl FnMut(LinkId)) {
        if from != to {
            self.routes.walk(&self.wiring, from, to, push);
        }
    }

    /// The switch that a node is plugged into first, or the number of switches if it is plugged into none.
    pub fn port(&self, node: NodeId) -> u32 {
        self.routes.first_port(node).unwrap_or(self.wiring.switches.len() as u32)
    }
}

impl TryFrom<Wiring> for Topology {
    type Error = TopologyFault;

    fn try_from(wiring: Wiring) -> Result<Topology, TopologyFault> {
        Topology::new(wiring)
    }
}

impl From<Topology> for Wiring {
    fn from(topology: Topology) -> Wiring {
        topology.wiring
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use presets::LeafSpine;

    fn names(topology: &Topology, from: u32, to: u32) -> String {
        let mut names = Vec::new();
        topology.way(NodeId(from), NodeId(to), &mut |link| {
            names.push(topology.link(link).name.as_str());
        });
        names.join(" ")
    }

    #[test]
    fn a_way_leads_over_the_rack_or_over_the_core() {
        let mut cluster = Cluster::uniform(8, 8, "v100");
        let shape = LeafSpine { racks: Some(2), mbps: 100_000, oversubscription: 2.0, spines: 1 };
        let wiring = presets::leaf_spine(&mut cluster, shape, "");
        let topology = Topology::new(wiring).unwrap();
        assert_eq!(names(&topology, 0, 3), "n0 n3");
        assert_eq!(names(&topology, 0, 4), "n0 rack0-spine0 rack1-spine0 n4");
        let uplink = topology.wiring().links.iter().find(|link| link.name == "rack0-spine0");
        assert_eq!(uplink.unwrap().mbps, 200_000, "four nodes of 100 Gbit/s, two to one");
        // Both directions of a link are links of their own.
        let (mut out, mut back) = (Vec::new(), Vec::new());
        topology.way(NodeId(0), NodeId(4), &mut |link| out.push(link));
        topology.way(NodeId(4), NodeId(0), &mut |link| back.push(link));
        assert!(out.iter().all(|link| !back.contains(link)));
    }

    #[test]
    fn a_wiring_that_is_not_whole_is_refused() {
        let mut cluster = Cluster::uniform(4, 8, "v100");
        let shape = LeafSpine { racks: Some(2), mbps: 100_000, oversubscription: 1.0, spines: 1 };
        let whole = presets::leaf_spine(&mut cluster, shape, "");
        let broken = |change: &dyn Fn(&mut Wiring)| {
            let mut wiring = whole.clone();
            change(&mut wiring);
            Topology::new(wiring).unwrap_err().to_string()
        };
        assert_eq!(broken(&|it| it.links[0].mbps = 0), "the link `n0` has no capacity");
        assert_eq!(
            broken(&|it| it.links[1].name = "n0".to_owned()),
            "the link `n0` is there twice"
        );
        assert_eq!(
            broken(&|it| it.links.retain(|link| link.name != "rack1-spine0")),
            "2 of the nodes do not reach the others, node-2 first"
        );
        assert_eq!(
            broken(&|it| it.links[2].ends[0] = LinkEnd::Node(NodeId(9))),
            "the link `n2` does not join two ends that exist"
        );
    }

    #[test]
    fn a_topology_survives_being_written_and_read() {
        let mut cluster = Cluster::uniform(8, 8, "v100");
        let topology = Topology::new(presets::fat_tree(&mut cluster, 4, 100_000, "").unwrap());
        let topology = topology.unwrap();
        let wiring: Wiring = topology.clone().into();
        let again = Topology::try_from(wiring).unwrap();
        assert_eq!(topology, again);
        assert_eq!(names(&topology, 0, 7), names(&again, 0, 7));
    }
}
