//! A simulated world around the engine.
//!
//! The world produces events and obeys actions, as a real backend would; the engine cannot tell the difference.
//! It alone knows how much work a job really is and how fast it really runs.
//! Nothing is stepped: a running job is a promise (rate, since, finish) that is made anew only when its rate changes.
//!
//! - [`simulate`]: the loop, in `run`; [`resume_from`]: the same from a moment that somebody else led to, in `resume`.
//! - [`Truth`]: how much work jobs really are and how fast they really run.
//! - [`Options`], [`Semantics`]: how time, costs, estimates and failures behave; presets of published simulators.
//! - [`Lending`]: a pool whose owner takes nodes back and lends them again.
//! - `world`, `tasks`, `queue`, `failures`: what happens and when.
//! - `estimates`: what policies are told about sizes, with a stated error.
//! - [`Outcome`]: what came of it.

mod estimates;
mod failures;
mod interference;
mod lending;
mod options;
mod outcome;
mod queue;
pub mod regroup;
mod resume;
mod run;
mod series;
mod tasks;
mod truth;
mod world;

pub use lending::Lending;
pub use options::{
    Charge, DecisionCost, Distance, FailureModel, Options, Rounding, Semantics, Window,
};
pub use outcome::{JobOutcome, Outcome};
pub use run::{Beginning, Observer, Quiet, resume_from, simulate};
pub use series::{Point, Series};
pub use truth::Truth;
