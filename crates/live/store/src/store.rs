//! The store as the daemon holds it: one connection that writes.

use crate::apply::{Clock, apply};
use crate::disk;
use crate::error::{StoreError, explain};
use crate::lock::{Left, Lock, Mark};
use crate::reader::Reader;
use crate::row::{AttemptRow, JobRow, TokenRow};
use crate::write::Write;
use crate::{connection, read, schema};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Up to this size the whole file is checked when it is opened; a larger one is checked where it is read.
///
/// At a few hundred megabytes a second the check then takes some tenths of a second.
const CHECKED_BYTES_MAX: u64 = 32 << 20;

/// The store of a daemon. No other process can open it meanwhile, except to read.
#[derive(Debug)]
pub struct Store {
    pub(crate) path: PathBuf,
    /// Before the connection: fields are dropped in this order.
    mark: Mark,
    pub(crate) connection: Connection,
    clock: Clock,
    _lock: Lock,
}

/// A list of writes is on disk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of the newest event; 0 when there was none yet.
    pub last_event: u64,
}

/// What a daemon needs to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Jobs that have not ended, by id.
    pub jobs: Vec<JobRow>,
    /// The newest launch of each of them that was launched, by job.
    pub attempts: Vec<AttemptRow>,
    /// Named values.
    pub meta: BTreeMap<String, String>,
    /// The next free id of a job.
    pub next_job: u32,
    /// The number of the newest event; 0 when there was none yet.
    pub last_event: u64,
    /// All tokens, by name.
    pub tokens: Vec<TokenRow>,
}

impl Store {
    /// Opens a store, makes it where there is none, and upgrades it where it is older.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        disk::make_folder(path)?;
        let lock = Lock::take(path)?;
        miss(path, lock.left)?;
        if !path.exists() {
            create(path)?;
        }
        refuse_empty(path)?;
        disk::make_private(path)?;
        let mut connection = connection::writer(path)?;
        let version = schema::version_of(&connection, path)?;
        check(&connection, path)?;
        schema::upgrade(&mut connection, path, version)?;
        schema::check_tables(&connection, path)?;
        let clock = read::clock(&connection).map_err(explain(path))?;
        let mark = lock.mark().map_err(|error| StoreError::io(path, &error))?;
        Ok(Store { path: path.to_owned(), mark, connection, clock, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a list, whole or not at all. It is on disk when this returns.
    ///
    /// After a failure nothing of the list is in the store, and the store can be used again as soon as the cause is
    /// gone. One case is open: when the disk fails at the very end of a commit and the process dies before the next
    /// one, the list may be there at the next start, whole. No caller was told that it was kept, so none is misled.
    pub fn commit(&mut self, writes: &[Write]) -> Result<Committed, StoreError> {
        let mut clock = self.clock;
        clock.hear(writes);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(explain(&self.path))?;
        for (index, write) in writes.iter().enumerate() {
            apply(&transaction, &self.path, &mut clock, (index, write))?;
        }
        transaction.commit().map_err(explain(&self.path))?;
        // Only now: the log is on disk with what was just written.
        self.mark.open();
        self.clock = clock;
        Ok(Committed { last_event: clock.last_event })
    }

    /// Reads what a daemon needs to go on, as of one moment.
    pub fn load(&mut self) -> Result<Loaded, StoreError> {
        let path = &self.path;
        let transaction = self.connection.transaction().map_err(explain(path))?;
        let loaded = Loaded {
            jobs: read::open_jobs(&transaction).map_err(explain(path))?,
            attempts: read::newest_attempts(&transaction).map_err(explain(path))?,
            meta: read::meta(&transaction).map_err(explain(path))?,
            next_job: read::next_job(&transaction).map_err(explain(path))?,
            last_event: self.clock.last_event,
            tokens: read::tokens(&transaction).map_err(explain(path))?,
        };
        transaction.finish().map_err(explain(path))?;
        Ok(loaded)
    }

    /// A connection of its own that only reads; it can go to another thread, and never waits for commits.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        Reader::open(&self.path)
    }

    /// Copies the log into the main file and closes both. Dropping a store does the same, without an answer.
    pub fn close(self) -> Result<(), StoreError> {
        let Store { path, mark, connection, _lock, .. } = self;
        drop(mark);
        connection.close().map_err(|(_, error)| explain(&path)(error))
    }
}

/// Refuses to begin anew where there was a store: jobs of it may be running, and an empty store would end them.
pub(crate) fn miss(path: &Path, left: Left) -> Result<(), StoreError> {
    let lock = disk::beside(path, ".lock");
    let log = disk::beside(path, "-wal");
    match left {
        Left::Open | Left::Closed if !path.exists() => {
            Err(StoreError::Gone { path: path.to_owned(), lock })
        }
        Left::Open if !log.exists() => {
            Err(StoreError::LogGone { path: path.to_owned(), log, lock })
        }
        _ => Ok(()),
    }
}

/// Makes an empty store under another name first: a file under the real name always has all tables, and one without
/// them was damaged.
fn create(path: &Path) -> Result<(), StoreError> {
    let log = disk::beside(path, "-wal");
    if log.exists() {
        let reason = format!("the file is gone, but its log {} is there", log.display());
        return Err(StoreError::damaged(path, reason));
    }
    let unfinished = disk::beside(path, ".new");
    disk::remove_all(&unfinished)?;
    build(&unfinished)?.close().map_err(|(_, error)| explain(path)(error))?;
    disk::rename(&unfinished, path)
}

/// A new file with today's tables.
pub(crate) fn build(path: &Path) -> Result<Connection, StoreError> {
    disk::make_file(path)?;
    let mut connection = connection::builder(path)?;
    schema::upgrade(&mut connection, path, 0)?;
    Ok(connection)
}

/// SQLite takes an empty file for a new one; ours never are.
pub(crate) fn refuse_empty(path: &Path) -> Result<(), StoreError> {
    let length = fs::metadata(path).map_err(|error| StoreError::io(path, &error))?.len();
    if length == 0 { Err(StoreError::damaged(path, "the file is empty")) } else { Ok(()) }
}

/// Looks for damage, as far as that is quick; [`Reader::check`] looks everywhere.
fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let pages = connection::number(connection, path, "page_count")?;
    let page_bytes = connection::number(connection, path, "page_size")?;
    if pages * page_bytes > CHECKED_BYTES_MAX {
        return Ok(());
    }
    match read::faults(connection, "quick_check", 1).map_err(explain(path))?.pop() {
        Some(fault) => Err(StoreError::damaged(path, fault)),
        None => Ok(()),
    }
}
