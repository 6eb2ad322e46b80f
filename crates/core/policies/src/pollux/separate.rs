//! Sizes and places searched apart: first how many GPUs of which type each job gets, as if nodes did not matter, then on
//! which nodes, and last what the nodes left over.
//!
//! - `sizes`: a multiple-choice knapsack over all jobs, with the cost of the joint search.
//! - `places`: jobs that keep their size stay; the others go where they fit, the largest first.
//!
//! The joint search looks at `generations * population` matrices; this one at one.

mod places;
mod sizes;

use super::problem::Problem;
use places::Layout;

/// A good state, never more costly than what is held as far as that is possible.
///
/// The better of two: sizes chosen and placed, and what is held; what is left over goes to the jobs that gain most.
/// O(jobs * (nodes + sizes)) for each of a few passes, beside the knapsack.
pub fn separate(problem: &Problem) -> Vec<u8> {
    let mut held = Layout::new(problem);
    held.place(&vec![Target::Stay; problem.rows.len()]);
    held.improve();
    let mut chosen = Layout::new(problem);
    chosen.place(&sizes::choose(problem));
    chosen.improve();
    if chosen.cost() < held.cost() { chosen.state() } else { held.state() }
}

/// What the first half says of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Target {
    /// No GPUs.
    Nothing,
    /// What it holds.
    Stay,
    /// So many GPUs of a type.
    Change { kind: u8, gpus: u32 },
}
