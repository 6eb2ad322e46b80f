//! What changed since somebody last looked, and who ran where.

use super::{Front, lost};
use crate::access::{self, Caller, Right};
use crate::board::{Board, ENDED_KEPT};
use crate::clock::wall_micros;
use crate::record::Launch;
use crate::seen::row_of_ended;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use trainyard_api::Problem;
use trainyard_api::answer::{JobRow, Status};
use trainyard_api::board::{BoardAnswer, TimelineRow};
use trainyard_store::{Reader, StoreError};

/// The board is made anew at most this often, however many look at it.
const PAUSE: Duration = Duration::from_millis(200);
/// How often somebody who waits is shown what no event tells of, such as progress.
const TICK: Duration = Duration::from_secs(2);
/// Launches on a timeline at most.
const LAUNCHES_MAX: usize = 20_000;

/// The board that everybody looks at.
pub(super) struct Showing {
    board: Board,
    status: Option<Status>,
    made: Option<Instant>,
}

impl Showing {
    pub(super) fn new() -> Showing {
        let first = u64::try_from(wall_micros()).unwrap_or_default();
        Showing { board: Board::new(first), status: None, made: None }
    }

    /// When it may be made anew.
    fn ready(&self) -> Option<Instant> {
        self.made.map(|made| made + PAUSE)
    }
}

impl Front {
    pub(super) async fn show(
        &self,
        caller: Caller,
        since: Option<u64>,
        wait_seconds: f64,
    ) -> Result<BoardAnswer, Problem> {
        access::check(&caller, Right::Look, None)?;
        let until = Instant::now() + Duration::from_secs_f64(wait_seconds.clamp(0.0, 3600.0));
        let mut newest = self.shared().events.subscribe();
        loop {
            let last_event = *newest.borrow_and_update();
            let mut showing = self.0.showing.lock().await;
            let early = showing.ready().filter(|ready| *ready > Instant::now());
            if early.is_none() {
                self.renew(&mut showing, last_event).await?;
            }
            let over = Instant::now() >= until;
            if (showing.board.is_newer(since) || over)
                && let Some(status) = &showing.status
            {
                let (user, role) = (caller.user, caller.role.name().to_owned());
                return Ok(showing.board.answer(since, Status { user, role, ..status.clone() }));
            }
            drop(showing);
            match early {
                Some(ready) => sleep_until(ready).await,
                // The end of the daemon ends the wait elsewhere; nothing new is no error.
                None => drop(timeout_at(until.min(Instant::now() + TICK), newest.changed()).await),
            }
        }
    }

    async fn renew(&self, showing: &mut Showing, last_event: u64) -> Result<(), Problem> {
        let seen = self.look().await?;
        let health = self.shared().health();
        let made = tokio::task::spawn_blocking(move || {
            (seen.shown(last_event), seen.status(&health, "", ""))
        });
        let (mut shown, status) = made.await.map_err(|_| lost())?;
        let first = showing.made.is_none();
        let missing = showing.board.missing(&shown);
        if first || !missing.is_empty() {
            shown.ended = self.read(move |reader| ended(reader, first, &missing)).await?;
        }
        showing.board.take(shown);
        showing.status = Some(status);
        showing.made = Some(Instant::now());
        Ok(())
    }

    pub(super) async fn ran(
        &self,
        caller: Caller,
        since: f64,
        until: f64,
    ) -> Result<Vec<TimelineRow>, Problem> {
        access::check(&caller, Right::Look, None)?;
        let micros = |seconds: f64| (seconds * 1e6) as i64;
        let (since, until) = (micros(since), micros(until));
        let rows = self.read(move |reader| reader.attempts_between(since, until, None)).await?;
        let skipped = rows.len().saturating_sub(LAUNCHES_MAX);
        let launch = |row: trainyard_store::UsageRow| {
            let launch: Launch = serde_json::from_str(&row.attempt.data).ok()?;
            Some(TimelineRow {
                job: row.attempt.job,
                attempt: row.attempt.attempt,
                user: row.user,
                tenant: row.tenant,
                holds: launch.holds,
                launched: row.attempt.launched as f64 / 1e6,
                ended: row.attempt.ended.map(|ended| ended as f64 / 1e6),
                outcome: launch.outcome,
            })
        };
        Ok(rows.into_iter().skip(skipped).filter_map(launch).collect())
    }
}

/// Jobs that are over, the earlier first: the newest ones at first, later those that are missing.
fn ended(reader: &Reader, first: bool, missing: &[u32]) -> Result<Vec<JobRow>, StoreError> {
    let mut rows = match first {
        true => reader.ended_jobs(None, None, ENDED_KEPT)?,
        false => Vec::new(),
    };
    rows.reverse();
    for id in missing {
        rows.extend(reader.job(*id)?.filter(|row| row.end.is_some()));
    }
    Ok(rows.iter().filter_map(|row| row_of_ended(row).ok()).collect())
}
