//! Expected values of a row: as it states them, or from the authors' files.

use super::{PublishedRun, Table};
use crate::failure::Failure;
use crate::files;
use std::collections::BTreeMap;
use std::path::Path;
use trainyard_report::column::{COLUMNS, Column};
use trainyard_report::units::Unit;

impl Table {
    /// The published measures of a run.
    pub(super) fn expected(
        &self,
        row: &PublishedRun,
        data: &Path,
    ) -> Result<Vec<(&'static Column, f64)>, Failure> {
        let Some(golden) = &self.golden else {
            // Without a golden, what the row states; nothing where the jobs themselves are compared.
            let stated = row.expected.iter().map(|(key, value)| Ok((column(key)?, *value)));
            return stated.collect();
        };
        let path = data.join(golden);
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(files::open(&path)?);
        let broken = |what: String| Failure::Operation(format!("{}: {what}", path.display()));
        let heading = reader.headers().map_err(|error| broken(error.to_string()))?.clone();
        let at = |name: &str| {
            let place = heading.iter().position(|one| one == name);
            place.ok_or_else(|| broken(format!("has no column `{name}`")))
        };
        let mut keys = Vec::new();
        for (name, value) in &row.key {
            keys.push((at(name)?, value.as_str()));
        }
        for record in reader.records() {
            let record = record.map_err(|error| broken(error.to_string()))?;
            if keys.iter().all(|(place, value)| record.get(*place) == Some(value)) {
                let mut values = Vec::new();
                for (ours, theirs) in &self.measures {
                    let text = record.get(at(theirs)?).unwrap_or("");
                    let value = text.trim().parse();
                    let value: f64 =
                        value.map_err(|_| broken(format!("`{theirs}` is `{text}`")))?;
                    let column = column(ours)?;
                    let is_time = column.unit == Unit::Seconds;
                    let unit = self.unit.filter(|_| is_time).unwrap_or(1.0);
                    values.push((column, value * unit));
                }
                return Ok(values);
            }
        }
        Err(broken(format!("has no row with {:?}", row.key)))
    }

    /// The published completion times of a run, by name of the job; empty if the table has none.
    pub(super) fn expected_jobs(
        &self,
        row: &PublishedRun,
        data: &Path,
    ) -> Result<BTreeMap<String, f64>, Failure> {
        let golden = row.golden_jobs.as_ref().or(self.golden_jobs.as_ref());
        let Some(golden) = golden else { return Ok(BTreeMap::new()) };
        let path = data.join(golden);
        let broken = |what: String| Failure::Operation(format!("{}: {what}", path.display()));
        let text = files::read_text(&path)?;
        let mut value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        for key in &row.jobs {
            value = value[key].take();
        }
        let place = row.jobs.join(".");
        let jobs: BTreeMap<String, f64> = serde_json::from_value(value)
            .map_err(|error| broken(format!("`{place}` has no seconds by job: {error}")))?;
        if jobs.is_empty() {
            return Err(broken(format!("`{place}` has no job")));
        }
        Ok(jobs)
    }
}

/// The measure of a name.
pub(super) fn column(key: &str) -> Result<&'static Column, Failure> {
    let found = COLUMNS.iter().find(|column| column.key == key);
    found.ok_or_else(|| Failure::Operation(format!("the embedded tables: no measure `{key}`")))
}
