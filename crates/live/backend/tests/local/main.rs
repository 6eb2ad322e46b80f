//! The local backend with real processes.

mod checkpoints;
mod contract;
#[path = "../fixtures/fake_driver.rs"]
mod fake_driver;
#[path = "../fixtures/fake_mps.rs"]
mod fake_mps;
#[path = "../fixtures/fake_nvml.rs"]
mod fake_nvml;
mod health;
mod mps;
mod running;
mod sharing;
mod slices;
mod survival;
mod suspending;
mod training;
mod users;
mod yard;
