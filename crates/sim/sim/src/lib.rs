//! A simulated world around the engine.
//!
//! The world produces events and obeys actions, as a real backend would; the engine cannot tell the difference.
//! It alone knows how much work a job really is and how fast it really runs.
//! Nothing is stepped: a running job is a promise (rate, since, finish) that is made anew only when its rate changes.
//!
//! - [`simulate`]: the loop, in `run`; [`simulate_compact`]: the same on jobs that are made when they come and leave
//!   nothing but numbers in a [`Ledger`] when they are over; [`resume_from`]: the same from the state of an engine that another host has
//!   driven, in `resume`.
//! - [`Truth`]: how much work jobs really are and how fast they really run.
//! - [`Options`], [`Semantics`]: how time, costs, estimates and failures behave; presets of published simulators.
//! - [`Lending`]: a pool whose owner takes nodes back and lends them again.
//! - `world`, `tasks`, `queue`, `failures`: what happens and when.
//! - `estimates`: what policies are told about sizes, with a stated error.
//! - [`Outcome`]: what came of it.

mod arrivals;
mod entitlement;
mod estimates;
mod failures;
mod in_order;
mod in_phases;
mod interference;
mod lending;
mod neighbours;
mod occupants;
mod on_links;
mod options;
mod outcome;
mod placed;
mod queue;
pub mod regroup;
mod resume;
mod run;
mod series;
mod suspending;
mod tasks;
mod truth;
mod world;

pub use arrivals::Ledger;
pub use entitlement::Backlogged;
pub use in_order::InOrder;
pub use lending::Lending;
pub use options::{
    Charge, DecisionCost, Distance, FailureModel, Options, Rounding, Semantics, Window,
};
pub use outcome::{JobOutcome, Outcome};
pub use run::{Beginning, Observer, Quiet, resume_from, simulate, simulate_compact};
pub use series::{Point, Series};
pub use truth::Truth;
