//! The live host.
//!
//! - [`desk`]: what the rim may ask of the daemon; the HTTP side is written against it and nothing else.
//! - [`access`]: who may do what.
//! - [`http`]: the rim: sockets, TLS, tokens, limits, one table of routes, its OpenAPI document.
//! - [`metrics`]: what is counted and measured, as OpenMetrics text.

pub mod access;
pub mod desk;
pub mod http;
pub mod metrics;

pub use access::{Caller, Right, Role};
pub use desk::{Desk, Reply};
