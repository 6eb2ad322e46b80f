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
    /// GPUs left in each lease, as far as any was looked at.
    left: Vec<u32>,
    /// GPUs of each lease that is not known by itself.
    beyond: u32,
    /// What is to be packed.
    pieces: Vec<Option<Piece>>,
    /// The leases of all pieces, each piece's ascending, one piece after the other as they were packed.
    leases: Vec<u32>,
    /// Which of them are those of each piece: where they begin and how many they are.
    spans: Vec<(usize, usize)>,
    /// All pieces, the narrowest first; made when it is first needed.
    narrowest: Vec<usize>,
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
    let mut packing = Packing::new(pieces, capacity);
    for kind in Order::ALL {
        order = kind.of(pieces);
        match packing.pack_in(&order, capacity) {
            Ok(()) => return Ok(packing),
            Err(piece) if first_stuck.is_none() && !may_fit(pieces, capacity) => return Err(piece),
            Err(piece) => first_stuck = first_stuck.or(Some(piece)),
        }
    }
    let is_even = pieces.iter().flatten().is_sorted_by(|one, other| one.gpus == other.gpus);
    for _ in 0..if is_even { 0 } else { PUSHES_MAX } {
        match packing.pack_in(&order, capacity) {
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

/// Whether pieces can be packed at all: all that [`pack`] would say but the packing itself.
///
/// Pieces that fit side by side into every lease are, whatever the order. O(n) for them.
pub fn packs(pieces: &[Option<Piece>], capacity: &[u32]) -> bool {
    let least = capacity.iter().copied().min().unwrap_or(0);
    let mut sum = 0u64;
    let is_loose = pieces.iter().flatten().all(|piece| {
        sum += u64::from(piece.gpus);
        piece.leases <= piece.before && sum <= u64::from(least)
    });
    is_loose || (suffices(pieces, capacity) && pack(pieces, capacity).is_ok())
}

/// Whether there are GPUs enough up to each lease for what must lie before it, of later deadlines as well: a piece holds
/// a lease once, so that what does not fit between a lease and its deadline lies before the lease.
///
/// Sharper than [`suffices`], which counts pieces by their deadlines alone. O(n log n).
fn may_fit(pieces: &[Option<Piece>], capacity: &[u32]) -> bool {
    // From the slack of a piece to its deadline each lease more that is counted is one more that must lie before it.
    let mut turns: Vec<(u32, i64)> = Vec::with_capacity(2 * pieces.len() + capacity.len());
    for piece in pieces.iter().flatten() {
        let Some(slack) = piece.before.checked_sub(piece.leases) else { return false };
        turns.extend([(slack, i64::from(piece.gpus)), (piece.before, -i64::from(piece.gpus))]);
    }
    // Between two of these, and where capacity changes, both sides grow evenly.
    turns.extend((1..capacity.len() as u32).map(|lease| (lease, 0)));
    turns.sort_unstable();
    let last = capacity.last().copied().unwrap_or(0);
    let of = |lease: u32| i128::from(capacity.get(lease as usize).copied().unwrap_or(last));
    let (mut counted, mut slope, mut spare) = (0, 0i64, 0i128);
    turns.iter().all(|&(lease, change)| {
        spare += i128::from(lease - counted) * (of(counted) - i128::from(slope));
        (counted, slope) = (lease, slope + change);
        spare >= 0
    })
}

/// Packs the soonest first and passes over pieces that find no place, which are named.
pub fn pack_most(pieces: &[Option<Piece>], capacity: &[u32]) -> (Packing, Vec<usize>) {
    let mut packing = Packing::new(pieces, capacity);
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
        let key = |(at, piece): (usize, &Option<Piece>)| {
            let Piece { gpus, leases, before } = (*piece)?;
            let (width, slack) = (u32::MAX - gpus, before.saturating_sub(leases));
            let by = match self {
                Order::Widest => [width, before, slack],
                Order::Soonest => [before, width, slack],
                Order::Tightest => [slack, width, before],
            };
            // As one number, which is quick to compare.
            let key = by.iter().fold(0u128, |key, part| key << 32 | u128::from(*part));
            Some(key << 32 | at as u128)
        };
        let mut keys: Vec<u128> = pieces.iter().enumerate().filter_map(key).collect();
        keys.sort_unstable();
        keys.into_iter().map(|key| key as u32 as usize).collect()
    }
}

impl Packing {
    /// Nothing packed.
    fn new(pieces: &[Option<Piece>], capacity: &[u32]) -> Packing {
        Packing {
            left: capacity.to_vec(),
            beyond: capacity.last().copied().unwrap_or(0),
            pieces: pieces.to_vec(),
            leases: Vec::new(),
            spans: vec![(0, 0); pieces.len()],
            narrowest: Vec::new(),
        }
    }

    /// The leases of each piece, ascending.
    pub fn into_leases(self) -> Vec<Vec<u32>> {
        (0..self.spans.len()).map(|at| self.of(at).to_vec()).collect()
    }

    /// The leases of a piece; none if it is not packed.
    fn of(&self, at: usize) -> &[u32] {
        let (from, count) = self.spans[at];
        &self.leases[from..from + count]
    }

    /// Packs pieces in an order in place of what was packed before, or names the first that found no place.
    fn pack_in(&mut self, order: &[usize], capacity: &[u32]) -> Result<(), usize> {
        self.left.clear();
        self.left.extend_from_slice(capacity);
        self.leases.clear();
        self.spans.fill((0, 0));
        for &at in order {
            let piece = self.pieces[at].expect("the order holds pieces only");
            if !self.put(at, piece) {
                return Err(at);
            }
        }
        Ok(())
    }

    /// Packs one more piece, with the first lease as its last resort; says whether it found a place.
    fn put(&mut self, at: usize, piece: Piece) -> bool {
        let need = piece.leases as usize;
        // Leases beyond those that are known by themselves are alike.
        if self.left.len() < piece.before as usize {
            self.left.resize(piece.before as usize, self.beyond);
        }
        let from = self.leases.len();
        let mut found = self.emptiest(piece);
        if found < need && piece.before > 0 {
            found += self.clear(piece, need - found - 1);
            if found + 1 == need && self.left[0] >= piece.gpus {
                self.leases.push(0);
                found += 1;
            }
            self.leases[from..].sort_unstable();
        }
        if found < need {
            self.leases.truncate(from);
            return false;
        }
        for lease in &self.leases[from..] {
            self.left[*lease as usize] -= piece.gpus;
        }
        self.spans[at] = (from, need);
        true
    }

    /// Puts behind all leases those with the most left that a piece could have beside the first, later ones first among
    /// equals; no more than it needs, ascending. Says how many they are. O(leases log GPUs), and none of its passes over
    /// the leases has a branch that hangs on them.
    fn emptiest(&mut self, piece: Piece) -> usize {
        let Packing { left, leases, .. } = self;
        let known = left.get(1..piece.before as usize).unwrap_or(&[]);
        let need = piece.leases as usize;
        let with =
            |least: u32| known.iter().map(|left| u32::from(*left >= least)).sum::<u32>() as usize;
        let fitting = with(piece.gpus);
        if need == 0 || fitting == 0 {
            return 0;
        }
        // What each that is taken has left at least, and how many of those with just as much are too many.
        let (mut least, mut enough) = (piece.gpus, fitting);
        if fitting > need {
            let mut over = known.iter().copied().max().unwrap_or(0) + 1;
            while enough > need && least + 1 < over {
                let middle = least + (over - least) / 2;
                match with(middle) {
                    found if found >= need => (least, enough) = (middle, found),
                    _ => over = middle,
                }
            }
        }
        let mut surplus = enough.saturating_sub(need);
        let from = leases.len();
        // One place more than there are leases to keep, for what is written and not kept.
        let taken = enough - surplus;
        leases.resize(from + taken + 1, 0);
        let mut to = from;
        for (lease, left) in (1..).zip(known) {
            let is_surplus = *left == least && surplus > 0;
            surplus -= usize::from(is_surplus);
            leases[to] = lease;
            to += usize::from(*left >= least && !is_surplus);
        }
        leases.truncate(to);
        taken
    }

    /// Opens up to so many more leases for a piece, each by moving another piece from it into the first lease, the
    /// narrowest first. Puts them behind all leases and says how many they are.
    ///
    /// One pass is enough: the first lease only fills, and a lease that a piece was moved from is open, so that who was
    /// moved or made no room never does so later. O(n), and the leases of pieces until enough are open.
    fn clear(&mut self, piece: Piece, more: usize) -> usize {
        if more == 0 || self.left[0] == 0 {
            return 0;
        }
        if self.narrowest.is_empty() {
            self.narrowest =
                (0..self.pieces.len()).filter(|at| self.pieces[*at].is_some()).collect();
            let width = |at: &usize| self.pieces[*at].map(|piece| piece.gpus);
            self.narrowest.sort_by_key(width);
        }
        let mut opened = 0;
        for place in 0..self.narrowest.len() {
            let at = self.narrowest[place];
            let gpus = self.pieces[at].expect("only pieces are in it").gpus;
            if opened == more || gpus > self.left[0] {
                break;
            }
            let opens = |lease: &&u32| {
                let left = self.left[**lease as usize];
                left < piece.gpus && left + gpus >= piece.gpus
            };
            let held = self.of(at);
            if held.first() == Some(&0) {
                continue;
            }
            let mut held = held.iter().take_while(|lease| **lease < piece.before);
            if let Some(lease) = held.find(opens).copied() {
                self.move_to_first(at, lease, gpus);
                self.leases.push(lease);
                opened += 1;
            }
        }
        opened
    }

    fn move_to_first(&mut self, at: usize, lease: u32, gpus: u32) {
        let (from, count) = self.spans[at];
        let held = &mut self.leases[from..from + count];
        let place = held.binary_search(&lease).expect("it holds the lease");
        held.copy_within(..place, 1);
        held[0] = 0;
        self.left[lease as usize] += gpus;
        self.left[0] -= gpus;
    }

    /// Moves pieces into the first lease while they fit: widest first, then those that prefer it, then least slack.
    pub(super) fn fill_now(&mut self, demands: &[Demand]) {
        let mut later: Vec<usize> = (0..self.spans.len())
            .filter(|at| self.of(*at).first().is_some_and(|lease| *lease > 0))
            .collect();
        later.sort_unstable_by_key(|at| {
            let piece = self.pieces[*at].expect("it holds leases");
            let slack = piece.before - piece.leases;
            (u32::MAX - piece.gpus, !demands[*at].prefers, slack, *at)
        });
        for at in later {
            let gpus = demands[at].gpus;
            if gpus <= self.left[0] {
                let last = *self.of(at).last().expect("it holds leases");
                self.move_to_first(at, last, gpus);
            }
        }
    }
}
