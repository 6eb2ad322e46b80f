//! Helios (SC 2021): `cluster_log.csv` of each of four clusters of SenseTime.
//!
//! Columns `job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue`, in any
//! order. A job's length is `duration` in seconds, which its authors count from start to end; where it is missing,
//! `end_time - start_time`. Jobs without GPUs and jobs that never started are dropped. The tenant is `vc`, or else
//! `user`. Times are local to China without a zone and are taken as UTC+8; the origin does not matter to a run.
//! No real file is at hand: tests use rows made by this schema.

use super::moment::{self, MOMENT};
use super::sink::Draft;
use super::table::{Column, SECONDS_MAX, Table, TableRow, needed, optional};
use super::{Sink, Skip};
use crate::ReadError;
use std::io::BufRead;

const COLUMNS: &[Column] = &[
    needed(&["job_id"]),
    needed(&["gpu_num"]),
    needed(&["submit_time"]),
    needed(&["state"]),
    optional(&["start_time"]),
    optional(&["end_time"]),
    optional(&["duration"]),
    optional(&["user"]),
    optional(&["vc"]),
    optional(&["cpu_num"]),
];

const ID: usize = 0;
const GPUS: usize = 1;
const SUBMIT: usize = 2;
const STATE: usize = 3;
const START: usize = 4;
const END: usize = 5;
const DURATION: usize = 6;
const USER: usize = 7;
const VC: usize = 8;
const CPUS: usize = 9;

/// What a table of this family says beyond its columns.
pub(crate) struct Family {
    /// Seconds that local time is ahead of UTC, for times without a zone.
    pub ahead: f64,
    /// What the report says about it.
    pub zone: &'static str,
}

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let zone = "UTC+8 (China) is assumed, for times carry none";
    read_family(reader, sink, &Family { ahead: 8.0 * 3600.0, zone })
}

/// Reads a table of jobs with the names of Helios.
pub(crate) fn read_family(
    mut reader: &mut dyn BufRead,
    sink: &mut Sink,
    family: &Family,
) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone = family.zone.to_owned();
    let mut table = Table::csv(&mut reader, COLUMNS)?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink, family);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink, family: &Family) -> Result<Draft<'a>, Skip> {
    let gpus = row.gpus(GPUS)?;
    if gpus == 0 {
        return Err(Skip::because(super::sink::NO_GPU));
    }
    let submitted = time(row, SUBMIT, family)?.ok_or_else(|| Skip::missing("submit_time"))?;
    let mut draft = Draft::new(row.need(ID)?, submitted, (gpus, length(row, family)?))?;
    let tenant = row.text(VC).or(row.text(USER));
    match tenant {
        Some(name) => draft.job.tenant = sink.tenant(name),
        None => sink.note_missing(row.line, "vc"),
    }
    if let Some(cpus) = row.number(CPUS, 0.0..=1e6)? {
        draft.job.want.cpus_per_gpu = (cpus / f64::from(gpus)).min(65_535.0) as u16;
    }
    sink.note_end(row.line, row.text(STATE).unwrap_or("not stated"));
    Ok(draft)
}

/// How long it ran, in seconds; a job that never ran is dropped.
fn length(row: &TableRow<'_>, family: &Family) -> Result<f64, Skip> {
    if let Some(seconds) = row.number(DURATION, 0.0..=SECONDS_MAX)? {
        return Ok(seconds);
    }
    match (time(row, START, family)?, time(row, END, family)?) {
        (Some(start), Some(end)) => Ok(end - start),
        (None, _) => Err(Skip::because("it never started")),
        (Some(_), None) => Err(Skip::because("it has no end")),
    }
}

fn time(row: &TableRow<'_>, column: usize, family: &Family) -> Result<Option<f64>, Skip> {
    let Some(text) = row.text(column) else { return Ok(None) };
    let moment = moment::parse(text).ok_or_else(|| row.wrong(column, MOMENT))?;
    let ahead = if moment.has_zone { 0.0 } else { family.ahead };
    Ok(Some((moment.seconds - ahead).max(0.0)))
}
