//! What Slurm's programs print as JSON, in the shapes of the versions in the field.
//!
//! Slurm 22.05 (data parser v0.0.38) writes plain numbers and one word for a state; 23.02 and later (v0.0.39 to v0.0.42)
//! write numbers as `{"set", "infinite", "number"}` and states as lists of words.
//! One set of readers takes them all: a field may have any of the shapes, unknown fields are left, missing ones are
//! empty, and a row that cannot be read is named, counted and left out.
//!
//! - [`mod@jobs`]: `squeue --json`.
//! - [`mod@nodes`]: `scontrol show nodes --json`, or `sinfo --json` in both of its forms.
//! - [`gres`]: `gpu:a100:8(S:0-1)` and the like.

mod answer;
pub mod gres;
pub mod jobs;
mod lenient;
pub mod nodes;

pub use answer::ReadError;
pub use jobs::jobs;
pub use nodes::nodes;

use crate::seen::Skipped;

/// The rows of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<T> {
    /// Those that could be read.
    pub rows: Vec<T>,
    /// Those that could not.
    pub skipped: Skipped,
    /// Slurm's clock, where the answer tells it.
    pub at: Option<i64>,
    /// Slurm's release; empty where the answer does not tell it.
    pub release: String,
}
