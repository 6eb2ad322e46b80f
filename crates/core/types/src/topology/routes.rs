//! Ways between nodes: shortest by the number of switches, computed once.

use super::{LinkEnd, Wiring};
use crate::{LinkId, NodeId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// No way.
const NONE: u16 = u16::MAX;

/// The ways of a wiring.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    /// By node: switches it is plugged into, with the link.
    ports: Vec<SmallVec<[(u32, u32); 2]>>,
    /// Links that join two nodes, by both in order.
    direct: BTreeMap<(NodeId, NodeId), u32>,
    /// By switch: other switches, with the link.
    neighbours: Vec<Vec<(u32, u32)>>,
    /// Hops between switches, row by row.
    hops: Vec<u16>,
}

impl Routes {
    pub(super) fn new(wiring: &Wiring) -> Routes {
        let switches = wiring.switches.len();
        let mut routes = Routes {
            ports: vec![SmallVec::new(); wiring.inside_of.len()],
            direct: BTreeMap::new(),
            neighbours: vec![Vec::new(); switches],
            hops: vec![NONE; switches * switches],
        };
        for (index, link) in (0..).zip(&wiring.links) {
            match link.ends {
                [LinkEnd::Node(node), LinkEnd::Switch(switch)]
                | [LinkEnd::Switch(switch), LinkEnd::Node(node)] => {
                    routes.ports[node.index()].push((switch, index));
                }
                [LinkEnd::Switch(a), LinkEnd::Switch(b)] => {
                    routes.neighbours[a as usize].push((b, index));
                    routes.neighbours[b as usize].push((a, index));
                }
                [LinkEnd::Node(a), LinkEnd::Node(b)] => {
                    routes.direct.entry((a.min(b), a.max(b))).or_insert(index);
                }
            }
        }
        for from in 0..switches {
            routes.measure(from);
        }
        routes
    }

    /// Hops from a switch to all others, breadth first.
    fn measure(&mut self, from: usize) {
        let switches = self.neighbours.len();
        let row = &mut self.hops[from * switches..(from + 1) * switches];
        row[from] = 0;
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            for (next, _) in &self.neighbours[at] {
                if row[*next as usize] == NONE {
                    row[*next as usize] = row[at] + 1;
                    queue.push_back(*next as usize);
                }
            }
        }
    }

    fn hops(&self, from: u32, to: u32) -> u16 {
        self.hops[from as usize * self.neighbours.len() + to as usize]
    }

    pub(super) fn first_port(&self, node: NodeId) -> Option<u32> {
        self.ports[node.index()].iter().map(|(switch, _)| *switch).min()
    }

    /// The smallest part of the nodes that does not reach the others. A node reaches those on switches that its own
    /// reach; nodes with no switch must be joined to all others one by one.
    pub(super) fn cut_off(&self, nodes: usize) -> Option<Vec<NodeId>> {
        let mut parts: Vec<Vec<NodeId>> = Vec::new();
        for node in (0..nodes).map(|node| NodeId(node as u32)) {
            let reached = |part: &&mut Vec<NodeId>| self.reaches(part[0], node);
            match parts.iter_mut().find(reached) {
                Some(part) => part.push(node),
                None => parts.push(vec![node]),
            }
        }
        if parts.len() > 1 {
            return parts.into_iter().min_by_key(|part| (part.len(), std::cmp::Reverse(part[0])));
        }
        // Being reached from the first is enough over switches; over links from node to node it is not.
        let plugged = |node: &NodeId| !self.ports[node.index()].is_empty();
        let all: Vec<NodeId> = (0..nodes).map(|node| NodeId(node as u32)).collect();
        if all.iter().all(plugged) {
            return None;
        }
        let lonely = all.iter().find(|one| all.iter().any(|other| !self.reaches(**one, *other)));
        lonely.map(|node| vec![*node])
    }

    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        let joined = || self.direct.contains_key(&(from.min(to), from.max(to)));
        let hops = |(a, _): &(u32, u32)| {
            self.ports[to.index()].iter().any(|(b, _)| self.hops(*a, *b) != NONE)
        };
        from == to || joined() || self.ports[from.index()].iter().any(hops)
    }

    /// Pushes the directed links of the way between two nodes.
    pub(super) fn walk(
        &self,
        wiring: &Wiring,
        from: NodeId,
        to: NodeId,
        push: &mut impl FnMut(LinkId),
    ) {
        let away = |link: u32, start: LinkEnd| {
            let backward = wiring.links[link as usize].ends[0] != start;
            LinkId(link * 2 + u32::from(backward))
        };
        if let Some(link) = self.direct.get(&(from.min(to), from.max(to))) {
            return push(away(*link, LinkEnd::Node(from)));
        }
        let turn = mixed(from, to);
        let mut best: SmallVec<[(Port, Port); 4]> = SmallVec::new();
        let mut least = NONE;
        for start in &self.ports[from.index()] {
            for end in &self.ports[to.index()] {
                let hops = self.hops(start.0, end.0);
                if hops < least {
                    (least, best) = (hops, SmallVec::new());
                }
                if hops == least && hops != NONE {
                    best.push((*start, *end));
                }
            }
        }
        if best.is_empty() {
            return;
        }
        let (start, end) = best[turn % best.len()];
        push(away(start.1, LinkEnd::Node(from)));
        let mut at = start.0;
        while at != end.0 {
            let left = self.hops(at, end.0);
            let nearer = |next: &&(u32, u32)| self.hops(next.0, end.0) + 1 == left;
            let count = self.neighbours[at as usize].iter().filter(nearer).count();
            let next = self.neighbours[at as usize].iter().filter(nearer).nth(turn % count);
            let (next, link) = *next.expect("a switch with hops left has a nearer neighbour");
            push(away(link, LinkEnd::Switch(at)));
            at = next;
        }
        push(away(end.1, LinkEnd::Switch(at)));
    }
}

/// A switch, and the link to it.
type Port = (u32, u32);

/// A number that differs between pairs of nodes as a hash of addresses would.
fn mixed(from: NodeId, to: NodeId) -> usize {
    let word = u64::from(from.0) << 32 | u64::from(to.0);
    let mixed = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed ^ mixed >> 29) >> 3) as usize
}
