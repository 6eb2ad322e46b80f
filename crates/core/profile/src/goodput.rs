//! Goodput: how fast a training learns by what was seen of it so far (Pollux, OSDI 2021, sections 3 and 4.1).
//!
//! A training's goodput is its throughput, samples per second, times the part of each sample that a larger batch does
//! not waste. Neither is known when a job arrives; both are fitted to what the job reports while it runs:
//!
//! - [`Throughput`]: seconds of an iteration from seven parameters; [`fit()`] finds them from [`Observation`]s, with
//!   priors for whatever was not seen yet, and says how far the fit can be trusted ([`Fitted::relative_error`]).
//! - [`Efficiency`]: what a batch is worth by the noise of the gradient, and AdaScale's gain of the learning rate.
//! - [`best_batch`]: the batch of the highest goodput, within the limits of memory and of a [`Guard`] of accuracy.
//! - [`Borrowed`]: speeds on a type of GPU on which a job has hardly run, from those on another (Sia, SOSP 2023).
//!
//! The truth of a simulated job is [`crate::training`]; nothing here looks at it.
//! Everything is a pure function: the same observations give the same bits.

mod batch;
mod borrowed;
mod descent;
mod efficiency;
mod fit;
mod throughput;

pub use batch::{BATCHES_TRIED, BatchChoice, Guard, Menu, NoBatch, best_batch};
pub use borrowed::{Borrowed, single_throughput};
pub use efficiency::{Efficiency, Noise};
pub use fit::{FitError, Fitted, Observation, UNSEEN_DOUBT, fit};
pub use throughput::{Exchange, IterationTime, Size, Throughput};
