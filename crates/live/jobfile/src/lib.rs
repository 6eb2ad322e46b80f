//! Jobs as text: TOML, YAML, JSON and batch scripts with `#SBATCH` lines become [`trainyard_api::JobSpec`]s.
//!
//! - [`form`]: which of them a text is, and the one way in, [`read`].
//! - `tree`: what the three notations have in common: values that know their line.
//! - `field`: the one table of keys of a job; the reader and the schema both walk over it.
//! - `value`: what may stand under a key, and what it becomes.
//! - `job`: a tree as jobs, with defaults and what must fit together.
//! - `moment`, `size`: times and amounts as people write them.
//! - `batch`: batch scripts.
//! - [`schema()`]: the published JSON Schema.
//!
//! Nothing here opens a file, reads a clock or knows a time zone: [`Context`] says when and where "now" is.

mod batch;
mod field;
pub mod form;
mod job;
mod moment;
mod schema;
mod size;
mod tree;
mod value;

pub use form::{Form, JobFile, Remark, read};
pub use moment::{Context, moment};
pub use schema::schema;
