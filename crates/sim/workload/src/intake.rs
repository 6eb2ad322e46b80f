//! Jobs on their way from a text into a workload: names become ids, rows become an order.

use crate::compact::CompactJobs;
use crate::{TraceJob, Workload};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::io;
use trainyard_diagnostic::InputError;
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

/// Whether no inner error says more precisely what is wrong.
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
    jobs: CompactJobs,
    /// Kept only from the first name that is not the row's number.
    names: Option<Names>,
    /// TraceRow, line and the names of the jobs it has to follow.
    after: Vec<(u32, u64, Vec<String>)>,
}

/// With more names than this none is looked through for the nearest to a wrong one.
const NEAREST_MAX: usize = 10_000;

impl Intake {
    /// The jobs of a workload, which are sorted, numbered and named.
    pub fn of(workload: &Workload) -> Intake {
        let mut intake = Intake::default();
        workload.jobs.iter().for_each(|one| intake.jobs.push(one.clone()));
        let mut names = Names::default();
        workload.labels.iter().for_each(|name| names.put(name));
        intake.names = (!workload.labels.is_empty()).then_some(names);
        intake
    }

    /// Takes one job; its id and what it follows are filled in later.
    pub fn add(&mut self, line: u64, label: &str, job: TraceJob) -> Result<(), InputError> {
        let row = self.jobs.len() as u32;
        if self.names.is_none() && !is_number(label, row) {
            let mut names = Names::default();
            for earlier in 0..row {
                names.add(&earlier.to_string());
            }
            self.names = Some(names);
        }
        if let Some(names) = &mut self.names
            && !names.add(label)
        {
            return Err(InputError::wrong(line, "id", label, "an id that no earlier job has"));
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

    /// How many were taken.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Sorts by submission, numbers the jobs and resolves names.
    pub fn finish(self, workload: &mut Workload) -> Result<(), InputError> {
        let (jobs, labels) = self.finish_compact()?;
        workload.jobs = jobs.iter().collect();
        workload.labels = labels.into_list(jobs.len());
        Ok(())
    }

    /// The same, with the jobs left in the little room they take.
    pub fn finish_compact(mut self) -> Result<(CompactJobs, Labels), InputError> {
        let order = self.jobs.order();
        let mut ids: Vec<JobId> = Vec::new();
        if let Some(order) = order.as_ref().filter(|_| !self.after.is_empty()) {
            ids = vec![JobId(0); order.len()];
            for (id, row) in order.iter().enumerate() {
                ids[*row as usize] = JobId(id as u32);
            }
        }
        for (row, line, names) in std::mem::take(&mut self.after) {
            let mut after = Vec::with_capacity(names.len());
            for name in &names {
                let first = self.row(line, name)?;
                after.push(ids.get(first as usize).copied().unwrap_or(JobId(first)));
            }
            self.jobs.set_after(row as usize, after);
        }
        if let Some(order) = &order {
            self.jobs.arrange(order);
        }
        if let Some(names) = &mut self.names {
            // Nothing is looked up any more.
            (names.rows, names.twins) = (FxHashMap::default(), BTreeMap::new());
        }
        Ok((self.jobs, Labels { names: self.names, order }))
    }

    fn row(&self, line: u64, name: &str) -> Result<u32, InputError> {
        let found = match &self.names {
            Some(names) => names.find(name),
            None => name.parse().ok().filter(|row| is_number(name, *row)),
        };
        found.filter(|row| (*row as usize) < self.jobs.len()).ok_or_else(|| {
            let expected = "the id of a job in this trace";
            let error = InputError::wrong(line, "after", name, expected);
            let mut names: Vec<&str> = match &self.names {
                Some(names) if names.len() <= NEAREST_MAX => names.iter().collect(),
                _ => Vec::new(),
            };
            names.sort_unstable();
            let nearest = trainyard_diagnostic::nearest(name, names).map(str::to_owned);
            InputError { nearest, ..error }
        })
    }
}

/// What jobs are called outside, by their place in the order of submission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// By row of the text; where there are none, each is called by the number of its row.
    names: Option<Names>,
    /// The row of each place; nothing where they are the same.
    order: Option<Vec<u32>>,
}

impl Labels {
    /// What the job at a place is called; nothing where that is its number.
    pub fn get(&self, at: usize) -> Option<String> {
        let row = self.order.as_ref().map_or(at, |order| order[at] as usize);
        match &self.names {
            Some(names) => Some(names.get(row).to_owned()),
            None => self.order.as_ref().map(|_| row.to_string()),
        }
    }

    /// All of them; an empty list where each is its number.
    pub fn into_list(self, count: usize) -> Vec<String> {
        (0..count).map_while(|at| self.get(at)).collect()
    }
}

/// Whether a text is that number as it is usually written.
fn is_number(text: &str, number: u32) -> bool {
    let plain =
        text == "0" || text.bytes().next().is_some_and(|first| matches!(first, b'1'..=b'9'));
    plain && text.parse() == Ok(number)
}

/// Names of rows in their order, packed into one text: a million of them are a large part of an import's memory.
#[derive(Clone, Debug, Default)]
struct Names {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
    /// The first row with a name of that hash.
    rows: FxHashMap<u64, u32>,
    /// Rows whose name has the hash of another one.
    twins: BTreeMap<String, u32>,
}

impl Names {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, row: usize) -> &str {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[row]]
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|row| self.get(row))
    }

    fn find(&self, name: &str) -> Option<u32> {
        let first = *self.rows.get(&FxBuildHasher.hash_one(name))?;
        match self.get(first as usize) == name {
            true => Some(first),
            false => self.twins.get(name).copied(),
        }
    }

    /// Names the next row; says no if an earlier one has the name.
    fn add(&mut self, name: &str) -> bool {
        let row = self.len() as u32;
        let first = match self.rows.entry(FxBuildHasher.hash_one(name)) {
            Entry::Vacant(free) => *free.insert(row),
            Entry::Occupied(taken) => *taken.get(),
        };
        if first != row {
            if self.get(first as usize) == name || self.twins.contains_key(name) {
                return false;
            }
            self.twins.insert(name.to_owned(), row);
        }
        self.put(name);
        true
    }

    /// Names the next row, whatever the others are called.
    fn put(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_a_second_one_is_refused_also_among_twins() {
        let mut names = Names::default();
        assert!(["a", "", "b|c"].into_iter().all(|name| names.add(name)));
        assert!(!names.add("b|c") && names.find("c").is_none());
        assert_eq!((names.find(""), names.get(2), names.len()), (Some(1), "b|c", 3));
        // As if `d` had the hash of `a`.
        names.rows.insert(FxBuildHasher.hash_one("d"), 0);
        assert!(names.add("d") && !names.add("d"));
        assert_eq!((names.find("d"), names.find("a"), names.get(3)), (Some(3), Some(0), "d"));
    }
}
