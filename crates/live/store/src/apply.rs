//! What each write does to the tables.

use crate::error::{StoreError, Taken, explain, is_out_of_range, is_taken};
use crate::write::Write;
use rusqlite::{Params, Transaction, params};
use std::path::Path;

/// What is counted from one commit to the next.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    /// The number of the newest event.
    pub(crate) last_event: u64,
    /// The latest time that was heard of, in microseconds of Unix time: the store asks no clock of its own.
    pub(crate) wall: i64,
}

impl Clock {
    /// Takes note of the latest time in a list. Ends in it happen then: `SetState` does not say when.
    pub(crate) fn hear(&mut self, writes: &[Write]) {
        let walls = writes.iter().filter_map(|write| match write {
            Write::AddJob { wall, .. }
            | Write::AddKey { wall, .. }
            | Write::AddEvent { wall, .. }
            | Write::AddAudit { wall, .. } => Some(*wall),
            Write::SetAttempt { launched, ended, .. } => Some(ended.unwrap_or(*launched)),
            Write::AddToken { created, .. } => Some(*created),
            Write::SetState { .. } | Write::SetMeta { .. } | Write::DropToken { .. } => None,
        });
        // A clock that was set back counts at once, so the latest of this list wins over all before.
        self.wall = walls.max().unwrap_or(self.wall);
    }
}

/// Does one write of a list.
pub(crate) fn apply(
    to: &Transaction<'_>,
    path: &Path,
    clock: &mut Clock,
    (index, write): (usize, &Write),
) -> Result<(), StoreError> {
    let at = At { to, path, index };
    match write {
        Write::AddJob { job, user, tenant, spec, state, wall } => at.add(
            "INSERT INTO jobs (job, user, tenant, spec, state, wall) VALUES (?, ?, ?, ?, ?, ?)",
            params![job, user, tenant, spec, state, wall],
            || Taken::Job(*job),
        ),
        Write::SetState { job, state, end } => at.change(
            "UPDATE jobs SET state = ?2, \"end\" = ?3, ended = iif(?3 IS NULL, NULL, ?4) WHERE job = ?1",
            params![job, state, end, clock.wall],
            || format!("job {job}"),
        ),
        Write::SetAttempt { .. } => at.set_attempt(write),
        Write::AddKey { user, key, digest, answer, wall } => at.add(
            "INSERT INTO keys (user, key, digest, answer, wall) VALUES (?, ?, ?, ?, ?)",
            params![user, key, digest, answer, wall],
            || Taken::Key { user: user.clone(), key: key.clone() },
        ),
        Write::AddEvent { wall, kind, job, user, data } => {
            clock.last_event += 1;
            at.put(
                "INSERT INTO events (seq, wall, kind, job, user, data) VALUES (?, ?, ?, ?, ?, ?)",
                params![clock.last_event as i64, wall, kind, job, user, data],
            )
        }
        Write::AddAudit { wall, user, action, target, allowed } => at.put(
            "INSERT INTO audit (wall, user, action, target, allowed) VALUES (?, ?, ?, ?, ?)",
            params![wall, user, action, target, allowed],
        ),
        Write::SetMeta { name, value } => at.put(
            "INSERT INTO meta (name, value) VALUES (?, ?)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            params![name, value],
        ),
        Write::AddToken { name, digest, user, role, created, expires } => at.add(
            "INSERT INTO tokens (name, digest, user, role, created, expires) VALUES (?, ?, ?, ?, ?, ?)",
            params![name, digest, user, role, created, expires],
            || Taken::Token(name.clone()),
        ),
        Write::DropToken { name } => at.change(
            "DELETE FROM tokens WHERE name = ?",
            params![name],
            || format!("token `{name}`"),
        ),
    }
}

/// One write of a list, for messages, and where it goes.
struct At<'a> {
    to: &'a Transaction<'a>,
    path: &'a Path,
    index: usize,
}

impl At<'_> {
    /// Adds a row under a name that must be free.
    fn add(
        &self,
        sql: &str,
        values: impl Params,
        taken: impl Fn() -> Taken,
    ) -> Result<(), StoreError> {
        match self.run(sql, values) {
            Ok(_) => Ok(()),
            Err(error) if is_taken(&error) => {
                Err(StoreError::Conflict { index: self.index, taken: taken() })
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Changes a row that must be there.
    fn change(
        &self,
        sql: &str,
        values: impl Params,
        what: impl Fn() -> String,
    ) -> Result<(), StoreError> {
        match self.run(sql, values).map_err(|error| self.failed(error))? {
            0 => Err(StoreError::Missing { index: self.index, what: what() }),
            _ => Ok(()),
        }
    }

    /// Adds or replaces a row.
    fn put(&self, sql: &str, values: impl Params) -> Result<(), StoreError> {
        self.run(sql, values).map(drop).map_err(|error| self.failed(error))
    }

    fn set_attempt(&self, write: &Write) -> Result<(), StoreError> {
        let Write::SetAttempt { job, attempt, gpus, launched, ended, price_per_hour, data } = write
        else {
            unreachable!("called for an attempt alone");
        };
        if !price_per_hour.is_finite() {
            let what =
                format!("the price of job {job} is {price_per_hour}, expected a finite number");
            return Err(StoreError::Invalid { index: self.index, what });
        }
        self.put(
            "INSERT INTO attempts (job, attempt, gpus, launched, ended, price_per_hour, data)
             VALUES (?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (job, attempt) DO UPDATE SET
                 gpus = excluded.gpus, launched = excluded.launched, ended = excluded.ended,
                 price_per_hour = excluded.price_per_hour, data = excluded.data",
            params![job, attempt, gpus, launched, ended, price_per_hour, data],
        )
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        if is_out_of_range(&error) {
            return StoreError::Invalid { index: self.index, what: error.to_string() };
        }
        explain(self.path)(error)
    }

    fn run(&self, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
        self.to.prepare_cached(sql)?.execute(values)
    }
}
