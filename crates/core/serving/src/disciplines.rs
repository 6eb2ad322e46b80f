//! The disciplines, one file each.

pub mod abacus;
pub mod alpaserve;
pub mod chunked;
pub mod clockwork;
pub mod continuous;
pub mod fifo;
pub mod irina;
pub mod llm_priority;
pub mod nexus;
pub mod olympian;
pub mod paged;
pub mod prefix;
pub mod shepherd;
pub mod split;
pub mod static_batch;
pub mod triton;
