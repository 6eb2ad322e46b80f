//! What can be redone of published results: a table of data, and nothing that knows a paper's name.

use crate::args::{GivenArgs, StageArgs, WorldArgs};
use crate::failure::Failure;
use crate::{choice, files, given, options};
use clap::ValueEnum;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use trainyard_framework::nearest;
use trainyard_report::Summary;
use trainyard_report::column::{COLUMNS, Column};
use trainyard_sim::{Quiet, simulate};

const TEXT: &str = include_str!("../data/reproduce.toml");

/// All that can be redone.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    table: Vec<Table>,
}

/// One figure or set of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name on the command line.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where the expected values come from.
    pub source: String,
    semantics: String,
    format: String,
    cluster: String,
    golden: Option<String>,
    measures: Vec<(String, String)>,
    relative: Option<f64>,
    absolute: Option<f64>,
    /// Its runs.
    pub run: Vec<Row>,
}

/// One run of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What it is called.
    pub name: String,
    trace: String,
    policy: String,
    native: Option<String>,
    samples: Option<(String, String)>,
    #[serde(default)]
    key: BTreeMap<String, String>,
    #[serde(default)]
    expected: BTreeMap<String, f64>,
}

/// One measure of one run beside the published one.
#[derive(Clone)]
pub struct Redone {
    /// The run.
    pub name: String,
    /// The measure.
    pub column: &'static Column,
    /// The published value.
    pub paper: f64,
    /// Ours, in the semantics of the publication.
    pub ours: f64,
    /// Ours, in our own semantics.
    pub native: Option<f64>,
    /// Whether ours is within the tolerance.
    pub within: bool,
}

/// All tables.
pub fn tables() -> Result<Vec<Table>, Failure> {
    let all: Result<Published, _> = toml::from_str(TEXT);
    let all = all.map_err(|error| Failure::Operation(format!("the embedded tables: {error}")))?;
    Ok(all.table)
}

/// The table of a name.
pub fn find(name: &str) -> Result<Table, Failure> {
    let mut tables = tables()?;
    let Some(index) = tables.iter().position(|table| table.id == name) else {
        let ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        let hint = nearest(name, ids.iter().copied());
        let hint = hint.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        let expected = format!("all or one of {}{hint}", ids.join(", "));
        return Err(Failure::flag("reproduce", name, expected));
    };
    Ok(tables.swap_remove(index))
}

impl Table {
    /// The tolerance in words.
    pub fn tolerance(&self) -> String {
        match (self.relative, self.absolute) {
            (Some(part), _) => format!("{} %", part * 100.0),
            (None, Some(distance)) => format!("{distance}"),
            (None, None) => "exact".to_owned(),
        }
    }

    /// Runs one row, below the folder of the data.
    pub fn redo(&self, row: &Row, data: &Path) -> Result<Vec<Redone>, Failure> {
        let expected = self.expected(row, data)?;
        let ours = self.simulate(row, data, (&row.policy, &self.semantics))?;
        let own_name = row.policy.split(':').next().unwrap_or(&row.policy);
        let native = row.native.as_deref().unwrap_or(own_name);
        let native = self.simulate(row, data, (native, "native"))?;
        let mut redone = Vec::new();
        for (column, paper) in expected {
            let value = (column.value)(&ours).unwrap_or(f64::NAN);
            let off = (value - paper).abs();
            redone.push(Redone {
                name: row.name.clone(),
                column,
                paper,
                ours: value,
                native: (column.value)(&native),
                // A value that is not a number is within nothing.
                within: off
                    <= self.absolute.unwrap_or(0.0) + self.relative.unwrap_or(0.0) * paper.abs(),
            });
        }
        Ok(redone)
    }

    fn expected(&self, row: &Row, data: &Path) -> Result<Vec<(&'static Column, f64)>, Failure> {
        let Some(golden) = &self.golden else {
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
                    let value = value.map_err(|_| broken(format!("`{theirs}` is `{text}`")))?;
                    values.push((column(ours)?, value));
                }
                return Ok(values);
            }
        }
        Err(broken(format!("has no row with {:?}", row.key)))
    }

    fn simulate(
        &self,
        row: &Row,
        data: &Path,
        (policy, semantics): (&str, &str),
    ) -> Result<Summary, Failure> {
        let unknown = |value: &str| Failure::flag("reproduce", value, "a known name");
        let mut policy = policy.to_owned();
        if let Some((key, file)) = row.samples.as_ref().filter(|_| policy.contains(':')) {
            policy.push_str(&format!(",{key}=[{}]", first_column(&data.join(file))?.join(",")));
        }
        let given = GivenArgs {
            cluster: Some(self.cluster.clone()),
            trace: Some(data.join(&row.trace)),
            format: self.format.clone(),
            generate: None,
            profiles: Vec::new(),
            seed: "1".to_owned(),
        };
        let world = WorldArgs {
            semantics: ValueEnum::from_str(semantics, true).map_err(|_| unknown(semantics))?,
            costs: None,
            estimate_error: None,
            round: None,
            failures: None,
            decision_cost: None,
            checkpoint_every: None,
        };
        let stages = StageArgs { place: None, admit: None, tune: Vec::new(), sets: Vec::new() };
        let given = given::load(&given)?;
        let options = options::read(&world, 1)?;
        let entrant = choice::entrant_alone(&policy, &stages, world.semantics.semantics())?;
        let pipeline = entrant.selection.build().map_err(|error| Failure::config("", error))?;
        let outcome = simulate(&given.workload, &given.cluster, pipeline, &options, &mut Quiet);
        Ok(Summary::new(&given.workload, &given.cluster, &outcome))
    }
}

fn column(key: &str) -> Result<&'static Column, Failure> {
    let found = COLUMNS.iter().find(|column| column.key == key);
    found.ok_or_else(|| Failure::Operation(format!("the embedded tables: no measure `{key}`")))
}

fn first_column(path: &Path) -> Result<Vec<String>, Failure> {
    let mut reader = csv::Reader::from_reader(files::open(path)?);
    let broken = |error: csv::Error| Failure::Operation(format!("{}: {error}", path.display()));
    let rows: Result<Vec<_>, _> = reader.records().collect();
    let rows = rows.map_err(broken)?;
    Ok(rows.iter().filter_map(|row| row.get(0)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_tables_are_sound() {
        let tables = tables().expect("tables");
        let mut ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), tables.len(), "every id once");
        for table in &tables {
            assert!(!table.run.is_empty(), "{}", table.id);
            for (ours, _) in &table.measures {
                assert!(column(ours).is_ok(), "{}: {ours}", table.id);
            }
            for row in &table.run {
                assert_eq!(table.golden.is_some(), row.expected.is_empty(), "{}", row.name);
                assert_eq!(table.golden.is_some(), !row.key.is_empty(), "{}", row.name);
            }
        }
    }
}
