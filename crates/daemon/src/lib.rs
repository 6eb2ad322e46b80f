//! The live host.
//!
//! - [`desk`]: what the rim may ask of the daemon; the HTTP side is written against it and nothing else.
//! - [`access`]: who may do what.

pub mod access;
pub mod desk;

pub use access::{Caller, Right, Role};
pub use desk::{Desk, Reply};
