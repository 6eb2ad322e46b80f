//! The real daemon when things go wrong: killed at random moments, a full disk, a torn write, jobs that do not behave.
//!
//! `CHAOS_KILLS=1000 cargo test -p trainyard --test chaos kills -- --nocapture` is the long run of `kills.rs`.
#![cfg(feature = "live")]

mod audit;
mod disk;
mod kills;
mod load;
mod unruly;
mod yard;
