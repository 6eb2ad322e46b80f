//! What moves over links and how long it takes, as pure functions.
//!
//! - [`flows`]: rates of flows that share links, by max-min fairness.
//! - [`plan`]: an all-reduce as steps of transfers, and a check that it adds up.
//! - [`cost`]: the five terms of GenModel; [`collective`]: algorithms with their closed forms and plans.
//! - [`tree`]: servers below switches; [`simulate()`]: a plan as events on such a tree; [`gentree()`]: a plan for it.
//! - [`cassini`]: whether jobs can take turns on links; [`periodic`]: how long their iterations then take.
//! - [`bigraph`]: EFLOPS; [`prophet`]: the order of gradients; [`prague`]: averages in groups;
//!   [`memory_contention`]: Denis and others; [`synchronisation`]: seven ways of keeping in step, by Ko and others.
//! - [`tree_file`]: a tree as TOML; [`planners`]: the table of what is published.
//!
//! Nothing here reads a clock, draws randomness without a seed, or knows a job or a policy.

pub mod bigraph;
pub mod cassini;
pub mod collective;
pub mod cost;
pub mod flows;
pub mod gentree;
pub mod memory_contention;
pub mod periodic;
pub mod plan;
pub mod planners;
pub mod prague;
pub mod prophet;
pub mod simulate;
pub mod synchronisation;
pub mod tree;
pub mod tree_file;

pub use collective::{Algorithm, CollectiveError};
pub use cost::{FiveTerm, Parts, Terms};
pub use flows::{max_min, max_min_capped};
pub use gentree::{TreePlan, gentree};
pub use plan::{Plan, PlanFault, Transfer};
pub use simulate::{Simulated, simulate};
pub use tree::{Server, ServerCosts, Switch, Tree, TreeError};
