//! The library in real processes, on a driver and a device that are not there (`fixtures/`).

mod device;
mod memory;
mod mishaps;
mod turns;
