//! The results of a sweep as one table, the same for every form it is written in.

use crate::sweep::Cell;
use serde_json::Value;
use std::io::{self, Write};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::column::{COLUMNS, Shown};

/// A column with a value for each run.
pub struct Column {
    /// Its heading.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// The values of a column; an empty cell is `None`.
pub enum Values {
    /// Words.
    Texts(Vec<Option<String>>),
    /// Measures.
    Numbers(Vec<Option<f64>>),
}

/// All runs of a sweep, column by column.
pub struct Table {
    /// The columns, each of the same length.
    pub columns: Vec<Column>,
    /// The number of runs.
    pub rows: usize,
}

/// The names of all axes, in the order in which runs have them.
pub fn axes(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for (key, _) in cells.iter().flat_map(|cell| &cell.settings) {
        if !names.contains(&key.as_str()) {
            names.push(key);
        }
    }
    names
}

impl Table {
    /// The settings of each run, what it ran, and its measures.
    pub fn new(cells: &[Cell], results: &[Value]) -> Table {
        let texts = |name: &str, of: &dyn Fn(&Cell, &Value) -> Option<String>| Column {
            name: name.to_owned(),
            values: Values::Texts(
                cells.iter().zip(results).map(|(cell, row)| of(cell, row)).collect(),
            ),
        };
        let numbers = |name: &str, of: &dyn Fn(&Value) -> Option<f64>| Column {
            name: name.to_owned(),
            values: Values::Numbers(results.iter().map(of).collect()),
        };
        let word = |row: &Value, key: &str| row[key].as_str().map(str::to_owned);
        let mut columns = vec![
            numbers("schema_version", &|_| Some(f64::from(SCHEMA_VERSION))),
            texts("key", &|cell, _| Some(cell.key.clone())),
        ];
        for name in axes(cells) {
            let value = |cell: &Cell, _: &Value| {
                cell.settings.iter().find(|(key, _)| key == name).map(|pair| pair.1.clone())
            };
            columns.push(texts(name, &value));
        }
        columns.push(texts("workload", &|_, row| word(row, "workload")));
        columns.push(numbers("offered_load", &|row| row["offered_load"].as_f64()));
        columns.push(texts("cluster_line", &|_, row| word(row, "cluster")));
        columns.push(texts("information", &|_, row| word(row, "information")));
        for column in COLUMNS {
            columns.push(numbers(column.key, &|row| row["measures"][column.key].as_f64()));
        }
        Table { columns, rows: results.len() }
    }

    /// For people: a row for each run, with the settings that differ and the measures that every table has.
    pub fn for_people(&self, cells: &[Cell]) -> (Vec<String>, usize, Vec<Vec<String>>) {
        let varies = |column: &&Column| match &column.values {
            Values::Texts(texts) => texts.windows(2).any(|pair| pair[0] != pair[1]),
            Values::Numbers(_) => false,
        };
        let axes = axes(cells);
        let of_axis = |column: &&Column| axes.contains(&column.name.as_str());
        let mut shown: Vec<(String, Vec<String>)> = Vec::new();
        let policy = |column: &&Column| column.name == "policy";
        for column in self.columns.iter().filter(|one| of_axis(one) && (varies(one) || policy(one)))
        {
            let Values::Texts(texts) = &column.values else { continue };
            let values = texts.iter().map(|text| text.clone().unwrap_or_default()).collect();
            shown.push((column.name.clone(), values));
        }
        let words = shown.len();
        for measure in COLUMNS.iter().filter(|measure| measure.shown == Shown::Always) {
            let column = self.columns.iter().find(|column| column.name == measure.key);
            let Some(Values::Numbers(numbers)) = column.map(|column| &column.values) else {
                continue;
            };
            let text = |number: &Option<f64>| {
                number.map_or_else(|| "-".to_owned(), |number| measure.unit.text(number))
            };
            shown.push((measure.title.to_owned(), numbers.iter().map(text).collect()));
        }
        let row = |index: usize| shown.iter().map(|column| column.1[index].clone()).collect();
        let rows = (0..self.rows).map(row).collect();
        (shown.into_iter().map(|column| column.0).collect(), words, rows)
    }

    /// As CSV; numbers as `compare --csv` writes them.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(self.columns.iter().map(|column| column.name.as_str()))?;
        for row in 0..self.rows {
            out.write_record(self.columns.iter().map(|column| match &column.values {
                Values::Texts(texts) => texts[row].clone().unwrap_or_default(),
                Values::Numbers(numbers) => {
                    numbers[row].map(|number| number.to_string()).unwrap_or_default()
                }
            }))?;
        }
        out.flush()
    }
}
