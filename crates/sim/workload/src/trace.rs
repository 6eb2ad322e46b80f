//! Our own trace format, version 1: CSV, or JSON lines with the same names.
//!
//! Needed are `id`, `submit_s`, `gpus` and one of `steps` and `duration_s`; columns come in any order and unknown
//! ones are refused. A list (`kinds`, `after`, `value`) is separated by `|` in CSV and is an array in JSON.
//! JSON lines as we write them begin with the line `{"trainyard_trace":1}`; without it the first line is a job.
//!
//! | column | means |
//! |---|---|
//! | `id` | the job's name, unique in the trace |
//! | `submit_s`, `not_before_s`, `deadline_s` | moments, in seconds from the start of the trace |
//! | `gpus`, `gpus_min`, `gpus_max` | GPUs asked for, least and most |
//! | `steps` | the true work |
//! | `duration_s` | the true work as seconds at the wanted size on the reference type |
//! | `model` | a model of the catalog; `generic` if not given |
//! | `tenant` | who pays; `default` if not given, new names are added |
//! | `kinds`, `pool`, `nodes_max` | acceptable types, the pool, the most nodes |
//! | `permille` | thousandths of each GPU |
//! | `gpu_memory_mib`, `cpus_per_gpu`, `memory_mib_per_gpu` | needed on and beside each GPU |
//! | `priority`, `weight`, `class` | how it may be treated |
//! | `value` | `3600:10\|7200:5`: deadlines and what meeting them is worth |
//! | `after` | jobs that must finish first |
//! | `run_max_s`, `min_run_s` | time limit, undisturbed time |
//! | `preemptible`, `retries_max`, `group` | whether it may be stopped, tries, the search it belongs to |
//! | `declared_steps`, `fails_at_steps` | what its user says; where it fails by its own fault |
//! | `batch_mode` | the rule by which it changes its batch, as its user declares it: `static`, `accordion` or `gns` |
//! | `batches` | `0.35:256\|0.8:32`: parts of the work done, and the true batch from there on |
//!
//! The reference type is the first of `kinds`, or else the first type of the cluster with enough memory.
//! For the generic model work is the duration itself.
//! A job's inner graph is deliberately absent.

use crate::import::json_fault;
use crate::intake::Intake;
use crate::trace_columns::{COLUMN_COUNT, Column};
use crate::trace_row::{RowReader, TraceRow};
use crate::{ReadError, Workload};
use serde_json::Value;
use std::io::{BufRead, Read};
use trainyard_diagnostic::InputError;
use trainyard_profile::Catalog;
use trainyard_types::{Cluster, Tenants};

pub use crate::trace_write::{write_csv, write_jsonl};

/// What a trace is read against.
pub struct TraceContext<'a> {
    /// What the workload is called.
    pub name: String,
    /// The cluster whose types and pools the trace may name.
    pub cluster: &'a Cluster,
    /// The models it may name.
    pub catalog: Catalog,
    /// The tenants known so far.
    pub tenants: Tenants,
}

impl<'a> TraceContext<'a> {
    /// The built-in models and no tenants yet.
    pub fn new(name: &str, cluster: &'a Cluster) -> TraceContext<'a> {
        TraceContext {
            name: name.to_owned(),
            cluster,
            catalog: Catalog::builtin(),
            tenants: Tenants::default(),
        }
    }
}

/// Reads CSV.
pub fn read_csv(reader: impl Read, context: TraceContext<'_>) -> Result<Workload, ReadError> {
    let name = context.name.clone();
    csv_rows(reader, RowReader::new(context))?.into_workload(&name)
}

/// Reads JSON lines.
pub fn read_jsonl(reader: impl BufRead, context: TraceContext<'_>) -> Result<Workload, ReadError> {
    let name = context.name.clone();
    jsonl_rows(reader, RowReader::new(context))?.into_workload(&name)
}

/// The rows of a trace, not yet numbered.
pub(crate) struct Rows {
    pub intake: Intake,
    pub catalog: Catalog,
    pub tenants: Tenants,
    /// The cluster with the types and pools they name, if none was given.
    pub found: Option<Cluster>,
}

impl Rows {
    fn new(rows: RowReader<'_>, intake: Intake) -> Rows {
        let TraceContext { catalog, tenants, .. } = rows.context;
        Rows { intake, catalog, tenants, found: rows.found }
    }

    fn into_workload(self, name: &str) -> Result<Workload, ReadError> {
        let Rows { intake, catalog, tenants, .. } = self;
        let mut workload = Workload { catalog, tenants, ..Workload::empty(name) };
        intake.finish(&mut workload)?;
        Ok(workload)
    }
}

/// Reads the rows of a CSV.
pub(crate) fn csv_rows(reader: impl Read, mut rows: RowReader<'_>) -> Result<Rows, ReadError> {
    // Fields are trimmed here: the reader would write every record anew.
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(reader);
    let columns = header(reader.headers()?)?;
    let mut intake = Intake::default();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        let mut row = TraceRow { line, values: [None; COLUMN_COUNT] };
        for (column, value) in columns.iter().zip(&record) {
            row.values[*column as usize] = Some(value.trim()).filter(|value| !value.is_empty());
        }
        take(&row, &mut rows, &mut intake)?;
    }
    Ok(Rows::new(rows, intake))
}

/// Reads the rows of JSON lines.
pub(crate) fn jsonl_rows(reader: impl BufRead, mut rows: RowReader<'_>) -> Result<Rows, ReadError> {
    let mut intake = Intake::default();
    let mut begun = false;
    for (index, text) in reader.lines().enumerate() {
        let line = index as u64 + 1;
        let text = text.map_err(|error| ReadError::in_line(line, error))?;
        if text.trim().is_empty() {
            continue;
        }
        let object: serde_json::Map<String, Value> = serde_json::from_str(&text)
            .map_err(|error| json_fault((line, text.as_bytes()), &error, "one JSON object"))?;
        // What other programs write begins with its first job.
        if !std::mem::replace(&mut begun, true) && is_first_line(line, &object)? {
            continue;
        }
        let mut texts: [Option<String>; COLUMN_COUNT] = [const { None }; COLUMN_COUNT];
        for (key, value) in &object {
            let column = Column::find(key)
                .ok_or_else(|| InputError::unknown(line, "key", key, Column::names()))?;
            texts[column as usize] = text_of(line, column, value)?;
        }
        let mut row = TraceRow { line, values: [None; COLUMN_COUNT] };
        for (value, text) in row.values.iter_mut().zip(&texts) {
            *value = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        }
        take(&row, &mut rows, &mut intake)?;
    }
    if !begun {
        let expected = "the line `{\"trainyard_trace\":1}`, or a job";
        return Err(InputError::missing(1, "trainyard_trace", expected).into());
    }
    Ok(Rows::new(rows, intake))
}

/// Whether a line says only that a trace follows, and of which version.
fn is_first_line(line: u64, object: &serde_json::Map<String, Value>) -> Result<bool, InputError> {
    match object.get("trainyard_trace") {
        None => Ok(false),
        Some(version) if version.as_u64() == Some(1) => Ok(true),
        Some(version) => {
            Err(InputError::wrong(line, "trainyard_trace", &version.to_string(), "version 1"))
        }
    }
}

/// A JSON value as the text that a CSV field would hold.
fn text_of(line: u64, column: Column, value: &Value) -> Result<Option<String>, InputError> {
    Ok(match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for item in items {
                parts.push(match item {
                    Value::Array(pair) if pair.len() == 2 => format!("{}:{}", pair[0], pair[1]),
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => return Err(no_text(line, column, item)),
                });
            }
            Some(parts.join("|"))
        }
        Value::Object(_) => return Err(no_text(line, column, value)),
    })
}

fn no_text(line: u64, column: Column, value: &Value) -> InputError {
    InputError::wrong(line, column.name(), &value.to_string(), "a text, a number or a list of them")
}

fn header(names: &csv::StringRecord) -> Result<Vec<Column>, InputError> {
    let mut columns: Vec<Column> = Vec::new();
    for name in names {
        let column = Column::find(name)
            .ok_or_else(|| InputError::unknown(1, "column", name, Column::names()))?;
        if columns.contains(&column) {
            return Err(InputError::wrong(1, "column", name, "every column once"));
        }
        columns.push(column);
    }
    for needed in [Column::Id, Column::Submit, Column::Gpus] {
        if !columns.contains(&needed) {
            return Err(InputError::missing(1, needed.name(), "a column of that name"));
        }
    }
    if !columns.contains(&Column::Steps) && !columns.contains(&Column::Duration) {
        return Err(InputError::missing(1, "steps", "a column `steps` or `duration_s`"));
    }
    Ok(columns)
}

fn take(
    row: &TraceRow<'_>,
    rows: &mut RowReader<'_>,
    intake: &mut Intake,
) -> Result<(), InputError> {
    let id = row.get(Column::Id).unwrap_or("");
    if id.is_empty() || id.contains('|') {
        return Err(InputError::wrong(row.line, "id", id, "a name for the job, without `|`"));
    }
    let (job, after) = rows.read(row)?;
    intake.add(row.line, id, job)?;
    intake.follow(row.line, after);
    Ok(())
}
