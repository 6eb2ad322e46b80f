//! The client of the daemon, against a daemon that says what the test wants.

mod answers;
mod asking;
mod fake;
mod refused;
mod submitting;
mod watching;
