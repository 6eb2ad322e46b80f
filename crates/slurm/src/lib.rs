//! Slurm as a backend, and Slurm looked at from outside.
//!
//! - [`call`]: Slurm's programs, run with a limit in time and with typed failures.
//! - [`read`]: what they print, in the shapes of the versions in the field.
//! - [`seen`]: what Slurm says about its jobs and nodes, free of versions.
//! - [`look`]: both together: Slurm at this moment.
//! - [`nodelist`]: `gpu-a[01-10]` and back.
//! - [`inventory`]: Slurm's nodes as a cluster of ours.
//! - [`adopt`]: jobs of others taken over on request, and handed back.
//! - [`record`], [`history`]: looks one after the other, kept and put together.

pub mod adopt;
pub mod call;
pub mod history;
pub mod inventory;
pub mod look;
pub mod nodelist;
pub mod read;
pub mod record;
pub mod seen;

pub use call::{CallError, CallSettings, Calls, Spent};
pub use history::{Fate, History, Past};
pub use inventory::{Inventory, NodeFilter};
pub use look::Lookout;
pub use read::ReadError;
pub use record::{Look, Record, RecordError};
pub use seen::{Skipped, SlurmJob, SlurmNode, SlurmSeen};
