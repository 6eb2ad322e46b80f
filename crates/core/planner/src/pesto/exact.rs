//! The exact answer for small graphs: every placement, and for each every active schedule, both bounded.

use crate::placing::{Pieces, Placing, tails};

/// What the exact search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// A device for each operator.
    pub placement: Vec<usize>,
    /// The shortest step, with transfers one at a time on each link.
    pub seconds: f64,
    /// Whether all was looked at, so that nothing is shorter.
    pub is_proven: bool,
    /// Nodes that were looked at.
    pub steps: u64,
}

struct Tree<'a, 'b> {
    placing: &'a Placing<'b>,
    best: Exact,
    steps_max: u64,
}

/// The shortest step over all placements and all orders on devices and links, from a placement that is known.
///
/// Branch and bound; after `steps_max` nodes the best so far stands and is not proven.
pub fn exact(placing: &Placing<'_>, known: &[usize], steps_max: u64) -> Exact {
    let fits = placing.lacking(known) <= 0.0;
    let seconds = if fits { placing.rate(known).1 } else { f64::INFINITY };
    let best = Exact { placement: known.to_vec(), seconds, is_proven: true, steps: 0 };
    let mut tree = Tree { placing, best, steps_max };
    let mut placement = vec![usize::MAX; placing.graph.operators.len()];
    tree.place(&mut placement, 0);
    tree.best
}

impl Tree<'_, '_> {
    fn place(&mut self, placement: &mut Vec<usize>, at: usize) {
        self.best.steps += 1;
        if self.best.steps > self.steps_max {
            self.best.is_proven = false;
            return;
        }
        let order = self.placing.graph.order();
        if at == order.len() {
            if self.placing.lacking(placement) <= 0.0 {
                self.schedule(placement);
            }
            return;
        }
        for device in 0..self.placing.devices.devices.len() {
            if self.is_like_an_earlier(placement, device) {
                continue;
            }
            placement[order[at]] = device;
            if self.bound(placement) < self.best.seconds * (1.0 - 1e-12) {
                self.place(placement, at + 1);
            }
            placement[order[at]] = usize::MAX;
        }
    }

    /// Of devices that are alike and hold nothing yet, only the first is tried.
    fn is_like_an_earlier(&self, placement: &[usize], device: usize) -> bool {
        let is_empty = |one: usize| !placement.contains(&one);
        let all = &self.placing.devices.devices;
        let alike = |other: usize| {
            let (a, b) = (&all[device], &all[other]);
            a.machine == b.machine && a.speed == b.speed && a.memory_bytes == b.memory_bytes
        };
        is_empty(device) && (0..device).any(|other| is_empty(other) && alike(other))
    }

    /// No completion of a placement is shorter than the work over the speed, nor than the longest way with the transfers
    /// that are certain.
    fn bound(&self, placement: &[usize]) -> f64 {
        let placing = self.placing;
        let devices = placing.devices.devices.len();
        let fastest = (0..devices).max_by(|a, b| {
            placing.devices.devices[*a].speed.total_cmp(&placing.devices.devices[*b].speed)
        });
        let fastest = fastest.expect("there is a device");
        let mut load = vec![0.0f64; devices];
        let (mut work, mut speed) = (0.0, 0.0);
        let mut path = vec![0.0f64; placement.len()];
        let mut longest: f64 = 0.0;
        for operator in placing.graph.order().iter().copied() {
            let device = placement[operator];
            let is_placed = device != usize::MAX;
            let seconds = placing.site_seconds(operator, if is_placed { device } else { fastest });
            if is_placed {
                load[device] += seconds;
            } else {
                work += seconds * placing.devices.devices[fastest].speed;
            }
            let before = placing.edges_into(operator).iter().map(|edge| {
                let from = placing.graph.edges[*edge].from;
                let known = is_placed && placement[from] != usize::MAX;
                let moved = if known {
                    placing.edge_seconds(*edge, (placement[from], device))
                } else {
                    0.0
                };
                path[from] + moved
            });
            path[operator] = before.fold(0.0, f64::max) + seconds;
            longest = longest.max(path[operator]);
        }
        for (load, device) in load.iter().zip(&placing.devices.devices) {
            work += load * device.speed;
            speed += device.speed;
        }
        load.into_iter().fold(longest.max(work / speed), f64::max)
    }

    fn schedule(&mut self, placement: &[usize]) {
        let pieces = Pieces::new(self.placing, placement);
        let tails = tails(&pieces);
        let mut orders = Orders {
            pieces: &pieces,
            tails: &tails,
            start: vec![f64::NAN; pieces.all.len()],
            free: vec![0.0; pieces.lanes],
            best: self.best.seconds,
            steps: self.best.steps,
            steps_max: self.steps_max,
        };
        orders.branch(pieces.all.len());
        self.best.steps = orders.steps;
        self.best.is_proven &= orders.steps <= self.steps_max;
        if orders.best < self.best.seconds {
            self.best.seconds = orders.best;
            self.best.placement = placement.to_vec();
        }
    }
}

/// All active schedules of given pieces (Giffler and Thompson): one of them is shortest.
struct Orders<'a> {
    pieces: &'a Pieces,
    tails: &'a [f64],
    start: Vec<f64>,
    free: Vec<f64>,
    best: f64,
    steps: u64,
    steps_max: u64,
}

impl Orders<'_> {
    fn branch(&mut self, open: usize) {
        self.steps += 1;
        if self.steps > self.steps_max {
            return;
        }
        if open == 0 {
            let all = self.pieces.all.iter().zip(&self.start);
            let seconds = all.map(|(piece, start)| start + piece.seconds).fold(0.0, f64::max);
            self.best = self.best.min(seconds);
            return;
        }
        let heads = self.heads();
        if self.bound(&heads) >= self.best * (1.0 - 1e-12) {
            return;
        }
        let eligible: Vec<usize> = (0..heads.len()).filter(|at| self.can_start(*at)).collect();
        let ends = eligible.iter().map(|at| (heads[*at] + self.pieces.all[*at].seconds, *at));
        let first = ends.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (end, first) = first.expect("a piece can start");
        let lane = self.pieces.all[first].lane;
        let mut rivals: Vec<usize> = (eligible.into_iter())
            .filter(|at| *at == first || (self.pieces.all[*at].lane == lane && heads[*at] < end))
            .collect();
        rivals.sort_by(|a, b| self.tails[*b].total_cmp(&self.tails[*a]).then(a.cmp(b)));
        for piece in rivals {
            let before = self.free[lane as usize];
            self.start[piece] = heads[piece];
            self.free[lane as usize] = heads[piece] + self.pieces.all[piece].seconds;
            self.branch(open - 1);
            self.start[piece] = f64::NAN;
            self.free[lane as usize] = before;
        }
    }

    fn can_start(&self, piece: usize) -> bool {
        let after = &self.pieces.all[piece].after;
        self.start[piece].is_nan() && after.iter().all(|one| !self.start[*one as usize].is_nan())
    }

    /// When each piece can start at the earliest; of those that have started, when they did.
    fn heads(&self) -> Vec<f64> {
        let mut heads = self.start.clone();
        for (at, piece) in self.pieces.all.iter().enumerate() {
            if heads[at].is_nan() {
                let ends = piece.after.iter().map(|before| {
                    heads[*before as usize] + self.pieces.all[*before as usize].seconds
                });
                heads[at] = ends.fold(self.free[piece.lane as usize], f64::max);
            }
        }
        heads
    }

    /// The longest way through any open piece, and for each lane its earliest head, all its work and its least tail.
    fn bound(&self, heads: &[f64]) -> f64 {
        let mut lanes = vec![(f64::INFINITY, 0.0, f64::INFINITY); self.free.len()];
        let mut longest: f64 = 0.0;
        for (at, piece) in self.pieces.all.iter().enumerate() {
            longest = longest.max(heads[at] + self.tails[at]);
            if self.start[at].is_nan() {
                let lane = &mut lanes[piece.lane as usize];
                lane.0 = lane.0.min(heads[at]);
                lane.1 += piece.seconds;
                lane.2 = lane.2.min(self.tails[at] - piece.seconds);
            }
        }
        let by_lane = lanes.iter().filter(|lane| lane.0.is_finite());
        by_lane.map(|(head, work, tail)| head + work + tail).fold(longest, f64::max)
    }
}
