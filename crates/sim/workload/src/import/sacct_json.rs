//! Slurm accounting as `sacct --json` prints it: the list `jobs`, read element by element.
//!
//! The same mapping as for `sacct -P`: GPUs of `tres.allocated`, or else of `tres.requested`, with `type` `gres` and a
//! name `gpu` or `gpu:a100`; the length is `time.elapsed`; the tenant is the account. Times are seconds since 1970, so
//! no zone is assumed. A number may be plain or `{"set": true, "number": 5}`, as it changed between versions.
//! No real file is at hand: tests use elements made by this schema.

use super::Skip;
use super::elements::{Elements, decode};
use super::sink::{Draft, NO_GPU, Sink};
use super::table::{GPUS_MAX, SECONDS_MAX};
use crate::ReadError;
use serde_json::Value;
use std::io::BufRead;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

pub(crate) fn read(reader: &mut dyn BufRead, sink: &mut Sink) -> Result<(), ReadError> {
    sink.is_calendar = true;
    sink.report.time_zone = "UTC: times are seconds since 1970".to_owned();
    let mut elements = Elements::of_key(reader, "jobs")?;
    while let Some((line, piece)) = elements.next()? {
        let job: serde_json::Map<String, Value> = decode((line, piece), "a job of sacct --json")?;
        let draft = draft(line, &Value::Object(job), sink);
        sink.take(line, draft)?;
    }
    Ok(())
}

fn draft(line: u64, job: &Value, sink: &mut Sink) -> Result<Draft<'static>, Skip> {
    let field = |name: &str, most: f64| number(line, (name, &job["time"][name]), most);
    let id = match &job["job_id"] {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return Err(Skip::missing("job_id")),
    };
    let allocated = gpus(line, &job["tres"]["allocated"])?;
    let (gpus, kind) = match allocated.0 > 0.0 {
        true => allocated,
        false => gpus(line, &job["tres"]["requested"])?,
    };
    if gpus == 0.0 {
        return Err(Skip::because(NO_GPU));
    }
    let state = match &job["state"]["current"] {
        Value::Array(states) => states.first().and_then(Value::as_str),
        other => other.as_str(),
    };
    let state = state.unwrap_or("not stated").to_owned();
    if matches!(state.as_str(), "RUNNING" | "PENDING" | "SUSPENDED" | "REQUEUED") {
        return Err(Skip::because("it is not over yet"));
    }
    let submitted = field("submission", SECONDS_MAX)?.ok_or_else(|| Skip::missing("submission"))?;
    let start = field("start", SECONDS_MAX)?.filter(|start| *start > 0.0);
    if start.is_none() {
        return Err(Skip::because("it never started"));
    }
    let elapsed = field("elapsed", SECONDS_MAX)?.ok_or_else(|| Skip::missing("elapsed"))?;
    let mut draft = Draft::new(id, submitted, (gpus as u32, elapsed))?;
    draft.job.want.kinds = sink.kinds((line, "tres"), kind.as_deref().into_iter())?;
    if let Some(minutes) = field("limit", 1e10)?.filter(|minutes| *minutes <= 1e8) {
        draft.job.run_max = Some(Span::from_secs_f64((minutes * 60.0).max(elapsed)));
    }
    match job["account"].as_str().or(job["user"].as_str()) {
        Some(name) => draft.job.tenant = sink.tenant(name),
        None => sink.note_missing(line, "account"),
    }
    sink.note_end(line, &state);
    Ok(draft)
}

/// A number in either form; one that is not set is `None`.
fn number(line: u64, (name, value): (&str, &Value), most: f64) -> Result<Option<f64>, InputError> {
    let number = match value {
        Value::Null => return Ok(None),
        Value::Object(parts) => {
            let is_set = parts.get("set").and_then(Value::as_bool).unwrap_or(true);
            let is_endless = parts.get("infinite").and_then(Value::as_bool).unwrap_or(false);
            match parts.get("number") {
                Some(number) if is_set && !is_endless => number.as_f64(),
                _ => return Ok(None),
            }
        }
        other => other.as_f64(),
    };
    number.filter(|number| (0.0..=most).contains(number)).map(Some).ok_or_else(|| {
        InputError::wrong(line, name, &value.to_string(), format!("a number from 0 to {most}"))
    })
}

/// GPUs in a list of trackable resources, and their type if one is named.
fn gpus(line: u64, list: &Value) -> Result<(f64, Option<String>), InputError> {
    let (mut all, mut typed, mut kind) = (0.0, 0.0, None);
    for item in list.as_array().into_iter().flatten() {
        let name = item["name"].as_str().unwrap_or("");
        if item["type"].as_str() != Some("gres") {
            continue;
        }
        let count = || number(line, ("count", &item["count"]), GPUS_MAX);
        if name == "gpu" {
            all = count()?.unwrap_or(0.0);
        } else if let Some(of) = name.strip_prefix("gpu:") {
            typed += count()?.unwrap_or(0.0);
            kind = Some(of.to_owned());
        }
    }
    Ok((if all > 0.0 { all } else { typed }.min(GPUS_MAX), kind))
}
