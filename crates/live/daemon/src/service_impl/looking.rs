//! Jobs, logs, events and use.

use super::{ServiceImpl, damaged, lost};
use crate::access::{self, Caller, Right};
use crate::record::{Held, Launch};
use crate::seen::{detail_of_ended, row_of_ended};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use trainyard_api::answer::LogChunk;
use trainyard_api::answer::{AcctRow, AttemptRow, EventRow, JobDetail, JobRow, WhyAnswer};
use trainyard_api::request::{AcctRequest, EventsQuery, JobFilter, LogRequest, ROWS_DEFAULT};
use trainyard_api::{Code, JobSpec, Problem};
use trainyard_backend::read_log;
use trainyard_store::{AttemptRow as StoredAttempt, JobRow as StoredJob, Reader, StoreError};
use trainyard_types::{Attempt, JobId};

/// Rows of ended jobs that are read in one go when a filter drops some.
const ENDED_CHUNK: usize = 1000;

impl ServiceImpl {
    pub(super) async fn list(
        &self,
        caller: Caller,
        filter: JobFilter,
    ) -> Result<Vec<JobRow>, Problem> {
        access::check(&caller, Right::Look, None)?;
        let seen = self.look().await?;
        let mut rows = seen.jobs(&filter);
        if filter.all {
            // A job may end between the two looks; the newer one is right.
            let ended = self.read(move |reader| ended(reader, &filter)).await?;
            let over: BTreeSet<u32> = ended.0.iter().map(|row| row.id).collect();
            rows.retain(|row| !over.contains(&row.id));
            rows.extend(ended.0);
            rows.sort_by_key(|row| std::cmp::Reverse(row.id));
            rows.truncate(ended.1);
        }
        Ok(rows)
    }

    /// The row of a job, over or not, and whose it is.
    pub(super) async fn row(&self, job: u32) -> Result<(JobRow, String), Problem> {
        if let Some((row, record)) = self.look().await?.job(JobId(job)) {
            return Ok((row, record.submission.user.clone()));
        }
        let stored = self.stored(job).await?;
        let row = row_of_ended(&stored).map_err(damaged)?;
        Ok((row, stored.user))
    }

    async fn stored(&self, job: u32) -> Result<StoredJob, Problem> {
        let row = self.read(move |reader| reader.job(job)).await?;
        row.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no job {job}")))
    }

    pub(super) async fn detail(&self, caller: Caller, job: u32) -> Result<JobDetail, Problem> {
        access::check(&caller, Right::Look, None)?;
        let rows = self.read(move |reader| reader.attempts(job)).await?;
        let launches = rows.iter().map(|row| serde_json::from_str::<Launch>(&row.data));
        let launches = launches.collect::<Result<Vec<Launch>, _>>();
        let launches = launches.map_err(|fault| damaged(format!("job {job}: {fault}")))?;
        let attempts: Vec<AttemptRow> = launches.iter().map(AttemptRow::from).collect();
        let seen = self.look().await?;
        let mut detail = match seen.job(JobId(job)) {
            Some((row, record)) => JobDetail {
                row,
                spec: record.submission.unpack().0,
                attempts: with_newest(attempts, record.launch.as_deref()),
                report: record.report.clone(),
                measured: record.measured,
                pace: record.pace.points().to_vec(),
            },
            None => {
                // It may have ended since its launches were read.
                let (stored, rows) =
                    self.read(move |reader| Ok((reader.job(job)?, reader.attempts(job)?))).await?;
                let missing = || Problem::new(Code::NotFound, format!("there is no job {job}"));
                let launches = rows.iter().filter_map(|row| serde_json::from_str(&row.data).ok());
                let attempts = launches.map(|launch: Launch| AttemptRow::from(&launch)).collect();
                detail_of_ended(&stored.ok_or_else(missing)?, attempts).map_err(damaged)?
            }
        };
        let owner = detail.row.user.clone();
        if access::check(&caller, Right::LookInside, Some(&owner)).is_err() {
            hide(&mut detail);
        }
        Ok(detail)
    }

    pub(super) async fn reasons(&self, caller: Caller, job: u32) -> Result<WhyAnswer, Problem> {
        access::check(&caller, Right::Look, None)?;
        if let Some(why) = self.look().await?.why(JobId(job)) {
            return Ok(why);
        }
        let (row, _) = self.row(job).await?;
        Ok(WhyAnswer {
            job,
            state: row.state,
            since: row.since,
            reasons: vec!["it has ended".to_owned()],
            data: Vec::new(),
            blockers: Vec::new(),
            nearest_change: None,
            not_before: None,
        })
    }

    pub(super) async fn log(
        &self,
        caller: Caller,
        job: u32,
        request: LogRequest,
    ) -> Result<LogChunk, Problem> {
        let (row, owner) = self.row(job).await?;
        access::check(&caller, Right::LookInside, Some(&owner))?;
        let attempt = request.attempt.unwrap_or(row.attempt);
        let over = row.state.is_over() || attempt < row.attempt || row.holds.is_empty();
        if attempt == 0 {
            let over = row.state.is_over();
            return Ok(LogChunk { text: String::new(), next: 0, attempt, over });
        }
        if attempt > row.attempt {
            let detail =
                format!("job {job} has no launch {attempt}: its newest is {}", row.attempt);
            return Err(Problem::field(Code::NotFound, "attempt", detail));
        }
        let run_dir = self.0.run_dir.clone();
        let part = tokio::task::spawn_blocking(move || {
            let of = (JobId(job), Attempt(attempt));
            let from = match u64::try_from(request.from) {
                Ok(from) => from,
                Err(_) => {
                    let end = read_log(&run_dir, of, request.rank, u64::MAX, 0)?.end;
                    end.saturating_sub(request.from.unsigned_abs())
                }
            };
            read_log(&run_dir, of, request.rank, from, request.max as u64)
        });
        let part = match part.await.map_err(|_| lost())? {
            Ok(part) => part,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Not begun yet, or dropped by age.
                return Ok(LogChunk { text: String::new(), next: 0, attempt, over });
            }
            Err(error) => {
                return Err(Problem::new(
                    Code::Internal,
                    format!("the log cannot be read: {error}"),
                ));
            }
        };
        let kept = whole_characters(&part.bytes);
        let next = part.from + kept as u64;
        let text = String::from_utf8_lossy(&part.bytes[..kept]).into_owned();
        Ok(LogChunk { text, next: next as i64, attempt, over: over && next >= part.end })
    }

    pub(super) async fn use_of(
        &self,
        caller: Caller,
        request: AcctRequest,
    ) -> Result<Vec<AcctRow>, Problem> {
        access::check(&caller, Right::Look, None)?;
        let now = crate::clock::wall_micros();
        let micros = |seconds: f64| (seconds * 1e6) as i64;
        let since = request.since.map_or(0, micros);
        let until = request.until.map_or(now, micros).min(now);
        let user = request.user;
        let rows =
            self.read(move |reader| reader.attempts_between(since, until, user.as_deref())).await?;
        let mut sums: BTreeMap<(String, String), (AcctRow, BTreeSet<u32>)> = BTreeMap::new();
        for row in rows {
            let (sum, jobs) = sums.entry((row.user.clone(), row.tenant.clone())).or_default();
            let attempt = row.attempt;
            (sum.user, sum.tenant) = (row.user, row.tenant);
            jobs.insert(attempt.job);
            sum.jobs = jobs.len() as u64;
            sum.launches += 1;
            for (from, held) in stretches(&attempt, now) {
                let hours = (held.until.min(until) - from.max(since)).max(0) as f64 / 3.6e9;
                // Who has a part of a GPU is charged for that part.
                let whole = f64::from(held.gpus);
                let own = held.permille.map_or(whole, |permille| permille as f64 / 1000.0);
                sum.gpu_hours += hours * own;
                sum.shared_gpu_hours += held.permille.map_or(0.0, |_| hours * own);
                sum.cost +=
                    hours * held.price_per_hour * if whole > 0.0 { own / whole } else { 0.0 };
            }
        }
        Ok(sums.into_values().map(|(sum, _)| sum).collect())
    }

    pub(super) async fn happened(
        &self,
        caller: Caller,
        query: EventsQuery,
    ) -> Result<Vec<EventRow>, Problem> {
        access::check(&caller, Right::Look, None)?;
        let EventsQuery { after, max, wait } = query;
        let max = max.unwrap_or(ROWS_DEFAULT);
        let until = Instant::now() + Duration::from_secs_f64(wait.clamp(0.0, 3600.0));
        let mut newest = self.shared().events.subscribe();
        loop {
            let seen = *newest.borrow_and_update();
            if seen > after || wait <= 0.0 {
                let rows = self.read(move |reader| reader.events(after, max)).await?;
                if !rows.is_empty() || wait <= 0.0 {
                    return Ok(rows.into_iter().map(|row| event(row, &caller)).collect());
                }
            }
            match timeout_at(until, newest.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(Vec::new()),
            }
        }
    }
}

/// What an attempt held from when on: its GPUs changed where it went over to others while it ran.
fn stretches(attempt: &StoredAttempt, now: i64) -> Vec<(i64, Held)> {
    let until = attempt.ended.unwrap_or(now);
    // Few attempts have a history or a share, and reading them all would cost more than adding them up.
    let has_history =
        ["\"before\":", "\"permille\":"].iter().any(|name| attempt.data.contains(name));
    let launch: Option<Launch> =
        has_history.then(|| serde_json::from_str(&attempt.data).ok()).flatten();
    let permille = launch.as_ref().and_then(|launch| launch.permille);
    let price_per_hour = attempt.price_per_hour;
    let last = Held { until, gpus: attempt.gpus, price_per_hour, permille };
    let mut from = attempt.launched;
    let all = launch.into_iter().flat_map(|launch| launch.before).chain([last]);
    all.map(|held| (std::mem::replace(&mut from, held.until), held)).collect()
}

/// Ended jobs that a filter lets through, and how many rows are wanted in all.
fn ended(reader: &Reader, filter: &JobFilter) -> Result<(Vec<JobRow>, usize), StoreError> {
    let limit = filter.limit.unwrap_or(ENDED_CHUNK);
    let mut rows = Vec::new();
    let mut before = filter.before;
    while rows.len() < limit {
        let chunk =
            reader.ended_jobs(before, filter.user.as_deref(), ENDED_CHUNK.min(limit.max(1)))?;
        let Some(last) = chunk.last() else { break };
        before = Some(last.job);
        for stored in &chunk {
            let tenant = filter.tenant.as_ref().is_none_or(|tenant| *tenant == stored.tenant);
            let state = filter.state.as_deref();
            let stands = state.is_none_or(|name| stored.end.as_deref() == Some(name));
            if tenant
                && stands
                && let Ok(row) = row_of_ended(stored)
            {
                rows.push(row);
            }
        }
    }
    rows.truncate(limit);
    Ok((rows, limit))
}

/// The newest launch is known before the store shows it.
fn with_newest(mut attempts: Vec<AttemptRow>, newest: Option<&Launch>) -> Vec<AttemptRow> {
    if let Some(launch) = newest {
        attempts.retain(|row| row.attempt != launch.attempt.0);
        attempts.push(AttemptRow::from(launch));
    }
    attempts
}

/// What is inside a job is for its owner and for operators.
fn hide(detail: &mut JobDetail) {
    let spec = &mut detail.spec;
    let shown = JobSpec {
        argv: Vec::new(),
        script: None,
        env: BTreeMap::new(),
        cwd: None,
        ..std::mem::take(spec)
    };
    *spec = shown;
    spec.checkpoint.dir = None;
    detail.report = None;
    detail.pace = Vec::new();
}

/// How many of these bytes are whole characters; bytes that are none at all count as such.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        // The last character is cut off: it comes with the next part.
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

fn event(row: trainyard_store::EventRow, caller: &Caller) -> EventRow {
    let data: Value = serde_json::from_str(&row.data).unwrap_or_default();
    let text = data["text"].as_str().unwrap_or_default().to_owned();
    let mine = access::check(caller, Right::LookInside, row.user.as_deref()).is_ok();
    EventRow {
        seq: row.seq,
        at: row.wall as f64 / 1e6,
        kind: row.kind,
        job: row.job,
        text,
        data: if mine || row.user.is_none() { data["data"].clone() } else { Value::Null },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_never_cut_in_two() {
        let text = "aé".as_bytes();
        assert_eq!(whole_characters(text), 3);
        assert_eq!(whole_characters(&text[..2]), 1);
        assert_eq!(whole_characters(&[b'a', 0xff, b'b']), 3, "what is no character is passed on");
        assert_eq!(whole_characters(&text[1..2]), 1, "or else nothing would ever come");
    }
}
