//! The history of a daemon of our own: what `trainyard ps -a --json` prints, element by element.
//!
//! A job ran for as long as it held GPUs, over all its launches; starting and saving are part of that. What never ran,
//! or is not over, is dropped; what failed or was cancelled is kept with the time it held GPUs. Priorities and tenants
//! are taken over; dependencies, deadlines and types are not in the list. Times are in UTC.

use super::Skip;
use super::elements::{Elements, decode};
use super::sink::{Draft, Sink};
use super::table::whole_gpus;
use crate::ReadError;
use serde::Deserialize;
use std::io::BufRead;
use trainyard_diagnostic::InputError;

/// Of a row, what is used.
#[derive(Deserialize)]
struct Row {
    id: u32,
    name: String,
    tenant: String,
    /// `standing` before version 0.1 was out.
    #[serde(alias = "standing")]
    state: String,
    gpus: u32,
    submitted: f64,
    ended: Option<f64>,
    ran_seconds: f64,
    #[serde(default)]
    priority: i32,
}

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone = "UTC, as Unix time".to_owned();
    let mut elements = Elements::of_key(reader, "jobs")?;
    while let Some((line, piece)) = elements.next()? {
        let row: Row = decode((line, piece), "a job as `trainyard ps -a --json` prints it")?;
        let draft = draft(line, &row, sink);
        sink.take(line, draft)?;
    }
    Ok(())
}

fn draft(line: u64, row: &Row, sink: &mut Sink) -> Result<Draft<'static>, Skip> {
    for (field, value) in [("submitted", row.submitted), ("ran_seconds", row.ran_seconds)] {
        if !(0.0..1e12).contains(&value) {
            let wrong = InputError::wrong(line, field, &value.to_string(), "seconds from 0 on");
            return Err(wrong.into());
        }
    }
    let Some(gpus) = whole_gpus(f64::from(row.gpus)) else {
        let expected = "a whole number of GPUs, at most a million";
        return Err(InputError::wrong(line, "gpus", &row.gpus.to_string(), expected).into());
    };
    if row.ended.is_none() {
        return Err(Skip::because("it is not over yet"));
    }
    let id = format!("{}-{}", row.id, row.name.replace('|', "-"));
    let mut draft = Draft::new(id, row.submitted, (gpus, row.ran_seconds))?;
    draft.job.tenant = sink.tenant(&row.tenant);
    draft.job.priority = row.priority;
    sink.note_end(line, &row.state);
    Ok(draft)
}
