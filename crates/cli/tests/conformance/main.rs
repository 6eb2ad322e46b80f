//! Every backend keeps the same promises, and the same policies decide the same on each of them.
//!
//! - [`simulated`], [`local`]: an arm each; a test for each promise.
//! - [`policies`]: a daemon on each arm, with the same jobs under several policies.

mod local;
mod policies;
mod simulated;
