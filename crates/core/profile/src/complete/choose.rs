//! Errors on hidden pairs, and the way that errs least.

use super::table::Two;
use super::{PairTable, clamped, low_rank, nearest};
use std::fmt;

/// Parts of the known pairs that are hidden one after another.
const FOLDS: usize = 5;

/// A way to estimate what was not measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The mean of all that was measured.
    Mean,
    /// The speeds of the model most alike.
    Nearest,
    /// Levels and so many traits of each model.
    LowRank(usize),
}

impl Way {
    /// All that are tried.
    pub const ALL: [Way; 6] = [
        Way::Mean,
        Way::Nearest,
        Way::LowRank(0),
        Way::LowRank(1),
        Way::LowRank(2),
        Way::LowRank(3),
    ];

    /// Every cell of a table, row by row: known ones as they are, the others estimated.
    pub fn complete(self, table: &PairTable) -> Vec<f64> {
        let mean = table.mean().unwrap_or(1.0);
        let estimated: Vec<f64> = match self {
            Way::Mean => vec![mean; table.len() * table.len()],
            Way::Nearest => {
                nearest::fit(table).into_iter().map(|cell| cell.unwrap_or(mean)).collect()
            }
            Way::LowRank(rank) => low_rank::fit(table, rank),
        };
        let n = table.len();
        let known = |place: usize| table.get((place / n, place % n));
        let cells = estimated.into_iter().enumerate();
        cells.map(|(place, cell)| known(place).unwrap_or(clamped(cell))).collect()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Mean => f.write_str("mean"),
            Way::Nearest => f.write_str("nearest"),
            Way::LowRank(rank) => write!(f, "low-rank-{rank}"),
        }
    }
}

/// Relative errors of estimated cells: `|estimate - truth| / truth`.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// How many cells were hidden.
    pub cells: usize,
    /// The mean.
    pub mean: f64,
    /// One in two is above it.
    pub median: f64,
    /// One in twenty is above it.
    pub p95: f64,
}

impl Errors {
    /// Of a list.
    pub fn of(mut errors: Vec<f64>) -> Errors {
        if errors.is_empty() {
            return Errors::default();
        }
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| errors[((errors.len() - 1) as f64 * part) as usize];
        let (median, p95) = (at(0.5), at(0.95));
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        Errors { cells: errors.len(), mean, median, p95 }
    }
}

/// The relative errors of cells of a completed table that are hidden in what it was made from and known in the truth.
pub fn errors(truth: &PairTable, shown: &PairTable, cells: &[f64]) -> Vec<f64> {
    let n = truth.len();
    let places = (0..n * n).filter(|place| shown.get((place / n, place % n)).is_none());
    let wrong = |place: usize| {
        let truth = truth.get((place / n, place % n))?;
        Some((cells[place] - truth).abs() / truth)
    };
    places.filter_map(wrong).collect()
}

/// A completed table.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// How it was made.
    pub way: Way,
    /// The error of each way on known pairs that were hidden from it.
    pub tried: Vec<(Way, Errors)>,
    /// Every cell, row by row; known ones are as they were.
    pub cells: Vec<f64>,
}

/// Completes a table by the way that errs least on known pairs which are hidden from it, fold by fold.
pub fn estimate(table: &PairTable) -> Estimate {
    let mut known = table.known();
    // An order that has nothing to do with the names, and is the same in every run.
    known.sort_by_key(|two| (mixed(two), *two));
    let folds = FOLDS.min(known.len());
    let mut tried = Vec::new();
    for way in Way::ALL {
        let mut all = Vec::new();
        for fold in 0..folds {
            let hidden: Vec<Two> = known.iter().copied().skip(fold).step_by(folds).collect();
            let shown = table.without(&hidden);
            all.extend(errors(table, &shown, &way.complete(&shown)));
        }
        tried.push((way, Errors::of(all)));
    }
    let by_error = |a: &&(Way, Errors), b: &&(Way, Errors)| a.1.mean.total_cmp(&b.1.mean);
    let way = tried.iter().min_by(by_error).expect("there are ways").0;
    Estimate { way, cells: way.complete(table), tried }
}

/// A number without visible order for a pair (the finaliser of SplitMix64).
pub fn mixed(two: &Two) -> u64 {
    let mut bits = (two.0 as u64) << 32 | two.1 as u64;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(0x9e37_79b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(n: usize) -> PairTable {
        PairTable::unknown((0..n).map(|place| format!("m{place}")).collect())
    }

    #[test]
    fn two_kinds_of_models_are_told_apart_by_the_nearest() {
        // Even and odd models: like beside like keeps half, otherwise nothing is lost. No level explains that.
        let mut table = named(12);
        for row in 0..12 {
            for column in 0..12 {
                let kept = if (row + column) % 2 == 0 { 0.5 } else { 1.0 };
                if (row * 5 + column * 3) % 4 != 0 {
                    table.set((row, column), Some(kept));
                }
            }
        }
        let estimate = estimate(&table);
        let error = |way: Way| estimate.tried.iter().find(|tried| tried.0 == way).unwrap().1.mean;
        assert!(error(Way::Nearest) < 0.1 && error(Way::Mean) > 0.2, "{:?}", estimate.tried);
        assert!(error(estimate.way) <= error(Way::Nearest));
        for row in 0..12 {
            for column in 0..12 {
                let kept = if (row + column) % 2 == 0 { 0.5 } else { 1.0 };
                assert!((estimate.cells[row * 12 + column] - kept).abs() < 0.05);
            }
        }
    }

    #[test]
    fn a_table_of_one_pair_or_none_is_completed_too() {
        assert!(estimate(&named(0)).cells.is_empty());
        assert_eq!(estimate(&named(2)).cells.len(), 4);
        let mut table = named(2);
        table.set((0, 1), Some(0.6));
        let cells = estimate(&table).cells;
        assert_eq!(cells[1], 0.6);
        assert!(cells.iter().all(|cell| (0.01..=1.0).contains(cell)), "{cells:?}");
    }
}
