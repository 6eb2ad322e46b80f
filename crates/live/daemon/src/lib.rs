//! The live host.
//!
//! - [`service`]: what the rim may ask of the daemon; the HTTP side is written against it and nothing else.
//! - [`access`]: who may do what.
//! - [`core`]: the durable core, a state machine without input or output; [`record`], [`pace`], [`learn`] and [`messages`] are its
//!   parts.
//! - [`readable`]: whether what another version kept can be read.
//! - [`flight`]: all that was told to the engine, so that every decision can be taken again.
//! - [`host`]: the loop around the core, with its [`clock`]; [`policy_worker`] is the policy on a thread of its own,
//!   [`recorder`] the flight record on disk.
//! - [`forecaster`]: forecasts, as the daemon sees them.
//! - [`seen`]: the daemon at one moment, for readers; [`service_impl`] is the service that is made of both.
//! - [`board`]: what changed since a client last asked.
//! - [`http`]: the rim: sockets, TLS, tokens, limits, one table of routes, its OpenAPI document.
//! - [`notify`]: who is told when a job has ended.
//! - [`metrics`]: what is counted and measured, as OpenMetrics text.

pub mod access;
pub mod board;
pub mod clock;
pub mod core;
pub mod flight;
pub mod forecaster;
pub mod frame;
pub mod hang;
pub mod host;
pub mod http;
pub mod learn;
pub mod messages;
pub mod metrics;
pub mod notify;
pub mod pace;
pub mod policy_worker;
pub mod readable;
pub mod record;
pub mod recorder;
pub mod seen;
pub mod service;
pub mod service_impl;

pub use access::{Caller, Right, Role};
pub use service::{Reply, Service};
