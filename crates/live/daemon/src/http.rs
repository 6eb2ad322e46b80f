//! The rim: what stands between a socket and the [`Service`](crate::service::Service).
//!
//! A request goes through these, in this order:
//! - [`server`] accepts it on a Unix socket or on TCP, with [`tls`] where it must be, and knows its [`peer`].
//! - [`origin`] refuses what a browser was led to send.
//! - [`secret`] and [`peer`] identify the caller; what is refused is written down.
//! - [`rate`] says whether it asks too often.
//! - [`input`] and [`fields`] make typed requests of bytes, within limits.
//! - [`route`] asks the service, which checks rights; [`own`] is what the rim makes more of.
//! - [`reply`] makes bytes of what it says, within limits.
//!
//! [`page`] gives the files of the page, which hold no data, to clients without a token, too.
//! Routes, the router in [`router`] and the document in [`openapi`] are made from the one table of endpoints,
//! [`trainyard_api::endpoint`].

pub mod exposition;
pub mod fields;
pub mod input;
pub mod openapi;
pub mod options;
pub mod origin;
pub mod own;
pub mod page;
pub mod parts;
pub mod peer;
pub mod rate;
pub mod reply;
pub mod route;
pub mod router;
pub mod secret;
pub mod server;
pub mod tls;

pub use options::{HttpOptions, Limits, ServeError, TlsSource};
pub use server::{Server, serve};
