//! The arbiter of a shared GPU, as a server.
//!
//! The programs of a job on a shared GPU run with a library that hooks the driver (`crates/live/preload`). It asks
//! here for its turns and for memory, over one Unix socket for each job.
//!
//! - [`exchange`]: what is said and answered, without a clock, a socket or a process.
//! - [`server`]: the thread with the sockets, the clock and the signals.
//! - [`control`]: a process of its own for each GPU, and what it is told.
//! - [`stats`]: who throttles whom, who used what, who never said hello; [`told`]: the same as it travels.
//!
//! Nothing that a program says is trusted: time is measured here, messages have one length, and one that makes no
//! sense ends its connection. What a program does not say cannot be known: the library is a convention between
//! programs of good will and no security boundary.

pub mod control;
pub mod exchange;
pub mod server;
pub mod stats;
pub mod told;

pub use exchange::{Effect, Exchange, Fault, Limits, OnOverdue, Peer};
pub use server::{AddError, ClientOptions, Server, ServerOptions, StartError};
pub use stats::{ClientStats, Stats};
pub use told::{Told, ToldClient};
pub use trainyard_arbiter::{ClientId, Settings, Share};
