//! A table of low rank: each row and each column has a level and a few traits, found by alternating least squares.
//!
//! Logarithms are fitted, because a partner takes a part of what there is and errors are judged as parts:
//! `ln kept(i, j) = mean + level(i) + level'(j) + traits(i) . traits'(j)`.
//! A ridge on levels and traits keeps a row with few measured pairs near the mean.

use super::{PairTable, clamped};

/// Passes over rows and columns; the error does not change in the third digit after fifteen on the tables at hand.
const PASSES: usize = 25;
const LEVEL_RIDGE: f64 = 0.1;
const TRAIT_RIDGE: f64 = 0.3;

/// Every cell, row by row. O(passes * cells * rank^2).
pub fn fit(table: &PairTable, rank: usize) -> Vec<f64> {
    let n = table.len();
    let mut logs: Vec<Option<f64>> = Vec::with_capacity(n * n);
    for row in 0..n {
        for column in 0..n {
            logs.push(table.get((row, column)).map(|kept| libm::log(clamped(kept))));
        }
    }
    fit_logs(logs, (n, n), rank).into_iter().map(|log| clamped(libm::exp(log))).collect()
}

/// The same for the logarithms of any positive figures in so many rows and columns.
pub(crate) fn fit_logs(
    mut logs: Vec<Option<f64>>,
    (height, width): (usize, usize),
    rank: usize,
) -> Vec<f64> {
    let known = logs.iter().flatten().count().max(1) as f64;
    let mean = logs.iter().flatten().sum::<f64>() / known;
    for log in logs.iter_mut().flatten() {
        *log -= mean;
    }
    let (mut rows, mut columns) = (Side::new(height, rank), Side::new(width, rank));
    for _ in 0..PASSES {
        rows.improve(&columns, |own, other| logs[own * width + other]);
        columns.improve(&rows, |own, other| logs[other * width + own]);
    }
    let cells = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
    cells.map(|(row, column)| mean + rows.with(row, &columns, column)).collect()
}

/// Levels and traits of all rows, or of all columns.
struct Side {
    levels: Vec<f64>,
    traits: Vec<Vec<f64>>,
}

impl Side {
    /// Small traits that differ, so that the first pass has something to hold on to.
    fn new(n: usize, rank: usize) -> Side {
        const GOLDEN_ANGLE: f64 = 2.399_963_229_728_653;
        let start = |place: usize, number: usize| {
            0.1 * libm::cos((place + 1) as f64 * (number + 1) as f64 * GOLDEN_ANGLE)
        };
        Side {
            levels: vec![0.0; n],
            traits: (0..n)
                .map(|place| (0..rank).map(|number| start(place, number)).collect())
                .collect(),
        }
    }

    fn with(&self, own: usize, other: &Side, place: usize) -> f64 {
        let both = self.traits[own].iter().zip(&other.traits[place]);
        self.levels[own] + other.levels[place] + both.map(|(a, b)| a * b).sum::<f64>()
    }

    /// The best levels and traits of this side for those of the other: a small ridge regression for each place.
    fn improve(&mut self, other: &Side, log: impl Fn(usize, usize) -> Option<f64>) {
        let unknowns = 1 + self.traits.first().map_or(0, Vec::len);
        for own in 0..self.levels.len() {
            let mut normal = vec![vec![0.0; unknowns]; unknowns];
            let mut right = vec![0.0; unknowns];
            for (number, row) in normal.iter_mut().enumerate() {
                row[number] = if number == 0 { LEVEL_RIDGE } else { TRAIT_RIDGE };
            }
            for place in 0..other.levels.len() {
                let Some(value) = log(own, place) else { continue };
                let value = value - other.levels[place];
                let factor = |number: usize| match number {
                    0 => 1.0,
                    number => other.traits[place][number - 1],
                };
                for i in 0..unknowns {
                    right[i] += factor(i) * value;
                    for (j, cell) in normal[i].iter_mut().enumerate() {
                        *cell += factor(i) * factor(j);
                    }
                }
            }
            let solved = solve(normal, right);
            self.levels[own] = solved[0];
            self.traits[own].copy_from_slice(&solved[1..]);
        }
    }
}

/// Solves a small symmetric positive definite system by Cholesky's method; the ridge makes it one.
pub(super) fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for j in 0..n {
        for k in 0..j {
            a[j][j] -= a[j][k] * a[j][k];
        }
        a[j][j] = libm::sqrt(a[j][j]);
        for i in j + 1..n {
            for k in 0..j {
                a[i][j] -= a[i][k] * a[j][k];
            }
            a[i][j] /= a[j][j];
        }
    }
    for i in 0..n {
        for k in 0..i {
            b[i] -= a[i][k] * b[k];
        }
        b[i] /= a[i][i];
    }
    for i in (0..n).rev() {
        for k in i + 1..n {
            b[i] -= a[k][i] * b[k];
        }
        b[i] /= a[i][i];
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_system_is_solved() {
        let solved = solve(vec![vec![4.0, 2.0], vec![2.0, 3.0]], vec![10.0, 8.0]);
        assert!((solved[0] - 1.75).abs() < 1e-12 && (solved[1] - 1.5).abs() < 1e-12, "{solved:?}");
    }

    #[test]
    fn a_table_of_levels_is_found_again_from_a_third_of_it() {
        let names: Vec<String> = (0..20).map(|place| format!("m{place}")).collect();
        let truth =
            |row: usize, column: usize| (0.9 - 0.02 * row as f64) * (1.0 - 0.02 * column as f64);
        let mut table = PairTable::unknown(names);
        for row in 0..20 {
            for column in (0..20).filter(|column| (row * 7 + column * 3) % 3 == 0 || row == *column)
            {
                table.set((row, column), Some(truth(row, column)));
            }
        }
        let cells = fit(&table, 1);
        for row in 0..20 {
            for column in 0..20 {
                let (found, truth) = (cells[row * 20 + column], truth(row, column));
                assert!((found / truth - 1.0).abs() < 0.1, "{row} {column}: {found} for {truth}");
            }
        }
    }
}
