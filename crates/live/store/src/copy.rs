//! Backup and restore.

use crate::error::{StoreError, explain};
use crate::lock::Lock;
use crate::reader::Reader;
use crate::store::{Store, refuse_empty};
use crate::{connection, disk, read, schema};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs;
use std::path::{Path, PathBuf};

/// A copy that was read again after it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Where it is.
    pub path: PathBuf,
    /// The version of its tables.
    pub version: u32,
    /// Jobs in it, ended or not.
    pub jobs: u64,
    /// Bytes it takes.
    pub bytes: u64,
    /// Where the file that was there before is now, if there was one.
    pub set_aside: Option<PathBuf>,
}

/// What becomes of a store that is there already.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused.
    Refuse,
    /// It gets another name.
    SetAside,
}

impl Store {
    /// Copies the store into one new file and checks the copy. Commits wait meanwhile; [`Reader::backup`] lets them go on.
    pub fn backup(&self, to: &Path) -> Result<Copied, StoreError> {
        backup(&self.connection, &self.path, to)
    }
}

impl Reader {
    /// Copies the store as of this moment into one new file and checks the copy, while commits go on.
    pub fn backup(&self, to: &Path) -> Result<Copied, StoreError> {
        backup(&self.connection, &self.path, to)
    }
}

/// Puts a backup in the place of a store, after checking all of it.
///
/// At every moment there is a whole store under the name `to`: the old one or the new one.
pub fn restore(from: &Path, to: &Path, existing: Existing) -> Result<Copied, StoreError> {
    refuse_empty(from)?;
    disk::make_folder(to)?;
    let mut lock = Lock::take(to)?;
    if to.exists() && existing == Existing::Refuse {
        return Err(StoreError::Exists { path: to.to_owned() });
    }
    let source = connection::reader(from)?;
    verify(&source, from)?;
    let unfinished = disk::beside(to, ".new");
    let copied = copy(&source, from, &unfinished)?;
    fold_log(to);
    let set_aside = install(&unfinished, to, ".before-restore")?;
    lock.mark_closed();
    Ok(Copied { path: to.to_owned(), set_aside, ..copied })
}

/// Gives a finished file the name of the store. What was there keeps its content under another name, which is returned.
pub(crate) fn install(
    new: &Path,
    store: &Path,
    suffix: &str,
) -> Result<Option<PathBuf>, StoreError> {
    let log = disk::beside(store, "-wal");
    let aside = (store.exists() || log.exists()).then(|| disk::free_name(store, suffix));
    if let Some(aside) = &aside {
        // A log that is left belongs to the old file, and would spoil the new one.
        if log.exists() {
            disk::rename(&log, &disk::beside(aside, "-wal"))?;
        }
        disk::remove(&disk::beside(store, "-shm"))?;
        if store.exists() {
            fs::hard_link(store, aside)
                .or_else(|_| fs::copy(store, aside).map(drop))
                .map_err(|error| StoreError::io(aside, &error))?;
        }
    }
    disk::rename(new, store)?;
    Ok(aside)
}

/// Copies the log of a store into its main file, so that the two cannot be parted; a damaged pair stays as it is.
fn fold_log(store: &Path) {
    if store.exists() && disk::beside(store, "-wal").exists() {
        let _ = connection::writer(store).map(Connection::close);
    }
}

fn backup(from: &Connection, path: &Path, to: &Path) -> Result<Copied, StoreError> {
    if to.exists() {
        return Err(StoreError::Exists { path: to.to_owned() });
    }
    let unfinished = disk::beside(to, ".partial");
    let copied = copy(from, path, &unfinished)?;
    disk::rename(&unfinished, to)?;
    Ok(Copied { path: to.to_owned(), ..copied })
}

/// Copies a store into a new file while a daemon goes on with it.
pub(crate) fn copy_pages_to(path: &Path, to: &Path) -> Result<(), StoreError> {
    disk::make_file(to)?;
    copy_pages(&connection::reader(path)?, path, to)
}

/// Copies all pages into a new file and reads it again; a failure leaves no file behind.
fn copy(from: &Connection, path: &Path, to: &Path) -> Result<Copied, StoreError> {
    disk::remove_all(to)?;
    disk::make_file(to)?;
    let copied = copy_pages(from, path, to).and_then(|()| {
        let copy = connection::reader(to)?;
        let version = verify(&copy, to)?;
        let jobs: i64 = copy
            .query_row("SELECT count(*) FROM jobs", (), |row| row.get(0))
            .map_err(explain(to))?;
        let bytes = fs::metadata(to).map_err(|error| StoreError::io(to, &error))?.len();
        Ok(Copied { path: to.to_owned(), version, jobs: jobs as u64, bytes, set_aside: None })
    });
    if copied.is_err() {
        disk::remove_all(to)?;
    }
    copied
}

fn copy_pages(from: &Connection, path: &Path, to: &Path) -> Result<(), StoreError> {
    let mut target = connection::builder(to)?;
    let backup = Backup::new(from, &mut target).map_err(explain(to))?;
    // One step is one reading transaction: it cannot be overtaken by commits and begin anew.
    match backup.step(-1).map_err(explain(to))? {
        StepResult::Done => {}
        _ => return Err(StoreError::Busy { path: path.to_owned() }),
    }
    drop(backup);
    // A backup is one file, without a log beside it.
    connection::set(&target, to, "journal_mode", "delete")?;
    target.close().map_err(|(_, error)| explain(to)(error))
}

/// Reads everything; the version when all is well.
pub(crate) fn verify(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let version = schema::version_of(connection, path)?;
    match read::faults(connection, "integrity_check", 1).map_err(explain(path))?.pop() {
        Some(fault) => Err(StoreError::damaged(path, fault)),
        None => Ok(version),
    }
}
