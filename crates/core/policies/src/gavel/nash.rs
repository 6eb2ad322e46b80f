//! The largest product of all rates, by an interior point that knows its structure.
//!
//! Maximises the sum of the logarithms of all rates. Newton's steps along a barrier: the matrix is one small block for each
//! party and a few columns for the types of GPU, so that a step is linear in the number of parties (Woodbury). Parties
//! with the same rates for the same GPUs are treated alike on the whole way, so that each class of them is one block.

use super::problem::Problem;
use std::collections::BTreeMap;
use trainyard_solver::shares::{Product, without_each};

/// The program: parties in classes of those alike.
#[derive(Clone, Debug, Default)]
pub struct Nash {
    /// GPUs of each type.
    capacity: Vec<f64>,
    /// How many parties each class has.
    counts: Vec<f64>,
    /// Where the ways of each class begin; one more than there are classes.
    starts: Vec<usize>,
    /// The rate of each way, in parts of the fastest.
    rates: Vec<f64>,
    /// The GPUs that each way takes, type by type.
    uses: Vec<f64>,
    /// The class of each party, and the choices that are its ways.
    parties: Vec<(usize, Vec<usize>)>,
}

/// How far the barrier is let down, and by how much at a time.
const BARRIER_LAST: f64 = 1e-10;
const BARRIER_STEP: f64 = 0.1;
/// Newton's steps on each height of the barrier.
const STEPS_MAX: u32 = 40;
/// A step that gains less than this does not go on.
const DECREMENT_LAST: f64 = 1e-9;

/// Where a search ended: time of each way of each class, and what a GPU of each type is worth there.
#[derive(Clone, Debug)]
pub struct Point {
    times: Vec<f64>,
    prices: Vec<f64>,
}

impl Nash {
    /// The program, if every choice is that of one job.
    pub fn of(problem: &Problem<'_>) -> Option<Nash> {
        let table = problem.table;
        if table.choices.iter().any(|choice| choice.jobs.len() > 1) {
            return None;
        }
        let capacity = table.capacity.iter().map(|gpus| f64::from(*gpus)).collect();
        let mut nash = Nash { capacity, starts: vec![0], ..Nash::default() };
        let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        for party in problem.all() {
            nash.join(problem, party, &mut known)?;
        }
        Some(nash)
    }

    /// Takes in one party, with those alike or as the first of a class; nothing if it can run nowhere.
    fn join(
        &mut self,
        problem: &Problem<'_>,
        party: usize,
        known: &mut BTreeMap<Vec<u64>, usize>,
    ) -> Option<()> {
        let table = problem.table;
        let able = |(choice, rate): &&(usize, f64)| {
            let gpus = |kind: u16| table.capacity[usize::from(kind)];
            *rate > 0.0 && table.choices[*choice].uses.iter().all(|(kind, _)| gpus(*kind) > 0)
        };
        let ways: Vec<(usize, f64)> = problem.ways(party).iter().filter(able).copied().collect();
        let best = ways.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let rates: Vec<f64> = ways.iter().map(|(_, rate)| rate / best).collect();
        let mut uses = vec![0.0; ways.len() * self.capacity.len()];
        for ((choice, _), gpus) in ways.iter().zip(uses.chunks_exact_mut(self.capacity.len())) {
            for (kind, count) in &table.choices[*choice].uses {
                gpus[usize::from(*kind)] += f64::from(*count);
            }
        }
        if rates.is_empty() {
            return None;
        }
        let bits = rates.iter().chain(&uses).map(|number| number.to_bits()).collect();
        let class = *known.entry(bits).or_insert(self.counts.len());
        if class == self.counts.len() {
            self.counts.push(0.0);
            self.rates.extend(rates);
            self.uses.extend(uses);
            self.starts.push(self.rates.len());
        }
        self.counts[class] += 1.0;
        self.parties.push((class, ways.into_iter().map(|(choice, _)| choice).collect()));
        Some(())
    }

    /// The shares of a point, one for each of so many choices, those of each class times a factor.
    pub fn shares(&self, point: &Point, factors: &[f64], choices: usize) -> Vec<f64> {
        let mut shares = vec![0.0; choices];
        for (class, choices) in &self.parties {
            for (choice, time) in choices.iter().zip(&point.times[self.starts[*class]..]) {
                shares[*choice] = time * factors[*class];
            }
        }
        shares
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.counts.len()
    }

    /// For a party of each class: the product of all others' rates with it over that without it.
    ///
    /// `None` where the arithmetic fails.
    pub fn costs_to_others(&self, point: &Point) -> Option<Vec<f64>> {
        let Nash { capacity, counts, starts, rates, uses, .. } = self;
        let product = Product { capacity, counts, starts, rates, uses };
        let without = without_each(&product, &point.prices)?;
        let log = |class: usize| {
            let ways = starts[class]..starts[class + 1];
            libm::log(dot(&rates[ways.clone()], &point.times[ways]))
        };
        let logs: Vec<f64> = (0..counts.len()).map(log).collect();
        let all = dot(&logs, counts);
        let cost = |(log, without): (&f64, trainyard_solver::shares::LogProduct)| {
            libm::exp(all - log - 0.5 * (without.found + without.ceiling))
        };
        Some(logs.iter().zip(without).map(cost).collect())
    }

    /// Well inside of all rows: an equal part of everything.
    fn inside(&self) -> Vec<f64> {
        let mut used = vec![0.0; self.capacity.len()];
        for (class, count) in self.counts.iter().enumerate() {
            for way in self.starts[class]..self.starts[class + 1] {
                let uses = self.uses_of(way).iter().zip(&mut used);
                uses.for_each(|(gpus, used)| *used += count * gpus);
            }
        }
        let fullest = used.iter().zip(&self.capacity).filter(|(_, gpus)| **gpus > 0.0);
        let fullest = fullest.map(|(used, gpus)| used / gpus).fold(0.0, f64::max);
        let ways = self.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1);
        vec![0.5 / fullest.max(ways as f64); self.rates.len()]
    }

    /// The best point.
    pub fn solve(&self) -> Point {
        let mut times = self.inside();
        let mut space = Space::default();
        let mut barrier = 1.0;
        let mut last = barrier;
        while barrier > BARRIER_LAST {
            self.centre(&mut times, barrier, &mut space);
            last = barrier;
            barrier *= BARRIER_STEP;
        }
        let price = |(free, gpus): (f64, &f64)| if *gpus > 0.0 { last / free } else { 0.0 };
        let prices = self.free(&times).into_iter().zip(&self.capacity).map(price).collect();
        Point { times, prices }
    }

    /// Newton's steps to the middle at one height of the barrier.
    fn centre(&self, times: &mut Vec<f64>, barrier: f64, space: &mut Space) {
        for _ in 0..STEPS_MAX {
            let free = self.free(times);
            let Some(decrement) = self.newton(times, &free, barrier, space) else { return };
            if decrement <= DECREMENT_LAST {
                return;
            }
            // Damped as for any self-concordant function: inside of all rows by itself, up to rounding.
            let mut length = 1.0 / (1.0 + (decrement / barrier.min(1.0)).sqrt());
            if decrement / barrier.min(1.0) < 0.25 {
                length = 1.0;
            }
            let mut next = moved(times, &space.step, length);
            while !self.is_inside(&next) {
                length *= 0.5;
                if length < 1e-12 {
                    return;
                }
                next = moved(times, &space.step, length);
            }
            *times = next;
        }
    }

    fn uses_of(&self, way: usize) -> &[f64] {
        &self.uses[way * self.capacity.len()..][..self.capacity.len()]
    }

    /// GPUs of each type that are left.
    fn free(&self, times: &[f64]) -> Vec<f64> {
        let mut free = self.capacity.clone();
        for (class, count) in self.counts.iter().enumerate() {
            let first = self.starts[class];
            for (way, time) in (first..).zip(&times[first..self.starts[class + 1]]) {
                let uses = free.iter_mut().zip(self.uses_of(way));
                uses.for_each(|(free, gpus)| *free -= gpus * time * count);
            }
        }
        free
    }

    fn is_inside(&self, times: &[f64]) -> bool {
        let fits = |pair: &[usize]| times[pair[0]..pair[1]].iter().sum::<f64>() < 1.0;
        let full = |(free, gpus): (&f64, &f64)| *gpus > 0.0 && *free <= 0.0;
        times.iter().all(|time| *time > 0.0)
            && self.starts.windows(2).all(fits)
            && !self.free(times).iter().zip(&self.capacity).any(full)
    }

    /// Newton's step, and by how much the objective would fall to first order.
    fn newton(&self, times: &[f64], free: &[f64], barrier: f64, space: &mut Space) -> Option<f64> {
        let kinds = self.capacity.len();
        let columns = kinds + 1;
        // The rows of all types: what they are pressed by, and the right side.
        let mut matrix = vec![0.0; kinds * kinds];
        let mut right = vec![0.0; kinds];
        for kind in 0..kinds {
            let pressed = self.capacity[kind] > 0.0;
            let own = if pressed { free[kind] * free[kind] / barrier } else { 1.0 };
            matrix[kind * kinds + kind] = own;
        }
        space.gradient.clear();
        space.sides.clear();
        for (class, count) in self.counts.iter().enumerate() {
            let (start, end) = (self.starts[class], self.starts[class + 1]);
            self.local(class, times, (free, barrier), space);
            // Of each block: its inverse times the gradient, and times what it takes of each type.
            for way in start..end {
                space.sides.push(space.gradient[way]);
                space.sides.extend_from_slice(self.uses_of(way));
            }
            let sides = &mut space.sides[start * columns..];
            solve_all(&mut space.hessian, sides, (end - start, columns))?;
            for (uses, sides) in
                (start..end).map(|way| self.uses_of(way)).zip(sides.chunks(columns))
            {
                for (kind, gpus) in uses.iter().enumerate().filter(|(_, gpus)| **gpus != 0.0) {
                    right[kind] += count * gpus * sides[0];
                    let row = matrix[kind * kinds..][..kinds].iter_mut();
                    row.zip(&sides[1..]).for_each(|(entry, side)| *entry += count * gpus * side);
                }
            }
        }
        solve_all(&mut matrix, &mut right, (kinds, 1))?;
        let mut decrement = 0.0;
        space.step.clear();
        for (class, count) in self.counts.iter().enumerate() {
            for way in self.starts[class]..self.starts[class + 1] {
                let sides = &space.sides[way * columns..][..columns];
                let step = dot(&right, &sides[1..]) - sides[0];
                decrement -= count * step * space.gradient[way];
                space.step.push(step);
            }
        }
        decrement.is_finite().then_some(decrement)
    }

    /// The gradient of what is minimised, and the part of its second derivative that is the block's own.
    fn local(
        &self,
        class: usize,
        times: &[f64],
        (free, barrier): (&[f64], f64),
        space: &mut Space,
    ) {
        let ways = self.starts[class]..self.starts[class + 1];
        let (times, rates) = (&times[ways.clone()], &self.rates[ways.clone()]);
        let rate = dot(rates, times);
        let idle = 1.0 - times.iter().sum::<f64>();
        space.hessian.clear();
        for (at, way) in ways.enumerate() {
            let pressed = self.uses_of(way).iter().zip(free).filter(|(gpus, _)| **gpus > 0.0);
            let pressed: f64 = pressed.map(|(gpus, free)| gpus / free).sum();
            let slope = -rates[at] / rate + barrier * (1.0 / idle + pressed - 1.0 / times[at]);
            space.gradient.push(slope);
            let entry = |other: &f64| rates[at] * other / (rate * rate) + barrier / (idle * idle);
            space.hessian.extend(rates.iter().map(entry));
            space.hessian[at * times.len() + at] += barrier / (times[at] * times[at]);
        }
    }
}

/// Room for the numbers of a step, used again for the next one.
#[derive(Default)]
struct Space {
    gradient: Vec<f64>,
    hessian: Vec<f64>,
    sides: Vec<f64>,
    step: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn moved(times: &[f64], step: &[f64], length: f64) -> Vec<f64> {
    times.iter().zip(step).map(|(time, step)| time + length * step).collect()
}

/// Solves a small system for several right sides, both row by row, by elimination with the largest pivot.
fn solve_all(matrix: &mut [f64], sides: &mut [f64], (size, columns): (usize, usize)) -> Option<()> {
    for pivot in 0..size {
        let entry = |row: &usize| matrix[row * size + pivot].abs();
        let largest = (pivot..size).max_by(|a, b| entry(a).total_cmp(&entry(b)))?;
        if matrix[largest * size + pivot] == 0.0 {
            return None;
        }
        if largest != pivot {
            (0..size).for_each(|at| matrix.swap(pivot * size + at, largest * size + at));
            (0..columns).for_each(|at| sides.swap(pivot * columns + at, largest * columns + at));
        }
        for row in pivot + 1..size {
            let factor = matrix[row * size + pivot] / matrix[pivot * size + pivot];
            for at in pivot..size {
                matrix[row * size + at] -= factor * matrix[pivot * size + at];
            }
            for at in 0..columns {
                sides[row * columns + at] -= factor * sides[pivot * columns + at];
            }
        }
    }
    for row in (0..size).rev() {
        for at in 0..columns {
            let known = (row + 1..size)
                .map(|other| matrix[row * size + other] * sides[other * columns + at]);
            let known: f64 = known.sum();
            sides[row * columns + at] =
                (sides[row * columns + at] - known) / matrix[row * size + row];
        }
    }
    Some(())
}
