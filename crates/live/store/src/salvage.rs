//! Reading what can be read of a damaged table.

use crate::schema::Table;
use rusqlite::types::Value;
use rusqlite::{Connection, Result, Row, Transaction, params_from_iter};

/// Numbers from `first` to `last` cannot be read; not each of them need have been there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first number that cannot be read.
    pub first: i64,
    /// The last one.
    pub last: i64,
}

/// What came of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Rows that were read and kept.
    pub kept: u64,
    /// Rows that were read and do not fit the table: values of the wrong type, a number or name that is there twice.
    pub refused: u64,
    /// Stretches that cannot be read.
    pub gaps: Vec<Gap>,
    /// Why nothing at all can be read, if so.
    pub unreadable: Option<String>,
}

/// Stretches after which the rest of a table is given up. Each costs some dozens of short queries.
const GAPS_MAX: usize = 10_000;

/// Copies all readable rows of a table into the same table of a new file.
pub(crate) fn salvage(from: &Connection, to: &Transaction<'_>, table: &Table) -> Result<Salvaged> {
    let columns = match present(from, table) {
        Ok(columns) if !columns.is_empty() => columns,
        Ok(_) => return Ok(unreadable("the table is missing")),
        Err(error) => return Ok(unreadable(&error.to_string())),
    };
    let source = Source { from, table, columns: columns.join(", ") };
    let marks = vec!["?"; columns.len() + 1].join(", ");
    let insert =
        format!("INSERT INTO {} ({}, {}) VALUES ({marks})", table.name, table.key, source.columns);
    let mut insert = to.prepare(&insert)?;
    let mut salvaged = Salvaged::default();
    let mut next = Some(i64::MIN);
    while let Some(start) = next {
        let broken_at = source.each_row(start, |row| match insert.execute(params_from_iter(row)) {
            Ok(_) => salvaged.kept += 1,
            Err(_) => salvaged.refused += 1,
        });
        next = broken_at.and_then(|broken| {
            let give_up = salvaged.gaps.len() + 1 >= GAPS_MAX;
            let resumed = if give_up { None } else { source.resume_after(broken) };
            let last = resumed.map_or(i64::MAX, |row| row - 1);
            salvaged.gaps.push(Gap { first: broken, last });
            resumed
        });
    }
    Ok(salvaged)
}

fn unreadable(reason: &str) -> Salvaged {
    Salvaged { unreadable: Some(reason.to_owned()), ..Salvaged::default() }
}

/// The columns that the damaged file has of those we know: an older one has fewer.
fn present(from: &Connection, table: &Table) -> Result<Vec<&'static str>> {
    let mut statement = from.prepare("SELECT name FROM pragma_table_info(?)")?;
    let names: Vec<String> =
        statement.query_map([table.name], |row| row.get(0))?.collect::<Result<_>>()?;
    let is_there = |column: &&&str| names.iter().any(|name| *name == column.trim_matches('"'));
    Ok(table.columns.iter().filter(is_there).copied().collect())
}

/// A damaged table.
struct Source<'a> {
    from: &'a Connection,
    table: &'a Table,
    columns: String,
}

impl Source<'_> {
    /// Hands out rows in order of their numbers from `start` on; the number at which that ended with a failure.
    fn each_row(&self, start: i64, mut take: impl FnMut(Vec<Value>)) -> Option<i64> {
        let mut next = start;
        let read = self.query(&self.columns, start, |row| {
            let number: i64 = row.get(0)?;
            if number < next {
                // A page that is hung in at a wrong place.
                return Err(rusqlite::Error::IntegralValueOutOfRange(0, number));
            }
            let values = (0..row.as_ref().column_count()).map(|column| row.get(column));
            let values = values.collect::<Result<Vec<Value>>>();
            // Also when its values cannot be read, the row was reached and is left behind.
            let values = values.inspect_err(|_| next = number)?;
            next = number.saturating_add(1);
            take(values);
            Ok(true)
        });
        // The number of the first row is not known when not one was read.
        read.err().map(|_| if next == i64::MIN { 0 } else { next })
    }

    /// The smallest number behind a failure at which reading works again, by steps that double and then halve.
    fn resume_after(&self, broken: i64) -> Option<i64> {
        let mut step: i64 = 1;
        let mut fails = broken;
        let mut works = loop {
            let candidate = broken.checked_add(step)?;
            match self.first_from(candidate) {
                Ok(Some(_)) => break candidate,
                Ok(None) => return None,
                Err(_) => fails = candidate,
            }
            step = step.checked_mul(2)?;
        };
        while works - fails > 1 {
            let middle = fails + (works - fails) / 2;
            match self.first_from(middle) {
                Ok(_) => works = middle,
                Err(_) => fails = middle,
            }
        }
        Some(works)
    }

    /// The first row from a number on, read whole.
    fn first_from(&self, start: i64) -> Result<Option<i64>> {
        let mut found = None;
        self.query(&self.columns, start, |row| {
            for column in 0..row.as_ref().column_count() {
                row.get::<_, Value>(column)?;
            }
            found = Some(row.get(0)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// Hands rows to `take` until it says `false`.
    fn query(
        &self,
        columns: &str,
        start: i64,
        mut take: impl FnMut(&Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (name, key) = (self.table.name, self.table.key);
        // Indexes may be damaged where the table is not.
        let sql = format!(
            "SELECT {key}, {columns} FROM {name} NOT INDEXED WHERE {key} >= ? ORDER BY {key}"
        );
        let mut statement = self.from.prepare_cached(&sql)?;
        let mut rows = statement.query([start])?;
        while let Some(row) = rows.next()? {
            if !take(row)? {
                break;
            }
        }
        Ok(())
    }
}
