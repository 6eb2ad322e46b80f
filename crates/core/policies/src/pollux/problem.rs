//! Which job could get how many GPUs of which node, and what that is worth.
//!
//! A state is a matrix of bytes, a row for each job and a column for each node; all states of a search lie in one
//! slice. What a row is worth depends on the number of its GPUs and on whether it spans nodes, so it is looked up.

use std::cell::OnceCell;
use std::sync::Arc;

/// One job in the search, in order of precedence.
#[derive(Clone, Debug)]
pub struct SearchJob {
    /// GPUs that it runs on at least, or it gets none.
    pub least: u32,
    /// GPUs that it runs on at most.
    pub most: u32,
    /// Nodes that it spans at most.
    pub nodes_most: u32,
    /// The most GPUs on each node; 0 where it cannot be.
    pub room: Arc<[u8]>,
    /// What it holds on each node.
    pub base: Vec<u8>,
    /// What sizes are worth, by type of GPU.
    pub worth: Vec<Worth>,
    /// What a change of its row leaves of its speed-up: the price of a restart (REALLOC_FACTOR of Pollux, section 4.2),
    /// (T - R d) / (T + d) for age T, R restarts so far and a delay d of each.
    pub factor: f64,
}

/// The scaled speed-up of a job on one type of GPU, by the number of GPUs: index 0 is one GPU.
#[derive(Clone, Debug, Default)]
pub struct Worth {
    /// On one node.
    pub node: Vec<f64>,
    /// On several nodes.
    pub network: Vec<f64>,
}

/// Nodes and rules.
#[derive(Clone, Debug)]
pub struct SearchSpace {
    /// Free GPUs of each node.
    pub capacity: Vec<u8>,
    /// The type of each node.
    pub kinds: Vec<u8>,
    /// Whether at most one job that spans nodes may be on a node: Pollux's avoidance of interference, section 4.2.
    pub avoid: bool,
    /// The power of the mean over jobs.
    pub power: f64,
}

/// Speed-ups are raised by this before a power is taken, so that a job without GPUs does not end all comparison (the
/// authors' number).
const BESIDE: f64 = 1e-3;

/// What a state is worth; less is better in both.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Score {
    /// Decreases as the generalised mean of speed-ups grows.
    pub cost: f64,
    /// Decreases as the speed-up for each used node grows.
    pub idleness: f64,
}

/// A problem with everything that is looked up in it.
pub struct Problem {
    /// Jobs in order of precedence.
    pub rows: Vec<SearchJob>,
    /// Nodes and rules.
    pub space: SearchSpace,
    /// Nodes.
    pub nodes: usize,
    /// Rows that could be on each node, made when the joint search first asks for them.
    feasible: OnceCell<Vec<Vec<u32>>>,
    /// Whether there are several types of GPU.
    pub mixed: bool,
    terms: Vec<Terms>,
}

/// What a row adds to the score.
struct Terms {
    /// Without GPUs.
    none: Term,
    /// As it is held.
    base: Term,
    /// By type, spread and GPUs.
    changed: Vec<[Vec<Term>; 2]>,
}

/// What a row with one size adds to the score.
#[derive(Copy, Clone)]
struct Term {
    cost: f64,
    speedup: f64,
}

impl Problem {
    /// Of jobs in order of precedence.
    pub fn new(rows: Vec<SearchJob>, space: SearchSpace) -> Problem {
        let nodes = space.capacity.len();
        let mixed = space.kinds.iter().any(|kind| *kind != space.kinds[0]);
        let cost = |speedup: f64| cost(speedup, space.power);
        let terms = rows.iter().map(|row| {
            // A row that changes pays for a restart: its factor is in the cost.
            let changed =
                |speedup: &f64| Term { cost: cost(speedup * row.factor), speedup: *speedup };
            let of = |list: &Vec<f64>| -> Vec<Term> { list.iter().map(changed).collect() };
            let changed = row.worth.iter().map(|worth| [of(&worth.node), of(&worth.network)]);
            let held = held_speedup(row, &space);
            Terms {
                none: Term { cost: cost(0.0), speedup: 0.0 },
                base: Term { cost: cost(held), speedup: held },
                changed: changed.collect(),
            }
        });
        let terms = terms.collect();
        Problem { rows, nodes, feasible: OnceCell::new(), mixed, terms, space }
    }

    /// Rows that could be on each node.
    pub fn feasible(&self) -> &[Vec<u32>] {
        let on = |node: usize| {
            let all = self.rows.iter().enumerate().filter(move |(_, row)| row.room[node] > 0);
            all.map(|(index, _)| index as u32).collect()
        };
        self.feasible.get_or_init(|| (0..self.nodes).map(on).collect())
    }

    /// What a row adds to the cost without GPUs.
    pub fn cost_without(&self, row: usize) -> f64 {
        self.terms[row].none.cost
    }

    /// What a row adds to the cost as it is held.
    pub fn cost_held(&self, row: usize) -> f64 {
        self.terms[row].base.cost
    }

    /// What a row adds to the cost once it is changed to so many GPUs of a type, on one node or on several.
    pub fn cost_changed(&self, row: usize, kind: u8, (gpus, spans): (u32, bool)) -> f64 {
        let terms = &self.terms[row];
        let list = &terms.changed[usize::from(kind)][usize::from(spans)];
        (gpus as usize)
            .checked_sub(1)
            .and_then(|at| list.get(at))
            .map_or(terms.none.cost, |term| term.cost)
    }

    /// How many sizes of a row are known on one node of a type, and on several.
    pub fn sizes(&self, row: usize, kind: u8) -> (u32, u32) {
        let [node, network] = &self.terms[row].changed[usize::from(kind)];
        (node.len() as u32, network.len() as u32)
    }

    /// Bytes of one state.
    pub fn cells(&self) -> usize {
        self.rows.len() * self.nodes
    }

    /// What is held now, as a state.
    pub fn base(&self) -> Vec<u8> {
        self.rows.iter().flat_map(|row| row.base.iter().copied()).collect()
    }

    /// What a state is worth. O(jobs * nodes).
    pub fn score(&self, state: &[u8], used: &mut [u8]) -> Score {
        used.fill(0);
        let (mut cost, mut speed) = (0.0, 0.0);
        for ((cells, row), terms) in state.chunks_exact(self.nodes).zip(&self.rows).zip(&self.terms)
        {
            let (mut gpus, mut spread, mut first) = (0u32, 0u32, 0);
            for (node, (cell, used)) in cells.iter().zip(&mut *used).enumerate() {
                if *cell > 0 {
                    first = node;
                    spread += 1;
                    gpus += u32::from(*cell);
                    *used = 1;
                }
            }
            let term = if gpus == 0 {
                terms.none
            } else if cells == row.base {
                terms.base
            } else {
                let by_size = &terms.changed[usize::from(self.space.kinds[first])];
                let list = &by_size[usize::from(spread > 1)];
                list.get(gpus as usize - 1).copied().unwrap_or(terms.none)
            };
            cost += term.cost;
            speed += term.speedup;
        }
        let used: u32 = used.iter().map(|one| u32::from(*one)).sum();
        Score { cost, idleness: -speed / f64::from(used.max(1)) }
    }
}

/// GPUs of a row.
pub fn gpus(cells: &[u8]) -> u32 {
    cells.iter().map(|cell| u32::from(*cell)).sum()
}

/// The speed-up of a row as it is held.
fn held_speedup(row: &SearchJob, space: &SearchSpace) -> f64 {
    let gpus = gpus(&row.base);
    let Some(first) = row.base.iter().position(|cell| *cell > 0) else { return 0.0 };
    let spread = row.base.iter().filter(|cell| **cell > 0).count();
    let worth = &row.worth[usize::from(space.kinds[first])];
    let list = if spread > 1 { &worth.network } else { &worth.node };
    list.get(gpus as usize - 1).copied().unwrap_or(0.0)
}

/// What a speed-up adds to the cost: FITNESS of Pollux, section 4.2, the mean `(sum x^p / n)^(1/p)`, grows as the sum
/// of these falls.
fn cost(speedup: f64, power: f64) -> f64 {
    let beside = speedup + BESIDE;
    match power {
        -1.0 => 1.0 / beside,
        0.0 => -libm::log(beside),
        p if p < 0.0 => libm::pow(beside, p),
        p => -libm::pow(beside, p),
    }
}
