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
    /// The value of the objective.
    pub objective: f64,
    /// What one more of each row's bound would be worth, in the sense of the objective; empty where unknown.
    pub prices: Vec<f64>,
    /// Steps used.
    pub steps: u64,
}

/// An engine.
pub trait Solve: Send {
    /// Solves a model within a limit.
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError>;

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
