//! What the daemon must not forget.
//!
//! The store keeps rows and knows nothing of scheduling: specs, states and events are JSON texts that the daemon
//! writes and reads. A [`Write`] list is committed as one transaction, and is on disk when [`Store::commit`] returns.
//!
//! - [`mod@write`]: what can be written; `apply` is what it does to the tables.
//! - [`row`]: what can be read; `read` holds the queries.
//! - [`store`]: opening, committing, loading. [`reader`]: questions from other threads.
//! - [`compact`]: letting go of what is old. [`copy`]: backup and restore.
//! - [`mod@repair`]: saving what is left of a damaged store, by [`salvage`].
//! - [`rehearsal`]: an upgrade tried on a copy.
//! - [`schema`]: the tables and their versions.
//! - [`disk`]: files, rights and the speed of the disk. `lock`: one daemon for one store.
//! - [`error`]: what can go wrong.

mod apply;
pub mod compact;
mod connection;
pub mod copy;
pub mod disk;
pub mod error;
mod lock;
mod read;
pub mod reader;
pub mod rehearsal;
pub mod repair;
pub mod row;
pub mod salvage;
pub mod schema;
pub mod store;
pub mod write;

pub use compact::{Compacted, Keep, Retention};
pub use copy::{Copied, Existing, restore};
pub use disk::fsync_rate;
pub use error::{StoreError, Taken};
pub use reader::Reader;
pub use rehearsal::{InUse, Rehearsal};
pub use repair::{RepairReport, repair};
pub use row::{AttemptRow, AuditRow, EventRow, JobRow, TokenRow, UsageRow};
pub use salvage::{Gap, Salvaged};
pub use store::{Committed, Loaded, Store};
pub use write::Write;
