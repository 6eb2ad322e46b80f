//! The answer.

use crate::{Model, Name};
use std::time::Duration;

/// How good an answer is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Status {
    /// The best there is, within the engine's tolerance.
    Proven,
    /// All rows hold; better by at most this part of the objective may exist.
    Feasible {
        /// The part.
        gap: f64,
    },
    /// No values satisfy all rows.
    Infeasible,
    /// There is no end to how good it can be.
    Unbounded,
    /// The limit came before any values that satisfy all rows.
    OutOfLimit,
}

/// How much an engine may work.
///
/// A count of the engine's own steps gives the same answer on every machine: simulations and replays use it alone. Time
/// on the clock is for live decisions, whose cut is recorded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Steps: iterations of an interior point or of a simplex, nodes of a search.
    pub steps: u64,
    /// Time on the clock.
    pub wall: Option<Duration>,
}

impl Limit {
    /// So many steps and any time.
    pub const fn steps(steps: u64) -> Limit {
        Limit { steps, wall: None }
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// How good it is.
    pub status: Status,
    /// The value of each column; empty unless the status is proven or feasible.
    pub values: Vec<f64>,
    /// The value of the objective; not a number where there are no values.
    pub objective: f64,
    /// By how much the objective would change for one more of each row's bound; empty where unknown.
    ///
    /// It is the derivative of the objective as it is stated, whichever way is better. When maximising, a capacity
    /// (upper bound) that binds has a price above 0; when minimising, a demand (lower bound) that binds has one above 0.
    /// A row that does not bind has the price 0.
    pub prices: Vec<f64>,
    /// Steps used.
    pub steps: u64,
}

impl Solution {
    /// An answer without values.
    pub(crate) fn without_values(status: Status, steps: u64) -> Solution {
        Solution { status, values: Vec::new(), objective: f64::NAN, prices: Vec::new(), steps }
    }

    /// Whether there are values that satisfy all rows.
    pub fn has_values(&self) -> bool {
        matches!(self.status, Status::Proven | Status::Feasible { .. })
    }
}

/// An engine.
pub trait Solve: Send {
    /// Solves a model within a limit.
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError>;

    /// Values to start from in the next solve: an answer that is at hand. An engine that has no use for it ignores it,
    /// and none relies on it being right.
    fn start_from(&mut self, _values: &[f64]) {}

    /// Forgets what it kept to start warm.
    fn forget(&mut self) {}
}

/// Why an engine gives no answer at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolverError {
    /// A number of the model is not one.
    #[error("{at} has the value {value}, which is not a number that a model can hold")]
    NotANumber {
        /// Where.
        at: Name,
        /// What.
        value: f64,
    },
    /// A part of the model does not fit the rest.
    #[error("{at} {what}")]
    Malformed {
        /// Where.
        at: Name,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The engine has no means for this kind of model.
    #[error("{engine} cannot solve a model with {what}")]
    Unsupported {
        /// Which engine.
        engine: &'static str,
        /// What it has no means for.
        what: &'static str,
    },
    /// The arithmetic broke down.
    #[error("{engine} gave up: {why}")]
    Numerical {
        /// Which engine.
        engine: &'static str,
        /// Its own word.
        why: String,
    },
}
