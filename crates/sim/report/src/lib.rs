//! What came of a run, for people and for programs.
//!
//! A [`Comparison`] is a list of [`Run`]s over one workload and cluster; a run is its [`Summary`] and a few curves.
//! Every form is made from the same rows, so that a table, a file and a page never disagree:
//!
//! - [`metrics`]: the measures, each defined in one sentence.
//! - [`mod@column`]: the one table that names, explains and orders them; [`units`]: how numbers are written for people.
//! - [`comparison`]: rows and what is common to them, and their JSON; [`table`]: terminal and CSV.
//! - [`fairness`]: finish-time fairness; [`groups`]: measures by tenant, type and size;
//!   [`replicas`]: means over seeds, and which differ significantly; [`parts`]: both at once.
//! - [`curve`]: distributions and series, thinned out for drawing; [`html`], `chart`: the page.
//! - [`timeline`]: which jobs held which GPUs when; [`chrome_trace`]: the same for Perfetto.
//! - [`network`]: the links of a cluster, as text and as a drawing.
//! - [`jobs`]: one line for each job; [`text`]: stable text for golden tests.
//!
//! Nothing here opens a file or reads a clock: texts are returned or go to a `Write`, and the same runs give the
//! same bytes.

mod chart;
pub mod chrome_trace;
pub mod column;
pub mod comparison;
pub mod curve;
pub mod fairness;
pub mod groups;
pub mod html;
pub mod jobs;
pub mod metrics;
pub mod network;
pub mod parts;
pub mod replicas;
pub mod table;
mod tally;
pub mod text;
pub mod timeline;
pub mod units;

pub use comparison::{About, Comparison, Information, Run, SCHEMA_VERSION};
pub use metrics::{Spread, Summary};
pub use tally::Tally;
