//! How states change in the search: crossing, three mutations, and the repair of what cannot be.

use super::problem::{Problem, SearchJob};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

/// A tenth of all 16-bit numbers: jobs that are reset or thinned, and cells that are thinned (the authors' chance).
const TENTH: u16 = u16::MAX / 10;

/// Seeded chance.
pub struct Dice(pub ChaCha12Rng);

impl Dice {
    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(end)) >> 32) as u32
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u32) -> bool {
        times <= 1 || self.0.next_u32() < u32::MAX / times
    }
}

/// What varying needs besides states; kept, so that nothing is allocated in the search.
pub struct Scratch {
    left: Vec<u8>,
    spanned: Vec<u8>,
    there: Vec<u32>,
    order: Vec<u32>,
    /// For each node the chances that none, one, two ... of its rows are raised; made by the first mutation.
    raised: Vec<[u32; 6]>,
}

impl Scratch {
    /// For one problem.
    pub fn new(problem: &Problem) -> Scratch {
        Scratch {
            left: vec![0; problem.nodes],
            spanned: vec![0; problem.nodes],
            there: vec![0; problem.nodes],
            order: Vec::with_capacity(problem.nodes),
            raised: Vec::new(),
        }
    }
}

/// How often an event of chance `1/n` happens in `n` trials: cumulated chances as parts of 2^32.
fn binomial(n: usize) -> [u32; 6] {
    let mut sums = [u32::MAX; 6];
    if n == 0 {
        return sums;
    }
    let (n, chance) = (n as f64, 1.0 / n as f64);
    let mut part = libm::pow(1.0 - chance, n);
    let mut sum = 0.0;
    for (k, slot) in sums.iter_mut().enumerate() {
        sum += part;
        *slot = (sum * f64::from(u32::MAX)).min(f64::from(u32::MAX)) as u32;
        let k = k as f64;
        part *= if n > 1.0 { (n - k) / (k + 1.0) * chance / (1.0 - chance) } else { 0.0 };
    }
    if n == 1.0 {
        sums = [0, u32::MAX, u32::MAX, u32::MAX, u32::MAX, u32::MAX];
    }
    sums
}

/// Two children of two states: the first jobs of one, the rest of the other (one point, over jobs).
pub fn cross(
    problem: &Problem,
    parents: (&[u8], &[u8]),
    children: (&mut [u8], &mut [u8]),
    at: u32,
) {
    let at = at as usize * problem.nodes;
    children.0[..at].copy_from_slice(&parents.0[..at]);
    children.0[at..].copy_from_slice(&parents.1[at..]);
    children.1[..at].copy_from_slice(&parents.1[..at]);
    children.1[at..].copy_from_slice(&parents.0[at..]);
}

/// Changes a state at random, by the authors' three mutations: some rows go back to what is held, some are thinned, and
/// on nodes with free GPUs some cells are raised.
pub fn mutate(problem: &Problem, state: &mut [u8], dice: &mut Dice, scratch: &mut Scratch) {
    let Scratch { left, there, raised, .. } = scratch;
    if raised.is_empty() {
        raised.extend(problem.feasible().iter().map(|rows| binomial(rows.len())));
    }
    there.fill(0);
    left.copy_from_slice(&problem.space.capacity);
    for (cells, row) in state.chunks_exact_mut(problem.nodes).zip(&problem.rows) {
        let chance = dice.0.next_u32();
        if (chance as u16) < TENTH {
            cells.copy_from_slice(&row.base);
        }
        let thin = ((chance >> 16) as u16) < TENTH;
        for ((cell, there), left) in cells.iter_mut().zip(&mut *there).zip(&mut *left) {
            if *cell > 0 && thin && dice.once_in(10) {
                *cell = 0;
            }
            *there += u32::from(*cell > 0);
            *left = left.saturating_sub(*cell);
        }
    }
    // Of the rows on a node one in as many as there are, and of all that could be there as well.
    for (node, rows) in problem.feasible().iter().enumerate().filter(|(node, _)| left[*node] > 0) {
        let column = state.iter_mut().skip(node).step_by(problem.nodes).zip(&problem.rows);
        for (cell, row) in column {
            if *cell > 0 && dice.once_in(there[node]) {
                raise(cell, row.room[node], dice);
            }
        }
        let chance = dice.0.next_u32();
        let count = raised[node].iter().take_while(|sum| **sum < chance).count();
        for _ in 0..count.min(rows.len()) {
            let row = rows[dice.below(rows.len() as u32) as usize] as usize;
            raise(&mut state[row * problem.nodes + node], problem.rows[row].room[node], dice);
        }
    }
}

/// Any number from the present one to the most.
fn raise(cell: &mut u8, most: u8, dice: &mut Dice) {
    if *cell < most {
        *cell += dice.below(u32::from(most - *cell) + 1) as u8;
    }
}

/// Makes a state one that can be: within nodes, sizes of jobs and the rules of the space. Earlier rows go first.
pub fn repair(problem: &Problem, state: &mut [u8], dice: &mut Dice, scratch: &mut Scratch) {
    scratch.left.copy_from_slice(&problem.space.capacity);
    scratch.spanned.fill(0);
    for (cells, row) in state.chunks_exact_mut(problem.nodes).zip(&problem.rows) {
        let mut extent = Extent::default();
        for ((cell, left), room) in cells.iter_mut().zip(&scratch.left).zip(row.room.iter()) {
            *cell = (*cell).min(*left).min(*room);
            extent.gpus += u32::from(*cell);
            extent.spread += u32::from(*cell > 0);
        }
        if extent.gpus == 0 {
            continue;
        }
        if problem.mixed && extent.spread > 1 {
            one_kind(problem, cells);
            extent = Extent::of(cells);
        }
        if problem.space.avoid && extent.spread > 1 {
            for (cell, spanned) in cells.iter_mut().zip(&scratch.spanned) {
                *cell *= 1 - *spanned;
            }
            extent = Extent::of(cells);
        }
        if extent.gpus > row.most || extent.spread > row.nodes_most {
            trim(row, cells, dice, &mut scratch.order);
            extent = Extent::of(cells);
        }
        if extent.gpus < row.least {
            cells.fill(0);
            if !top_up(problem, row, cells, scratch) {
                continue;
            }
            extent = Extent::of(cells);
        }
        for (left, cell) in scratch.left.iter_mut().zip(&*cells) {
            *left -= cell;
        }
        if problem.space.avoid && extent.spread > 1 {
            for (spanned, cell) in scratch.spanned.iter_mut().zip(&*cells) {
                *spanned |= u8::from(*cell > 0);
            }
        }
    }
}

/// Gives rows without GPUs their least, where there is room left, in order.
pub fn fill(problem: &Problem, state: &mut [u8], dice: &mut Dice, scratch: &mut Scratch) {
    repair(problem, state, dice, scratch);
    for (cells, row) in state.chunks_exact_mut(problem.nodes).zip(&problem.rows) {
        if cells.iter().any(|cell| *cell > 0) {
            continue;
        }
        if row.base.iter().zip(&scratch.left).all(|(cell, left)| cell <= left) {
            // A job that holds GPUs which no other job wants keeps them; the next repair takes back what breaks a rule.
            cells.copy_from_slice(&row.base);
        }
        if Extent::of(cells).gpus == 0 && !top_up(problem, row, cells, scratch) {
            continue;
        }
        for (left, cell) in scratch.left.iter_mut().zip(&*cells) {
            *left -= cell;
        }
    }
    repair(problem, state, dice, scratch);
}

/// How far a row reaches.
#[derive(Copy, Clone, Default)]
struct Extent {
    gpus: u32,
    /// Nodes.
    spread: u32,
}

impl Extent {
    fn of(cells: &[u8]) -> Extent {
        let mut extent = Extent::default();
        for cell in cells {
            extent.gpus += u32::from(*cell);
            extent.spread += u32::from(*cell > 0);
        }
        extent
    }
}

/// Keeps the cells of the type of which there are most; a job never mixes types.
fn one_kind(problem: &Problem, cells: &mut [u8]) {
    let kinds = &problem.space.kinds;
    let mut most = (0u32, 0u8);
    for kind in kinds.iter().copied().collect::<std::collections::BTreeSet<u8>>() {
        let of_kind = cells.iter().zip(kinds).filter(|(_, other)| **other == kind);
        let gpus = of_kind.map(|(cell, _)| u32::from(*cell)).sum();
        if gpus > most.0 {
            most = (gpus, kind);
        }
    }
    for (cell, kind) in cells.iter_mut().zip(kinds) {
        if *kind != most.1 {
            *cell = 0;
        }
    }
}

/// Takes away what is beyond the most GPUs and nodes; which nodes stay is drawn.
fn trim(row: &SearchJob, cells: &mut [u8], dice: &mut Dice, order: &mut Vec<u32>) {
    order.clear();
    order.extend((0..cells.len() as u32).filter(|node| cells[*node as usize] > 0));
    let (mut gpus, mut nodes) = (row.most, row.nodes_most);
    for index in 0..order.len() {
        let other = index + dice.below((order.len() - index) as u32) as usize;
        order.swap(index, other);
        let cell = &mut cells[order[index] as usize];
        *cell = u32::from(*cell).min(if nodes > 0 { gpus } else { 0 }) as u8;
        gpus -= u32::from(*cell);
        nodes = nodes.saturating_sub(1);
    }
}

/// Puts an empty row on its least number of GPUs: on one node if one has room, else on those with most room.
/// False, and no change, where there is none.
fn top_up(problem: &Problem, row: &SearchJob, cells: &mut [u8], scratch: &mut Scratch) -> bool {
    let need = row.least.max(1);
    let left = &scratch.left;
    let room = |node: usize| u32::from(left[node].min(row.room[node]));
    let whole = (0..cells.len()).filter(|node| room(*node) >= need).min_by_key(|node| room(*node));
    if let Some(node) = whole {
        cells[node] = need as u8;
        return true;
    }
    let free =
        |node: &usize| room(*node) > 0 && !(problem.space.avoid && scratch.spanned[*node] > 0);
    for kind in 0..row.worth.len() as u8 {
        let order = &mut scratch.order;
        order.clear();
        let of_kind = (0..cells.len()).filter(|node| problem.space.kinds[*node] == kind);
        order.extend(of_kind.filter(free).map(|node| node as u32));
        order.sort_by_key(|node| std::cmp::Reverse(room(*node as usize)));
        order.truncate(row.nodes_most as usize);
        if order.iter().map(|node| room(*node as usize)).sum::<u32>() < need {
            continue;
        }
        let mut rest = need;
        for node in &*order {
            let part = room(*node as usize).min(rest);
            cells[*node as usize] = part as u8;
            rest -= part;
        }
        return true;
    }
    false
}
