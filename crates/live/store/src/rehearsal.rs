//! An upgrade tried on a copy, so that it can be told beforehand what it would do to a store.

use crate::error::{StoreError, explain};
use crate::lock::{self, Left};
use crate::store::{miss, refuse_empty};
use crate::{connection, copy, disk, schema};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How often a copy is begun again because the store changed meanwhile.
const COPIES_MAX: u32 = 3;

/// A store as it would be after it was opened by this program. The store itself is not changed.
#[derive(Debug)]
pub struct Rehearsal {
    /// The version that was found.
    pub version: u32,
    /// Bytes that the store takes with its log.
    pub bytes: u64,
    /// Whether a daemon has it open.
    pub in_use: Option<InUse>,
    path: PathBuf,
    connection: Connection,
}

/// A daemon that has a store open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its process, if it said who it is.
    pub process: Option<u32>,
}

impl Rehearsal {
    /// Copies a store into an empty folder of the caller's, checks all of the copy and upgrades it.
    pub fn begin(path: &Path, scratch: &Path) -> Result<Rehearsal, StoreError> {
        let (in_use, left) = lock::look(path)?;
        // While a daemon has it, its log comes and goes as the daemon likes.
        miss(path, if in_use.is_some() { Left::Nothing } else { left })?;
        refuse_empty(path)?;
        let copy = scratch.join("store.db");
        match in_use {
            Some(_) => copy::copy_pages_to(path, &copy)?,
            None => copy_files(path, &copy)?,
        }
        let bytes = size(path) + size(&disk::beside(path, "-wal"));
        let (connection, version) = upgrade(&copy, path).map_err(|error| error.about(path))?;
        Ok(Rehearsal { version, bytes, in_use, path: path.to_owned(), connection })
    }

    /// Hands over one column of a table, row by row: the key of the row, and its text or why it is none; rows where
    /// nothing was written are left out.
    pub fn texts(
        &self,
        (table, column): (&str, &str),
        mut each: impl FnMut(i64, Result<&str, String>),
    ) -> Result<u64, StoreError> {
        let known = schema::TABLES.iter().find(|known| known.name == table);
        let key = known.expect("one of our tables is asked for").key;
        let sql = format!("SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL");
        let mut statement = self.connection.prepare(&sql).map_err(explain(&self.path))?;
        let mut rows = statement.query(()).map_err(explain(&self.path))?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(explain(&self.path))? {
            let key: i64 = row.get(0).map_err(explain(&self.path))?;
            let value = row.get_ref(1).map_err(explain(&self.path))?;
            each(key, value.as_str().map_err(|error| error.to_string()));
            count += 1;
        }
        Ok(count)
    }

    /// The named values, with the key of the row of each.
    pub fn meta(&self) -> Result<Vec<(i64, String, String)>, StoreError> {
        let explain = explain(&self.path);
        let mut statement =
            self.connection.prepare("SELECT id, name, value FROM meta").map_err(&explain)?;
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.map_err(&explain)?.collect::<Result<_, _>>().map_err(&explain)
    }
}

fn upgrade(copy: &Path, path: &Path) -> Result<(Connection, u32), StoreError> {
    let mut connection = connection::writer(copy)?;
    let version = copy::verify(&connection, path)?;
    schema::upgrade(&mut connection, path, version)?;
    schema::check_tables(&connection, path)?;
    Ok((connection, version))
}

/// Copies the file and its log; SQLite itself would leave traces beside them.
fn copy_files(path: &Path, to: &Path) -> Result<(), StoreError> {
    for _ in 0..COPIES_MAX {
        let before = stamps(path);
        disk::remove_all(to)?;
        for suffix in ["", "-wal"] {
            let (from, to) = (disk::beside(path, suffix), disk::beside(to, suffix));
            if from.exists() {
                fs::copy(&from, &to).map_err(|error| StoreError::io(&to, &error))?;
            }
        }
        if stamps(path) == before {
            return Ok(());
        }
    }
    Err(StoreError::Busy { path: path.to_owned() })
}

fn stamps(path: &Path) -> [Option<(u64, SystemTime)>; 2] {
    ["", "-wal"].map(|suffix| {
        let found = fs::metadata(disk::beside(path, suffix)).ok()?;
        Some((found.len(), found.modified().ok()?))
    })
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}
