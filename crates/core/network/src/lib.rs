//! What moves over links and how long it takes, as pure functions.
//!
//! - [`flows`]: rates of flows that share links, by max-min fairness.
//!
//! Nothing here reads a clock, draws randomness without a seed, or knows a job or a policy.

pub mod flows;

pub use flows::{max_min, max_min_capped};
