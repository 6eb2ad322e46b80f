//! Slurm as a backend, and Slurm looked at from outside.
//!
//! - [`seen`]: what Slurm says about its jobs and nodes, free of versions.

pub mod seen;

pub use seen::{SlurmJob, SlurmNode, SlurmSeen};
