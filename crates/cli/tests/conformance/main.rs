//! Every backend keeps the same promises, and the same policies decide the same on each of them.
//!
//! - [`simulated`], [`local`], [`slurm`]: an arm each, with all promises.
//! - [`policies`]: a daemon on each arm, with the same jobs under several policies.

mod local;
mod policies;
mod simulated;
mod slurm;
