//! Inference: requests, the disciplines that decide what runs next, and their simulation.
//!
//! - [`request`]: requests and traces; [`load`]: generated ones; [`trace`]: readers of our form and of Azure's.
//! - [`latency`]: times by batch and beside others; [`zoo`]: our own measurements on an H200.
//! - [`discipline`]: what a discipline of whole inferences sees and says; [`simulate()`]: many GPUs under it.
//! - [`llm`]: the same for answers token by token.
//! - [`routing`]: which replica a request goes to; [`replicas`]: a discipline on each GPU behind a router.
//! - [`disciplines`], [`registry`]: one file each, and the one table; [`settings`]: what is set of them.
//! - [`predict`]: how long inferences take beside each other, learnt from measured pairs.
//! - [`run`]: a chosen discipline on a trace. [`measures`]: what came of a run; [`curve`]: latency over load as a picture.
//!
//! Nothing here reads a clock or opens a file.

pub mod curve;
pub mod discipline;
pub mod disciplines;
mod draws;
pub mod latency;
pub mod llm;
pub mod load;
pub mod measures;
pub mod predict;
pub mod registry;
pub mod replicas;
pub mod request;
pub mod routing;
pub mod run;
pub mod settings;
mod simulate;
pub mod trace;
pub mod zoo;

pub use discipline::{Directives, Discipline, Fleet, Moment};
pub use llm::{LlmFleet, TokenDiscipline, TokenTally, simulate_tokens};
pub use measures::Tally;
pub use request::{ModelId, Request, RequestId, Server, Trace};
pub use simulate::{Fault, simulate};
