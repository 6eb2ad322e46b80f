//! What has to be done for a placement, and a list schedule of it.

use super::Placing;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a piece is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum What {
    /// The forward pass of an operator on a device, with its part of the samples.
    Forward(usize, usize, f64),
    /// The backward pass.
    Backward(usize, usize, f64),
    /// Bytes from one device to another.
    Transfer(usize, usize, f64),
    /// Gradients of an operator made equal on its site.
    Ring(usize, usize),
}

/// One thing to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// What it is.
    pub what: What,
    /// The device, or after all devices the link, that does one thing at a time.
    pub lane: u32,
    /// Seconds on its lane, alone.
    pub seconds: f64,
    /// Pieces that must have ended.
    pub after: Vec<u32>,
}

/// All pieces of a placement; each comes after those that it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Pieces {
    /// The pieces.
    pub all: Vec<Piece>,
    /// Lanes: one for each device, one for each link.
    pub lanes: usize,
}

/// When each piece starts in a list schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Lists {
    /// When each starts.
    pub start: Vec<f64>,
    /// When the last ends.
    pub seconds: f64,
    /// The place of each in the order of the lists.
    pub rank: Vec<u32>,
}

struct Builder<'a, 'b> {
    placing: &'a Placing<'b>,
    placement: &'a [usize],
    all: Vec<Piece>,
}

impl Pieces {
    /// The pieces of a placement: O(operators + edges x devices of their sites).
    pub fn new(placing: &Placing<'_>, placement: &[usize]) -> Pieces {
        let count = placing.graph.operators.len();
        let mut build = Builder { placing, placement, all: Vec::with_capacity(4 * count) };
        let mut forward: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut waits: Vec<Vec<Vec<u32>>> = vec![Vec::new(); count];
        for operator in placing.graph.order().iter().copied() {
            forward[operator] = build.passes(operator, &mut waits[operator], false, &[]);
            let made = forward[operator].clone();
            build.hand_on(operator, &made, &mut waits);
        }
        let mut waits: Vec<Vec<Vec<u32>>> = vec![Vec::new(); count];
        for operator in placing.graph.order().iter().rev().copied() {
            // Where nothing from here on goes backward, as in inference, nothing comes back.
            if !placing.goes_back[operator] {
                continue;
            }
            let own = forward[operator].clone();
            let made = build.passes(operator, &mut waits[operator], true, &own);
            for edge in &placing.incoming[operator] {
                let edge = &placing.graph.edges[*edge];
                let mut sent = Vec::new();
                let bytes = edge.bytes * placing.scale;
                let to = build.arrivals((operator, &made), edge.from, bytes, &mut sent);
                merge(&mut waits[edge.from], to);
            }
            let site = placement[operator];
            let is_trained = placing.graph.operators[operator].backward > 0.0;
            if placing.sites[site].parts.len() > 1 && is_trained {
                let (per_byte, link) = placing.rings[site];
                let bytes = placing.graph.operators[operator].parameter_bytes;
                if bytes > 0.0 {
                    let lane = (placing.devices.devices.len() as u32) + link;
                    let what = What::Ring(operator, site);
                    build.all.push(Piece { what, lane, seconds: per_byte * bytes, after: made });
                }
            }
        }
        let lanes = placing.devices.devices.len() + placing.devices.links.len();
        Pieces { all: build.all, lanes }
    }
}

impl Builder<'_, '_> {
    /// The slices of one pass, one for each device of the site; where there is no pass, what it waits for stands for it.
    fn passes(
        &mut self,
        operator: usize,
        waits: &mut Vec<Vec<u32>>,
        is_backward: bool,
        own: &[u32],
    ) -> Vec<u32> {
        let parts = &self.placing.sites[self.placement[operator]].parts;
        waits.resize(parts.len(), Vec::new());
        let mut made = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let (forward, backward) = self.placing.seconds(operator, *part);
            let mut after = std::mem::take(&mut waits[at]);
            after.extend(own.get(at));
            after.sort_unstable();
            after.dedup();
            let (seconds, what) = match is_backward {
                true => (backward, What::Backward(operator, part.0, part.1)),
                false => (forward, What::Forward(operator, part.0, part.1)),
            };
            made.push(self.all.len() as u32);
            self.all.push(Piece { what, lane: part.0 as u32, seconds, after });
        }
        made
    }

    /// Hands what an operator made to all that need it; the same tensor goes to a device once.
    fn hand_on(&mut self, operator: usize, made: &[u32], waits: &mut [Vec<Vec<u32>>]) {
        let mut sent: Vec<(u64, u32, usize, u32)> = Vec::new();
        let placing = self.placing;
        for edge in &placing.outgoing[operator] {
            let edge = &placing.graph.edges[*edge];
            let bytes = edge.bytes * placing.scale;
            let to = self.arrivals((operator, made), edge.to, bytes, &mut sent);
            merge(&mut waits[edge.to], to);
        }
    }

    /// For each device of the other's site, what it waits for.
    fn arrivals(
        &mut self,
        (from, made): (usize, &[u32]),
        to: usize,
        bytes: f64,
        sent: &mut Vec<(u64, u32, usize, u32)>,
    ) -> Vec<Vec<u32>> {
        let (a, b) = (self.placement[from], self.placement[to]);
        if a == b {
            // The samples of a device stay on it.
            return made.iter().map(|one| vec![*one]).collect();
        }
        let placing = self.placing;
        let mut arrivals = Vec::with_capacity(placing.sites[b].parts.len());
        for (target, wanted) in &placing.sites[b].parts {
            let mut own = Vec::with_capacity(made.len());
            for (piece, (source, has)) in made.iter().zip(&placing.sites[a].parts) {
                if source == target || bytes <= 0.0 {
                    own.push(*piece);
                    continue;
                }
                let known = (bytes.to_bits(), *piece, *target);
                let before = sent.iter().find(|(x, y, z, _)| (*x, *y, *z) == known);
                if let Some((.., index)) = before {
                    own.push(*index);
                    continue;
                }
                let bytes = bytes * has * wanted;
                let (per_byte, link) = placing.wires[*source][*target];
                let index = self.all.len() as u32;
                self.all.push(Piece {
                    what: What::Transfer(*source, *target, bytes),
                    lane: placing.devices.devices.len() as u32 + link,
                    seconds: placing.devices.latency + bytes * per_byte,
                    after: vec![*piece],
                });
                sent.push((known.0, known.1, known.2, index));
                own.push(index);
            }
            arrivals.push(own);
        }
        arrivals
    }
}

fn merge(waits: &mut Vec<Vec<u32>>, more: Vec<Vec<u32>>) {
    waits.resize(waits.len().max(more.len()), Vec::new());
    waits.iter_mut().zip(more).for_each(|(waits, more)| waits.extend(more));
}

/// Seconds from the start of each piece to the end of the last one that waits for it.
pub fn tails(pieces: &Pieces) -> Vec<f64> {
    let mut tails = vec![0.0f64; pieces.all.len()];
    for (at, piece) in pieces.all.iter().enumerate().rev() {
        tails[at] += piece.seconds;
        for before in &piece.after {
            tails[*before as usize] = tails[*before as usize].max(tails[at]);
        }
    }
    tails
}

/// A list schedule: on each lane, of what could start, the piece with the longest way to the end.
///
/// O(n log n) for n pieces.
pub fn lists(pieces: &Pieces) -> Lists {
    let count = pieces.all.len();
    let tails = tails(pieces);
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_unstable_by(|a, b| tails[*b as usize].total_cmp(&tails[*a as usize]).then(a.cmp(b)));
    let mut rank = vec![0u32; count];
    order.iter().enumerate().for_each(|(at, one)| rank[*one as usize] = at as u32);
    let mut missing: Vec<u32> = pieces.all.iter().map(|one| one.after.len() as u32).collect();
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (at, piece) in pieces.all.iter().enumerate() {
        piece.after.iter().for_each(|before| followers[*before as usize].push(at as u32));
    }
    let mut ready: Vec<BinaryHeap<Reverse<u32>>> = vec![BinaryHeap::new(); pieces.lanes];
    let mut is_busy = vec![false; pieces.lanes];
    // Moments are not negative, so their bits are in the order of the numbers.
    let mut ends: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut start = vec![0.0f64; count];
    let mut to_try: Vec<u32> = Vec::new();
    for at in (0..count).filter(|at| missing[*at] == 0) {
        ready[pieces.all[at].lane as usize].push(Reverse(rank[at]));
        to_try.push(pieces.all[at].lane);
    }
    let mut now = 0.0f64;
    loop {
        for lane in to_try.drain(..) {
            let lane = lane as usize;
            if is_busy[lane] {
                continue;
            }
            let Some(Reverse(first)) = ready[lane].pop() else { continue };
            let piece = order[first as usize];
            is_busy[lane] = true;
            start[piece as usize] = now;
            let end = now + pieces.all[piece as usize].seconds;
            ends.push(Reverse((end.to_bits(), piece)));
        }
        let Some(Reverse((end, _))) = ends.peek().copied() else { break };
        now = f64::from_bits(end);
        while let Some(Reverse((at, piece))) = ends.peek().copied() {
            if at != end {
                break;
            }
            ends.pop();
            let lane = pieces.all[piece as usize].lane;
            is_busy[lane as usize] = false;
            to_try.push(lane);
            for follower in &followers[piece as usize] {
                let left = &mut missing[*follower as usize];
                *left -= 1;
                if *left == 0 {
                    let lane = pieces.all[*follower as usize].lane;
                    ready[lane as usize].push(Reverse(rank[*follower as usize]));
                    to_try.push(lane);
                }
            }
        }
    }
    Lists { start, seconds: now, rank }
}
