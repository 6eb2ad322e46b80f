//! Experiments: what flags and files give, policies side by side, sweeps, published results, a watched Slurm.
//!
//! - [`args`]: what an experiment is given, as flags.
//! - [`given`], [`files`], [`packing`]: the cluster and the workload a run is given, from flags and files.
//! - [`choice`], [`options`], [`spec`], [`seeds`]: policies, options, settings of the generator and seeds by name.
//! - [`runs`]: policies side by side on several threads.
//! - [`cluster_change`]: what differs between two clusters, in parts.
//! - [`sweep`]: the runs of a sweep, each with a name that never changes;
//!   [`sweep_row`]: its result; [`sweep_table`]: all of them.
//! - [`published`]: what can be redone of published results; [`trainings`]: the authors' measured trainings.
//! - [`shadow`]: what other policies would have made of the jobs that a live Slurm ran.
//! - [`failure`]: what can go wrong.
//!
//! Nothing here prints.

pub mod args;
pub mod choice;
pub mod cluster_change;
pub mod failure;
pub mod files;
pub mod given;
pub mod options;
pub mod packing;
pub mod published;
pub mod runs;
pub mod seeds;
pub mod shadow;
pub mod spec;
pub mod sweep;
pub mod sweep_row;
pub mod sweep_table;
pub mod trainings;

pub use failure::Failure;
