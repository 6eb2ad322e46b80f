//! A CSV text read row by row, with columns found by name.

use csv::StringRecord;
use trainyard_diagnostic::InputError;

/// The names of the columns, and every row with its line.
pub(crate) struct Table {
    pub heading: Vec<String>,
    pub rows: Vec<(u64, StringRecord)>,
}

/// Reads the text; every row has as many columns as the heading.
pub(crate) fn read(text: &str) -> Result<Table, InputError> {
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut heading: Option<Vec<String>> = None;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            InputError::wrong(line, "", "this row", format!("CSV ({error})"))
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        match &heading {
            None => heading = Some(record.iter().map(str::to_owned).collect()),
            Some(heading) if record.len() != heading.len() => {
                let value = format!("{} columns", record.len());
                let expected = format!("{} columns, as in the first line", heading.len());
                return Err(InputError::wrong(line, "row", &value, expected));
            }
            Some(_) => rows.push((line, record)),
        }
    }
    let heading =
        heading.ok_or_else(|| InputError::missing(1, "heading", "a line with column names"))?;
    Ok(Table { heading, rows })
}

impl Table {
    /// Where a column is.
    pub fn column(&self, name: &str) -> Result<usize, InputError> {
        let found = self.heading.iter().position(|column| column == name);
        let names = self.heading.iter().map(String::as_str);
        found.ok_or_else(|| InputError {
            nearest: trainyard_diagnostic::nearest(name, names).map(str::to_owned),
            ..InputError::missing(1, name, "a column of that name")
        })
    }
}
