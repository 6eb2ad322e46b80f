//! ACME (NSDI 2024): `trace_seren.csv` and `trace_kalos.csv` of Shanghai AI Laboratory.
//!
//! The columns of Helios with `type` and `gpu_time`; Kalos adds `mem_per_pod_GB`, `fail_time` and `stop_time`.
//! A job's length is `duration` in seconds, or else `end_time - start_time`. Times carry their zone, +08:00 in one
//! file and +00:00 in the other, and it is honoured; a time without one is taken as UTC. Jobs without GPUs and jobs
//! that never started are dropped; failed and cancelled ones are kept with the time they ran.
//! No real file is at hand: tests use rows made by this schema.

use super::Sink;
use super::helios::{Family, read_family};
use crate::ReadError;
use std::io::BufRead;

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let zone = "as each time states; UTC is assumed where none is stated";
    read_family(reader, sink, &Family { ahead: 0.0, zone })
}
