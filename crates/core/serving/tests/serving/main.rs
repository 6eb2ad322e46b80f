//! Runs of whole traces: what every discipline keeps, and what its paper says of it.

mod claims;
mod kept;
mod llm_claims;
mod runs;
