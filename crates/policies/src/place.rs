//! Placers: which GPUs.

pub mod fewest_nodes;

pub use fewest_nodes::FewestNodes;
