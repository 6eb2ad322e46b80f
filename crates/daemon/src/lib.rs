//! The live host.
//!
//! - [`desk`]: what the rim may ask of the daemon; the HTTP side is written against it and nothing else.
//! - [`access`]: who may do what.
//! - [`core`]: the durable core, a state machine without input or output; [`record`], [`learn`] and [`words`] are its
//!   parts.
//! - [`flight`]: all that was told to the engine, so that every decision can be taken again.
//! - [`http`]: the rim: sockets, TLS, tokens, limits, one table of routes, its OpenAPI document.
//! - [`metrics`]: what is counted and measured, as OpenMetrics text.

pub mod access;
pub mod core;
pub mod desk;
pub mod flight;
pub mod http;
pub mod learn;
pub mod metrics;
pub mod record;
pub mod words;

pub use access::{Caller, Right, Role};
pub use desk::{Desk, Reply};
