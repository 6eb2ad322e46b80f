//! Traces of the Tiresias simulator: `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`.
//!
//! Times are seconds. The simulator runs every job for its `duration` at full speed wherever it is placed, so work
//! is that duration and every model is steady; the names carry only the skew of their tensors.

use crate::intake::Intake;
use crate::{ReadError, TraceJob, Workload};
use std::io::Read;
use trainyard_diagnostic::InputError;
use trainyard_profile::{ModelProfile, zoo};
use trainyard_types::{Job, JobId, ModelId, Time, Want, Work};

pub(crate) const COLUMNS: [&str; 7] =
    ["job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"];

/// Reads a trace.
pub fn read(reader: impl Read, name: &str) -> Result<Workload, ReadError> {
    let mut workload = Workload::empty(name);
    let mut intake = Intake::default();
    let mut table = Table::new(reader, &COLUMNS)?;
    while let Some(row) = table.next()? {
        let seconds = row.number("duration", 1e-6..=1e10)?;
        let submitted = Time::from_secs_f64(row.number("submit_time", 0.0..=1e10)?);
        let job = Job {
            model: model(&mut workload, row.text("model_name")?),
            want: Want::gpus(row.number("num_gpu", 1.0..=1e6)? as u32),
            ..Job::simple(JobId(0), submitted, 1)
        };
        let job = TraceJob::new(job, Work(seconds));
        intake.add(row.line, row.text("job_id")?, job)?;
    }
    intake.finish(&mut workload)?;
    Ok(workload)
}

fn model(workload: &mut Workload, name: &str) -> ModelId {
    workload.catalog.find(name).unwrap_or_else(|| {
        let source = "Tiresias (NSDI 2019): work is given as seconds, whatever the placement";
        let mut profile = ModelProfile::steady(name, source, 1.0);
        profile.skew = zoo::skew(name);
        workload.catalog.add(profile)
    })
}

/// A CSV table with known columns, all of which are needed.
pub(crate) struct Table<R> {
    reader: csv::Reader<R>,
    record: csv::StringRecord,
    places: Vec<(&'static str, usize)>,
}

/// One row of a [`Table`].
pub(crate) struct TableRow<'a> {
    pub line: u64,
    record: &'a csv::StringRecord,
    places: &'a [(&'static str, usize)],
}

impl<R: Read> Table<R> {
    pub fn new(reader: R, columns: &[&'static str]) -> Result<Table<R>, ReadError> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(reader);
        let header = reader.headers()?.clone();
        let mut places = Vec::with_capacity(columns.len());
        for name in &header {
            if !columns.contains(&name) {
                return Err(InputError::unknown(1, "column", name, columns.iter().copied()).into());
            }
        }
        for name in columns {
            let place = header.iter().position(|column| column == *name);
            let place =
                place.ok_or_else(|| InputError::missing(1, name, "a column of that name"))?;
            places.push((*name, place));
        }
        Ok(Table { reader, record: csv::StringRecord::new(), places })
    }

    pub fn next(&mut self) -> Result<Option<TableRow<'_>>, ReadError> {
        if !self.reader.read_record(&mut self.record)? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        Ok(Some(TableRow { line, record: &self.record, places: &self.places }))
    }
}

impl TableRow<'_> {
    /// A text that is not empty.
    pub fn text(&self, column: &str) -> Result<&str, InputError> {
        let place = self.places.iter().find(|(name, _)| *name == column).map(|(_, place)| *place);
        let text = place.and_then(|place| self.record.get(place)).unwrap_or("");
        if text.is_empty() {
            return Err(InputError::missing(self.line, column, "a value"));
        }
        Ok(text)
    }

    /// A number within a range.
    pub fn number(
        &self,
        column: &str,
        range: std::ops::RangeInclusive<f64>,
    ) -> Result<f64, InputError> {
        let text = self.text(column)?;
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let expected = format!("a number from {} to {}", range.start(), range.end());
            InputError::wrong(self.line, column, text, expected)
        })
    }
}
