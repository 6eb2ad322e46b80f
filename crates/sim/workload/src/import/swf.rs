//! Standard Workload Format of the Parallel Workloads Archive: 18 numbers in a line, `;` before remarks.
//!
//! Fields: job, submit, wait, run, processors used, CPU time, memory, processors asked, time asked, memory asked,
//! status, user, group, application, queue, partition, previous job, think time; -1 is unknown.
//! A processor is taken for a GPU. A job's size is the processors asked for, or else those used; its length is the
//! run time in seconds; its time limit is the time asked. A job without either is dropped. Failed and cancelled jobs
//! are kept with the time they ran. The tenant is the group, or else the user. Times count from the start of the
//! log; `UnixStartTime` and `TimeZoneString` of the remarks are quoted in the report.

use super::sink::Draft;
use super::table::{GPUS_MAX, SECONDS_MAX, whole_gpus};
use super::{Sink, Skip, Sniff};
use crate::ReadError;
use std::io::BufRead;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

const FIELDS: [&str; 18] = [
    "job",
    "submit",
    "wait",
    "run",
    "processors used",
    "cpu time",
    "memory",
    "processors asked",
    "time asked",
    "memory asked",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "previous job",
    "think time",
];

/// Remarks, or 18 numbers in the first line that is none.
pub(crate) fn detect(sniff: &Sniff<'_>) -> bool {
    let first = sniff.lines().find(|line| !line.trim().is_empty() && !line.starts_with(';'));
    first.is_some_and(|line| {
        let mut fields = line.split_ascii_whitespace();
        line.split_ascii_whitespace().count() == 18
            && fields.all(|field| field.parse::<f64>().is_ok())
    })
}

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    let (mut text, mut line) = (String::new(), 0);
    sink.report.time_zone = "none: seconds from the start of the log".to_owned();
    loop {
        text.clear();
        line += 1;
        let count = reader.read_line(&mut text);
        if count.map_err(|error| ReadError::in_line(line, error))? == 0 {
            return Ok(());
        }
        let row = text.trim();
        if let Some(remark) = row.strip_prefix(';') {
            note_remark(remark.trim(), sink);
        } else if !row.is_empty() {
            let draft = fields(line, row).map_err(Skip::from);
            let draft = draft.and_then(|fields| draft_of(line, &fields, sink));
            sink.take(line, draft)?;
        }
    }
}

fn note_remark(remark: &str, sink: &mut Sink) {
    let keeps = ["UnixStartTime", "TimeZone", "Computer", "MaxProcs"];
    if keeps.iter().any(|key| remark.starts_with(key)) && sink.report.notes.len() < 8 {
        sink.report.notes.push(remark.chars().take(120).collect());
    }
}

/// The fields of a line; an unknown one is `None`.
fn fields(line: u64, text: &str) -> Result<[Option<f64>; 18], InputError> {
    let count = text.split_ascii_whitespace().count();
    if count != 18 {
        return Err(InputError::wrong(line, "", &format!("{count} fields"), "18 fields"));
    }
    let mut fields = [None; 18];
    for ((field, name), text) in fields.iter_mut().zip(FIELDS).zip(text.split_ascii_whitespace()) {
        let number: Option<f64> = text.parse().ok();
        *field = match number.filter(|number| (-1.0..=1e15).contains(number)) {
            Some(number) if number >= 0.0 => Some(number),
            Some(-1.0) => None,
            _ => {
                return Err(InputError::wrong(
                    line,
                    name,
                    text,
                    "a number from 0, or -1 if unknown",
                ));
            }
        };
    }
    Ok(fields)
}

fn draft_of(
    line: u64,
    fields: &[Option<f64>; 18],
    sink: &mut Sink,
) -> Result<Draft<'static>, Skip> {
    let need = |index: usize, most: f64| match fields[index] {
        Some(number) if number <= most => Ok(number),
        Some(number) => {
            let expected = format!("at most {most}");
            Err(InputError::wrong(line, FIELDS[index], &number.to_string(), expected).into())
        }
        None => Err(Skip::missing(FIELDS[index])),
    };
    let processors = match fields[7] {
        Some(_) => need(7, GPUS_MAX)?,
        None => need(4, GPUS_MAX)?,
    };
    let gpus = whole_gpus(processors).ok_or_else(|| {
        InputError::wrong(line, FIELDS[7], &processors.to_string(), "a whole number")
    })?;
    let length = (gpus, need(3, SECONDS_MAX)?);
    let id = format!("{}", need(0, 1e15)?);
    let mut draft = Draft::new(id, need(1, SECONDS_MAX)?, length)?;
    draft.job.run_max = match fields[8] {
        Some(seconds) if seconds > 0.0 => {
            Some(Span::from_secs_f64(need(8, SECONDS_MAX)?.max(length.1)))
        }
        _ => None,
    };
    match (fields[12], fields[11]) {
        (Some(group), _) => draft.job.tenant = sink.tenant(&format!("group-{group}")),
        (None, Some(user)) => draft.job.tenant = sink.tenant(&format!("user-{user}")),
        (None, None) => sink.note_missing(line, "group"),
    }
    let state = match fields[10].map(|status| status as i64) {
        Some(0) => "failed",
        Some(1) => "completed",
        Some(5) => "cancelled",
        Some(_) => "partial",
        None => "not stated",
    };
    sink.note_end(line, state);
    Ok(draft)
}
