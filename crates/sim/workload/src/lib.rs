//! What is to be run and on what: clusters, traces, generators, scenarios. Text in, text out.
//!
//! A [`Workload`] is a list of jobs with the truth about each that no policy may see.
//! It comes from one of four places:
//!
//! - a trace: our own format as CSV or JSON lines ([`trace`]), or one of the formats of others ([`mod@import`]);
//! - the seeded generator: a [`Spec`] of distributions for arrivals, durations and sizes ([`generate()`]);
//! - a scenario: a few lines that state a cluster, its jobs and what goes wrong ([`scenario`]);
//! - the binary itself: [`embedded()`], for a newcomer who has nothing yet.
//!
//! A cluster comes from one line or a TOML text ([`cluster`]), or from the table of switches that the Tiresias and
//! Muri simulators use ([`switches`]). [`Workload::check`] says what cannot work before anything runs.
//!
//! Readers take `Read`, `BufRead` or `&str`, writers take `Write`: nothing here opens a file, reads a clock or the
//! environment. Randomness is ChaCha12 from a stated seed (MT19937 where a generator of others is followed), and logarithms come from `libm`, so that the same
//! spec and seed give the same bytes on every machine.

mod cells_toml;
pub mod check;
pub mod cluster;
mod cluster_toml;
pub mod compact;
mod elasticflow;
pub mod elasticity;
pub mod embedded;
mod gavel;
mod gavel_rates;
pub mod generate;
pub mod import;
mod intake;
pub mod laws;
mod llm;
pub mod muri;
mod network;
mod network_toml;
mod python_random;
mod reference;
pub mod reshape;
pub mod scenario;
mod scenario_cells;
mod scenario_host;
mod scenario_job;
mod scenario_training;
pub mod scenario_window;
pub mod spec;
pub mod switches;
pub mod tells;
mod tenant_ids;
pub mod tiresias;
pub mod trace;
mod trace_columns;
mod trace_row;
mod trace_write;
pub mod workload;

pub use check::Problem;
pub use compact::{CompactJobs, CompactWorkload, Ideal};
pub use elasticity::Elasticity;
pub use embedded::embedded;
pub use generate::generate;
pub use intake::ReadError;
pub use scenario::Scenario;
pub use spec::{Arrival, DurationLaw, Like, SizeLaw, Spec};
pub use trace::TraceContext;
pub use workload::{BatchPhase, TraceJob, Workload};
