//! Letting go of what is old, a slice at a time.

use crate::error::{StoreError, explain};
use crate::store::Store;
use crate::{connection, disk};
use rusqlite::{Connection, Result, params};
use std::time::Duration;

/// How much of one kind is kept. What is beyond either bound is dropped, oldest first.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Nothing older than this, in microseconds.
    pub age: Option<i64>,
    /// No more than this many.
    pub count: Option<u64>,
}

/// What is kept, and how much is done in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The present, in microseconds of Unix time: ages count back from here.
    pub now: i64,
    /// Events.
    pub events: Keep,
    /// The audit log.
    pub audit: Keep,
    /// Jobs that have ended, with their launches.
    pub ended_jobs: Keep,
    /// Keys of clients. One that was dropped no longer protects from a repeated request.
    pub keys: Keep,
    /// Rows of each kind that one call drops at most, and pages that it gives back at most.
    pub slice: u32,
}

/// What one call of [`Store::compact`] did.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Events that were dropped.
    pub events: u64,
    /// Lines of the audit log that were dropped.
    pub audit: u64,
    /// Ended jobs that were dropped.
    pub jobs: u64,
    /// Launches that were dropped with them.
    pub attempts: u64,
    /// Keys that were dropped.
    pub keys: u64,
    /// Bytes that the main file gave back to the disk.
    pub bytes: u64,
    /// Whether another call would find more to do.
    pub more: bool,
}

const DAY: i64 = 86_400_000_000;

impl Retention {
    /// A month of events and keys, a year of ended jobs and audit, a million rows of each at most.
    pub fn usual(now: i64) -> Retention {
        let keep = |days: i64| Keep { age: Some(days * DAY), count: Some(1_000_000) };
        let slice = 1_000;
        Retention {
            now,
            events: keep(30),
            audit: keep(365),
            ended_jobs: keep(365),
            keys: keep(30),
            slice,
        }
    }
}

impl Store {
    /// Drops one slice of what is beyond its retention and gives pages back to the disk.
    ///
    /// A call is one short transaction, so commits can go between two calls; call again while `more` is set.
    /// The newest job and the newest event always stay, so that their numbers are never given again.
    pub fn compact(&mut self, keep: &Retention) -> std::result::Result<Compacted, StoreError> {
        let path = &self.path;
        let slice = u64::from(keep.slice.max(1));
        let transaction = self.connection.transaction().map_err(explain(path))?;
        let mut done = drop_rows(&transaction, keep, slice).map_err(explain(path))?;
        transaction.commit().map_err(explain(path))?;

        let page_bytes = connection::number(&self.connection, path, "page_size")?;
        let free = connection::number(&self.connection, path, "freelist_count")?;
        let pages = free.min(slice);
        if pages > 0 {
            let sql = format!("PRAGMA incremental_vacuum({pages})");
            // The pragma frees one page for each row it is asked for.
            let mut statement = self.connection.prepare(&sql).map_err(explain(path))?;
            let mut rows = statement.query(()).map_err(explain(path))?;
            while rows.next().map_err(explain(path))?.is_some() {}
        }
        let dropped = [done.events, done.audit, done.jobs, done.keys];
        done.bytes = pages * page_bytes;
        done.more = dropped.iter().any(|count| *count >= slice) || free > pages;
        if !done.more {
            self.fold_log()?;
        }
        Ok(done)
    }

    /// Copies the log into the main file, and cuts it where it has grown, unless a reader still needs it.
    fn fold_log(&self) -> std::result::Result<(), StoreError> {
        let path = &self.path;
        let log = std::fs::metadata(disk::beside(path, "-wal")).map_or(0, |log| log.len());
        let sql = if log > u64::from(connection::LOG_BYTES_MAX) {
            "PRAGMA wal_checkpoint(TRUNCATE)"
        } else {
            "PRAGMA wal_checkpoint(PASSIVE)"
        };
        let set_timeout = |timeout| self.connection.busy_timeout(timeout).map_err(explain(path));
        set_timeout(Duration::ZERO)?;
        // The answer says whether a reader was in the way; then the next call cuts the log.
        let folded = self.connection.query_row(sql, (), |_| Ok(())).map_err(explain(path));
        set_timeout(connection::BUSY_TIMEOUT)?;
        folded
    }
}

fn drop_rows(from: &Connection, keep: &Retention, slice: u64) -> Result<Compacted> {
    let (jobs, attempts) = drop_jobs(from, keep.ended_jobs, keep.now, slice)?;
    Ok(Compacted {
        events: drop_oldest(from, ("events", "seq"), (keep.events, keep.now), slice)?,
        audit: drop_oldest(from, ("audit", "id"), (keep.audit, keep.now), slice)?,
        keys: drop_oldest(from, ("keys", "id"), (keep.keys, keep.now), slice)?,
        jobs,
        attempts,
        ..Compacted::default()
    })
}

/// Drops rows from the oldest number on, up to the first one that is to stay.
fn drop_oldest(
    from: &Connection,
    (table, key): (&str, &str),
    (keep, now): (Keep, i64),
    slice: u64,
) -> Result<u64> {
    let ends = format!("SELECT coalesce(min({key}), 0), coalesce(max({key}), 0) FROM {table}");
    let (first, last): (i64, i64) =
        from.query_row(&ends, (), |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Numbers have no gaps, because only the oldest ever go; so the count of rows follows from them.
    let too_many = keep.count.map_or(i64::MIN, |count| last.saturating_sub_unsigned(count));
    let too_old = keep.age.map_or(i64::MIN, |age| now.saturating_sub(age));
    let slice_end = first.saturating_add_unsigned(slice).min(last);
    let first_to_stay = format!(
        "SELECT min({key}) FROM {table} WHERE {key} < ?1 AND NOT ({key} <= ?2 OR wall < ?3)"
    );
    let stays: Option<i64> =
        from.query_row(&first_to_stay, params![slice_end, too_many, too_old], |row| row.get(0))?;
    let delete = format!("DELETE FROM {table} WHERE {key} < ?");
    Ok(from.execute(&delete, [stays.unwrap_or(slice_end)])? as u64)
}

/// Drops ended jobs with their launches, those that ended first before others.
fn drop_jobs(from: &Connection, keep: Keep, now: i64, slice: u64) -> Result<(u64, u64)> {
    let too_many = match keep.count {
        Some(count) => ended_beyond(from, count)?,
        None => 0,
    };
    let too_old = keep.age.map_or(i64::MIN, |age| now.saturating_sub(age));
    let sql = "SELECT job, coalesce(ended, wall) < ?1 FROM jobs
               WHERE \"end\" IS NOT NULL AND job < (SELECT max(job) FROM jobs)
               ORDER BY ended LIMIT ?2";
    let mut statement = from.prepare_cached(sql)?;
    let oldest = statement
        .query_map(params![too_old, slice as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let oldest: Vec<(u32, bool)> = oldest.collect::<Result<_>>()?;
    let goes = |(index, (_, is_old)): &(usize, (u32, bool))| *is_old || (*index as u64) < too_many;
    let (mut jobs, mut attempts) = (0, 0);
    for (_, (job, _)) in oldest.into_iter().enumerate().take_while(goes) {
        attempts +=
            from.prepare_cached("DELETE FROM attempts WHERE job = ?")?.execute([job])? as u64;
        jobs += from.prepare_cached("DELETE FROM jobs WHERE job = ?")?.execute([job])? as u64;
    }
    Ok((jobs, attempts))
}

/// How many jobs have ended beyond a count.
fn ended_beyond(from: &Connection, count: u64) -> Result<u64> {
    let number = |sql: &str| from.query_row(sql, (), |row| row.get::<_, Option<i64>>(0));
    let first = number("SELECT min(job) FROM jobs")?.unwrap_or(0);
    let last = number("SELECT max(job) FROM jobs")?.unwrap_or(0);
    // Counting reads all of an index, so it is left out where ids alone show that there are not so many.
    if (last - first).unsigned_abs() < count {
        return Ok(0);
    }
    let ended = number("SELECT count(*) FROM jobs WHERE \"end\" IS NOT NULL")?.unwrap_or(0);
    Ok(ended.unsigned_abs().saturating_sub(count))
}
