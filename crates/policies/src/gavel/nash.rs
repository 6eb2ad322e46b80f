//! The largest product of all rates, by an interior point that knows its structure.
//!
//! Maximises the sum of the logarithms of all rates. Newton's steps along a barrier: the matrix is one small block for each
//! party and a few columns for the types of GPU, so that a step is linear in the number of parties (Woodbury).

use super::problem::Problem;

/// A party: its choices with their rates and the GPUs that they take of each type.
#[derive(Clone, Debug)]
struct Block {
    choices: Vec<usize>,
    rates: Vec<f64>,
    /// By way, then by type.
    uses: Vec<Vec<f64>>,
}

/// The program for all parties or for all but one.
#[derive(Clone, Debug)]
pub struct Nash {
    blocks: Vec<Block>,
    capacity: Vec<f64>,
}

/// How far the barrier is let down, and by how much at a time.
const BARRIER_LAST: f64 = 1e-10;
const BARRIER_STEP: f64 = 0.1;
/// Newton's steps on each height of the barrier.
const STEPS_MAX: u32 = 40;
/// A step that gains less than this does not go on.
const DECREMENT_LAST: f64 = 1e-9;

/// Where a search stands: time of each way of each block.
#[derive(Clone, Debug)]
pub struct Point(Vec<Vec<f64>>);

impl Nash {
    /// The program, if every choice is that of one job.
    pub fn of(problem: &Problem<'_>) -> Option<Nash> {
        let table = problem.table;
        if table.choices.iter().any(|choice| choice.jobs.len() > 1) {
            return None;
        }
        let kinds = table.capacity.len();
        let block = |party: usize| {
            let able = |(choice, rate): &&(usize, f64)| {
                let gpus = |kind: u16| table.capacity[usize::from(kind)];
                *rate > 0.0 && table.choices[*choice].uses.iter().all(|(kind, _)| gpus(*kind) > 0)
            };
            let ways: Vec<(usize, f64)> =
                problem.ways(party).iter().filter(able).copied().collect();
            let best = ways.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
            let uses = ways.iter().map(|(choice, _)| {
                let mut gpus = vec![0.0; kinds];
                for (kind, count) in &table.choices[*choice].uses {
                    gpus[usize::from(*kind)] += f64::from(*count);
                }
                gpus
            });
            Block {
                uses: uses.collect(),
                choices: ways.iter().map(|(choice, _)| *choice).collect(),
                rates: ways.iter().map(|(_, rate)| rate / best).collect(),
            }
        };
        let blocks: Vec<Block> = problem.all().map(block).collect();
        let capacity = table.capacity.iter().map(|gpus| f64::from(*gpus)).collect();
        (!blocks.iter().any(|block| block.rates.is_empty())).then_some(Nash { blocks, capacity })
    }

    /// The shares of a point, one for each of so many choices.
    pub fn shares(&self, point: &Point, choices: usize) -> Vec<f64> {
        let mut shares = vec![0.0; choices];
        for (block, times) in self.blocks.iter().zip(&point.0) {
            for (choice, time) in block.choices.iter().zip(times) {
                shares[*choice] = *time;
            }
        }
        shares
    }

    /// The rate of each party in parts of its fastest.
    pub fn rates(&self, point: &Point) -> Vec<f64> {
        let blocks = self.blocks.iter().zip(&point.0);
        blocks.map(|(block, times)| dot(&block.rates, times)).collect()
    }

    /// Well inside of all rows: an equal part of everything.
    fn inside(&self) -> Point {
        let mut used = vec![0.0; self.capacity.len()];
        for block in &self.blocks {
            for uses in &block.uses {
                uses.iter().zip(&mut used).for_each(|(gpus, used)| *used += gpus);
            }
        }
        let fullest = used.iter().zip(&self.capacity).filter(|(_, gpus)| **gpus > 0.0);
        let fullest = fullest.map(|(used, gpus)| used / gpus).fold(0.0, f64::max);
        let ways = self.blocks.iter().map(|block| block.rates.len()).max().unwrap_or(1);
        let time = 0.5 / fullest.max(ways as f64);
        Point(self.blocks.iter().map(|block| vec![time; block.rates.len()]).collect())
    }

    /// The best point, and a point on the way to it from which a slightly different program may begin.
    pub fn solve(&self) -> (Point, Point) {
        let mut point = self.inside();
        let mut barrier = 1.0;
        let mut early = point.clone();
        while barrier > BARRIER_LAST {
            self.centre(&mut point, barrier);
            if barrier >= EARLY {
                early = point.clone();
            }
            barrier *= BARRIER_STEP;
        }
        (point, early)
    }

    /// The best point without one party, from an early point of the whole program.
    pub fn without(&self, party: usize, early: &Point) -> (Nash, Point) {
        let mut less = self.clone();
        let mut point = early.clone();
        less.blocks.remove(party);
        point.0.remove(party);
        let mut barrier = EARLY;
        while barrier > BARRIER_LAST && !less.blocks.is_empty() {
            less.centre(&mut point, barrier);
            barrier *= BARRIER_STEP;
        }
        (less, point)
    }

    /// Newton's steps to the middle at one height of the barrier.
    fn centre(&self, point: &mut Point, barrier: f64) {
        for _ in 0..STEPS_MAX {
            let free = self.free(point);
            let Some((step, decrement)) = self.newton(point, &free, barrier) else { return };
            if decrement <= DECREMENT_LAST {
                return;
            }
            // Damped as for any self-concordant function: inside of all rows by itself, up to rounding.
            let mut length = 1.0 / (1.0 + (decrement / barrier.min(1.0)).sqrt());
            if decrement / barrier.min(1.0) < 0.25 {
                length = 1.0;
            }
            let mut next = moved(point, &step, length);
            while !self.is_inside(&next) {
                length *= 0.5;
                if length < 1e-12 {
                    return;
                }
                next = moved(point, &step, length);
            }
            *point = next;
        }
    }

    /// GPUs of each type that are left.
    fn free(&self, point: &Point) -> Vec<f64> {
        let mut free = self.capacity.clone();
        for (block, times) in self.blocks.iter().zip(&point.0) {
            for (uses, time) in block.uses.iter().zip(times) {
                free.iter_mut().zip(uses).for_each(|(free, gpus)| *free -= gpus * time);
            }
        }
        free
    }

    fn is_inside(&self, point: &Point) -> bool {
        let times = |times: &Vec<f64>| {
            times.iter().all(|time| *time > 0.0) && times.iter().sum::<f64>() < 1.0
        };
        let full = |(free, gpus): (&f64, &f64)| *gpus > 0.0 && *free <= 0.0;
        point.0.iter().all(times) && !self.free(point).iter().zip(&self.capacity).any(full)
    }

    /// Newton's step, and by how much the objective would fall to first order.
    fn newton(&self, point: &Point, free: &[f64], barrier: f64) -> Option<(Vec<Vec<f64>>, f64)> {
        let kinds = self.capacity.len();
        let pressed = |kind: usize| self.capacity[kind] > 0.0;
        // Of each block: its inverse times the gradient, and times what it takes of each type.
        let mut solved = Vec::with_capacity(self.blocks.len());
        let mut gradients = Vec::with_capacity(self.blocks.len());
        let mut matrix = vec![vec![0.0; kinds]; kinds];
        let mut right = vec![0.0; kinds];
        for (kind, row) in matrix.iter_mut().enumerate() {
            row[kind] = if pressed(kind) { free[kind] * free[kind] / barrier } else { 1.0 };
        }
        for (block, times) in self.blocks.iter().zip(&point.0) {
            let (gradient, hessian) = block.local(times, free, barrier);
            let ways = times.len();
            let mut sides = vec![gradient.clone()];
            sides.extend(
                (0..kinds).map(|kind| (0..ways).map(|way| block.uses[way][kind]).collect()),
            );
            let sides = solve_all(hessian, sides)?;
            for kind in 0..kinds {
                let takes = |with: &[f64]| -> f64 {
                    (0..ways).map(|way| block.uses[way][kind] * with[way]).sum()
                };
                right[kind] += takes(&sides[0]);
                for other in 0..kinds {
                    matrix[kind][other] += takes(&sides[other + 1]);
                }
            }
            solved.push(sides);
            gradients.push(gradient);
        }
        let pressure = solve_all(matrix, vec![right])?.pop()?;
        let mut decrement = 0.0;
        let mut step = Vec::with_capacity(self.blocks.len());
        for (sides, gradient) in solved.iter().zip(&gradients) {
            let of_way = |way: usize| {
                let back: f64 = (0..kinds).map(|kind| pressure[kind] * sides[kind + 1][way]).sum();
                back - sides[0][way]
            };
            let own: Vec<f64> = (0..gradient.len()).map(of_way).collect();
            decrement -= dot(&own, gradient);
            step.push(own);
        }
        decrement.is_finite().then_some((step, decrement))
    }
}

/// From this height on a program without one of its parties starts from the same point.
const EARLY: f64 = 1e-2;

impl Block {
    /// The gradient of what is minimised, and the part of its second derivative that is the block's own.
    fn local(&self, times: &[f64], free: &[f64], barrier: f64) -> (Vec<f64>, Vec<Vec<f64>>) {
        let rate = dot(&self.rates, times);
        let idle = 1.0 - times.iter().sum::<f64>();
        let ways = times.len();
        let mut gradient = vec![0.0; ways];
        let mut hessian = vec![vec![0.0; ways]; ways];
        for a in 0..ways {
            let pressed = self.uses[a].iter().zip(free).filter(|(gpus, _)| **gpus > 0.0);
            let pressed: f64 = pressed.map(|(gpus, free)| gpus / free).sum();
            gradient[a] = -self.rates[a] / rate + barrier * (1.0 / idle + pressed - 1.0 / times[a]);
            for (entry, rate_b) in hessian[a].iter_mut().zip(&self.rates) {
                *entry = self.rates[a] * rate_b / (rate * rate) + barrier / (idle * idle);
            }
            hessian[a][a] += barrier / (times[a] * times[a]);
        }
        (gradient, hessian)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn moved(point: &Point, step: &[Vec<f64>], length: f64) -> Point {
    let one = |(times, step): (&Vec<f64>, &Vec<f64>)| {
        times.iter().zip(step).map(|(time, step)| time + length * step).collect()
    };
    Point(point.0.iter().zip(step).map(one).collect())
}

/// Solves a small system for several right sides, by elimination with the largest pivot.
fn solve_all(mut matrix: Vec<Vec<f64>>, mut sides: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    for pivot in 0..size {
        let largest = (pivot..size)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        if matrix[largest][pivot] == 0.0 {
            return None;
        }
        matrix.swap(pivot, largest);
        sides.iter_mut().for_each(|side| side.swap(pivot, largest));
        for row in pivot + 1..size {
            let factor = matrix[row][pivot] / matrix[pivot][pivot];
            let (above, below) = matrix.split_at_mut(row);
            let entries = below[0].iter_mut().zip(&above[pivot]).skip(pivot);
            entries.for_each(|(entry, pivotal)| *entry -= factor * pivotal);
            sides.iter_mut().for_each(|side| side[row] -= factor * side[pivot]);
        }
    }
    for side in &mut sides {
        for row in (0..size).rev() {
            let known: f64 = (row + 1..size).map(|column| matrix[row][column] * side[column]).sum();
            side[row] = (side[row] - known) / matrix[row][row];
        }
    }
    Some(sides)
}
