//! One of the left for one of the right, at least cost.

use crate::{Name, SolverError};
use pathfinding::kuhn_munkres::kuhn_munkres;
use pathfinding::matrix::Matrix;

/// The sum of all weights must fit 63 bits.
const SUM_BITS: u32 = 61;
/// A cost has no more digits than this.
const COST_BITS: u32 = 52;

/// The column of each row: as many pairs as can be made, and of these the cheapest.
///
/// Each row has at most one column and each column at most one row; there may be more of either. A pair without a cost
/// cannot be made. Costs may be negative. They become integers in which the spread between the least and the largest
/// cost has 2^61 / n(n + 2) steps for n pairs, at most 2^52: 2^41 of them for 1,000 pairs, and costs that are nearer than
/// one step are equal. Of several cheapest answers the same is given each time. The work grows as n^2 times the longer
/// side.
///
/// ```
/// use trainyard_solver::bipartite;
/// let costs = [[4.0, 1.0, f64::MAX], [2.0, 3.0, 9.0]];
/// let pairs = bipartite(2, 3, |row, column| {
///     let cost = costs[row][column];
///     (cost < 100.0).then_some(cost)
/// });
/// assert_eq!(pairs, Ok(vec![Some(1), Some(0)]));
/// ```
pub fn bipartite(
    rows: usize,
    columns: usize,
    cost: impl Fn(usize, usize) -> Option<f64>,
) -> Result<Vec<Option<usize>>, SolverError> {
    let pairs = rows.min(columns);
    if pairs == 0 {
        return Ok(vec![None; rows]);
    }
    let mut costs = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            let cost = cost(row, column);
            if let Some(value) = cost.filter(|value| !value.is_finite()) {
                return Err(SolverError::NotANumber { at: Name("cost of row", row), value });
            }
            costs.push(cost);
        }
    }
    let weights = Matrix::from_vec(rows, columns, weights(&costs, pairs))
        .expect("there are as many costs as rows times columns");
    // The longer side must be the columns.
    let upright = rows <= columns;
    let weights = if upright { weights } else { weights.transposed() };
    let (_, chosen) = kuhn_munkres(&weights);
    let mut found = vec![None; rows];
    for (short, long) in chosen.into_iter().enumerate() {
        let (row, column) = if upright { (short, long) } else { (long, short) };
        found[row] = costs[row * columns + column].map(|_| column);
    }
    Ok(found)
}

/// Larger for a cheaper pair. Any pair outweighs what all others can save, and what is no pair weighs nothing.
fn weights(costs: &[Option<f64>], pairs: usize) -> Vec<i64> {
    let given = || costs.iter().flatten().copied();
    let (least, most) =
        (given().fold(f64::INFINITY, f64::min), given().fold(f64::NEG_INFINITY, f64::max));
    let pairs = pairs as i64;
    let steps = ((1_i64 << SUM_BITS) / (pairs * (pairs + 2))).min(1 << COST_BITS);
    let pair = steps * (pairs + 1);
    // Halved first, for the spread of finite costs need not be finite.
    let spread = most / 2.0 - least / 2.0;
    let weight = |cost: f64| {
        let part = if spread > 0.0 { (most / 2.0 - cost / 2.0) / spread } else { 0.0 };
        pair + (part * steps as f64).round() as i64
    };
    costs.iter().map(|cost| cost.map_or(0, weight)).collect()
}
