//! Every backend keeps the same promises, and the same policies decide the same on each of them.
//!
//! - [`simulated`], [`local`]: an arm each, with all promises; that of Slurm is with its crate.
//! - [`policies`], [`slurm`]: a daemon on each arm, with the same jobs under several policies.

mod local;
mod policies;
mod simulated;
mod slurm;
