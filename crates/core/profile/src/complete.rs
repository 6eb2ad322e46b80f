//! Speeds of pairs that were not measured, from those that were.
//!
//! Pairs are many and each costs a run of two jobs, so that a table is rarely whole. Two ways to fill it, after Gavel
//! (OSDI 2020, section 6): the table has low rank, or a job is like the job whose measured pairs are most alike.
//! Which of them is better depends on the table and on how much of it is known; [`estimate`] measures both on known
//! pairs that it hides from them, and takes the better one.
//!
//! - [`table`]: what is known.
//! - `low_rank`, `nearest`: the two ways.
//! - [`choose`]: errors on hidden pairs, and the choice.
//! - [`trial()`]: how far the ways are off on a table that is known.
//! - [`tensor`]: the same for efficiencies by model, type and number of GPUs.
//! - [`fill()`]: the pairs of a catalog, with those that were estimated marked as such.

pub mod choose;
pub mod fill;
pub(crate) mod low_rank;
mod nearest;
pub mod table;
pub mod tensor;
pub mod trial;

pub use choose::{Errors, Estimate, Way, errors, estimate};
pub use fill::{Filled, fill, told};
pub use table::PairTable;
pub use trial::{Hidden, Trial, trial};

/// The least and the most a job is estimated to keep of its speed beside another.
const KEPT: std::ops::RangeInclusive<f64> = 0.01..=1.0;

fn clamped(kept: f64) -> f64 {
    kept.clamp(*KEPT.start(), *KEPT.end())
}
