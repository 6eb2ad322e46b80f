//! The tables, and how older ones become today's.
//!
//! A new store goes through the same steps as an old one, so there is one description of the tables.
//! Every table has an integer key, because [`crate::repair()`] walks over damage by it.

use crate::error::{StoreError, explain};
use rusqlite::Connection;
use std::path::Path;

/// The version that this program writes.
pub const VERSION: u32 = STEPS.len() as u32;

/// What marks a SQLite file as ours: the letters `TYRD`.
pub const APPLICATION: i32 = i32::from_be_bytes(*b"TYRD");

/// All tables, in the order in which a repair copies them.
pub const TABLES: &[Table] = &[
    Table {
        name: "jobs",
        key: "job",
        columns: &["user", "tenant", "spec", "state", "\"end\"", "wall", "ended"],
    },
    Table {
        name: "attempts",
        key: "id",
        columns: &["job", "attempt", "gpus", "launched", "ended", "price_per_hour", "data"],
    },
    Table { name: "keys", key: "id", columns: &["user", "key", "digest", "answer", "wall"] },
    Table { name: "events", key: "seq", columns: &["wall", "kind", "job", "user", "data"] },
    Table { name: "audit", key: "id", columns: &["wall", "user", "action", "target", "allowed"] },
    Table { name: "meta", key: "id", columns: &["name", "value"] },
    Table {
        name: "tokens",
        key: "id",
        columns: &["name", "digest", "user", "role", "created", "expires"],
    },
    Table { name: "floors", key: "id", columns: &["name", "value"] },
];

/// A table and its columns.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its integer key.
    pub key: &'static str,
    /// All other columns.
    pub columns: &'static [&'static str],
}

/// Each step leads from the version of its index to the next: what is done, and what for.
const STEPS: &[(&str, &str)] = &[
    (include_str!("schema/v1.sql"), "the tables of the first version"),
    (
        include_str!("schema/v2.sql"),
        "ended jobs get the time of their end, and numbers do not come back after a repair",
    ),
];

/// What an upgrade from a version changes: each newer version, and what it is for.
pub fn steps_from(version: u32) -> impl Iterator<Item = (u32, &'static str)> {
    (1..).zip(STEPS).map(|(to, (_, what))| (to, *what)).skip(version as usize)
}

/// The version of an open file; fails when it is not ours or is newer than this program.
pub fn version_of(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let number = |pragma: &str| -> Result<i64, StoreError> {
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(explain(path))
    };
    let application = number("application_id")?;
    let version = number("user_version")?;
    if application != i64::from(APPLICATION) {
        // Our tables without our mark, or no tables at all: no other program wrote such a file.
        let ours = check_tables(connection, path).is_ok() || count_tables(connection, path)? == 0;
        return Err(if ours {
            StoreError::damaged(path, format!("its mark reads {application}"))
        } else {
            StoreError::Foreign { path: path.to_owned() }
        });
    }
    match u32::try_from(version) {
        Ok(version) if version > VERSION => {
            Err(StoreError::Newer { path: path.to_owned(), found: version, known: VERSION })
        }
        // An upgrade would try to make what is there already, and call it damage.
        Ok(version)
            if version > 0 && version < VERSION && check_tables(connection, path).is_ok() =>
        {
            Err(StoreError::Mismarked { path: path.to_owned(), marked: version, found: VERSION })
        }
        Ok(version) if version > 0 => Ok(version),
        _ => Err(StoreError::damaged(path, format!("its version reads {version}"))),
    }
}

/// Brings the tables to today's version, all steps in one transaction.
pub fn upgrade(connection: &mut Connection, path: &Path, from: u32) -> Result<(), StoreError> {
    if from == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction().map_err(explain(path))?;
    for (step, _) in &STEPS[from as usize..] {
        transaction.execute_batch(step).map_err(explain(path))?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(explain(path))?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(explain(path))?;
    transaction.commit().map_err(explain(path))
}

/// Names the first table or column that is missing.
pub fn check_tables(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    for table in TABLES {
        let columns = [&[table.key], table.columns].concat().join(", ");
        connection.prepare(&format!("SELECT {columns} FROM {} LIMIT 0", table.name)).map_err(
            |error| StoreError::damaged(path, format!("its tables are not ours: {error}")),
        )?;
    }
    Ok(())
}

fn count_tables(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    connection
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .map_err(explain(path))
}
