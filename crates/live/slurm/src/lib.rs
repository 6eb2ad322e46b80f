//! Slurm as a backend, and Slurm looked at from outside.
//!
//! - [`slurm`]: the backend, with `worker`, its thread.
//! - [`mod@decide`]: what is to be done next for a job.
//! - [`ledger`]: what must not be forgotten.
//! - [`ownership`]: which job of Slurm is ours.
//! - [`act`]: what is done to Slurm's jobs and nodes; [`spot`]: where an attempt goes, in Slurm's words.
//! - [`script`]: the batch script of our jobs; [`folder`]: the files through which it and the daemon speak.
//! - [`call`]: Slurm's programs, run with a limit in time and with typed failures.
//! - [`read`]: what they print, in the shapes of the versions in the field.
//! - [`seen`]: what Slurm says about its jobs and nodes, free of versions.
//! - [`look`]: both together: Slurm at this moment.
//! - [`nodelist`]: `gpu-a[01-10]` and back.
//! - [`inventory`]: Slurm's nodes as a cluster of ours.
//! - `unaccounted`: GPUs that Slurm counts as used though no job has them.
//! - [`adopt`]: jobs of others taken over on request, and handed back.
//! - [`record`], [`history`]: looks one after the other, kept and put together.

pub mod act;
pub mod adopt;
pub mod call;
pub mod decide;
pub mod folder;
pub mod history;
pub mod inventory;
pub mod ledger;
pub mod look;
pub mod nodelist;
pub mod ownership;
pub mod read;
pub mod record;
pub mod script;
pub mod seen;
pub mod slurm;
pub mod spot;
mod unaccounted;
mod worker;

pub use call::{CallError, CallSettings, Calls, Spent};
pub use history::{Fate, History, Past};
pub use inventory::{Inventory, NodeFilter};
pub use look::Lookout;
pub use read::ReadError;
pub use record::{Look, Record, RecordError};
pub use seen::{Skipped, SlurmJob, SlurmNode, SlurmSeen};
pub use slurm::{Slurm, SlurmOptions};
