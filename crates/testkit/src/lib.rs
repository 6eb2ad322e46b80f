//! What tests of the whole house share.
//!
//! - [`scenario`]: runs a scenario text and gives back its stable text.
//! - [`forgetful`]: wraps a policy so that it loses its memory now and then.
//! - [`gavel`]: recorded runs of Gavel's own simulator.
//! - [`host`]: an engine whose events a test says one by one.
//! - [`places`]: where the repository is.
//!
//! The tests themselves are under `tests/`: scenarios, conformance over the registry, properties, references to
//! published simulators, and the rules of the house.

pub mod forgetful;
pub mod gavel;
pub mod host;
pub mod places;
pub mod scenario;
