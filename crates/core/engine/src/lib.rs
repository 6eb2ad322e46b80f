//! The engine: one state machine for the simulator and the daemon, without input or output of its own.
//!
//! A host feeds it events with [`Engine::apply`], calls [`Engine::step`] with the policy's pipeline, and obeys the
//! actions that come back. A step fires what is due, asks the policy if something changed (admit, allocate, place,
//! tune), checks the answer change by change, adopts it, and turns plan against reality into actions.
//!
//! - [`setup`]: when to decide, quarantine, retries.
//! - `engine`, `lifecycle`, `machines`, `windows`: events to state.
//! - `decision`, `think`, `kept`, `adopt`, `fallback`: state to plan. A policy that errs or panics never stops the engine.
//! - `reconcile`, `resizing`, `occupancy`: plan to actions; launches only on GPUs that are really free.
//! - [`SavedState`]: what must survive a restart, and an engine made from it; `fork`: the same engine once more.
//! - [`explain`], `room`, `invariants`: why a job waits, and what GPUs out of service make of that; what must always
//!   hold, asserted in release builds.
//!
//! Deliberately absent: clocks, files, sockets, randomness of its own, and any policy's name.

mod adopt;
mod decision;
mod engine;
pub mod explain;
mod fallback;
mod fork;
mod invariants;
mod kept;
mod lifecycle;
mod loans;
mod machines;
mod occupancy;
mod own_state;
mod persisted;
mod reconcile;
mod resizing;
mod room;
pub mod setup;
mod think;
mod windows;

pub use decision::DecisionRequest;
pub use engine::{Engine, Stats};
pub use explain::{Explanation, Outlook};
pub use persisted::SavedState;
pub use resizing::Resizing;
pub use setup::{Quarantine, Setup, Trigger};
pub use think::PolicyOutcome;
