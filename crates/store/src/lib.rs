//! What the daemon must not forget.
//!
//! The store keeps rows and knows nothing of scheduling: specs, states and events are JSON texts that the daemon
//! writes and reads. A [`Write`] list is committed as one transaction, and is on disk when [`Store::commit`] returns.
//!
//! - [`write`]: what can be written.
//! - [`row`]: what can be read.

pub mod row;
pub mod write;

pub use row::{AttemptRow, AuditRow, EventRow, JobRow, TokenRow};
pub use write::Write;
