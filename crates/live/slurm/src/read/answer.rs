//! The outermost object of an answer: its rows, its errors, who wrote it.

use super::Rows;
use super::lenient::{Number, Text};
use crate::seen::Skipped;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// How many bytes of an answer that is none are shown.
const BEGIN_MAX: usize = 120;

/// An answer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is no JSON, or none of Slurm's.
    #[error("no JSON of Slurm: {problem}; it begins with `{begin}`")]
    NotJson {
        /// What is wrong.
        problem: String,
        /// The first bytes.
        begin: String,
    },
    /// It carries errors: with its controller away, 22.05 prints no jobs, an error, and ends with success.
    #[error("{0}")]
    Errors(String),
    /// It has none of the lists that were expected.
    #[error("the answer has no list `{0}`")]
    NoList(&'static str),
}

/// The outermost object. Lists stay text until their rows are read one by one.
#[derive(Deserialize)]
pub(super) struct SlurmAnswer<'a> {
    #[serde(borrow, default)]
    pub jobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub nodes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub sinfo: Option<&'a RawValue>,
    #[serde(borrow, default)]
    errors: Option<&'a RawValue>,
    #[serde(default)]
    last_update: Number,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    // `Slurm` in 22.05, `slurm` later.
    #[serde(alias = "Slurm")]
    slurm: MetaSlurm,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetaSlurm {
    release: Text,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Complaint {
    description: Text,
    error: Text,
    source: Text,
}

impl<'a> SlurmAnswer<'a> {
    /// Reads the outermost object and refuses one that carries errors.
    pub fn of(bytes: &'a [u8]) -> Result<SlurmAnswer<'a>, ReadError> {
        let answer: SlurmAnswer<'_> =
            serde_json::from_slice(bytes).map_err(|error| not_json(bytes, &error))?;
        let complaints = match answer.errors {
            Some(raw) => list(raw).unwrap_or_default(),
            None => Vec::new(),
        };
        if complaints.is_empty() {
            return Ok(answer);
        }
        let words = complaints.iter().take(3).map(|raw| complaint(raw)).collect::<Vec<_>>();
        Err(ReadError::Errors(words.join("; ")))
    }

    /// The rows of one list, each read by `convert` from its shape `R`.
    pub fn rows<R: DeserializeOwned, T>(
        &self,
        raw: &RawValue,
        name: &str,
        mut convert: impl FnMut(R) -> Result<T, String>,
    ) -> Result<Rows<T>, ReadError> {
        let items = list(raw).ok_or_else(|| ReadError::NotJson {
            problem: format!("`{name}` is no list"),
            begin: begin_of(raw.get().as_bytes()),
        })?;
        let mut skipped = Skipped::default();
        let mut rows = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mut text = serde_json::Deserializer::from_str(item.get());
            let read = serde_path_to_error::deserialize(&mut text).map_err(|e| e.to_string());
            match read.and_then(|row: R| convert(row)) {
                Ok(row) => rows.push(row),
                Err(why) => skipped.add(format!("{name}[{index}]{}: {why}", called(item))),
            }
        }
        let at = self.last_update.positive();
        Ok(Rows { rows, skipped, at, release: self.meta.slurm.release.0.clone() })
    }
}

fn list(raw: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

fn complaint(raw: &RawValue) -> String {
    let read: Complaint = serde_json::from_str(raw.get()).unwrap_or_default();
    let parts = [&read.source.0, &read.description.0, &read.error.0];
    let said: Vec<&str> = parts.into_iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
    match said.is_empty() {
        true => begin_of(raw.get().as_bytes()),
        false => said.join(": "),
    }
}

/// The name of a bad row, if that much of it can be read.
fn called(item: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Called {
        #[serde(default)]
        job_id: serde_json::Value,
        #[serde(default)]
        name: serde_json::Value,
    }
    let Ok(Called { job_id, name }) = serde_json::from_str(item.get()) else {
        return String::new();
    };
    let told: Vec<String> =
        [job_id, name].iter().filter(|v| !v.is_null()).map(|v| v.to_string()).collect();
    let told: String = told.join(" ").chars().take(BEGIN_MAX).collect();
    if told.is_empty() { String::new() } else { format!(" ({told})") }
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> ReadError {
    let problem = match bytes.iter().all(u8::is_ascii_whitespace) {
        true => "it is empty".to_owned(),
        false => error.to_string(),
    };
    ReadError::NotJson { problem, begin: begin_of(bytes) }
}

fn begin_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(BEGIN_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
