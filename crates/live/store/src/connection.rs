//! Connections to SQLite, each with the settings its use needs.

use crate::error::{StoreError, explain};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// How long a connection waits for another one. The only others are readers and backups, which never wait for us.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages of the log after which a commit copies it into the main file: about 4 MiB.
///
/// The log is then written again from its beginning, and to overwrite is faster than to append.
const CHECKPOINT_PAGES: u32 = 1_000;

/// A log that grew larger, because of a reader or a large list, is cut back to this size.
pub(crate) const LOG_BYTES_MAX: u32 = 8 << 20;

/// Different statements that a connection keeps ready.
const STATEMENTS_MAX: usize = 48;

/// The connection that writes: what it commits is on disk.
pub(crate) fn writer(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mode: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(explain(path))?;
    if mode != "wal" {
        let reason =
            format!("the file system allows no write-ahead log (SQLite stays in mode `{mode}`)");
        return Err(StoreError::Io { path: path.to_owned(), reason });
    }
    set(&connection, path, "synchronous", "full")?;
    set(&connection, path, "fullfsync", true)?;
    set(&connection, path, "checkpoint_fullfsync", true)?;
    set(&connection, path, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    set(&connection, path, "journal_size_limit", LOG_BYTES_MAX)?;
    set(&connection, path, "cache_size", -8_192)?;
    Ok(connection)
}

/// A connection that cannot change anything.
pub(crate) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    set(&connection, path, "query_only", true)?;
    Ok(connection)
}

/// A connection to a file that no other process knows yet: one file, no log beside it.
pub(crate) fn builder(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    set(&connection, path, "auto_vacuum", "incremental")?;
    set(&connection, path, "synchronous", "full")?;
    Ok(connection)
}

/// Sets a pragma.
pub(crate) fn set(
    connection: &Connection,
    path: &Path,
    pragma: &str,
    value: impl rusqlite::ToSql,
) -> Result<(), StoreError> {
    // Some pragmas answer with the value they took and some do not.
    connection.pragma_update_and_check(None, pragma, value, |_| Ok(())).or_else(|error| match error
    {
        rusqlite::Error::QueryReturnedNoRows => Ok(()),
        other => Err(explain(path)(other)),
    })
}

/// Reads a count from a pragma.
pub(crate) fn number(
    connection: &Connection,
    path: &Path,
    pragma: &str,
) -> Result<u64, StoreError> {
    let value: i64 =
        connection.pragma_query_value(None, pragma, |row| row.get(0)).map_err(explain(path))?;
    Ok(value.max(0) as u64)
}

fn open(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(explain(path))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(explain(path))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // A page that lies about its cells is found when it is read, not when its cells are.
    set(&connection, path, "cell_size_check", true)?;
    set(&connection, path, "trusted_schema", false)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can cut the power, so the settings that survive it are pinned down.
    #[test]
    fn the_writer_syncs_its_log_at_every_commit() {
        let path = std::env::temp_dir().join(format!("trainyard-writer-{}.db", std::process::id()));
        crate::disk::make_file(&path).unwrap();
        let connection = writer(&path).unwrap();
        let mode: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        let full = 2;
        assert_eq!((mode.as_str(), number(&connection, &path, "synchronous")), ("wal", Ok(full)));
        drop(connection);
        crate::disk::remove_all(&path).unwrap();
    }
}
