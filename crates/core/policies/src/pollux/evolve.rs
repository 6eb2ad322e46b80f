//! The search: a population of states that cross, mutate and survive (NSGA-II, Deb et al. 2002).
//!
//! Two objectives keep the population varied: the mean of speed-ups, and the speed-up for each node in use. The answer
//! is the best by the first. The best state always survives, so no answer is worse than the best of the seeds.

use super::problem::{Problem, Score};
use super::vary::{Dice, Scratch, cross, fill, mutate, repair};
use std::cmp::Ordering;

/// How long to search.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// States that survive a generation.
    pub population: usize,
    /// Generations.
    pub generations: u32,
    /// Generations without a gain after which the search ends; 0 means never.
    pub patience: u32,
}

/// What a search found.
pub struct Found {
    /// The best state.
    pub best: Vec<u8>,
    /// What it is worth.
    pub score: Score,
    /// All survivors, best first.
    pub states: Vec<Vec<u8>>,
}

/// The best state found from the seeds, what is held, and what is held filled up.
/// O(generations * population * (jobs * nodes + log population)).
pub fn evolve(problem: &Problem, seeds: &[Vec<u8>], effort: Effort, dice: &mut Dice) -> Found {
    let mut search = Search::new(problem, effort.population.max(2));
    let base = problem.base();
    search.add(&base, dice, repair);
    search.add(&base, dice, fill);
    for seed in seeds.iter().filter(|seed| seed.len() == problem.cells()) {
        if search.slots.len() < search.population {
            search.add(seed, dice, repair);
        }
    }
    search.survive();
    let mut last_gain = 0;
    for generation in 0..effort.generations {
        let before = search.best().cost;
        search.breed(dice);
        search.survive();
        if search.best().cost < before {
            last_gain = generation;
        }
        if effort.patience > 0 && generation - last_gain >= effort.patience {
            break;
        }
    }
    search.found()
}

/// How a state ranks among those in use: by front (non-dominated sorting), then by how far its neighbours are (crowding
/// distance).
#[derive(Copy, Clone)]
struct Rank {
    front: u32,
    alone: f64,
}

type Fix = fn(&Problem, &mut [u8], &mut Dice, &mut Scratch);

struct Search<'a> {
    problem: &'a Problem,
    population: usize,
    cells: Vec<u8>,
    scores: Vec<Score>,
    hashes: Vec<u64>,
    /// States in use, in order of survival after each generation.
    slots: Vec<u32>,
    unused: Vec<u32>,
    /// The rank of each state in use, by slot.
    ranks: Vec<Rank>,
    scratch: Scratch,
    used: Vec<u8>,
    fronts_last: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem, population: usize) -> Search<'a> {
        let room = 2 * population + 2;
        Search {
            problem,
            population,
            cells: vec![0; room * problem.cells()],
            scores: vec![Score { cost: 0.0, idleness: 0.0 }; room],
            hashes: vec![0; room],
            slots: Vec::with_capacity(room),
            unused: (0..room as u32).rev().collect(),
            ranks: vec![Rank { front: 0, alone: 0.0 }; room],
            scratch: Scratch::new(problem),
            used: vec![0; problem.nodes],
            fronts_last: Vec::new(),
        }
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let size = self.problem.cells();
        slot as usize * size..(slot as usize + 1) * size
    }

    fn best(&self) -> Score {
        let costs = self.slots.iter().map(|slot| self.scores[*slot as usize]);
        costs.min_by(|a, b| a.cost.total_cmp(&b.cost)).expect("a population is never empty")
    }

    /// Takes a state in, made possible by `fix`.
    fn add(&mut self, state: &[u8], dice: &mut Dice, fix: Fix) {
        let Some(slot) = self.unused.pop() else { return };
        let range = self.range(slot);
        self.cells[range.clone()].copy_from_slice(state);
        fix(self.problem, &mut self.cells[range], dice, &mut self.scratch);
        self.keep(slot);
    }

    /// Keeps a new state unless it is there already.
    fn keep(&mut self, slot: u32) {
        let cells = &self.cells[self.range(slot)];
        let hash = hash(cells);
        let twin = |other: &&u32| self.hashes[**other as usize] == hash;
        if let Some(twin) = self.slots.iter().find(twin)
            && self.cells[self.range(*twin)] == *cells
        {
            self.unused.push(slot);
            return;
        }
        self.scores[slot as usize] = self.problem.score(cells, &mut self.used);
        self.hashes[slot as usize] = hash;
        self.slots.push(slot);
    }

    /// As many children as there may be survivors, of parents that won against another each.
    fn breed(&mut self, dice: &mut Dice) {
        let parents = self.slots.len() as u32;
        for _ in 0..self.population / 2 {
            let (first, second) = (self.winner(parents, dice), self.winner(parents, dice));
            let (Some(a), Some(b)) = (self.unused.pop(), self.unused.pop()) else { return };
            let at = dice.below(self.problem.rows.len().max(1) as u32);
            self.cross((first, second), (a, b), at);
            for child in [a, b] {
                let range = self.range(child);
                let state = &mut self.cells[range];
                mutate(self.problem, state, dice, &mut self.scratch);
                repair(self.problem, state, dice, &mut self.scratch);
                self.keep(child);
            }
        }
    }

    fn cross(&mut self, parents: (u32, u32), children: (u32, u32), at: u32) {
        let [first, second, a, b] =
            [parents.0, parents.1, children.0, children.1].map(|slot| self.range(slot));
        if parents.0 == parents.1 {
            self.cells.copy_within(first.clone(), a.start);
            self.cells.copy_within(first, b.start);
            return;
        }
        let parts = self.cells.get_disjoint_mut([first, second, a, b]);
        let [first, second, a, b] = parts.expect("four different states");
        cross(self.problem, (first, second), (a, b), at);
    }

    /// The better one of two drawn parents: by front, then by how alone it is.
    fn winner(&self, parents: u32, dice: &mut Dice) -> u32 {
        let a = self.slots[dice.below(parents) as usize];
        let b = self.slots[dice.below(parents) as usize];
        let (one, other) = (self.ranks[a as usize], self.ranks[b as usize]);
        let a_wins =
            one.front < other.front || (one.front == other.front && one.alone >= other.alone);
        if a_wins { a } else { b }
    }

    /// Sorts states into fronts, none of which is beaten in both objectives by one of its own or a later front, and
    /// keeps the best fronts; of the last one those that are most alone.
    fn survive(&mut self) {
        let scores = &self.scores;
        let score = |slot: &u32| scores[*slot as usize];
        self.slots.sort_by(|a, b| {
            let (one, other) = (score(a), score(b));
            let by_cost = one.cost.total_cmp(&other.cost);
            by_cost.then(one.idleness.total_cmp(&other.idleness)).then(a.cmp(b))
        });
        // In this order a state is beaten by a front exactly if the least idleness there is not above its own.
        self.fronts_last.clear();
        for slot in &self.slots {
            let idleness = score(slot).idleness;
            let front = self.fronts_last.partition_point(|least| *least <= idleness);
            match self.fronts_last.get_mut(front) {
                Some(least) => *least = idleness,
                None => self.fronts_last.push(idleness),
            }
            self.ranks[*slot as usize].front = front as u32;
        }
        let ranks = &mut self.ranks;
        // Stable, so that each front stays in order of cost.
        self.slots.sort_by_key(|slot| ranks[*slot as usize].front);
        let mut begin = 0;
        while begin < self.slots.len() {
            let front = ranks[self.slots[begin] as usize].front;
            let same = |slot: &u32| ranks[*slot as usize].front == front;
            let end = begin + self.slots[begin..].partition_point(same);
            let group = &self.slots[begin..end];
            for (slot, alone) in group.iter().zip(crowding(group, scores)) {
                ranks[*slot as usize].alone = alone;
            }
            begin = end;
        }
        self.slots.sort_by(|a, b| {
            let (one, other) = (ranks[*a as usize], ranks[*b as usize]);
            let alone = other.alone.partial_cmp(&one.alone).unwrap_or(Ordering::Equal);
            one.front.cmp(&other.front).then(alone)
        });
        let kept = self.slots.len().min(self.population);
        self.unused.extend(self.slots.drain(kept..));
    }

    fn found(mut self) -> Found {
        let scores = &self.scores;
        self.slots.sort_by(|a, b| {
            scores[*a as usize].cost.total_cmp(&scores[*b as usize].cost).then(a.cmp(b))
        });
        let states: Vec<Vec<u8>> =
            self.slots.iter().map(|slot| self.cells[self.range(*slot)].to_vec()).collect();
        let score = self.scores[self.slots[0] as usize];
        Found { best: states[0].clone(), score, states }
    }
}

/// How far the neighbours of each state of a front are apart, in parts of the whole front.
fn crowding<'a>(group: &'a [u32], scores: &'a [Score]) -> impl Iterator<Item = f64> + 'a {
    let score = |index: usize| scores[group[index] as usize];
    let (first, last) = (score(0), score(group.len() - 1));
    let width = |a: f64, b: f64| (b - a).abs().max(f64::MIN_POSITIVE);
    let cost = width(first.cost, last.cost);
    let idleness = width(first.idleness, last.idleness);
    (0..group.len()).map(move |index| {
        if index == 0 || index + 1 == group.len() {
            return f64::INFINITY;
        }
        let (before, after) = (score(index - 1), score(index + 1));
        (after.cost - before.cost).abs() / cost
            + (after.idleness - before.idleness).abs() / idleness
    })
}

fn hash(cells: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(cells);
    hasher.finish()
}
