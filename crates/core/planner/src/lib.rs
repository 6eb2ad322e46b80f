//! How one model is divided over devices.
//!
//! - [`graph`]: operator graphs; [`graph_json`], [`layer_profile`]: their texts; [`Transformer`], [`Cnn`]: descriptions.
//! - [`devices`]: device graphs with unequal devices, links and memory.
//! - [`simulate`]: one event simulation that every plan runs through; [`pipeline`] and [`schedule`] make its tasks from
//!   stages and micro-batches.
//! - [`placing`]: what planners of single operators have in common.
//! - [`plan`]: what planners are asked and what they answer; [`timeline`]: a run as text and as a picture.
//! - [`described`]: the best division of a model that was described, for any configuration of GPUs; what policies ask.
//! - [`evidence`]: what was measured of a model, beside what is predicted of it.
//! - [`stated`]: problems as JSON, for planners of other things than the training of one model.
//! - [`registry`]: the one table of planners, one file each.
//!
//! Nothing here reads a clock or a file.

pub mod cc_os;
pub mod cnn;
pub mod dapple;
pub mod described;
pub mod devices;
mod draws;
pub mod duan_wu;
pub mod evidence;
pub mod graph;
pub mod graph_json;
pub mod harmony;
pub mod herti;
pub mod layer_profile;
pub mod perotin;
pub mod pesto;
pub mod pipeline;
pub mod placing;
pub mod plan;
pub mod ptd_p;
mod refusal;
pub mod registry;
pub mod schedule;
pub mod simulate;
pub mod spotlight;
pub mod stated;
pub mod timeline;
pub mod transformer;
pub mod ursa;
pub mod yang;

pub use cnn::Cnn;
pub use described::Described;
pub use devices::{Device, DeviceGraph, KindFigures, LinkSpeeds};
pub use graph::{Chain, Edge, Graph, Layer, Operator};
pub use plan::{Proposal, Request};
pub use refusal::{PlanError, gib};
pub use transformer::Transformer;
