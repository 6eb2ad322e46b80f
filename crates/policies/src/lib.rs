//! Published scheduling policies and placers, one file each.
//!
//! - [`registry`]: the one table that makes them exist.
//! - [`compose`]: a policy, a placer, a gate and tuners put together by name.
//! - [`place`]: placers.
//! - the other modules: one policy each, named as in its paper.

pub mod compose;
pub mod place;
mod prelude;
pub mod registry;

// One policy each, in the order of the registry.
pub mod fifo;
