//! Jobs on their way from a text into a workload: names become ids, rows become an order.

use crate::{TraceJob, Workload};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use trainyard_profile::InputError;
use trainyard_types::JobId;

/// Why a text could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Something in the text is wrong.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The text could not be had.
    #[error("reading failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    /// A reader below may know exactly what is wrong; then that is what is said.
    fn from(error: io::Error) -> ReadError {
        let fault = error.get_ref().and_then(|inner| inner.downcast_ref::<InputError>());
        match fault {
            Some(fault) => ReadError::Input(fault.clone()),
            None => ReadError::Io(error),
        }
    }
}

impl ReadError {
    /// A line that could not be read; bytes that are no text are a fault of that line.
    pub(crate) fn in_line(line: u64, error: io::Error) -> ReadError {
        if error.kind() == io::ErrorKind::InvalidData && error.get_ref().is_none_or(is_plain) {
            return InputError::wrong(line, "", "bytes", "text in UTF-8").into();
        }
        error.into()
    }

    /// The fault in the text, if it is one.
    pub fn input(&self) -> Option<&InputError> {
        match self {
            ReadError::Input(error) => Some(error),
            ReadError::Io(_) => None,
        }
    }
}

/// Whether nobody below said more precisely what is wrong.
fn is_plain(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    !inner.is::<InputError>()
}

impl From<csv::Error> for ReadError {
    fn from(error: csv::Error) -> ReadError {
        let line = error.position().map_or(0, csv::Position::line);
        let (value, expected) = match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                (format!("{len} fields"), format!("{expected_len} fields, as in the header"))
            }
            csv::ErrorKind::Utf8 { .. } => ("bytes".to_owned(), "text in UTF-8".to_owned()),
            _ => match error.into_kind() {
                csv::ErrorKind::Io(error) => return error.into(),
                other => return ReadError::Io(io::Error::other(format!("{other:?}"))),
            },
        };
        InputError::wrong(line, "", &value, expected).into()
    }
}

/// Jobs in the order of the text, not yet numbered.
#[derive(Default)]
pub(crate) struct Intake {
    jobs: Vec<TraceJob>,
    /// Row by name; kept only from the first name that is not the row's number.
    rows: Option<FxHashMap<String, u32>>,
    /// Row, line and the names of the jobs it has to follow.
    after: Vec<(u32, u64, Vec<String>)>,
}

/// With more names than this none is looked through for the nearest to a wrong one.
const NEAREST_MAX: usize = 10_000;

impl Intake {
    /// Takes one job; its id and what it follows are filled in later.
    pub fn add(&mut self, line: u64, label: &str, job: TraceJob) -> Result<(), InputError> {
        let row = self.jobs.len() as u32;
        if self.rows.is_none() && label != row.to_string() {
            self.rows = Some((0..row).map(|row| (row.to_string(), row)).collect());
        }
        if let Some(rows) = &mut self.rows {
            match rows.entry(label.to_owned()) {
                Entry::Vacant(free) => free.insert(row),
                Entry::Occupied(_) => {
                    let expected = "an id that no earlier job has";
                    return Err(InputError::wrong(line, "id", label, expected));
                }
            };
        }
        self.jobs.push(job);
        Ok(())
    }

    /// Notes what the job added last has to follow.
    pub fn follow(&mut self, line: u64, names: Vec<String>) {
        if !names.is_empty() {
            self.after.push((self.jobs.len() as u32 - 1, line, names));
        }
    }

    /// Sorts by submission, numbers the jobs and resolves names.
    pub fn finish(mut self, workload: &mut Workload) -> Result<(), InputError> {
        let mut order: Vec<u32> = (0..self.jobs.len() as u32).collect();
        order.sort_by_key(|row| (self.jobs[*row as usize].job.submitted, *row));
        let mut ids = vec![JobId(0); order.len()];
        for (id, row) in order.iter().enumerate() {
            ids[*row as usize] = JobId(id as u32);
        }
        for (row, line, names) in std::mem::take(&mut self.after) {
            let mut after = Vec::with_capacity(names.len());
            for name in &names {
                after.push(ids[self.row(line, name)? as usize]);
            }
            unshared(&mut self.jobs[row as usize]).after = after;
        }
        for (row, id) in ids.iter().enumerate() {
            unshared(&mut self.jobs[row]).id = *id;
        }
        let in_order = order.is_sorted();
        if let Some(rows) = self.rows {
            workload.labels = vec![String::new(); ids.len()];
            for (label, row) in rows {
                workload.labels[ids[row as usize].index()] = label;
            }
        } else if !in_order {
            workload.labels = order.iter().map(u32::to_string).collect();
        }
        if !in_order {
            self.jobs.sort_by_key(|job| job.job.id);
        }
        workload.jobs = self.jobs;
        Ok(())
    }

    fn row(&self, line: u64, name: &str) -> Result<u32, InputError> {
        let found = match &self.rows {
            Some(rows) => rows.get(name).copied(),
            None => name.parse().ok().filter(|row: &u32| row.to_string() == name),
        };
        found.filter(|row| (*row as usize) < self.jobs.len()).ok_or_else(|| {
            let expected = "the id of a job in this trace";
            let error = InputError::wrong(line, "after", name, expected);
            let mut names: Vec<&str> = match &self.rows {
                Some(rows) if rows.len() <= NEAREST_MAX => {
                    rows.keys().map(String::as_str).collect()
                }
                _ => Vec::new(),
            };
            names.sort_unstable();
            let nearest = trainyard_profile::nearest(name, names).map(str::to_owned);
            InputError { nearest, ..error }
        })
    }
}

fn unshared(job: &mut TraceJob) -> &mut trainyard_types::Job {
    Arc::get_mut(&mut job.job).expect("a job is not shared before its workload is complete")
}
