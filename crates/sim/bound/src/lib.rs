//! What no schedule can do better than.
//!
//! - [`Task`]: the least that a job takes, whatever is decided: seconds, GPU-seconds, and when it may begin.
//! - [`tasks`]: these for a workload on a cluster, from the same speeds and costs that the simulated world goes by.
//! - [`Bounds`]: mean completion time and makespan that no run is below, and deadlines that no run is above; proven by
//!   relaxation, for workloads of any size.
//! - [`optimum`]: the best schedule of few jobs on like GPUs without preemption, by branch and bound.
//!
//! `docs/guide/bounds.md` states what each assumes.
//! Deliberately absent: bounds for jobs whose speed follows a batch that changes while they run, and linear programs over
//! types of GPU.

mod exact;
mod facts;
mod relaxed;

pub use exact::{Goal, Optimum, Rigid, optimum};
pub use facts::{Unsupported, tasks};
pub use relaxed::{Bounds, Figures, Task};
