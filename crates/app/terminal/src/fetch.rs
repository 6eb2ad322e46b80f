//! Asks the daemon in the background, so that keys never wait for it.

use super::News;
use super::picture::{Inside, Picture};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use trainyard_api::Code;
use trainyard_api::answer::{EventRow, JobRow};
use trainyard_api::ask;
use trainyard_api::forecast::EtaAnswer;
use trainyard_api::request::{Act, EtasQuery, EventsQuery, JobFilter, LogRequest};
use trainyard_client::show::{now, state};
use trainyard_client::{Client, ClientError};

/// Jobs in one answer; the daemon gives no more.
const PAGE: usize = 10_000;

/// Jobs that are read in one look.
const JOBS_MAX: usize = 50_000;

/// Jobs that have ended, where they are wanted.
const ENDED_MAX: usize = 1000;

/// Events that are kept.
const EVENTS_MAX: usize = 1000;

/// Bytes of the end of a log.
const LOG_BYTES: usize = 64 << 10;

/// A forecast simulates the whole queue, so it is asked for less often than the rest.
const ETAS_EVERY: Duration = Duration::from_secs(5);

/// The client that polls the daemon, and what it remembers from one poll to the next.
pub struct Looker {
    client: Client,
    events: VecDeque<EventRow>,
    /// Which start of the daemon the events and forecasts are of.
    start: Option<(u64, f64)>,
    etas: Option<BTreeMap<u32, EtaAnswer>>,
    etas_asked: Option<Instant>,
    tells_etas: bool,
}

impl Looker {
    /// Nothing is asked yet.
    pub fn new(client: Client) -> Looker {
        Looker {
            client,
            events: VecDeque::new(),
            start: None,
            etas: None,
            etas_asked: None,
            tells_etas: true,
        }
    }

    /// Asks for everything once.
    pub fn look(&mut self, with_ended: bool) -> Result<Picture, ClientError> {
        let status = self.client.send(&ask::status())?;
        let start = Some((status.epoch, status.since));
        if self.start != start {
            // Another daemon, perhaps with another store: numbers of events may begin anew.
            (self.start, self.tells_etas, self.etas_asked) = (start, true, None);
            self.events.clear();
        }
        let (mut jobs, more) = self.jobs()?;
        if with_ended {
            self.add_ended(&mut jobs)?;
        }
        // Newest first, and of a job that ended between two answers the newer one.
        jobs.sort_by_key(|job| (std::cmp::Reverse(job.id), !job.state.is_over()));
        jobs.dedup_by_key(|job| job.id);
        let nodes = self.client.send(&ask::nodes())?;
        let tenants = self.client.send(&ask::fair())?;
        self.read_events()?;
        self.read_etas()?;
        Ok(Picture {
            at: now(),
            status,
            jobs,
            more,
            nodes,
            tenants,
            events: self.events.iter().cloned().collect(),
            etas: self.etas.clone(),
        })
    }

    /// All jobs that have not ended, page by page, and whether there are more.
    fn jobs(&self) -> Result<(Vec<JobRow>, bool), ClientError> {
        let mut all: Vec<JobRow> = Vec::new();
        while all.len() < JOBS_MAX {
            let before = all.iter().map(|job| job.id).min();
            let filter = JobFilter { limit: Some(PAGE), before, ..JobFilter::default() };
            let jobs = self.client.send(&ask::jobs(filter))?;
            let full = jobs.len() >= PAGE;
            all.extend(jobs);
            if !full {
                return Ok((all, false));
            }
        }
        Ok((all, true))
    }

    fn add_ended(&self, jobs: &mut Vec<JobRow>) -> Result<(), ClientError> {
        let filter = JobFilter { all: true, limit: Some(ENDED_MAX), ..JobFilter::default() };
        let newest = self.client.send(&ask::jobs(filter))?;
        jobs.extend(newest.into_iter().filter(|job| job.state.is_over()));
        Ok(())
    }

    fn read_events(&mut self) -> Result<(), ClientError> {
        let mut after = match self.events.back() {
            Some(event) => event.seq,
            None => self.newest_event()?.saturating_sub(EVENTS_MAX as u64),
        };
        loop {
            let page = self.events_after(after, EVENTS_MAX)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq.max(after);
            let full = page.len() >= EVENTS_MAX;
            self.events.extend(page);
            let beyond = self.events.len().saturating_sub(EVENTS_MAX);
            self.events.drain(..beyond);
            if !full {
                return Ok(());
            }
        }
    }

    fn events_after(&self, after: u64, max: usize) -> Result<Vec<EventRow>, ClientError> {
        self.client.send(&ask::events(EventsQuery { after, max: Some(max), wait: 0.0 }))
    }

    /// The number of the newest event, found by halving: a few small requests instead of all events ever.
    fn newest_event(&self) -> Result<u64, ClientError> {
        let some_after =
            |after: u64| Ok::<bool, ClientError>(!self.events_after(after, 1)?.is_empty());
        let mut beyond: u64 = 1024;
        while beyond < 1 << 62 && some_after(beyond)? {
            beyond *= 2;
        }
        let mut known = 0;
        while known + 1 < beyond {
            let middle = known + (beyond - known) / 2;
            match some_after(middle)? {
                true => known = middle,
                false => beyond = middle,
            }
        }
        Ok(beyond)
    }

    fn read_etas(&mut self) -> Result<(), ClientError> {
        let fresh = self.etas_asked.is_some_and(|asked| asked.elapsed() < ETAS_EVERY);
        if !self.tells_etas || fresh {
            return Ok(());
        }
        let query = EtasQuery { limit: Some(PAGE), confidence: None };
        match self.client.send(&ask::etas(query)) {
            Ok(jobs) => {
                self.etas = Some(jobs.into_iter().map(|eta| (eta.job, eta)).collect());
                self.etas_asked = Some(Instant::now());
            }
            // A daemon that makes no forecasts is asked no more, until it starts again.
            Err(ClientError::Problem(problem)) if problem.code == Code::NotFound => {
                (self.tells_etas, self.etas) = (false, None);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Polls again and again, and sends what it saw; ends when the receiver is gone.
pub fn keep_looking(
    mut looker: Looker,
    every: Duration,
    with_ended: &Arc<AtomicBool>,
    news: &Sender<News>,
) {
    loop {
        let begun = Instant::now();
        let said = match looker.look(with_ended.load(Ordering::Relaxed)) {
            Ok(picture) => News::Picture(Box::new(picture)),
            Err(error) => News::Missed(said(&error)),
        };
        if news.send(said).is_err() {
            return;
        }
        // A daemon that takes long to answer is not asked without a pause.
        let took = begun.elapsed();
        std::thread::sleep(every.saturating_sub(took).max(took.min(every)));
    }
}

/// What the screen wants done for one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Errand {
    /// Look into it from now on.
    Open(u32),
    /// Look into none.
    Close,
    /// Do something to it.
    Act(u32, Act),
}

/// Runs errands, and polls the job that is open again and again; ends when the receiver is gone.
pub fn run_errands(
    client: &Client,
    every: Duration,
    errands: &Receiver<Errand>,
    news: &Sender<News>,
) {
    let mut open = None;
    loop {
        match errands.recv_timeout(every) {
            Ok(Errand::Open(job)) => open = Some(job),
            Ok(Errand::Close) => open = None,
            Ok(Errand::Act(job, act)) => {
                if news.send(News::Note(done(client, job, &act))).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(job) = open else { continue };
        let said = inside(client, job).map(Box::new).map_err(|error| said(&error));
        if news.send(News::Inside(job, said)).is_err() {
            return;
        }
    }
}

/// What went wrong, in a line.
fn said(error: &ClientError) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

fn done(client: &Client, job: u32, act: &Act) -> String {
    let word = match act {
        Act::Cancel { .. } => "cancelled",
        Act::Hold => "held",
        Act::Release => "released",
        Act::Requeue => "put back",
    };
    match client.send(&ask::act(job, act.clone())) {
        Ok(row) => format!("job {job} {word}: {}", state(row.state)),
        Err(error) => said(&error),
    }
}

/// All about one job.
pub fn inside(client: &Client, job: u32) -> Result<Inside, ClientError> {
    let detail = client.send(&ask::job(job))?;
    let waits = !detail.row.state.is_over() && detail.row.holds.is_empty();
    let why = match waits {
        true => Some(client.send(&ask::why(job))?),
        false => None,
    };
    let query = LogRequest { from: -(LOG_BYTES as i64), max: LOG_BYTES, ..LogRequest::default() };
    let log = match client.send_raw(&ask::logs(job, query)) {
        Ok(chunk) => Ok(chunk.text),
        // A user who may not read the log still sees the rest.
        Err(ClientError::Problem(problem)) if problem.code != Code::Unreachable => {
            Err(problem.detail)
        }
        Err(error) => return Err(error),
    };
    Ok(Inside { detail, why, log })
}
