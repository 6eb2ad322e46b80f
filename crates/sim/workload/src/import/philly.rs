//! Microsoft Philly (ATC 2019): `cluster_job_log`, one JSON list, read element by element.
//!
//! An element is `{status, vc, jobid, attempts: [{start_time, end_time, detail: [{ip, gpus: [..]}]}], submitted_time,
//! user}`. The log has no size that was asked for: it is the number of GPUs in the details of the largest attempt.
//! A job's length is the sum over its attempts of end less start, because every attempt held GPUs; an attempt that
//! lacks either counts for nothing and is reported as missing. Jobs without a submission, without attempts or
//! without GPUs are dropped. Jobs that failed or were killed are kept with the time they ran. The tenant is `vc`.
//! Times are local to the cluster without a zone, by its authors Pacific time; they are taken as UTC-8 without
//! summer time. No real file is at hand: tests use elements made by this schema.

use super::Skip;
use super::elements::{Elements, decode};
use super::moment::{self, MOMENT};
use super::sink::{Draft, Sink};
use super::table::is_unknown;
use crate::ReadError;
use serde::Deserialize;
use std::io::BufRead;
use trainyard_diagnostic::InputError;

#[derive(Deserialize)]
struct Record {
    jobid: Option<String>,
    vc: Option<String>,
    user: Option<String>,
    status: Option<String>,
    submitted_time: Option<String>,
    #[serde(default)]
    attempts: Option<Vec<Attempt>>,
}

#[derive(Deserialize)]
struct Attempt {
    #[serde(alias = "start")]
    start_time: Option<String>,
    #[serde(alias = "end")]
    end_time: Option<String>,
    #[serde(default)]
    detail: Option<Vec<Detail>>,
}

#[derive(Deserialize)]
struct Detail {
    #[serde(default)]
    gpus: Option<Vec<serde::de::IgnoredAny>>,
}

const AHEAD: f64 = -8.0 * 3600.0;

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone = "UTC-8 (Pacific) is assumed, for times carry none".to_owned();
    let mut elements = Elements::of_list(reader)?;
    while let Some((line, piece)) = elements.next()? {
        let record: Record = decode((line, piece), "a job of cluster_job_log")?;
        let draft = draft(line, record, sink);
        sink.take(line, draft)?;
    }
    Ok(())
}

fn draft(line: u64, record: Record, sink: &mut Sink) -> Result<Draft<'static>, Skip> {
    let id = record.jobid.filter(|id| !is_unknown(id)).ok_or_else(|| Skip::missing("jobid"))?;
    let submitted = time(line, "submitted_time", record.submitted_time.as_deref())?;
    let submitted = submitted.ok_or_else(|| Skip::missing("submitted_time"))?;
    let attempts = record.attempts.unwrap_or_default();
    if attempts.is_empty() {
        return Err(Skip::because("it was never attempted"));
    }
    let (mut gpus, mut seconds, mut known) = (0usize, 0.0, 0);
    for attempt in &attempts {
        let details = attempt.detail.iter().flatten();
        let held: usize = details.map(|one| one.gpus.as_ref().map_or(0, Vec::len)).sum();
        gpus = gpus.max(held);
        let start = time(line, "start_time", attempt.start_time.as_deref())?;
        let end = time(line, "end_time", attempt.end_time.as_deref())?;
        match (start, end) {
            (Some(start), Some(end)) if end >= start => {
                seconds += end - start;
                known += 1;
            }
            (Some(_), Some(_)) => return Err(Skip::because("an attempt ends before it starts")),
            _ => sink.note_missing(line, "start or end of an attempt"),
        }
    }
    if known == 0 {
        return Err(Skip::because("no attempt has both a start and an end"));
    }
    let mut draft = Draft::new(id, submitted, (gpus as u32, seconds))?;
    match record.vc.or(record.user) {
        Some(name) => draft.job.tenant = sink.tenant(&name),
        None => sink.note_missing(line, "vc"),
    }
    sink.note_end(line, record.status.as_deref().unwrap_or("not stated"));
    Ok(draft)
}

fn time(line: u64, field: &str, text: Option<&str>) -> Result<Option<f64>, InputError> {
    let Some(text) = text.map(str::trim).filter(|text| !is_unknown(text)) else { return Ok(None) };
    // Some times end with the name of the zone.
    let plain = text.trim_end_matches(" PST").trim_end_matches(" PDT");
    let moment =
        moment::parse(plain).ok_or_else(|| InputError::wrong(line, field, text, MOMENT))?;
    Ok(Some(moment.seconds - if moment.has_zone { 0.0 } else { AHEAD }))
}
