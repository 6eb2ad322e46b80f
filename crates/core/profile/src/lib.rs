//! How fast training jobs run, and what stopping and starting them costs.
//!
//! A [`ModelProfile`] holds what was measured about one training job: steps per second by type of GPU, number of
//! GPUs and nodes; memory; the times to save and to start; its speed beside others on one GPU.
//! A [`Catalog`] holds all models of a run; [`Catalog::builtin`] is the zoo, and every entry names its source.
//! [`Speeds`] binds a catalog to a cluster and answers the two questions of every simulated placement, `rate` and
//! `change`, from dense tables; [`CostModel`] says where a run's costs come from.
//!
//! - [`model`], [`catalog`], [`zoo`]: what is known.
//! - [`host`], [`batches`]: speed by host CPUs and memory, and by batch size.
//! - [`speeds`], with `curve` behind it: what follows from it between and beyond the measured points.
//! - [`traffic`]: what an iteration moves over links.
//! - [`training`]: measured trainings, whose speed follows batch size and epoch.
//! - [`goodput`]: how fast a training learns, fitted to what was seen of it.
//! - [`kinds`]: general facts about types of GPU, for models that were never measured on one.
//! - [`features`], [`interference`]: what is known of a job alone, and what it says about the job beside others.
//! - [`classes`]: what a job is like, completed from two short runs in each classification.
//! - [`phases`]: how a job uses its GPU over time, as monitoring would show it.
//! - `spill`: the speed with less GPU memory than is needed.
//! - [`complete`]: speeds of pairs that were not measured, from those that were.
//! - [`nnls`], [`optimus`]: Optimus's models of speed and loss, fitted to what was seen of a job.
//! - [`planned`]: models that were described, and how they are divided over GPUs.
//! - [`cost`]: the price of a change.
//! - [`profile_file`]: users' own profiles as TOML, in and out.
//! - [`import`]: published tables of speeds, read into profiles.
//!
//! Nothing here opens a file, reads a clock or draws a random number.

pub mod batches;
pub mod catalog;
pub mod classes;
pub mod colocation;
pub mod complete;
pub mod cost;
mod curve;
pub mod features;
pub mod goodput;
pub mod gradient_noise;
pub mod host;
pub mod import;
pub mod interference;
pub mod kinds;
pub mod model;
pub mod nnls;
pub mod optimus;
pub mod phases;
pub mod planned;
pub mod profile_file;
pub mod speeds;
mod spill;
pub mod traffic;
pub mod training;
pub mod zoo;

pub use batches::Batches;
pub use catalog::{Catalog, GENERIC};
pub use colocation::{Colocation, ColocationModel, SharedGpu, Sharing};
pub use cost::{ChangeCost, CostModel, CostModelError, SuspendCost};
pub use features::{Feature, Features};
pub use host::HostTable;
pub use interference::{PairSource, UsageSource};
pub use model::{ANY_KIND, ModelProfile, Pair, Point, SizeCost, StageTimes};
pub use phases::{Monitored, Phase};
pub use speeds::Speeds;
pub use spill::MemoryPoint;
pub use traffic::ModelTraffic;
pub use training::{BatchLimits, BatchSplit, Iteration, Pace, Training};
pub use trainyard_planner::Described;
