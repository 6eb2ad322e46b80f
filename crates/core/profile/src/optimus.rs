//! The models of Optimus (EuroSys 2018): how fast a job trains by its tasks, and when its loss stops falling.
//!
//! - [`SpeedModel`]: steps per second by workers and parameter servers, or by workers alone. The inverse of each
//!   form is linear in its parameters, so that a fit is one problem of least squares ([`crate::nnls`]).
//! - [`LossModel`]: the loss by epoch, and the epoch in which it has converged; [`LossFit`] says how far it can be
//!   trusted and between which epochs that is.
//! - [`Assignment`]: which parameter server holds which parameters.

mod assignment;
mod loss;
mod speed;
mod trust;

pub use assignment::{Assignment, MXNET_BOUND, ServerLoad, Slice};
pub use loss::{Convergence, LossModel};
pub use speed::{FitError, Form, Observed, SpeedModel, Tasks};
pub use trust::{LossFit, TRUST_LEAST};
