//! The models of Optimus (EuroSys 2018): how fast a job trains by its tasks, and when its loss stops falling.
//!
//! - [`SpeedModel`]: steps per second by workers and parameter servers, or by workers alone. The inverse of each
//!   form is linear in its parameters, so that a fit is one problem of least squares ([`crate::nnls`]).
//! - [`LossModel`]: the loss by epoch, and the epoch in which it has converged.
//!
//! Deliberately absent: the assignment of parameters to servers.

mod loss;
mod speed;

pub use loss::{Convergence, LossModel};
pub use speed::{FitError, Form, Observed, SpeedModel, Tasks};
