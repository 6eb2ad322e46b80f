//! What changed since a client last asked, and which job ran where.

use super::{ServiceImpl, lost};
use crate::access::{self, Caller, Right};
use crate::board::{Board, ENDED_KEPT};
use crate::clock::wall_micros;
use crate::frame::{Alive, BoardView, Frame};
use crate::record::Launch;
use crate::seen::row_of_ended;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};
use trainyard_api::answer::{JobRow, Status};
use trainyard_api::board::TimelineRow;
use trainyard_api::{Code, Problem};
use trainyard_store::{Reader, StoreError};

/// The board is made anew at most this often, however many clients read it.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a client that waits is shown what no event tells of, such as progress.
const TICK: Duration = Duration::from_secs(2);
/// Launches on a timeline at most.
const LAUNCHES_MAX: usize = 20_000;

/// Frames of the newest board that are kept for clients that ask later.
const FRAMES_KEPT: usize = 8;
/// Bytes of frames that may be read at once. Beyond, further clients share the newest frame that shows everything.
const FRAMES_BYTES_MAX: usize = 64 << 20;

const SLOW: &str =
    "what others still read of the board takes all the room there is for it: try again in a moment";

/// The board that all clients share.
pub(super) struct Showing {
    board: Arc<Board>,
    status: Option<Status>,
    made: Option<Instant>,
    /// Frames of the board as it is, by the cursor they begin at.
    frames: Vec<(Option<u64>, Arc<Frame>)>,
    /// The newest frame that shows everything, of this board or an earlier one.
    whole: Option<Arc<Frame>>,
    alive: Alive,
}

impl Showing {
    pub(super) fn new() -> Showing {
        let first = u64::try_from(wall_micros()).unwrap_or_default();
        Showing {
            board: Arc::new(Board::new(first)),
            status: None,
            made: None,
            frames: Vec::new(),
            whole: None,
            alive: Alive::default(),
        }
    }

    /// The frame for a client that has seen the board at `since`; nothing if there is no room for one and nothing else
    /// to show.
    async fn frame(&mut self, since: Option<u64>) -> Result<Option<Arc<Frame>>, Problem> {
        // A client that asks about an unknown time gets everything, like the clients that ask for everything.
        let since = since.filter(|since| self.board.knows(*since));
        if let Some((_, frame)) = self.frames.iter().find(|(from, _)| *from == since) {
            return Ok(Some(Arc::clone(frame)));
        }
        let news = since.is_none() || self.board.is_newer(since);
        if news && self.alive.bytes() >= FRAMES_BYTES_MAX {
            return Ok(self.whole.clone().filter(|whole| Some(whole.cursor()) != since));
        }
        let (board, alive) = (Arc::clone(&self.board), self.alive.clone());
        let made = tokio::task::spawn_blocking(move || Frame::new(&board, since, &alive));
        let frame = Arc::new(made.await.map_err(|_| lost())??);
        if since.is_none() {
            self.whole = Some(Arc::clone(&frame));
        }
        if self.frames.len() >= FRAMES_KEPT {
            self.frames.remove(0);
        }
        self.frames.push((since, Arc::clone(&frame)));
        Ok(Some(frame))
    }

    /// When it may be made anew.
    fn ready(&self) -> Option<Instant> {
        self.made.map(|made| made + PAUSE)
    }
}

impl ServiceImpl {
    pub(super) async fn show(
        &self,
        caller: Caller,
        since: Option<u64>,
        wait_seconds: f64,
    ) -> Result<BoardView, Problem> {
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
            let mut crowded = None;
            if (showing.board.is_newer(since) || over)
                && let Some(status) = showing.status.clone()
            {
                if let Some(frame) = showing.frame(since).await? {
                    let (user, role) = (caller.user, caller.role.name().to_owned());
                    return Ok(BoardView { frame, status: Status { user, role, ..status } });
                }
                if over {
                    return Err(Problem::new(Code::TooMany, SLOW));
                }
                crowded = Some(Instant::now() + PAUSE);
            }
            drop(showing);
            match early.or(crowded) {
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
        Arc::make_mut(&mut showing.board).take(shown);
        showing.frames.clear();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Shown;

    fn changed(showing: &mut Showing, event: u64) {
        let shown = Shown { last_event: event, ..Shown::default() };
        Arc::make_mut(&mut showing.board).take(shown);
        showing.frames.clear();
    }

    #[tokio::test]
    async fn all_who_ask_with_the_same_cursor_share_one_frame() {
        let mut showing = Showing::new();
        let first = showing.board.cursor();
        changed(&mut showing, 1);
        let whole = showing.frame(None).await.unwrap().unwrap();
        let bytes = showing.alive.bytes();
        for _ in 0..220 {
            assert!(Arc::ptr_eq(&whole, &showing.frame(None).await.unwrap().unwrap()));
            assert!(Arc::ptr_eq(&whole, &showing.frame(Some(3)).await.unwrap().unwrap()));
        }
        assert_eq!(showing.alive.bytes(), bytes);
        let part = showing.frame(Some(first)).await.unwrap().unwrap();
        assert!(!Arc::ptr_eq(&whole, &part));
        // The frames of cursors that only one client has do not add up.
        for event in 2..1000 {
            let since = showing.board.cursor();
            changed(&mut showing, event);
            for _ in 0..3 {
                showing.frame(Some(since)).await.unwrap().unwrap();
            }
        }
        assert!(showing.alive.bytes() < 20 * bytes, "{} bytes are kept", showing.alive.bytes());
    }

    #[tokio::test]
    async fn without_room_for_a_new_frame_the_newest_whole_one_is_shown_and_never_twice() {
        let mut showing = Showing::new();
        changed(&mut showing, 1);
        let whole = showing.frame(None).await.unwrap().unwrap();
        let slow = showing.alive.count(vec![0; FRAMES_BYTES_MAX]);
        changed(&mut showing, 2);
        for since in [None, Some(5), Some(whole.cursor() - 1)] {
            let frame = showing.frame(since).await.unwrap().unwrap();
            assert!(Arc::ptr_eq(&whole, &frame), "{since:?}");
        }
        assert!(showing.frame(Some(whole.cursor())).await.unwrap().is_none(), "nothing new");
        let now = showing.board.cursor();
        assert!(showing.frame(Some(now)).await.unwrap().is_some(), "that nothing changed is short");
        drop(slow);
        let newer = showing.frame(None).await.unwrap().unwrap();
        assert!(newer.cursor() > whole.cursor());
    }
}
