//! A client of the daemon.
//!
//! - [`address`]: where it is.
//! - [`Client`]: sends requests ([`trainyard_api::ask`]) over a Unix socket or HTTPS.
//! - [`show`]: times, lengths and lists of its answers, for people.

pub mod address;
mod client;
pub mod show;
mod socket;

pub use address::Address;
pub use client::{Client, ClientError, Connection, NoCertificates, Stale};
