//! Who could get how many GPUs of which node, and what that is worth.
//!
//! A state is a matrix of bytes, a row for each job and a column for each node; all states of a search lie in one
//! slice. What a row is worth depends on the number of its GPUs and on whether it spans nodes, so it is looked up.

/// One job in the search, in order of precedence.
#[derive(Clone, Debug)]
pub struct Row {
    /// GPUs that it runs on at least, or it gets none.
    pub least: u32,
    /// GPUs that it runs on at most.
    pub most: u32,
    /// Nodes that it spans at most.
    pub nodes_most: u32,
    /// The most GPUs on each node; 0 where it cannot be.
    pub room: Vec<u8>,
    /// What it holds on each node.
    pub base: Vec<u8>,
    /// What sizes are worth, by type of GPU.
    pub worth: Vec<Worth>,
    /// What a change of its row leaves of its speed-up: the price of a restart.
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
pub struct Ground {
    /// Free GPUs of each node.
    pub capacity: Vec<u8>,
    /// The type of each node.
    pub kinds: Vec<u8>,
    /// Whether at most one job that spans nodes may be on a node.
    pub avoid: bool,
    /// The power of the mean over jobs.
    pub power: f64,
}

/// Speed-ups are raised by this before a power is taken, so that a job without GPUs does not end all comparison.
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
    pub rows: Vec<Row>,
    /// Nodes and rules.
    pub ground: Ground,
    /// Nodes.
    pub nodes: usize,
    /// Rows that could be on each node.
    pub feasible: Vec<Vec<u32>>,
    /// Whether there are several types of GPU.
    pub mixed: bool,
    terms: Vec<Terms>,
}

/// What a row adds to the cost.
struct Terms {
    none: f64,
    /// The row as it is held, and its speed-up.
    base: (f64, f64),
    /// By type, spread and GPUs: cost and speed-up.
    changed: Vec<[Vec<(f64, f64)>; 2]>,
}

impl Problem {
    /// Of jobs in order of precedence.
    pub fn new(rows: Vec<Row>, ground: Ground) -> Problem {
        let nodes = ground.capacity.len();
        let mixed = ground.kinds.iter().any(|kind| *kind != ground.kinds[0]);
        let on = |node: usize| {
            let all = rows.iter().enumerate().filter(move |(_, row)| row.room[node] > 0);
            all.map(|(index, _)| index as u32).collect()
        };
        let feasible = (0..nodes).map(on).collect();
        let term = |speedup: f64| term(speedup, ground.power);
        let terms = rows.iter().map(|row| {
            let of = |list: &Vec<f64>| -> Vec<(f64, f64)> {
                list.iter().map(|speedup| (term(speedup * row.factor), *speedup)).collect()
            };
            let changed = row.worth.iter().map(|worth| [of(&worth.node), of(&worth.network)]);
            let held = held_speedup(row, &ground);
            Terms { none: term(0.0), base: (term(held), held), changed: changed.collect() }
        });
        let terms = terms.collect();
        Problem { rows, nodes, feasible, mixed, terms, ground }
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
            let (term, speedup) = if gpus == 0 {
                (terms.none, 0.0)
            } else if cells == row.base {
                terms.base
            } else {
                let by_size = &terms.changed[usize::from(self.ground.kinds[first])];
                let list = &by_size[usize::from(spread > 1)];
                list.get(gpus as usize - 1).copied().unwrap_or((terms.none, 0.0))
            };
            cost += term;
            speed += speedup;
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
fn held_speedup(row: &Row, ground: &Ground) -> f64 {
    let gpus = gpus(&row.base);
    let Some(first) = row.base.iter().position(|cell| *cell > 0) else { return 0.0 };
    let spread = row.base.iter().filter(|cell| **cell > 0).count();
    let worth = &row.worth[usize::from(ground.kinds[first])];
    let list = if spread > 1 { &worth.network } else { &worth.node };
    list.get(gpus as usize - 1).copied().unwrap_or(0.0)
}

/// What a speed-up adds to the cost: the mean `(sum x^p / n)^(1/p)` grows as the sum of these falls.
fn term(speedup: f64, power: f64) -> f64 {
    let beside = speedup + BESIDE;
    match power {
        -1.0 => 1.0 / beside,
        0.0 => -libm::log(beside),
        p if p < 0.0 => libm::pow(beside, p),
        p => -libm::pow(beside, p),
    }
}
