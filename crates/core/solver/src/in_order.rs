//! Pairs of greatest weight in a dense graph, nodes looked at in order.
//!
//! Edmonds' primal-dual algorithm with blossoms: labels of nodes and blossoms fall or rise until edges are tight, and
//! trees of tight edges grow from all free nodes at once until two of them meet. Everything is looked at in order of the
//! nodes, and labels are plain floating-point numbers, so that of several best answers the one is found that published
//! code finds which does the same; [`crate::matching`] finds another one. O(n^3) in time, O(n^2) in room.

use std::collections::VecDeque;

/// Below this part of the other two numbers count as equal when a label has come to its end.
const EQUAL: f64 = 1e-5;

/// The partner of each node in the pairs of greatest weight in sum. `weight` may differ by its last bits with the order
/// of its arguments; where it is 0 or less, or not a number, two nodes are never a pair.
///
/// ```
/// use trainyard_solver::matching_in_order;
/// let path = |one: usize, other: usize| match one.min(other) {
///     0 if one + other == 1 => 5.0,
///     1 if one + other == 3 => 11.0,
///     2 if one + other == 5 => 5.0,
///     _ => 0.0,
/// };
/// assert_eq!(matching_in_order(4, path), [None, Some(2), Some(1), None]);
/// ```
pub fn matching_in_order(nodes: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<Option<usize>> {
    let mut search = Search::new(nodes, weight);
    if search.label[0] > 0.0 {
        // Each success makes one more pair.
        while search.makes_pair() {}
    }
    // Where weights differ with the order of their arguments an edge can be tight one way only, and a pair one-sided.
    let is_mutual = |node: usize| search.partner[search.partner[node]] == node;
    let partner = |node: usize| search.partner[node].checked_sub(1).filter(|_| is_mutual(node));
    (1..=nodes).map(partner).collect()
}

/// Where a node or a blossom stands while trees grow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Side {
    /// In no tree.
    Outside,
    /// At an even distance from the root of its tree.
    Even,
    /// At an odd one.
    Odd,
}

/// Nodes are numbered from 1, blossoms behind them; 0 stands for none.
struct Search {
    nodes: usize,
    /// Nodes and blossoms that were ever made.
    known: usize,
    /// The length of a row in `ends`.
    row: usize,
    /// By two nodes: the weight of their edge.
    weight: Vec<f64>,
    /// By nodes or blossoms: the nodes at both ends of the best edge between them.
    ends: Vec<(u32, u32)>,
    label: Vec<f64>,
    /// The node to which a node or a blossom is matched.
    partner: Vec<usize>,
    /// The outermost blossom that a node or a blossom is in, or itself; 0 for a blossom that is gone.
    outer: Vec<usize>,
    /// The node through which a tree came to an odd one.
    parent: Vec<usize>,
    /// The parts of a blossom around its cycle, its base first.
    parts: Vec<Vec<usize>>,
    /// By a blossom and a node: the part that holds the node.
    part_with: Vec<u32>,
    side: Vec<Side>,
    /// The even node with the least slack to a node or blossom.
    nearest: Vec<usize>,
    seen: Vec<u32>,
    turn: u32,
    queue: VecDeque<usize>,
}

impl Search {
    fn new(nodes: usize, weight: impl Fn(usize, usize) -> f64) -> Search {
        // At most every second node begins a blossom that is not inside another.
        let row = nodes + nodes / 2 + 2;
        let mut search = Search {
            nodes,
            known: nodes,
            row,
            weight: vec![0.0; (nodes + 1) * (nodes + 1)],
            ends: vec![(0, 0); row * row],
            label: vec![0.0; row],
            partner: vec![0; row],
            outer: vec![0; row],
            parent: vec![0; row],
            parts: vec![Vec::new(); row],
            part_with: vec![0; row * (nodes + 1)],
            side: vec![Side::Outside; row],
            nearest: vec![0; row],
            seen: vec![0; row],
            turn: 0,
            queue: VecDeque::new(),
        };
        let mut largest = 0.0_f64;
        for one in 1..=nodes {
            search.outer[one] = one;
            search.part_with[one * (nodes + 1) + one] = one as u32;
            for other in (1..=nodes).filter(|other| *other != one) {
                let weight = weight(one - 1, other - 1);
                let weight = if weight > 0.0 && weight.is_finite() { weight } else { 0.0 };
                search.weight[one * (nodes + 1) + other] = weight;
                search.ends[one * row + other] = (one as u32, other as u32);
                largest = largest.max(weight);
            }
        }
        search.label[..=nodes].fill(largest);
        search
    }

    fn end(&self, one: usize, other: usize) -> (usize, usize) {
        let (from, to) = self.ends[one * self.row + other];
        (from as usize, to as usize)
    }

    fn has_edge(&self, one: usize, other: usize) -> bool {
        let (from, to) = self.end(one, other);
        self.weight[from * (self.nodes + 1) + to] > 0.0
    }

    /// How far the edge between two nodes or blossoms is from being tight.
    fn slack(&self, one: usize, other: usize) -> f64 {
        let (from, to) = self.end(one, other);
        self.slack_of(from, to)
    }

    fn slack_of(&self, from: usize, to: usize) -> f64 {
        self.label[from] + self.label[to] - self.weight[from * (self.nodes + 1) + to] * 2.0
    }

    fn offer_nearest(&mut self, node: usize, to: usize) {
        let nearest = self.nearest[to];
        if nearest == 0 || self.slack(node, to) < self.slack(nearest, to) {
            self.nearest[to] = node;
        }
    }

    fn find_nearest(&mut self, to: usize) {
        self.nearest[to] = 0;
        for node in 1..=self.nodes {
            let outer = self.outer[node];
            if outer != to && self.side[outer] == Side::Even && self.has_edge(node, to) {
                self.offer_nearest(node, to);
            }
        }
    }

    /// All nodes in a node or blossom wait to be looked at, level by level.
    fn enqueue(&mut self, inner: usize) {
        let mut level = VecDeque::from([inner]);
        while let Some(inner) = level.pop_front() {
            if inner <= self.nodes {
                self.queue.push_back(inner);
            } else {
                level.extend(&self.parts[inner]);
            }
        }
    }

    fn set_outer(&mut self, inner: usize, outer: usize) {
        let mut rest = vec![inner];
        while let Some(inner) = rest.pop() {
            self.outer[inner] = outer;
            if inner > self.nodes {
                rest.extend(&self.parts[inner]);
            }
        }
    }

    /// Turns a blossom's cycle so that the way from its base to a part has even length; the place of the part.
    fn even_place(&mut self, blossom: usize, part: usize) -> usize {
        let parts = &mut self.parts[blossom];
        let place = parts.iter().position(|other| *other == part).expect("a part of the blossom");
        if place % 2 == 0 {
            return place;
        }
        parts[1..].reverse();
        parts.len() - place
    }

    /// Matches a node or blossom to another, and inside a blossom all parts around the new base.
    fn pair_up(&mut self, one: usize, other: usize) {
        let mut rest = VecDeque::from([(one, other)]);
        while let Some((one, other)) = rest.pop_front() {
            let (from, to) = self.end(one, other);
            self.partner[one] = to;
            if one <= self.nodes {
                continue;
            }
            let base = self.part_with[one * (self.nodes + 1) + from] as usize;
            let place = self.even_place(one, base);
            for index in 0..place {
                rest.push_back((self.parts[one][index], self.parts[one][index ^ 1]));
            }
            rest.push_back((base, other));
            self.parts[one].rotate_left(place);
        }
    }

    /// Swaps what is matched along the way to the root of a tree.
    fn augment(&mut self, mut one: usize, mut other: usize) {
        loop {
            let before = self.outer[self.partner[one]];
            self.pair_up(one, other);
            if before == 0 {
                return;
            }
            let next = self.outer[self.parent[before]];
            self.pair_up(before, next);
            (one, other) = (next, before);
        }
    }

    /// Where the ways of two even ones to their roots meet; 0 if they are in two trees.
    fn meeting(&mut self, mut one: usize, mut other: usize) -> usize {
        self.turn += 1;
        while one != 0 || other != 0 {
            if one != 0 {
                if self.seen[one] == self.turn {
                    return one;
                }
                self.seen[one] = self.turn;
                one = self.outer[self.partner[one]];
                if one != 0 {
                    one = self.outer[self.parent[one]];
                }
            }
            std::mem::swap(&mut one, &mut other);
        }
        0
    }

    /// Adds the way from an even one down to `base` to a blossom; odd ones on it become even.
    fn gather(&mut self, blossom: usize, from: usize, base: usize) {
        let mut here = from;
        while here != base {
            let odd = self.outer[self.partner[here]];
            self.parts[blossom].extend([here, odd]);
            self.enqueue(odd);
            here = self.outer[self.parent[odd]];
        }
    }

    fn shrink(&mut self, one: usize, base: usize, other: usize) {
        let unused = (self.nodes + 1..=self.known).find(|blossom| self.outer[*blossom] == 0);
        let blossom = unused.unwrap_or_else(|| {
            self.known += 1;
            self.known
        });
        self.label[blossom] = 0.0;
        self.side[blossom] = Side::Even;
        self.partner[blossom] = self.partner[base];
        self.parts[blossom] = vec![base];
        self.gather(blossom, one, base);
        self.parts[blossom][1..].reverse();
        self.gather(blossom, other, base);
        self.set_outer(blossom, blossom);
        let row = self.row;
        for x in 1..=self.known {
            self.ends[blossom * row + x] = (0, 0);
            self.ends[x * row + blossom] = (0, 0);
        }
        let nodes = self.nodes + 1;
        self.part_with[blossom * nodes..(blossom + 1) * nodes].fill(0);
        for index in 0..self.parts[blossom].len() {
            let part = self.parts[blossom][index];
            for x in 1..=self.known {
                let nearer =
                    || !self.has_edge(blossom, x) || self.slack(part, x) < self.slack(blossom, x);
                if self.has_edge(part, x) && nearer() {
                    self.ends[blossom * row + x] = self.ends[part * row + x];
                    self.ends[x * row + blossom] = self.ends[x * row + part];
                }
            }
            for node in 1..nodes {
                if self.part_with[part * nodes + node] != 0 {
                    self.part_with[blossom * nodes + node] = part as u32;
                }
            }
        }
        self.find_nearest(blossom);
    }

    /// Takes an odd blossom apart whose label has come to 0.
    fn expand(&mut self, blossom: usize) {
        for part in self.parts[blossom].clone() {
            self.set_outer(part, part);
        }
        let (entry, _) = self.end(blossom, self.parent[blossom]);
        let entry = self.part_with[blossom * (self.nodes + 1) + entry] as usize;
        let place = self.even_place(blossom, entry);
        let parts = self.parts[blossom].clone();
        for pair in parts[..place].chunks_exact(2) {
            let [odd, even] = [pair[0], pair[1]];
            self.parent[odd] = self.end(even, odd).0;
            self.side[odd] = Side::Odd;
            self.side[even] = Side::Even;
            self.nearest[odd] = 0;
            self.find_nearest(even);
            self.enqueue(even);
        }
        self.side[entry] = Side::Odd;
        self.parent[entry] = self.parent[blossom];
        for &part in &parts[place + 1..] {
            self.side[part] = Side::Outside;
            self.find_nearest(part);
        }
        self.outer[blossom] = 0;
    }

    /// An even node has a tight edge: its tree grows, or closes a cycle, or meets another. Whether a pair was made.
    fn follow(&mut self, from: usize, to: usize) -> bool {
        let (one, other) = (self.outer[from], self.outer[to]);
        match self.side[other] {
            Side::Odd => {}
            Side::Outside => {
                self.parent[other] = from;
                self.side[other] = Side::Odd;
                let next = self.outer[self.partner[other]];
                self.nearest[other] = 0;
                self.nearest[next] = 0;
                self.side[next] = Side::Even;
                self.enqueue(next);
            }
            Side::Even => {
                let base = self.meeting(one, other);
                if base == 0 {
                    self.augment(one, other);
                    self.augment(other, one);
                    return true;
                }
                self.shrink(one, base, other);
            }
        }
        false
    }

    /// Grows trees from all free nodes until a pair can be made; false if there is none to make.
    fn makes_pair(&mut self) -> bool {
        self.side.fill(Side::Outside);
        self.nearest.fill(0);
        self.queue.clear();
        for root in 1..=self.known {
            if self.outer[root] == root && self.partner[root] == 0 {
                self.parent[root] = 0;
                self.side[root] = Side::Even;
                self.enqueue(root);
            }
        }
        if self.queue.is_empty() {
            return false;
        }
        // Each turn makes an edge tight or takes a blossom apart.
        loop {
            if self.look_around() {
                return true;
            }
            if !self.relabel() {
                return false;
            }
            if self.follow_tight() {
                return true;
            }
            for blossom in self.nodes + 1..=self.known {
                let done = self.outer[blossom] == blossom
                    && self.side[blossom] == Side::Odd
                    && self.label[blossom] <= 0.0;
                if done {
                    self.expand(blossom);
                }
            }
        }
    }

    /// Looks at the edges of all even nodes that wait. Whether a pair was made.
    fn look_around(&mut self) -> bool {
        while let Some(node) = self.queue.pop_front() {
            if self.side[self.outer[node]] == Side::Odd {
                continue;
            }
            for to in 1..=self.nodes {
                let weight = self.weight[node * (self.nodes + 1) + to];
                if weight <= 0.0 || self.outer[node] == self.outer[to] {
                    continue;
                }
                if self.label[node] + self.label[to] - weight * 2.0 > 0.0 {
                    self.offer_nearest(node, self.outer[to]);
                } else if self.follow(node, to) {
                    return true;
                }
            }
        }
        false
    }

    /// Lowers the labels of even nodes and raises those of odd ones until an edge is tight; false if a label ends first.
    fn relabel(&mut self) -> bool {
        let mut by = f64::INFINITY;
        for x in 1..=self.known {
            if self.outer[x] != x {
                continue;
            }
            if x > self.nodes && self.side[x] == Side::Odd {
                by = by.min(self.label[x] / 2.0);
            }
            if self.nearest[x] != 0 {
                match self.side[x] {
                    Side::Outside => by = by.min(self.slack(self.nearest[x], x)),
                    Side::Even => by = by.min(self.slack(self.nearest[x], x) / 2.0),
                    Side::Odd => {}
                }
            }
        }
        for node in 1..=self.nodes {
            let label = self.label[node];
            match self.side[self.outer[node]] {
                Side::Even if label <= by || (label - by).abs() <= EQUAL * label.max(by) => {
                    return false;
                }
                Side::Even => self.label[node] -= by,
                Side::Odd => self.label[node] += by,
                Side::Outside => {}
            }
        }
        for blossom in self.nodes + 1..=self.known {
            if self.outer[blossom] == blossom {
                match self.side[blossom] {
                    Side::Even => self.label[blossom] += by * 2.0,
                    Side::Odd => self.label[blossom] -= by * 2.0,
                    Side::Outside => {}
                }
            }
        }
        true
    }

    /// Follows the nearest edges that have become tight. Whether a pair was made.
    fn follow_tight(&mut self) -> bool {
        self.queue.clear();
        for x in 1..=self.known {
            let nearest = self.nearest[x];
            if self.outer[x] != x || nearest == 0 || self.outer[nearest] == x {
                continue;
            }
            if self.slack(nearest, x) <= 0.0 {
                let (from, to) = self.end(nearest, x);
                if self.follow(from, to) {
                    return true;
                }
            }
        }
        false
    }
}
