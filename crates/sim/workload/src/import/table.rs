//! Tables with columns found by name, in any order, and fields that may be missing.

use super::Skip;
use crate::ReadError;
use std::io::Read;
use std::ops::RangeInclusive;
use trainyard_diagnostic::InputError;

/// One column: the names it may have, and whether the table makes no sense without it.
pub(crate) struct Column {
    pub names: &'static [&'static str],
    pub is_needed: bool,
}

/// A column that must be there.
pub(crate) const fn needed(names: &'static [&'static str]) -> Column {
    Column { names, is_needed: true }
}

/// A column that may be there.
pub(crate) const fn optional(names: &'static [&'static str]) -> Column {
    Column { names, is_needed: false }
}

/// How a table is written.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Header {
    /// The first line names the columns.
    Named,
    /// There is none: columns come in the order in which they are declared.
    None,
}

/// A table that is read row by row.
pub(crate) struct Table<'a> {
    reader: csv::Reader<&'a mut dyn Read>,
    record: csv::StringRecord,
    columns: &'static [Column],
    places: Vec<Option<usize>>,
}

impl<'a> Table<'a> {
    /// A CSV table with a header.
    pub fn csv(
        reader: &'a mut dyn Read,
        columns: &'static [Column],
    ) -> Result<Table<'a>, ReadError> {
        Table::new(reader, columns, (b',', Header::Named))
    }

    /// A table with another separator, or without a header.
    pub fn new(
        reader: &'a mut dyn Read,
        columns: &'static [Column],
        (separator, header): (u8, Header),
    ) -> Result<Table<'a>, ReadError> {
        let mut reader = csv::ReaderBuilder::new()
            .delimiter(separator)
            .quoting(separator == b',')
            .has_headers(header == Header::Named)
            .buffer_capacity(1 << 16)
            .from_reader(reader);
        let places = match header {
            Header::Named => places(reader.headers()?, columns)?,
            Header::None => (0..columns.len()).map(Some).collect(),
        };
        Ok(Table { reader, record: csv::StringRecord::new(), columns, places })
    }

    /// The next row.
    pub fn next(&mut self) -> Result<Option<TableRow<'_>>, ReadError> {
        if !self.reader.read_record(&mut self.record)? {
            return Ok(None);
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        Ok(Some(TableRow {
            line,
            record: &self.record,
            columns: self.columns,
            places: &self.places,
        }))
    }
}

fn places(
    header: &csv::StringRecord,
    columns: &'static [Column],
) -> Result<Vec<Option<usize>>, InputError> {
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let is_it = |name: &str| column.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let mut found = header.iter().enumerate().filter(|(_, name)| is_it(name.trim()));
        let place = found.next().map(|(place, _)| place);
        if let Some((_, again)) = found.next() {
            return Err(InputError::wrong(1, "column", again, "every column once"));
        }
        if column.is_needed && place.is_none() {
            let expected = format!("a column of that name in the header {}", shown(header));
            return Err(InputError::missing(1, column.names[0], expected));
        }
        places.push(place);
    }
    Ok(places)
}

fn shown(header: &csv::StringRecord) -> String {
    let names: Vec<&str> = header.iter().take(20).collect();
    format!("`{}`", names.join(",").chars().take(200).collect::<String>())
}

/// One row.
pub(crate) struct TableRow<'a> {
    pub line: u64,
    record: &'a csv::StringRecord,
    columns: &'static [Column],
    places: &'a [Option<usize>],
}

/// Whether a text says that the value is not known.
pub(crate) fn is_unknown(text: &str) -> bool {
    const MARKS: [&str; 6] = ["none", "null", "nan", "n/a", "na", "unknown"];
    text.is_empty() || (text.len() <= 7 && MARKS.iter().any(|mark| mark.eq_ignore_ascii_case(text)))
}

impl<'a> TableRow<'a> {
    /// The text of a column, if it says anything.
    pub fn text(&self, column: usize) -> Option<&'a str> {
        let text = self.record.get(self.places[column]?)?.trim();
        (!is_unknown(text)).then_some(text)
    }

    /// The text of a column, without which the row is dropped.
    pub fn need(&self, column: usize) -> Result<&'a str, Skip> {
        self.text(column).ok_or_else(|| Skip::missing(self.name(column)))
    }

    /// A number within a range, if there is one.
    pub fn number(
        &self,
        column: usize,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, InputError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let expected = format!("a number from {} to {}", range.start(), range.end());
                Err(self.wrong(column, expected))
            }
        }
    }

    /// A number within a range, without which the row is dropped.
    pub fn need_number(&self, column: usize, range: RangeInclusive<f64>) -> Result<f64, Skip> {
        self.number(column, range)?.ok_or_else(|| Skip::missing(self.name(column)))
    }

    /// A whole number of GPUs.
    pub fn gpus(&self, column: usize) -> Result<u32, Skip> {
        let gpus = self.need_number(column, 0.0..=GPUS_MAX)?;
        whole_gpus(gpus).ok_or_else(|| self.wrong(column, "a whole number of GPUs").into())
    }

    /// A fault in a column of this row.
    pub fn wrong(&self, column: usize, expected: impl Into<String>) -> InputError {
        InputError::wrong(
            self.line,
            self.name(column),
            self.text(column).unwrap_or(""),
            expected.into(),
        )
    }

    fn name(&self, column: usize) -> &'static str {
        self.columns[column].names[0]
    }
}

/// A job larger than this is taken for a slip of the pen.
pub(crate) const GPUS_MAX: f64 = 1e6;

/// A number of GPUs, if it is whole.
pub(crate) fn whole_gpus(gpus: f64) -> Option<u32> {
    ((0.0..=GPUS_MAX).contains(&gpus) && gpus.fract() == 0.0).then_some(gpus as u32)
}

/// The longest time that is taken for one, in seconds: about 317 years.
pub(crate) const SECONDS_MAX: f64 = 1e10;
