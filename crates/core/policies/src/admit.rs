//! Admission controls: what a job must pass before any policy is asked about it.

pub mod deadline;
pub mod load;
pub mod profiler;
pub mod quota;
