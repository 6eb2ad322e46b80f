//! Reading beside the daemon's commits.

use crate::error::{StoreError, explain};
use crate::row::{AttemptRow, AuditRow, EventRow, JobRow, TokenRow, UsageRow};
use crate::{connection, read, schema};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// Faults that a check lists at most.
const FAULTS_MAX: u32 = 100;

/// A connection that only reads. It sees what was committed before each question.
#[derive(Debug)]
pub struct Reader {
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
}

impl Reader {
    /// Opens a store of today's version to read it, whether or not a daemon has it open.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        crate::store::refuse_empty(path)?;
        let connection = connection::reader(path)?;
        let found = schema::version_of(&connection, path)?;
        if found < schema::VERSION {
            let known = schema::VERSION;
            return Err(StoreError::Older { path: path.to_owned(), found, known });
        }
        Ok(Reader { path: path.to_owned(), connection })
    }

    /// A job, ended or not.
    pub fn job(&self, id: u32) -> Result<Option<JobRow>, StoreError> {
        read::job_of(&self.connection, id).map_err(explain(&self.path))
    }

    /// Jobs that have ended, newest id first, only those below `before` and of `user` where these are given.
    pub fn ended_jobs(
        &self,
        before: Option<u32>,
        user: Option<&str>,
        limit: usize,
    ) -> Result<Vec<JobRow>, StoreError> {
        read::ended_jobs(&self.connection, before, user, limit).map_err(explain(&self.path))
    }

    /// How a job ended; `None` when it has not, or is not there.
    pub fn end_of(&self, id: u32) -> Result<Option<String>, StoreError> {
        read::end_of(&self.connection, id).map_err(explain(&self.path))
    }

    /// All launches of a job, the first one first.
    pub fn attempts(&self, job: u32) -> Result<Vec<AttemptRow>, StoreError> {
        read::attempts_of(&self.connection, job).map_err(explain(&self.path))
    }

    /// Launches that held GPUs at some time from `since` to before `until`, by launch time, with who pays for them.
    pub fn attempts_between(
        &self,
        since: i64,
        until: i64,
        user: Option<&str>,
    ) -> Result<Vec<UsageRow>, StoreError> {
        read::attempts_between(&self.connection, (since, until), user).map_err(explain(&self.path))
    }

    /// Events after a number, oldest first, at most `max` of them.
    pub fn events(&self, after: u64, max: usize) -> Result<Vec<EventRow>, StoreError> {
        read::events(&self.connection, after, max).map_err(explain(&self.path))
    }

    /// The digest and the answer that were kept for a client's key.
    pub fn key(&self, user: &str, key: &str) -> Result<Option<(String, String)>, StoreError> {
        read::key(&self.connection, user, key).map_err(explain(&self.path))
    }

    /// A named value.
    pub fn meta(&self, name: &str) -> Result<Option<String>, StoreError> {
        let mut all = read::meta(&self.connection).map_err(explain(&self.path))?;
        Ok(all.remove(name))
    }

    /// All tokens, by name.
    pub fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        read::tokens(&self.connection).map_err(explain(&self.path))
    }

    /// The newest lines of the audit log, newest first.
    pub fn audit(&self, max: usize) -> Result<Vec<AuditRow>, StoreError> {
        read::audit(&self.connection, max).map_err(explain(&self.path))
    }

    /// Reads every page and compares every index with its table; the faults found, none when all is well.
    pub fn check(&self) -> Result<Vec<String>, StoreError> {
        read::faults(&self.connection, "integrity_check", FAULTS_MAX).map_err(explain(&self.path))
    }
}
