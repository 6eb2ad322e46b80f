//! Pairs of one kind of thing, of greatest weight together.

use crate::{Name, SolverError};
use rustworkx_core::max_weight_matching::max_weight_matching;
use rustworkx_core::petgraph::graph::{NodeIndex, UnGraph};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// The resolution of weights: the largest has so many bits. The sums that the algorithm makes fit 128.
const WEIGHT_BITS: u32 = 52;

/// The pairs of greatest weight in sum, each node in one pair at most; edges of weight 0 or less are not used.
///
/// Pairs are `(smaller, larger)`, ascending. Weights become integers: one that is below 2^-53 of the largest is 0, and
/// two that differ by less may count as equal. Of several best answers the same is given each time, in whatever order
/// the edges come. The work grows as the cube of the nodes.
///
/// ```
/// use trainyard_solver::{matching, matching_of_most};
/// let path = [(0, 1, 5.0), (1, 2, 11.0), (2, 3, 5.0)];
/// assert_eq!(matching(4, &path), Ok(vec![(1, 2)]));
/// assert_eq!(matching_of_most(4, &path), Ok(vec![(0, 1), (2, 3)]));
/// ```
pub fn matching(
    nodes: usize,
    edges: &[(usize, usize, f64)],
) -> Result<Vec<(usize, usize)>, SolverError> {
    let edges = scaled(nodes, edges)?.into_iter().filter(|(_, weight)| *weight > 0).collect();
    Ok(best(nodes, edges, false))
}

/// As many pairs as can be made, and of these the ones of greatest weight in sum; weights may be negative.
pub fn matching_of_most(
    nodes: usize,
    edges: &[(usize, usize, f64)],
) -> Result<Vec<(usize, usize)>, SolverError> {
    Ok(best(nodes, scaled(nodes, edges)?, true))
}

type Edges = BTreeMap<(usize, usize), i128>;

/// Weights as integers; of several edges between two nodes the heaviest.
fn scaled(nodes: usize, edges: &[(usize, usize, f64)]) -> Result<Edges, SolverError> {
    for (place, (one, other, weight)) in edges.iter().enumerate() {
        let at = Name("edge", place);
        if !weight.is_finite() {
            return Err(SolverError::NotANumber { at, value: *weight });
        }
        if one == other || *one >= nodes || *other >= nodes {
            return Err(SolverError::Malformed { at, what: "does not join two of the nodes" });
        }
    }
    let largest = edges.iter().map(|(_, _, weight)| weight.abs()).fold(0.0, f64::max);
    let mut kept = Edges::new();
    for (one, other, weight) in edges {
        let part = if largest > 0.0 { weight / largest } else { 0.0 };
        let weight = (part * (1_u64 << WEIGHT_BITS) as f64).round() as i128;
        let pair = (*one.min(other), *one.max(other));
        kept.entry(pair).and_modify(|kept| *kept = weight.max(*kept)).or_insert(weight);
    }
    Ok(kept)
}

fn best(nodes: usize, edges: Edges, most: bool) -> Vec<(usize, usize)> {
    let mut graph = UnGraph::<(), i128>::with_capacity(nodes, edges.len());
    for _ in 0..nodes {
        graph.add_node(());
    }
    for ((one, other), weight) in edges {
        graph.add_edge(NodeIndex::new(one), NodeIndex::new(other), weight);
    }
    let found: Result<_, Infallible> =
        max_weight_matching(&graph, most, |edge| Ok(*edge.weight()), false);
    let Ok(found) = found;
    let mut pairs: Vec<(usize, usize)> =
        found.into_iter().map(|(one, other)| (one.min(other), one.max(other))).collect();
    pairs.sort_unstable();
    pairs
}
