//! The local backend with real processes.

mod checkpoints;
mod contract;
mod running;
mod survival;
mod training;
mod users;
mod yard;
