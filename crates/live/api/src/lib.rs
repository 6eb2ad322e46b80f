//! What travels between the daemon, the command line and a training job.
//!
//! - [`mod@endpoint`]: the one table of endpoints; [`mod@ask`]: a request to each, ready to be sent.
//! - [`request`]: what is asked; [`token`]: what tokens are; [`access`]: who may do what.
//! - [`spec`]: a job as its user describes it, whatever the form of the file it came from.
//! - [`mod@array`]: the indices of an array.
//! - [`answer`]: what the daemon says about jobs, nodes, tenants, decisions and itself.
//! - [`board`]: what changed of all that since a client last asked, and which job ran where.
//! - [`forecast`]: what it expects of the future.
//! - [`problem`]: the one table of what can go wrong, with the HTTP status and the exit code of each.
//! - [`trial`]: a policy on trial.
//! - [`window`]: maintenance and reservations by time.
//! - [`wire`]: what a training process and its keeper say to each other.
//!
//! Types only: nothing here opens a socket or a file. Fields are added, never renamed or removed, within one
//! [`SCHEMA_VERSION`]; a reader ignores fields it does not know, except in job files, where a misspelt wish would be
//! lost in silence.

pub mod access;
pub mod answer;
pub mod array;
pub mod ask;
pub mod board;
pub mod endpoint;
pub mod forecast;
pub mod pool;
pub mod problem;
pub mod request;
pub mod spec;
pub mod token;
pub mod trial;
pub mod window;
pub mod wire;

pub use array::{ArrayError, ArraySpec, parse_array};
pub use problem::{Code, Problem};
pub use spec::{BatchRule, Checkpoint, JobClass, JobSpec, Notify, NotifyOn, OnHang, Processes};

/// The version of everything here, sent with every answer.
pub const SCHEMA_VERSION: u32 = 1;

/// The header that says that nothing can be written, since when, and which moment is shown: `since=1.0, as-of=2.0`.
pub const STALE_HEADER: &str = "trainyard-stale";
