//! Queries, and how their rows become ours.

use crate::apply::Clock;
use crate::row::{AttemptRow, AuditRow, EventRow, JobRow, TokenRow, UsageRow};
use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};
use std::collections::BTreeMap;

const JOB: &str = "job, user, tenant, spec, state, \"end\", wall";
const ATTEMPT: &str = "a.job, a.attempt, a.gpus, a.launched, a.ended, a.price_per_hour, a.data";

pub(crate) fn clock(from: &Connection) -> Result<Clock> {
    let newest = "SELECT seq, wall FROM events ORDER BY seq DESC LIMIT 1";
    let newest = from.query_row(newest, (), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (seq, wall): (i64, i64) = newest.unwrap_or_default();
    let last_event = seq.max(floor(from, "event")?).max(0) as u64;
    Ok(Clock { last_event, wall })
}

/// Ids do not come back: not after a repair that lost the newest jobs either.
pub(crate) fn next_job(from: &Connection) -> Result<u32> {
    let newest: Option<u32> = from.query_row("SELECT max(job) FROM jobs", (), |row| row.get(0))?;
    let next = newest.map_or(0, |job| i64::from(job) + 1).max(floor(from, "job")?);
    u32::try_from(next).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, next))
}

fn floor(from: &Connection, name: &str) -> Result<i64> {
    let sql = "SELECT value FROM floors WHERE name = ?";
    Ok(from.query_row(sql, [name], |row| row.get(0)).optional()?.unwrap_or(0))
}

pub(crate) fn open_jobs(from: &Connection) -> Result<Vec<JobRow>> {
    all(from, &format!("SELECT {JOB} FROM jobs WHERE \"end\" IS NULL ORDER BY job"), (), job)
}

pub(crate) fn newest_attempts(from: &Connection) -> Result<Vec<AttemptRow>> {
    let sql = format!(
        "SELECT {ATTEMPT} FROM jobs CROSS JOIN attempts a ON a.job = jobs.job
         WHERE jobs.\"end\" IS NULL
             AND a.attempt = (SELECT max(attempt) FROM attempts WHERE job = jobs.job)
         ORDER BY jobs.job"
    );
    all(from, &sql, (), attempt)
}

pub(crate) fn meta(from: &Connection) -> Result<BTreeMap<String, String>> {
    let mut statement = from.prepare_cached("SELECT name, value FROM meta")?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

pub(crate) fn tokens(from: &Connection) -> Result<Vec<TokenRow>> {
    let sql = "SELECT name, digest, user, role, created, expires FROM tokens ORDER BY name";
    all(from, sql, (), |row| {
        Ok(TokenRow {
            name: row.get(0)?,
            digest: row.get(1)?,
            user: row.get(2)?,
            role: row.get(3)?,
            created: row.get(4)?,
            expires: row.get(5)?,
        })
    })
}

pub(crate) fn job_of(from: &Connection, id: u32) -> Result<Option<JobRow>> {
    let sql = format!("SELECT {JOB} FROM jobs WHERE job = ?");
    from.prepare_cached(&sql)?.query_row([id], job).optional()
}

pub(crate) fn ended_jobs(
    from: &Connection,
    before: Option<u32>,
    user: Option<&str>,
    limit: usize,
) -> Result<Vec<JobRow>> {
    let of_user = if user.is_some() { "AND user = ?2" } else { "AND ?2 IS NULL" };
    let sql = format!(
        "SELECT {JOB} FROM jobs WHERE \"end\" IS NOT NULL AND job < ?1 {of_user}
         ORDER BY job DESC LIMIT ?3"
    );
    let before = before.map_or(i64::from(u32::MAX) + 1, i64::from);
    all(from, &sql, params![before, user, count(limit)], job)
}

pub(crate) fn end_of(from: &Connection, id: u32) -> Result<Option<String>> {
    let mut statement = from.prepare_cached("SELECT \"end\" FROM jobs WHERE job = ?")?;
    Ok(statement.query_row([id], |row| row.get(0)).optional()?.flatten())
}

pub(crate) fn attempts_of(from: &Connection, id: u32) -> Result<Vec<AttemptRow>> {
    let sql = format!("SELECT {ATTEMPT} FROM attempts a WHERE a.job = ? ORDER BY a.attempt");
    all(from, &sql, [id], attempt)
}

pub(crate) fn attempts_between(
    from: &Connection,
    (since, until): (i64, i64),
    user: Option<&str>,
) -> Result<Vec<UsageRow>> {
    let sql = format!(
        "SELECT {ATTEMPT}, jobs.user, jobs.tenant FROM attempts a CROSS JOIN jobs ON jobs.job = a.job
         WHERE (a.ended IS NULL OR a.ended > ?1) AND a.launched < ?2
             AND (?3 IS NULL OR jobs.user = ?3)
         ORDER BY a.launched, a.job, a.attempt"
    );
    all(from, &sql, params![since, until, user], |row| {
        Ok(UsageRow { user: row.get(7)?, tenant: row.get(8)?, attempt: attempt(row)? })
    })
}

pub(crate) fn events(from: &Connection, after: u64, max: usize) -> Result<Vec<EventRow>> {
    let sql =
        "SELECT seq, wall, kind, job, user, data FROM events WHERE seq > ? ORDER BY seq LIMIT ?";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    all(from, sql, params![after, count(max)], |row| {
        Ok(EventRow {
            seq: row.get::<_, i64>(0)? as u64,
            wall: row.get(1)?,
            kind: row.get(2)?,
            job: row.get(3)?,
            user: row.get(4)?,
            data: row.get(5)?,
        })
    })
}

pub(crate) fn key(from: &Connection, user: &str, key: &str) -> Result<Option<(String, String)>> {
    from.prepare_cached("SELECT digest, answer FROM keys WHERE user = ? AND key = ?")?
        .query_row([user, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

pub(crate) fn audit(from: &Connection, max: usize) -> Result<Vec<AuditRow>> {
    let sql = "SELECT wall, user, action, target, allowed FROM audit ORDER BY id DESC LIMIT ?";
    all(from, sql, [count(max)], |row| {
        Ok(AuditRow {
            wall: row.get(0)?,
            user: row.get(1)?,
            action: row.get(2)?,
            target: row.get(3)?,
            allowed: row.get(4)?,
        })
    })
}

/// What `quick_check` or `integrity_check` finds; nothing when all is well.
pub(crate) fn faults(from: &Connection, check: &str, max: u32) -> Result<Vec<String>> {
    let mut statement = from.prepare(&format!("PRAGMA {check}({max})"))?;
    let rows = statement.query_map((), |row| row.get::<_, String>(0))?;
    rows.filter(|row| row.as_ref().map_or(true, |text| text != "ok")).collect()
}

fn all<T>(
    from: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    from.prepare_cached(sql)?.query_map(values, read)?.collect()
}

fn job(row: &Row<'_>) -> Result<JobRow> {
    Ok(JobRow {
        job: row.get(0)?,
        user: row.get(1)?,
        tenant: row.get(2)?,
        spec: row.get(3)?,
        state: row.get(4)?,
        end: row.get(5)?,
        wall: row.get(6)?,
    })
}

fn attempt(row: &Row<'_>) -> Result<AttemptRow> {
    Ok(AttemptRow {
        job: row.get(0)?,
        attempt: row.get(1)?,
        gpus: row.get(2)?,
        launched: row.get(3)?,
        ended: row.get(4)?,
        price_per_hour: row.get(5)?,
        data: row.get(6)?,
    })
}

fn count(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
