//! What predicts how much jobs slow each other on one GPU.
//!
//! Measured pairs, each seen from both sides, with what is known of the jobs alone; predictors of the part of its speed
//! that a job keeps; and how far each is off for models that it has not seen.
//!
//! - [`measured`]: the pairs measured on an H200; [`of_models`] those of any profiles; [`lucid`] those of Lucid's table.
//! - [`predictor`]: what goes by which features; `forest` stands behind some of them.
//! - [`graph`]: the utilisation of a GPU from the description of a model (Horus).
//! - [`study()`]: errors with models held out, beside those that nothing can avoid.
//! - [`source`]: which predictor beliefs go by, and what they then say.

mod forest;
pub mod graph;
pub mod lucid;
pub mod predictor;
pub mod source;
pub mod study;
mod tables;

pub use predictor::{Prediction, Predictor};
pub use source::{GraphUsage, PairSource, PredictedPairs, UsageSource};
pub use study::{PredictorErrors, Study, study};
pub(crate) use tables::{alone, measured_alone};
pub use tables::{alone_rows, measured, of_models};

use crate::Features;

/// What is known of a job that has a GPU for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The network, whatever its batch and precision.
    pub architecture: String,
    /// What it does to the GPU, and what its program is made of.
    pub features: Features,
}

/// The machine that jobs are on, as far as a predictor may look at it.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Training speed relative to a V100.
    pub speed: f64,
    /// Memory of the GPU.
    pub memory_gib: f64,
    /// Board power.
    pub watts: f64,
}

impl Machine {
    /// What is generally known of a type of GPU.
    pub fn of(kind: &str) -> Machine {
        crate::kinds::facts(kind).map_or_else(Machine::default, |facts| Machine {
            speed: facts.speed,
            memory_gib: f64::from(facts.memory_gib),
            watts: f64::from(facts.watts),
        })
    }
}

/// One job beside others.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    /// The job.
    pub own: Alone,
    /// Those beside it; one in all tables that are at hand.
    pub others: Vec<Alone>,
    /// Where they are.
    pub on: Machine,
    /// The part of its speed that it kept.
    pub kept: f64,
}
