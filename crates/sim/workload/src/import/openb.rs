//! Alibaba gpu-v2023 (openb): a table of pods with fractional GPUs and constraints on types.
//!
//! Columns `name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,
//! scheduled_time`. A pod's length is `deletion_time - scheduled_time` in seconds; where it was never scheduled,
//! `deletion_time - creation_time`, and the report counts it as missing. `gpu_milli` of a pod with one GPU is its
//! share in thousandths, which bounds memory and promises at least that share of time. `gpu_spec` is a list of
//! acceptable types. Pods of quality `BE` are opportunistic. Pods without GPUs are dropped. CPUs and memory are
//! divided by the number of GPUs, CPUs rounded up.

use super::sink::{Draft, NO_GPU};
use super::table::{Column, SECONDS_MAX, Table, TableRow, needed, optional};
use super::{Sink, Skip};
use crate::ReadError;
use std::io::BufRead;
use trainyard_types::Class;

const COLUMNS: &[Column] = &[
    needed(&["name"]),
    needed(&["num_gpu"]),
    needed(&["gpu_milli"]),
    needed(&["creation_time"]),
    needed(&["deletion_time"]),
    optional(&["scheduled_time"]),
    optional(&["gpu_spec"]),
    optional(&["qos"]),
    optional(&["pod_phase"]),
    optional(&["cpu_milli"]),
    optional(&["memory_mib"]),
];

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let gpus = row.gpus(1)?;
    if gpus == 0 {
        return Err(Skip::because(NO_GPU));
    }
    let created = row.need_number(3, 0.0..=SECONDS_MAX)?;
    let deleted = row.need_number(4, 0.0..=SECONDS_MAX)?;
    let scheduled = row.number(5, 0.0..=SECONDS_MAX)?;
    if scheduled.is_none() {
        sink.note_missing(row.line, "scheduled_time");
    }
    let length = deleted - scheduled.unwrap_or(created);
    let mut draft = Draft::new(row.need(0)?, created, (gpus, length))?;
    let want = &mut draft.job.want;
    if gpus == 1 {
        let milli = row.number(2, 1.0..=1000.0)?;
        want.permille = milli.ok_or_else(|| Skip::missing("gpu_milli"))? as u16;
    }
    let names = row.text(6).unwrap_or("").split('|').map(str::trim).filter(|name| !name.is_empty());
    want.kinds = sink.kinds((row.line, "gpu_spec"), names)?;
    let share = |value: f64| value / f64::from(gpus);
    if let Some(milli) = row.number(9, 0.0..=1e9)? {
        want.cpus_per_gpu = share(milli / 1000.0).ceil().min(65_535.0) as u16;
    }
    if let Some(mib) = row.number(10, 0.0..=4e9)? {
        want.memory_mib_per_gpu = share(mib) as u32;
    }
    if row.text(7) == Some("BE") {
        draft.job.class = Class::Opportunistic;
    }
    sink.note_end(row.line, row.text(8).unwrap_or("not stated"));
    Ok(draft)
}
