//! What can go wrong with a store.

use rusqlite::{ErrorCode, ffi};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with a store.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{}: the store is in use by {}; stop that daemon first", path.display(), holder_text(*holder))]
    Locked {
        /// The store.
        path: PathBuf,
        /// The process, if it said who it is.
        holder: Option<u32>,
    },
    /// A newer program wrote it.
    #[error(
        "{}: the store has version {found}, this program knows versions up to {known}; \
         use the program that wrote it, or a newer one",
        path.display()
    )]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version this program knows.
        known: u32,
    },
    /// Its tables are newer than its mark says.
    #[error(
        "{}: the store is newer than its mark: it is marked as version {marked} and has the tables of version {found}; \
         an older program or a tool changed the mark; `PRAGMA user_version = {found}` sets it right",
        path.display()
    )]
    Mismarked {
        /// The store.
        path: PathBuf,
        /// What the mark says.
        marked: u32,
        /// What the tables are.
        found: u32,
    },
    /// An older program wrote it, and only a writer can upgrade it.
    #[error(
        "{}: the store has version {found}, this program reads version {known}; \
         the next start of the daemon upgrades it",
        path.display()
    )]
    Older {
        /// The store.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version this program reads.
        known: u32,
    },
    /// A SQLite file of another program.
    #[error("{}: this is a SQLite file, but not a store of trainyard; name another file", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// What it holds cannot be trusted.
    #[error(
        "{}: the store is damaged: {reason}; `trainyard store repair --dry-run {}` shows what can be saved, \
         `trainyard store restore` brings back a backup",
        path.display(), path.display()
    )]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It was there, and is not any more.
    #[error(
        "{}: the store is gone, and jobs of it may be running; `trainyard store restore` brings back a backup; \
         to begin with no jobs, and to end those that run, remove {}",
        path.display(), lock.display()
    )]
    Gone {
        /// The store.
        path: PathBuf,
        /// What remembers it.
        lock: PathBuf,
    },
    /// The daemon did not end well, and what it wrote last is not there any more.
    #[error(
        "{}: the log {} is gone, and with it what was written last; put it back, or bring back a backup with \
         `trainyard store restore`; to go on with what the main file has, remove {}",
        path.display(), log.display(), lock.display()
    )]
    LogGone {
        /// The store.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
        /// What remembers it.
        lock: PathBuf,
    },
    /// There is no room on the disk.
    #[error("{}: no room: {reason}; nothing of this change was kept, free some space and try again", path.display())]
    Full {
        /// The store.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The system refused.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Another connection kept the store locked for too long.
    #[error("{}: another process holds the store for too long; try again", path.display())]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// Something new has a name that is taken. Nothing of the list was kept.
    #[error("write {index}: {taken} is taken already")]
    Conflict {
        /// Which write of the list.
        index: usize,
        /// What is taken.
        taken: Taken,
    },
    /// A write is about something that is not there. Nothing of the list was kept.
    #[error("write {index}: there is no {what}")]
    Missing {
        /// Which write of the list.
        index: usize,
        /// What is not there.
        what: String,
    },
    /// A write holds a value that cannot be kept. Nothing of the list was kept.
    #[error("write {index}: {what}")]
    Invalid {
        /// Which write of the list.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A file that is not to be overwritten.
    #[error("{}: the file exists and is kept as it is; name another one", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
}

/// What is taken already.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// The id of a job.
    Job(u32),
    /// A client's key.
    Key {
        /// Who used it.
        user: String,
        /// The key.
        key: String,
    },
    /// The name or the digest of a token.
    Token(String),
}

impl fmt::Display for Taken {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Job(job) => write!(to, "job {job}"),
            Taken::Key { user, key } => write!(to, "key `{key}` of user `{user}`"),
            Taken::Token(name) => write!(to, "token `{name}`"),
        }
    }
}

impl StoreError {
    /// A damaged store.
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    /// The same about another file: what is wrong with a copy is wrong with what it was copied from.
    pub(crate) fn about(mut self, store: &Path) -> StoreError {
        match &mut self {
            StoreError::Damaged { path, .. }
            | StoreError::Foreign { path }
            | StoreError::Newer { path, .. }
            | StoreError::Mismarked { path, .. } => *path = store.to_owned(),
            // The rest is about the disk that the copy is on.
            _ => {}
        }
        self
    }

    /// What the system said about a file.
    pub(crate) fn io(path: &Path, error: &io::Error) -> StoreError {
        let (path, reason) = (path.to_owned(), error.to_string());
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&error.kind()) {
            StoreError::Full { path, reason }
        } else {
            StoreError::Io { path, reason }
        }
    }
}

/// Turns what SQLite says about a file into a case of our own.
pub(crate) fn explain(path: &Path) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
    move |error| explained(path, &error)
}

/// Whether a name or number is there already.
pub(crate) fn is_taken(error: &rusqlite::Error) -> bool {
    let codes = [
        ffi::SQLITE_CONSTRAINT_UNIQUE,
        ffi::SQLITE_CONSTRAINT_PRIMARYKEY,
        ffi::SQLITE_CONSTRAINT_ROWID,
    ];
    error.sqlite_error().is_some_and(|error| codes.contains(&error.extended_code))
}

/// Whether a value is beyond what its column takes.
pub(crate) fn is_out_of_range(error: &rusqlite::Error) -> bool {
    let code = ffi::SQLITE_CONSTRAINT_CHECK;
    error.sqlite_error().is_some_and(|error| error.extended_code == code)
}

fn explained(path: &Path, error: &rusqlite::Error) -> StoreError {
    let reason = error.to_string();
    let Some(code) = error.sqlite_error_code() else {
        // A value of the wrong type or a text that is not UTF-8: no version of the program writes that.
        return StoreError::damaged(path, reason);
    };
    let path = path.to_owned();
    match code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            StoreError::Damaged { path, reason }
        }
        ErrorCode::DiskFull => StoreError::Full { path, reason },
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy { path },
        // The statements are ours: one that does not fit the tables means the tables are not ours.
        ErrorCode::Unknown | ErrorCode::TypeMismatch | ErrorCode::ConstraintViolation => {
            StoreError::Damaged { path, reason }
        }
        _ => StoreError::Io { path, reason },
    }
}

fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(process) => format!("process {process}"),
        None => "another process".to_owned(),
    }
}
