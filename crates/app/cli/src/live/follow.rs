//! Logs, and waiting for jobs to end.

use super::args::LogsArgs;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::{Output, note};
use serde_json::json;
use std::thread::sleep;
use std::time::Duration;
use trainyard_api::answer::LogChunk;
use trainyard_api::answer::{JobDetail, QueueState};
use trainyard_api::ask;
use trainyard_api::request::LogRequest;
use trainyard_client::Client;
use trainyard_client::show::{state, versioned};

/// As much of a log as one request asks for.
const CHUNK: usize = 256 << 10;

/// At most so much of a log is searched for its last lines.
const TAIL_MAX: usize = 64 << 20;

/// `logs`.
pub fn logs(args: &LogsArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let log = Log { job: args.job, attempt: args.attempt, rank: args.rank };
    if args.connection.json && !args.follow {
        let (text, attempt) = log.collected(&client, args.tail)?;
        return output
            .print_json(&versioned(json!({ "job": args.job, "attempt": attempt, "text": text })));
    }
    let unlaunched =
        args.follow && args.attempt.is_none() && detail(&client, args.job)?.row.attempt == 0;
    if unlaunched {
        return whole_log(&client.following(), args.job, args.rank, output);
    }
    let mut place = log.begin(&client, args.tail, output)?;
    match args.follow {
        true => log.follow(&client.following(), place, output),
        false => log.rest(&client, &mut place, output),
    }
}

/// All of the log of a process, from the first attempt to the last.
pub fn whole_log(client: &Client, job: u32, rank: u32, output: &Output) -> Result<(), Failure> {
    let log = Log { job, attempt: None, rank };
    log.follow(client, Place { attempt: 0, from: 0 }, output)
}

/// Waits until all jobs have ended; fails with the code of the first that did not finish well.
pub fn wait(client: Client, jobs: &[u32]) -> Result<(), Failure> {
    let mut worst = 0;
    for id in jobs {
        let mut pause = Pause::default();
        let detail = loop {
            let detail = detail(&client, *id)?;
            if detail.row.state.is_over() {
                break detail;
            }
            pause.wait();
        };
        let code = exit_code(&detail);
        if code != 0 {
            let outcome = detail.attempts.last().map(|attempt| attempt.outcome.as_str());
            let outcome = outcome.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
            let (word, outcome) = (state(detail.row.state), outcome.unwrap_or_default());
            note(&format!("job {id} {word}{outcome}"));
        }
        worst = if worst == 0 { code } else { worst };
    }
    if worst == 0 { Ok(()) } else { Err(Failure::Ended(worst)) }
}

fn detail(client: &Client, job: u32) -> Result<JobDetail, Failure> {
    Ok(client.send(&ask::job(job))?)
}

/// The job's own code; 128 and the signal that killed it; what the end means where it never ran.
fn exit_code(detail: &JobDetail) -> u8 {
    let last = detail.attempts.last();
    let code = last.and_then(|attempt| attempt.exit_code).filter(|code| *code != 0);
    let signal = last.and_then(|attempt| attempt.signal).map(|signal| 128 + signal);
    match detail.row.state {
        QueueState::Finished => 0,
        QueueState::Rejected => 4,
        // Only the lowest byte of a code ever comes out of a process.
        _ => code.or(signal).map_or(1, |code| (code & 0xff).max(1) as u8),
    }
}

/// A log to be read.
struct Log {
    job: u32,
    /// One launch only.
    attempt: Option<u32>,
    rank: u32,
}

/// How far a log is read.
#[derive(Copy, Clone)]
struct Place {
    /// 0 before the first launch.
    attempt: u32,
    from: i64,
}

impl Log {
    fn chunk(
        &self,
        client: &Client,
        attempt: Option<u32>,
        from: i64,
        max: usize,
    ) -> Result<LogChunk, Failure> {
        let query = LogRequest { attempt, rank: self.rank, from, max };
        Ok(client.send_raw(&ask::logs(self.job, query))?)
    }

    /// Prints the first part, or the last lines.
    fn begin(
        &self,
        client: &Client,
        tail: Option<usize>,
        output: &Output,
    ) -> Result<Place, Failure> {
        let chunk = match tail {
            Some(lines) => self.tail(client, lines)?,
            None => self.chunk(client, self.attempt, 0, CHUNK)?,
        };
        output.print_raw(&chunk.text)?;
        Ok(Place { attempt: chunk.attempt, from: chunk.next })
    }

    /// The last lines: the end of the log, and more of it until it holds enough of them.
    fn tail(&self, client: &Client, lines: usize) -> Result<LogChunk, Failure> {
        let mut bytes = CHUNK;
        loop {
            let mut chunk = self.end(client, bytes)?;
            let is_whole = chunk.next < bytes as i64 || bytes >= TAIL_MAX;
            let ends: Vec<usize> = chunk.text.match_indices('\n').map(|(at, _)| at + 1).collect();
            let closed = ends.last().is_none_or(|end| *end == chunk.text.len());
            let count = ends.len() + usize::from(!closed);
            if count > lines || is_whole {
                let skipped = count.saturating_sub(lines);
                let start = if skipped == 0 { 0 } else { ends[skipped - 1] };
                chunk.text.drain(..start);
                return Ok(chunk);
            }
            bytes *= 4;
        }
    }

    /// The last bytes, in as many parts as the daemon gives them.
    fn end(&self, client: &Client, bytes: usize) -> Result<LogChunk, Failure> {
        let mut all = self.chunk(client, self.attempt, -(bytes as i64), bytes)?;
        while !all.text.is_empty() && all.text.len() < bytes {
            let attempt = Some(all.attempt).filter(|attempt| *attempt > 0);
            let more = self.chunk(client, attempt, all.next, CHUNK)?;
            if more.text.is_empty() || more.next <= all.next {
                break;
            }
            all.text.push_str(&more.text);
            all.next = more.next;
        }
        Ok(all)
    }

    /// Everything there is by now.
    fn rest(&self, client: &Client, place: &mut Place, output: &Output) -> Result<(), Failure> {
        loop {
            let chunk =
                self.chunk(client, Some(place.attempt).filter(|a| *a > 0), place.from, CHUNK)?;
            if chunk.next <= place.from || chunk.text.is_empty() {
                return Ok(());
            }
            output.print_raw(&chunk.text)?;
            place.from = chunk.next;
        }
    }

    fn collected(&self, client: &Client, tail: Option<usize>) -> Result<(String, u32), Failure> {
        if let Some(lines) = tail {
            let chunk = self.tail(client, lines)?;
            return Ok((chunk.text, chunk.attempt));
        }
        let first = self.chunk(client, self.attempt, 0, CHUNK)?;
        let (mut text, mut next) = (first.text, first.next);
        loop {
            let chunk = self.chunk(client, Some(first.attempt).filter(|a| *a > 0), next, CHUNK)?;
            if chunk.next <= next || chunk.text.is_empty() {
                return Ok((text, first.attempt));
            }
            text.push_str(&chunk.text);
            next = chunk.next;
        }
    }

    /// Goes on until the job, or the one launch, has ended.
    fn follow(&self, client: &Client, mut place: Place, output: &Output) -> Result<(), Failure> {
        let mut pause = Pause::default();
        let mut told = None;
        loop {
            if place.attempt > 0 {
                let chunk = self.chunk(client, Some(place.attempt), place.from, CHUNK)?;
                if chunk.next > place.from && !chunk.text.is_empty() {
                    output.print_raw(&chunk.text)?;
                    output.flush()?;
                    place.from = chunk.next;
                    pause = Pause::default();
                    continue;
                }
                if chunk.over && self.attempt.is_some() {
                    return Ok(());
                }
                if !chunk.over {
                    pause.wait();
                    continue;
                }
            }
            // This launch has ended, or there was none yet: perhaps there is another one.
            let row = detail(client, self.job)?.row;
            if row.attempt > place.attempt {
                place = Place { attempt: place.attempt + 1, from: 0 };
            } else if row.state.is_over() {
                return Ok(());
            } else {
                // A user who sees no output is told once why, as soon as the job waits longer than a moment.
                if pause.is_long() && told != Some(place.attempt) && !row.why.is_empty() {
                    note(&format!("job {} waits: {}", self.job, row.why));
                    told = Some(place.attempt);
                }
                pause.wait();
            }
        }
    }
}

/// From a tenth of a second up to two, while nothing happens.
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Pause {
        Pause(Duration::from_millis(100))
    }
}

impl Pause {
    /// Whether about a second has passed.
    fn is_long(&self) -> bool {
        self.0 > Duration::from_millis(400)
    }

    fn wait(&mut self) {
        sleep(self.0);
        self.0 = (self.0 * 3 / 2).min(Duration::from_secs(2));
    }
}
