//! Alibaba PAI 2020 (NSDI 2022): `pai_task_table`, usually without a header.
//!
//! Documented columns `job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type`.
//! A row is one task of `inst_num` instances that are taken as one gang, named `job_name/task_name`.
//! `plan_gpu` is in hundredths of a GPU for each instance: below 100 it is a share on `inst_num` GPUs, above it is
//! rounded up to whole GPUs. A task's length is `end_time - start_time` in seconds. The table has no submission:
//! the start stands in for it, so waiting in the original cluster is not seen. `plan_cpu` is in hundredths of a CPU,
//! `plan_mem` in GB. `MISC` accepts any type. Tasks without GPUs, start or end are dropped.
//! No real file is at hand: tests use rows made by this schema.

use super::sink::{Draft, NO_GPU};
use super::table::{Column, GPUS_MAX, Header, SECONDS_MAX, Table, TableRow, needed};
use super::{Sink, Skip, Sniff};
use crate::ReadError;
use std::io::BufRead;

const COLUMNS: &[Column] = &[
    needed(&["job_name"]),
    needed(&["task_name"]),
    needed(&["inst_num"]),
    needed(&["status"]),
    needed(&["start_time"]),
    needed(&["end_time"]),
    needed(&["plan_cpu"]),
    needed(&["plan_mem"]),
    needed(&["plan_gpu"]),
    needed(&["gpu_type"]),
];

const STATES: [&str; 4] = ["Terminated", "Failed", "Waiting", "Running"];

/// With its header, or ten fields of which the fourth is a state.
pub(crate) fn detect(sniff: &Sniff<'_>) -> bool {
    has_header(sniff.first_line())
        || (sniff.first_row(',').count() == COLUMNS.len()
            && sniff.first_row(',').nth(3).is_some_and(|state| STATES.contains(&state)))
}

fn has_header(first: &str) -> bool {
    let mut names = first.split(',').map(str::trim);
    names.clone().any(|name| name == "plan_gpu") && names.any(|name| name == "inst_num")
}

pub(crate) fn read(mut reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let begin = reader.fill_buf()?;
    let begin = String::from_utf8_lossy(&begin[..begin.len().min(4096)]).into_owned();
    let header = match has_header(begin.trim_start_matches('\u{feff}').lines().next().unwrap_or(""))
    {
        true => Header::Named,
        false => Header::None,
    };
    sink.report.notes.push("there is no submission in this table: starts stand in for it".into());
    let mut table = Table::new(&mut reader, COLUMNS, (b',', header))?;
    while let Some(row) = table.next()? {
        let draft = draft(&row, sink);
        sink.take(row.line, draft)?;
    }
    Ok(())
}

fn draft<'a>(row: &TableRow<'a>, sink: &mut Sink) -> Result<Draft<'a>, Skip> {
    let percent = row.number(8, 0.0..=GPUS_MAX)?.unwrap_or(0.0);
    if percent == 0.0 {
        return Err(Skip::because(NO_GPU));
    }
    let instances = row.gpus(2)?;
    let each = (percent / 100.0).ceil();
    let gpus = f64::from(instances) * each;
    if gpus > GPUS_MAX {
        return Err(row.wrong(8, "at most a million GPUs in all").into());
    }
    let start = row.need_number(4, 0.0..=SECONDS_MAX)?;
    let end = row.need_number(5, 0.0..=SECONDS_MAX)?;
    let id = format!("{}/{}", row.need(0)?, row.need(1)?);
    let mut draft = Draft::new(id, start, (gpus as u32, end - start))?;
    let want = &mut draft.job.want;
    if percent < 100.0 {
        want.permille = (percent * 10.0).round().clamp(1.0, 1000.0) as u16;
    }
    let kind = row.text(9).filter(|kind| *kind != "MISC" && *kind != "CPU");
    want.kinds = sink.kinds((row.line, "gpu_type"), kind.into_iter())?;
    if let Some(cpus) = row.number(6, 0.0..=1e8)? {
        want.cpus_per_gpu = (cpus / 100.0 / each).ceil().min(65_535.0) as u16;
    }
    if let Some(gb) = row.number(7, 0.0..=4e6)? {
        want.memory_mib_per_gpu = (gb * 1000.0 * 1000.0 / 1024.0 / 1.024 / each).min(4e9) as u32;
    }
    sink.note_end(row.line, row.text(3).unwrap_or("not stated"));
    Ok(draft)
}
