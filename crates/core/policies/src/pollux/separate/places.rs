//! Which nodes each job gets, once its size is known.

use super::super::problem::{Problem, SearchJob, gpus};
use super::Target;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// How often all jobs are offered what is left.
const PASSES_MAX: u32 = 4;
/// Less than this is no gain.
const GAIN_MIN: f64 = 1e-9;
/// One more than the GPUs of the largest node.
const ROOMS: usize = u64::BITS as usize + 1;

/// The GPUs of a job: nodes, and how many on each.
type Cells = SmallVec<[(u32, u8); 4]>;

/// A row that a job could have, and what it costs.
#[derive(Clone)]
struct Fit {
    cost: f64,
    cells: Cells,
}

impl Fit {
    fn gpus(&self) -> u32 {
        self.cells.iter().map(|(_, cell)| u32::from(*cell)).sum()
    }
}

/// What of the cluster a job may use in one step.
#[derive(Copy, Clone)]
struct Limit {
    gpus: u32,
    kind: Option<u8>,
}

const NO_LIMIT: Limit = Limit { gpus: u32::MAX, kind: None };

/// Who is where.
pub(super) struct Layout<'p> {
    problem: &'p Problem,
    kinds: u8,
    /// Free GPUs of each node.
    left: Vec<u8>,
    /// Jobs that span nodes, by node.
    spanning: Vec<u8>,
    rows: Vec<Cells>,
    costs: Vec<f64>,
}

impl<'p> Layout<'p> {
    /// No job has GPUs yet.
    pub(super) fn new(problem: &'p Problem) -> Layout<'p> {
        let rows = problem.rows.len();
        Layout {
            problem,
            kinds: problem.space.kinds.iter().map(|kind| kind + 1).max().unwrap_or(0),
            left: problem.space.capacity.clone(),
            spanning: vec![0; problem.nodes],
            rows: vec![Cells::new(); rows],
            costs: (0..rows).map(|row| problem.cost_without(row)).collect(),
        }
    }

    /// Puts every job on as much of its target as there is room for: first those that stay, then the largest.
    pub(super) fn place(&mut self, targets: &[Target]) {
        let mut moved: Vec<(u32, u8, usize)> = Vec::new();
        for (row, target) in targets.iter().enumerate() {
            match *target {
                Target::Nothing => {}
                Target::Stay => match self.held(row) {
                    Some(fit) => self.set(row, fit),
                    None => moved.extend(self.held_size(row).map(|(gpus, kind)| (gpus, kind, row))),
                },
                Target::Change { kind, gpus } => moved.push((gpus, kind, row)),
            }
        }
        moved.sort_by_key(|(gpus, _, row)| (Reverse(*gpus), *row));
        let mut short: Vec<(u32, u8, usize)> = Vec::new();
        for (gpus, kind, row) in moved {
            let fit = self.best(row, Limit { gpus, kind: Some(kind) });
            if fit.gpus() < gpus || fit.cells.len() > 1 {
                short.push((gpus, kind, row));
            }
            self.set(row, fit);
        }
        for (gpus, kind, row) in short {
            self.make_room(row, kind, gpus);
        }
    }

    /// Puts a job on one node with all its GPUs by moving another one to a third place, if that is worth the restart.
    /// O(jobs + nodes).
    fn make_room(&mut self, row: usize, kind: u8, gpus: u32) {
        if gpus > self.problem.sizes(row, kind).0 {
            return;
        }
        let before = self.clear(row);
        let goal = self.problem.cost_changed(row, kind, (gpus, false));
        let places = Places::new(self, kind);
        let mut best = (before.cost - goal - GAIN_MIN, None);
        for (other, cells) in self.rows.iter().enumerate() {
            let [(node, has)] = cells[..] else { continue };
            let there = node as usize;
            let need = gpus.saturating_sub(u32::from(self.left[there]));
            let fits = self.problem.space.kinds[there] == kind
                && u32::from(self.problem.rows[row].room[there]) >= gpus
                && u32::from(has) >= need;
            if !fits {
                continue;
            }
            let moved = self.problem.cost_changed(other, kind, (u32::from(has), false));
            let price = moved - self.costs[other];
            if price < best.0
                && let Some(to) = places.find(&self.problem.rows[other], has, node)
            {
                let there = Fit { cost: moved, cells: SmallVec::from_slice(&[(to, has)]) };
                best = (price, Some((other, node, there)));
            }
        }
        match best.1 {
            Some((other, node, there)) => {
                self.clear(other);
                self.set(other, there);
                let cells = SmallVec::from_slice(&[(node, gpus as u8)]);
                self.set(row, Fit { cost: goal, cells });
            }
            None => self.set(row, before),
        }
    }

    /// Offers what is left to all jobs, those that gain most first, until none gains or [`PASSES_MAX`] times.
    pub(super) fn improve(&mut self) {
        for _ in 0..PASSES_MAX {
            if self.left.iter().all(|left| *left == 0) {
                return;
            }
            let mut gains: Vec<(f64, usize)> = Vec::new();
            for row in 0..self.rows.len() {
                let before = self.clear(row);
                let gain = before.cost - self.best(row, NO_LIMIT).cost;
                self.set(row, before);
                if gain > GAIN_MIN {
                    gains.push((gain, row));
                }
            }
            gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            if gains.is_empty() {
                return;
            }
            for (_, row) in gains {
                let before = self.clear(row);
                let after = self.best(row, NO_LIMIT);
                let gains = before.cost - after.cost > GAIN_MIN;
                self.set(row, if gains { after } else { before });
            }
        }
    }

    /// What all rows cost together.
    pub(super) fn cost(&self) -> f64 {
        self.costs.iter().sum()
    }

    /// As a matrix.
    pub(super) fn state(&self) -> Vec<u8> {
        let mut state = vec![0; self.problem.cells()];
        for (cells, row) in self.rows.iter().zip(state.chunks_exact_mut(self.problem.nodes)) {
            for (node, count) in cells {
                row[*node as usize] = *count;
            }
        }
        state
    }

    fn set(&mut self, row: usize, fit: Fit) {
        let spans = u8::from(fit.cells.len() > 1);
        for (node, count) in &fit.cells {
            self.left[*node as usize] -= count;
            self.spanning[*node as usize] += spans;
        }
        self.costs[row] = fit.cost;
        self.rows[row] = fit.cells;
    }

    /// Takes all from a job; what it had.
    fn clear(&mut self, row: usize) -> Fit {
        let cells = std::mem::take(&mut self.rows[row]);
        let spans = u8::from(cells.len() > 1);
        for (node, count) in &cells {
            self.left[*node as usize] += count;
            self.spanning[*node as usize] -= spans;
        }
        Fit { cost: std::mem::replace(&mut self.costs[row], self.problem.cost_without(row)), cells }
    }

    fn room(&self, row: &SearchJob, node: usize) -> u8 {
        self.left[node].min(row.room[node])
    }

    /// Whether a job that spans nodes may be on a node.
    fn is_open(&self, node: usize) -> bool {
        !self.problem.space.avoid || self.spanning[node] == 0
    }

    fn held_size(&self, row: usize) -> Option<(u32, u8)> {
        let base = &self.problem.rows[row].base;
        let first = base.iter().position(|cell| *cell > 0)?;
        Some((gpus(base), self.problem.space.kinds[first]))
    }

    /// What a job holds, if it can keep it.
    fn held(&self, row: usize) -> Option<Fit> {
        let job = &self.problem.rows[row];
        let held = job.base.iter().enumerate().filter(|(_, cell)| **cell > 0);
        let cells: Cells = held.map(|(node, cell)| (node as u32, *cell)).collect();
        let gpus: u32 = cells.iter().map(|(_, cell)| u32::from(*cell)).sum();
        let spans = cells.len() > 1;
        let fits = cells.iter().all(|(node, cell)| {
            let node = *node as usize;
            self.room(job, node) >= *cell && (!spans || self.is_open(node))
        });
        let allowed = gpus > 0
            && (job.least..=job.most).contains(&gpus)
            && cells.len() as u32 <= job.nodes_most
            && fits;
        allowed.then(|| Fit { cost: self.problem.cost_held(row), cells })
    }

    /// The cheapest row of a job that has nothing, by what is left.
    fn best(&self, row: usize, limit: Limit) -> Fit {
        let mut best = Fit { cost: self.problem.cost_without(row), cells: Cells::new() };
        if let Some(held) = self.held(row)
            && held.cost < best.cost
            && held.gpus() <= limit.gpus
        {
            best = held;
        }
        for kind in (0..self.kinds).filter(|kind| limit.kind.is_none_or(|only| only == *kind)) {
            self.try_node(row, kind, limit.gpus, &mut best);
            self.try_nodes(row, kind, limit.gpus, &mut best);
        }
        best
    }

    /// Looks for a cheaper row on one node: the one with the least room that holds it.
    fn try_node(&self, row: usize, kind: u8, limit: u32, best: &mut Fit) {
        let job = &self.problem.rows[row];
        let most = job.most.min(limit).min(self.problem.sizes(row, kind).0);
        let mut tightest = [u32::MAX; ROOMS];
        for node in (0..self.problem.nodes).rev() {
            let room = usize::from(self.room(job, node));
            if room > 0 && self.problem.space.kinds[node] == kind {
                tightest[room] = node as u32;
            }
        }
        for room in (1..ROOMS - 1).rev() {
            if tightest[room] == u32::MAX {
                tightest[room] = tightest[room + 1];
            }
        }
        for gpus in job.least.max(1)..=most {
            let node = tightest[gpus as usize];
            if node == u32::MAX {
                return;
            }
            let cost = self.problem.cost_changed(row, kind, (gpus, false));
            if cost < best.cost - GAIN_MIN {
                *best = Fit { cost, cells: SmallVec::from_slice(&[(node, gpus as u8)]) };
            }
        }
    }

    /// Looks for a cheaper row on several nodes: those with most room.
    fn try_nodes(&self, row: usize, kind: u8, limit: u32, best: &mut Fit) {
        let job = &self.problem.rows[row];
        let most = job.most.min(limit).min(self.problem.sizes(row, kind).1);
        let cost = |gpus: u32| self.problem.cost_changed(row, kind, (gpus, true));
        let least = job.least.max(2);
        if job.nodes_most < 2 || !(least..=most).any(|gpus| cost(gpus) < best.cost - GAIN_MIN) {
            return;
        }
        let kinds = &self.problem.space.kinds;
        let open =
            (0..self.problem.nodes).filter(|node| kinds[*node] == kind && self.is_open(*node));
        let mut nodes: Vec<(u8, u32)> = open
            .map(|node| (self.room(job, node), node as u32))
            .filter(|(room, _)| *room > 0)
            .collect();
        nodes.sort_by_key(|(room, node)| (Reverse(*room), *node));
        nodes.truncate(job.nodes_most as usize);
        let total: u32 = nodes.iter().map(|(room, _)| u32::from(*room)).sum();
        let first = nodes.first().map_or(0, |(room, _)| u32::from(*room));
        let sizes = least.max(first + 1)..=most.min(total);
        let cheapest = sizes.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        let Some(gpus) = cheapest.filter(|gpus| cost(*gpus) < best.cost - GAIN_MIN) else { return };
        *best = Fit { cost: cost(gpus), cells: spread(gpus, &nodes) };
    }
}

/// The first two nodes of a type with each number of GPUs left.
struct Places {
    by_left: [[u32; 2]; ROOMS],
}

impl Places {
    fn new(layout: &Layout<'_>, kind: u8) -> Places {
        let mut by_left = [[u32::MAX; 2]; ROOMS];
        let of_kind = (0..layout.problem.nodes).rev();
        for node in of_kind.filter(|node| layout.problem.space.kinds[*node] == kind) {
            let nodes = &mut by_left[usize::from(layout.left[node])];
            *nodes = [node as u32, nodes[0]];
        }
        Places { by_left }
    }

    /// A node with room for so many GPUs of a job, and little more, other than `but`.
    fn find(&self, job: &SearchJob, gpus: u8, but: u32) -> Option<u32> {
        let nodes = self.by_left[usize::from(gpus)..].iter().flatten().copied();
        let mut nodes = nodes.filter(|node| *node != u32::MAX && *node != but);
        nodes.find(|node| job.room[*node as usize] >= gpus)
    }
}

/// So many GPUs on the first of these nodes, which are in order of room; the rest on the node with the least room that
/// holds it.
fn spread(gpus: u32, nodes: &[(u8, u32)]) -> Cells {
    let mut cells = Cells::new();
    let mut rest = gpus;
    for (at, (room, node)) in nodes.iter().enumerate() {
        if rest > u32::from(*room) {
            cells.push((*node, *room));
            rest -= u32::from(*room);
            continue;
        }
        let holds = nodes[at..].iter().rev().find(|(room, _)| u32::from(*room) >= rest);
        cells.push((holds.map_or(*node, |(_, node)| *node), rest as u8));
        break;
    }
    cells
}
