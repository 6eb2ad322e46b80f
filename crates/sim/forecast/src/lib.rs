//! The live state, simulated forward: when a job starts and ends, and what another policy would make of it.
//!
//! A forecast takes a fork of the engine and leads it on in the simulated world. What runs goes on where it is, what
//! waits waits since its submission, nothing arrives. The world is made of beliefs: speeds and costs are those that
//! policies are told, lengths those of [`sizes`].
//!
//! - [`sizes`]: how much work is left of each job, and on what grounds.
//! - [`lengths`]: how long past jobs took, for those of which nothing was said.
//! - `believed`: beliefs as the truth of a world, and as they stand still while it goes on.
//! - [`foresee()`]: the run, with its limits.
//! - [`spread`]: how far past estimates were off, and the interval that follows; [`ledger`]: estimates that wait for
//!   their jobs to end.
//! - [`row`]: a run as a row of a comparison.
//!
//! Nothing here reads a clock: how long a run may take is for the caller to say, see [`Limits`].

mod believed;
pub mod foresee;
pub mod ledger;
pub mod lengths;
pub mod row;
pub mod sizes;
pub mod spread;

pub use foresee::{Cut, Foreseen, ForeseenJob, Limits, foresee};
pub use ledger::Ledger;
pub use lengths::{Lengths, PastJob};
pub use row::ForecastRow;
pub use sizes::{Grounds, Sizes};
pub use spread::{Class, Spread, What};
