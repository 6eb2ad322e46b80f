//! The live host.
//!
//! - [`service`]: what the rim may ask of the daemon; the HTTP side is written against it and nothing else.
//! - [`access`]: who may do what.
//! - [`core`]: the durable core, a state machine without input or output; [`record`], [`pace`], [`learn`] and [`messages`] are its
//!   parts.
//! - [`flight`]: all that was told to the engine, so that every decision can be taken again.
//! - [`host`]: the loop around the core, with its [`clock`]; [`policy_worker`] is the policy on a thread of its own,
//!   [`recorder`] the flight record on disk.
//! - [`forecaster`]: whoever looks into the future, as the daemon sees it.
//! - [`seen`]: the daemon at one moment, for whoever looks; [`service_impl`] is the service that is made of both.
//! - [`board`]: what changed since somebody last looked.
//! - [`http`]: the rim: sockets, TLS, tokens, limits, one table of routes, its OpenAPI document.
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
pub mod pace;
pub mod policy_worker;
pub mod record;
pub mod recorder;
pub mod seen;
pub mod service;
pub mod service_impl;

pub use access::{Caller, Right, Role};
pub use service::{Reply, Service};
