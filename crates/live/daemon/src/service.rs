//! What the rim may ask of the daemon. Rights are checked behind the service; the rim in front of it names the caller.

use crate::access::Caller;
use crate::frame::BoardView;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use trainyard_api::Problem;
#[allow(clippy::wildcard_imports, reason = "the rows of the table name all of them")]
use trainyard_api::endpoint::types::*;

/// An answer that comes later.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send + 'a>>;

/// A token to be made. The rim draws the secret and hands over its digest only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewToken {
    /// What is listed.
    pub info: TokenInfo,
    /// The digest of the secret.
    pub digest: String,
}

/// While nothing can be written: what is shown is not what is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stale {
    /// Since when nothing can be written, in seconds of Unix time.
    pub since: f64,
    /// The moment that is shown, in seconds of Unix time.
    pub as_of: f64,
}

/// What an endpoint answers, before it is bytes.
macro_rules! answer {
    (one($type:ty)) => { $type };
    (list($name:literal, $type:ty)) => { Vec<$type> };
    (nothing()) => { () };
}

macro_rules! service {
    (
        service {$(
            $(#[doc = $about:literal])+
            $verb:ident $path:literal $name:ident($($arg:ident: $type:ty),*) -> $gives:ident($($what:tt)*),
                $least:ident $(, $again:ident)?;
        )*}
        rim { $($rim:tt)* }
    ) => {
        /// The daemon as the rim sees it: a method for each endpoint that it answers as it is, and what the rim needs
        /// for the others.
        pub trait Service: Send + Sync + 'static {
            $(
                $(#[doc = $about])+
                fn $name(&self, caller: Caller, $($arg: $type),*) -> Reply<'_, answer!($gives($($what)*))>;
            )*
            /// Events with numbers above `query.after`, at most `query.max`; waits for the first as long as asked.
            fn events(&self, caller: Caller, query: EventsQuery) -> Reply<'_, Vec<EventRow>>;
            /// The flight record since its last base, as lines of JSON.
            fn capture(&self, caller: Caller) -> Reply<'_, Vec<u8>>;
            /// Takes a new token on.
            fn add_token(&self, caller: Caller, token: NewToken) -> Reply<'_, TokenInfo>;
            /// Whose requests a token makes, by the digest of its secret; nothing for one that is unknown or over.
            fn whose(&self, digest: String) -> Reply<'_, Option<TokenInfo>>;
            /// Writes down that something was refused before it came to the service.
            fn refused(&self, user: String, action: String, target: String);
            /// What changed since `query.since`, everything where that is not known; waits for a change as long as
            /// asked.
            fn board(&self, caller: Caller, query: BoardQuery) -> Reply<'_, BoardView>;
            /// Launches that held GPUs from `since` to `until`, in seconds of Unix time, the newest if there are too
            /// many.
            fn timeline(&self, caller: Caller, since: f64, until: f64) -> Reply<'_, Vec<TimelineRow>>;
            /// Whether nothing can be written, so that what is shown may be old.
            fn stale(&self) -> Option<Stale> {
                None
            }
            /// The text of all metrics, in OpenMetrics form.
            fn metrics(&self) -> Reply<'_, String>;
        }
    };
}

trainyard_api::endpoints!(service);
