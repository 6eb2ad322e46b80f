//! Whether this program can read what another version of it kept.

use crate::access::Role;
use crate::core::check_meta;
use crate::record::{Launch, PersistedRun, Submission};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trainyard_api::answer::Submitted;
use trainyard_store::{Rehearsal, StoreError};

/// Faults that are kept; the rest is counted.
const FAULTS_MAX: usize = 100;

/// What reading every record of a store gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readable {
    /// Texts that were read.
    pub records: u64,
    /// Those that could not be, at most a hundred of them.
    pub faults: Vec<Unreadable>,
    /// How many could not be read in all.
    pub unreadable: u64,
}

/// A text in the store that this program cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// The table.
    pub table: &'static str,
    /// The key of the row.
    pub row: i64,
    /// The column, and the field in its JSON.
    pub field: String,
    /// Why.
    pub problem: String,
}

/// Reads every record as a daemon of this version does.
pub fn read_all(store: &Rehearsal) -> Result<Readable, StoreError> {
    let mut readable = Readable::default();
    readable.column(store, ("jobs", "spec"), as_json::<Submission>)?;
    readable.column(store, ("jobs", "state"), as_json::<PersistedRun>)?;
    readable.column(store, ("attempts", "data"), as_json::<Launch>)?;
    readable.column(store, ("keys", "answer"), as_json::<Submitted>)?;
    readable.column(store, ("events", "data"), as_json::<Value>)?;
    readable.column(store, ("tokens", "role"), |text| match Role::named(text) {
        Some(_) => Ok(()),
        None => Err((String::new(), format!("`{text}` is no role"))),
    })?;
    for (row, name, value) in store.meta()? {
        let read = check_meta(&name, &value);
        let named = |(field, problem)| (under(&name, field), problem);
        readable.note(("meta", "value"), row, read.map_err(named));
    }
    Ok(readable)
}

/// The field at fault, and what is wrong with it.
pub(crate) type Fault = (String, String);

/// Whether a text is the JSON of a type.
pub(crate) fn as_json<T: DeserializeOwned>(text: &str) -> Result<(), Fault> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize::<_, T>(&mut reader);
    read.map_err(|fault| (fault.path().to_string(), fault.inner().to_string()))?;
    reader.end().map_err(|fault| (String::new(), fault.to_string()))
}

impl Readable {
    fn column(
        &mut self,
        store: &Rehearsal,
        place: (&'static str, &'static str),
        read: impl Fn(&str) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        store.texts(place, |row, text| {
            let read = text.map_err(|problem| (String::new(), problem)).and_then(&read);
            self.note(place, row, read);
        })?;
        Ok(())
    }

    fn note(&mut self, (table, column): (&'static str, &str), row: i64, read: Result<(), Fault>) {
        self.records += 1;
        let Err((field, problem)) = read else { return };
        self.unreadable += 1;
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Unreadable { table, row, field: under(column, field), problem });
        }
    }
}

/// A field within another; serde calls the whole a dot.
fn under(outer: &str, field: String) -> String {
    match field.as_str() {
        "" | "." => outer.to_owned(),
        _ => format!("{outer}.{field}"),
    }
}
