//! Which leases serve which jobs, when the deadlines are chosen.

use super::Demand;

/// So many GPUs in so many leases, all before a deadline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// GPUs in each lease.
    pub gpus: u32,
    /// How many leases.
    pub leases: u32,
    /// Leases that end before the deadline.
    pub before: u32,
}

/// Leases for all, and what is left of them.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    /// The leases of each piece, ascending.
    pub leases: Vec<Vec<u32>>,
    /// GPUs left in each lease.
    pub left: Vec<u32>,
    /// Pieces packed so far.
    placed: Vec<Option<Piece>>,
    /// How many of the leases that one piece might have leave so many GPUs; all 0 between two pieces.
    counts: Vec<u32>,
}

/// Packs pieces, using as little of the first lease as it can; or names a piece that found no place.
///
/// Pieces are taken in three orders, one after the other, until one succeeds: widest first, soonest first, least slack
/// first. Each is put where most is left, later leases before earlier ones. Where all are equally wide and the
/// soonest deadline comes first, that is exact: leases before a deadline are alike to all whose deadline is later,
/// so only how evenly they are used matters (the argument of Gale and Ryser). Where they are not, a piece that found no
/// place is put in front and all are packed anew, a few times over.
pub fn pack(pieces: &[Option<Piece>], capacity: &[u32]) -> Result<Packing, usize> {
    let mut first_stuck = None;
    let mut order = Vec::new();
    let mut packing = Packing::new(pieces.len(), capacity);
    for kind in Order::ALL {
        order = kind.of(pieces);
        match packing.pack_in(&order, pieces, capacity) {
            Ok(()) => return Ok(packing),
            Err(piece) => first_stuck = first_stuck.or(Some(piece)),
        }
    }
    let is_even = pieces.iter().flatten().is_sorted_by(|one, other| one.gpus == other.gpus);
    for _ in 0..if is_even { 0 } else { PUSHES_MAX } {
        match packing.pack_in(&order, pieces, capacity) {
            Ok(()) => return Ok(packing),
            Err(piece) => {
                let at = order.iter().position(|other| *other == piece).expect("it was in order");
                order[..=at].rotate_right(1);
            }
        }
    }
    Err(first_stuck.expect("every order failed on a piece"))
}

/// Whether there are GPUs enough up to each deadline: where there are not, nothing packs the pieces.
///
/// O(n log n), where a packing that fails is tried in eleven orders.
pub fn suffices(pieces: &[Option<Piece>], capacity: &[u32]) -> bool {
    let mut due: Vec<(u32, u64)> = pieces
        .iter()
        .flatten()
        .map(|piece| (piece.before, u64::from(piece.gpus) * u64::from(piece.leases)))
        .collect();
    due.sort_unstable_by_key(|(before, _)| *before);
    let last = u64::from(capacity.last().copied().unwrap_or(0));
    // The leases that are counted, what they have, and what is to fit into them.
    let (mut counted, mut has, mut need) = (0, 0, 0);
    due.iter().all(|(before, area)| {
        let known = &capacity[capacity.len().min(counted)..capacity.len().min(*before as usize)];
        let beyond = (*before as usize).saturating_sub(counted.max(capacity.len())) as u64;
        has += known.iter().copied().map(u64::from).sum::<u64>() + beyond * last;
        counted = counted.max(*before as usize);
        need += area;
        need <= has
    })
}

/// Packs the soonest first and passes over pieces that find no place, which are named.
pub fn pack_most(pieces: &[Option<Piece>], capacity: &[u32]) -> (Packing, Vec<usize>) {
    let mut packing = Packing::new(pieces.len(), capacity);
    let mut order = Order::Soonest.of(pieces);
    order.retain(|at| !packing.put(*at, pieces[*at].expect("the order holds pieces only")));
    (packing, order)
}

/// How often a piece that found no place is put in front.
const PUSHES_MAX: u32 = 8;

#[derive(Copy, Clone)]
enum Order {
    Widest,
    Soonest,
    Tightest,
}

impl Order {
    const ALL: [Order; 3] = [Order::Widest, Order::Soonest, Order::Tightest];

    fn of(self, pieces: &[Option<Piece>]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..pieces.len()).filter(|at| pieces[*at].is_some()).collect();
        let key = |at: &usize| {
            let Piece { gpus, leases, before } = pieces[*at].expect("filtered");
            let (width, slack) = (u32::MAX - gpus, before.saturating_sub(leases));
            match self {
                Order::Widest => (width, before, slack, *at),
                Order::Soonest => (before, width, slack, *at),
                Order::Tightest => (slack, width, before, *at),
            }
        };
        order.sort_unstable_by_key(key);
        order
    }
}

impl Packing {
    /// Nothing packed.
    pub fn new(pieces: usize, capacity: &[u32]) -> Packing {
        Packing {
            leases: vec![Vec::new(); pieces],
            left: capacity.to_vec(),
            placed: vec![None; pieces],
            counts: Vec::new(),
        }
    }

    /// Packs pieces in an order in place of what was packed before, or names the first that found no place.
    fn pack_in(
        &mut self,
        order: &[usize],
        pieces: &[Option<Piece>],
        capacity: &[u32],
    ) -> Result<(), usize> {
        self.leases.iter_mut().for_each(Vec::clear);
        self.left.clear();
        self.left.extend_from_slice(capacity);
        self.placed.fill(None);
        for &at in order {
            let piece = pieces[at].expect("the order holds pieces only");
            if !self.put(at, piece) {
                return Err(at);
            }
        }
        Ok(())
    }

    /// Packs one more piece, with the first lease as its last resort; says whether it found a place.
    pub fn put(&mut self, at: usize, piece: Piece) -> bool {
        let need = piece.leases as usize;
        self.reach(piece.before);
        let mut open = std::mem::take(&mut self.leases[at]);
        open.clear();
        self.emptiest(piece, &mut open);
        if open.len() < need && piece.before > 0 {
            while open.len() + 1 < need && self.clear(piece, &mut open) {}
            if open.len() + 1 == need && self.left[0] >= piece.gpus {
                open.push(0);
            }
            open.sort_unstable();
        }
        if open.len() < need {
            open.clear();
            self.leases[at] = open;
            return false;
        }
        for lease in &open {
            self.left[*lease as usize] -= piece.gpus;
        }
        self.leases[at] = open;
        self.placed[at] = Some(piece);
        true
    }

    /// The leases with the most left that a piece could have beside the first, later ones first among equals; no more
    /// than it needs, ascending. O(leases + GPUs), without a sort: what is left is a small number.
    fn emptiest(&mut self, piece: Piece, open: &mut Vec<u32>) {
        let Packing { left, counts, .. } = self;
        let before = left.len().min(piece.before as usize);
        let Some(known) = left.get(1..before) else { return };
        let most = known.iter().copied().max().unwrap_or(0);
        if most < piece.gpus {
            return;
        }
        // What a lease has left beyond what the piece takes.
        let beyond = |left: u32| (left - piece.gpus) as usize;
        counts.resize(counts.len().max(beyond(most) + 1), 0);
        let fitting = || known.iter().copied().filter(|left| *left >= piece.gpus);
        fitting().for_each(|left| counts[beyond(left)] += 1);
        // The least that leaves enough leases, and how many of those with just as much are one too many.
        let (mut least, mut surplus, mut found) = (piece.gpus, 0, 0);
        for left in (piece.gpus..=most).rev() {
            found += counts[beyond(left)];
            if found >= piece.leases {
                (least, surplus) = (left, found - piece.leases);
                break;
            }
        }
        counts[..=beyond(most)].fill(0);
        for (lease, left) in (1..).zip(known) {
            if *left == least && surplus > 0 {
                surplus -= 1;
            } else if *left >= least {
                open.push(lease);
            }
        }
    }

    /// Makes the leases known up to a deadline: later ones have as many GPUs as the last.
    fn reach(&mut self, before: u32) {
        if self.left.len() < before as usize {
            let last = self.left.last().copied().unwrap_or(0);
            // What is in use of the last known lease is no part of its capacity.
            let used = self.used(self.left.len().saturating_sub(1) as u32);
            self.left.resize(before as usize, last + used);
        }
    }

    fn used(&self, lease: u32) -> u32 {
        let holds = |at: &usize| self.leases[*at].binary_search(&lease).is_ok();
        let pieces = (0..self.leases.len()).filter(holds);
        pieces.filter_map(|at| self.placed[at]).map(|piece| piece.gpus).sum()
    }

    /// Opens one more lease for a piece by moving another piece from it into the first lease.
    fn clear(&mut self, piece: Piece, open: &mut Vec<u32>) -> bool {
        let mut best: Option<(u32, usize, u32)> = None;
        for (at, held) in self.leases.iter().enumerate() {
            let Some(other) = self.placed[at] else { continue };
            if other.gpus > self.left[0] || held.first().is_none_or(|lease| *lease == 0) {
                continue;
            }
            let fits = |lease: &&u32| {
                **lease < piece.before
                    && self.left[**lease as usize] < piece.gpus
                    && self.left[**lease as usize] + other.gpus >= piece.gpus
            };
            if let Some(lease) = held.iter().find(fits)
                && best.is_none_or(|best| (other.gpus, at, *lease) < best)
            {
                best = Some((other.gpus, at, *lease));
            }
        }
        let Some((gpus, at, lease)) = best else { return false };
        self.move_to_first(at, lease, gpus);
        open.push(lease);
        true
    }

    fn move_to_first(&mut self, at: usize, lease: u32, gpus: u32) {
        self.leases[at].retain(|held| *held != lease);
        self.leases[at].insert(0, 0);
        self.left[lease as usize] += gpus;
        self.left[0] -= gpus;
    }

    /// Moves pieces into the first lease while they fit: widest first, then those that prefer it, then least slack.
    pub(super) fn fill_now(&mut self, demands: &[Demand]) {
        let mut later: Vec<usize> = (0..self.leases.len())
            .filter(|at| self.leases[*at].first().is_some_and(|lease| *lease > 0))
            .collect();
        later.sort_unstable_by_key(|at| {
            let piece = self.placed[*at].expect("it holds leases");
            let slack = piece.before - piece.leases;
            (u32::MAX - piece.gpus, !demands[*at].prefers, slack, *at)
        });
        for at in later {
            let gpus = demands[at].gpus;
            if gpus <= self.left[0] {
                let last = *self.leases[at].last().expect("it holds leases");
                self.move_to_first(at, last, gpus);
            }
        }
    }
}
