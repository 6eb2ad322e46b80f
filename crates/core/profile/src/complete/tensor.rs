//! How efficient models are on types of GPU and numbers of them, when only a few of these were profiled.
//!
//! The table has three sides, as in Heet (ASPLOS 2024): model, type, number of GPUs. Logarithms are fitted, with a level
//! for each place of each side and a few traits whose products bind the three:
//! `ln e(i, j, k) = mean + a(i) + b(j) + c(k) + sum_r u(i, r) v(j, r) w(k, r)`.
//! Alternating least squares with a ridge, as for pairs; the number of traits is the one that errs least on known cells
//! that are hidden from it.

use super::Errors;
use super::choose::mixed;
use super::low_rank::solve;

/// Ranks that are tried, from levels alone on.
pub const RANKS: [usize; 5] = [0, 1, 2, 3, 5];
const FOLDS: usize = 5;
const PASSES: usize = 25;
const LEVEL_RIDGE: f64 = 0.02;
const TRAIT_RIDGE: f64 = 0.1;

/// A table with three sides, of numbers above zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    sides: [usize; 3],
    cells: Vec<Option<f64>>,
}

impl Tensor {
    /// Nothing is known yet.
    pub fn unknown(sides: [usize; 3]) -> Tensor {
        Tensor { sides, cells: vec![None; sides[0] * sides[1] * sides[2]] }
    }

    /// How many places each side has.
    pub fn sides(&self) -> [usize; 3] {
        self.sides
    }

    /// What is known of a cell.
    pub fn get(&self, at: [usize; 3]) -> Option<f64> {
        self.cells[self.place(at)]
    }

    /// Takes note of a cell. Only a number above zero is taken, for the table holds logarithms.
    pub fn set(&mut self, at: [usize; 3], value: f64) -> bool {
        let place = self.place(at);
        let sound = value > 0.0 && value.is_finite();
        if sound {
            self.cells[place] = Some(value);
        }
        sound
    }

    /// How many cells are known.
    pub fn known(&self) -> usize {
        self.cells.iter().flatten().count()
    }

    fn place(&self, at: [usize; 3]) -> usize {
        (at[0] * self.sides[1] + at[1]) * self.sides[2] + at[2]
    }

    fn at(&self, place: usize) -> [usize; 3] {
        let [_, columns, layers] = self.sides;
        [place / layers / columns, place / layers % columns, place % layers]
    }
}

/// A completed table.
#[derive(Clone, Debug, PartialEq)]
pub struct Completed {
    /// The number of traits.
    pub rank: usize,
    /// How far each number of traits was off on known cells that were hidden from it.
    pub tried: Vec<(usize, Errors)>,
    table: Tensor,
}

impl Completed {
    /// A cell: as it is known, or else as it is estimated. Nothing if not a single cell was known.
    pub fn get(&self, at: [usize; 3]) -> Option<f64> {
        self.table.get(at)
    }

    /// How far the chosen rank was off on hidden cells.
    pub fn error(&self) -> Errors {
        let own = self.tried.iter().find(|(rank, _)| *rank == self.rank);
        own.map(|(_, errors)| *errors).unwrap_or_default()
    }
}

/// Completes a table by the rank that errs least on known cells which are hidden from it, fold by fold.
pub fn complete(table: &Tensor) -> Completed {
    let mut known: Vec<usize> =
        (0..table.cells.len()).filter(|place| table.cells[*place].is_some()).collect();
    // An order that has nothing to do with the places, and is the same in every run.
    known.sort_by_key(|place| (mixed(&(*place, 0)), *place));
    let folds = FOLDS.min(known.len());
    let mut tried = Vec::new();
    for rank in RANKS {
        let mut all = Vec::new();
        for fold in 0..folds {
            let hidden: Vec<usize> = known.iter().copied().skip(fold).step_by(folds).collect();
            let mut shown = table.clone();
            hidden.iter().for_each(|place| shown.cells[*place] = None);
            let cells = fit(&shown, rank);
            let wrong = |place: &usize| {
                let truth = table.cells[*place]?;
                Some((cells[*place] - truth).abs() / truth)
            };
            all.extend(hidden.iter().filter_map(wrong));
        }
        tried.push((rank, Errors::of(all)));
    }
    let least = tried.iter().min_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    let rank = least.map_or(0, |(rank, _)| *rank);
    let mut filled = table.clone();
    if !known.is_empty() {
        for (cell, estimate) in filled.cells.iter_mut().zip(fit(table, rank)) {
            *cell = cell.or(Some(estimate));
        }
    }
    Completed { rank, tried, table: filled }
}

/// Levels and traits of one side.
struct Side {
    levels: Vec<f64>,
    traits: Vec<Vec<f64>>,
}

/// Every cell. O(passes * cells * rank^2).
fn fit(table: &Tensor, rank: usize) -> Vec<f64> {
    let logs: Vec<(usize, f64)> = (table.cells.iter().enumerate())
        .filter_map(|(place, cell)| Some((place, libm::log((*cell)?))))
        .collect();
    if logs.is_empty() {
        // The only known cell is hidden: nothing is known of any.
        return vec![1.0; table.cells.len()];
    }
    let mean = logs.iter().map(|(_, log)| log).sum::<f64>() / logs.len() as f64;
    let (low, high) =
        logs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (_, x)| {
            (low.min(*x), high.max(*x))
        });
    let mut sides: Vec<Side> =
        table.sides.iter().enumerate().map(|(i, n)| side(i, *n, rank)).collect();
    // Cells by their place on each side, so that a pass looks at known cells only.
    for _ in 0..PASSES {
        for own in 0..3 {
            let mut by_place: Vec<Vec<([usize; 3], f64)>> = vec![Vec::new(); table.sides[own]];
            for (place, log) in &logs {
                let at = table.at(*place);
                by_place[at[own]].push((at, log - mean));
            }
            improve(&mut sides, own, &by_place);
        }
    }
    let value = |place: usize| {
        let log = mean + predicted(&sides, table.at(place));
        // An estimate does not leave what was seen by more than a factor of two.
        libm::exp(log.clamp(low - std::f64::consts::LN_2, high + std::f64::consts::LN_2))
    };
    (0..table.cells.len()).map(value).collect()
}

fn predicted(sides: &[Side], at: [usize; 3]) -> f64 {
    let levels: f64 = (0..3).map(|side| sides[side].levels[at[side]]).sum();
    let rank = sides[0].traits.first().map_or(0, Vec::len);
    let traits = |r: usize| (0..3).map(|side| sides[side].traits[at[side]][r]).product::<f64>();
    levels + (0..rank).map(traits).sum::<f64>()
}

/// Traits that differ, so that the first pass has something to hold on to.
fn side(number: usize, places: usize, rank: usize) -> Side {
    const GOLDEN_ANGLE: f64 = 2.399_963_229_728_653;
    let start = |place: usize, r: usize| {
        0.5 * libm::cos((place + 1) as f64 * (r + 1) as f64 * GOLDEN_ANGLE + number as f64)
    };
    let traits = (0..places).map(|place| (0..rank).map(|r| start(place, r)).collect()).collect();
    Side { levels: vec![0.0; places], traits }
}

/// The best levels and traits of one side for those of the others: a small ridge regression for each place.
fn improve(sides: &mut [Side], own: usize, by_place: &[Vec<([usize; 3], f64)>]) {
    let others: [usize; 2] = [(own + 1) % 3, (own + 2) % 3];
    for (place, cells) in by_place.iter().enumerate() {
        let rank = sides[own].traits[place].len();
        let unknowns = 1 + rank;
        let mut normal = vec![vec![0.0; unknowns]; unknowns];
        let mut right = vec![0.0; unknowns];
        for (number, row) in normal.iter_mut().enumerate() {
            row[number] = if number == 0 { LEVEL_RIDGE } else { TRAIT_RIDGE };
        }
        for (at, log) in cells {
            let level: f64 = others.iter().map(|side| sides[*side].levels[at[*side]]).sum();
            let mut factors = vec![1.0; unknowns];
            for (r, factor) in factors.iter_mut().skip(1).enumerate() {
                *factor = others.iter().map(|side| sides[*side].traits[at[*side]][r]).product();
            }
            for i in 0..unknowns {
                right[i] += factors[i] * (log - level);
                for (j, cell) in normal[i].iter_mut().enumerate() {
                    *cell += factors[i] * factors[j];
                }
            }
        }
        let solved = solve(normal, right);
        sides[own].levels[place] = solved[0];
        sides[own].traits[place].copy_from_slice(&solved[1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models differ in what they lose by each doubling, types in speed, and fast types make the loss worse.
    fn truth(at: [usize; 3]) -> f64 {
        let loss = 0.03 + 0.02 * (at[0] % 7) as f64;
        let speed = [1.0, 0.55, 0.3][at[1]] * (1.0 - 0.04 * (at[0] % 3) as f64);
        speed * libm::exp(-loss * at[2] as f64 * [1.0, 0.7, 0.4][at[1]])
    }

    fn shown(one_in: usize) -> Tensor {
        let mut table = Tensor::unknown([24, 3, 5]);
        for place in 0..24 * 3 * 5 {
            let at = table.at(place);
            if mixed(&(place, 1)).is_multiple_of(one_in as u64) {
                table.set(at, truth(at));
            }
        }
        table
    }

    #[test]
    fn a_table_is_found_again_from_a_third_of_it_and_says_how_far_it_is_off() {
        let table = shown(3);
        let completed = complete(&table);
        let unknown =
            (0..24 * 3 * 5).map(|place| table.at(place)).filter(|at| table.get(*at).is_none());
        let errors: Vec<f64> =
            unknown.map(|at| (completed.get(at).unwrap() / truth(at) - 1.0).abs()).collect();
        let errors = Errors::of(errors);
        assert!(errors.mean < 0.08 && errors.cells > 200, "{errors:?} at rank {}", completed.rank);
        // What it says of itself is of the size of the truth.
        let said = completed.error().mean;
        assert!(said > errors.mean / 3.0 && said < errors.mean * 3.0, "{said} for {errors:?}");
        // Levels alone miss what binds the sides.
        let levels = completed.tried[0].1.mean;
        assert!(said <= levels, "{said} is no better than {levels}");
    }

    #[test]
    fn what_is_known_stays_as_it_is() {
        let table = shown(2);
        let completed = complete(&table);
        for place in 0..24 * 3 * 5 {
            let at = table.at(place);
            assert!(table.get(at).is_none_or(|value| completed.get(at) == Some(value)));
        }
    }

    #[test]
    fn a_table_with_one_cell_or_none_is_completed_too_and_zero_is_not_taken() {
        let mut table = Tensor::unknown([2, 2, 2]);
        assert_eq!(complete(&table).get([0, 0, 0]), None);
        assert!(!table.set([0, 0, 0], 0.0) && !table.set([0, 0, 0], f64::NAN));
        assert!(table.set([0, 1, 0], 0.5) && table.known() == 1);
        let completed = complete(&table);
        let other = completed.get([1, 1, 1]).expect("estimated");
        assert!((0.25..=1.0).contains(&other), "{other}");
    }
}
