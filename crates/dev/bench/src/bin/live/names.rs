//! Jobs of names that were not used before, one request each: what they cost as the queue grows, and what pages,
//! forecasts and watchers cost beside them.

use crate::daemon::{Daemon, Line};
use crate::{Row, pages};
use anyhow::{Result, anyhow};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients at once, each with one connection and one request under way.
const CLIENTS: usize = 8;
/// Names in the queue when policies are compared.
const COMPARED: usize = 4_000;
/// Submissions in each of which a rate is measured.
const PART: usize = 20_000;
/// Submissions at a steady pace with the queue full, and how many of them a second.
const PACED: usize = 5_000;
const PACE: f64 = 1_000.0;

/// What clients did.
struct Done {
    wall: Duration,
    cpu_seconds: f64,
    latencies: Vec<Duration>,
}

pub fn run(program: &Path, folder: &Path, jobs: usize, show: &mut impl FnMut(Row)) -> Result<()> {
    let mut daemon = Daemon::new(program, folder)?;
    daemon.start()?;
    let occupy = job(0, "sleep").replace("--seed=0", "3600");
    daemon.connect()?.post("/v1/jobs", &format!("{{\"jobs\":[{occupy}]}}"))?;
    let mut named = 1;
    submit(&daemon, &mut named, COMPARED.min(jobs), None)?;
    compare(&daemon, show)?;
    let first = grow(&daemon, &mut named, jobs, show)?;
    let done = submit(&daemon, &mut named, PACED.min(jobs), Some(PACE))?;
    let met = done.at(0.99) <= Duration::from_millis(30);
    let text = format!("{}, {PACE:.0}/s asked for, {jobs} queued", done.figures());
    show(row("live-names-p99", text, ("p99 <= 30 ms", met)));
    pages::run(&daemon, &mut named, show)?;
    pages::watchers(&daemon, &mut named, show)?;
    let last = grow(&daemon, &mut named, 2 * jobs, show)?;
    let text = format!("{:.0} CPU us each at first, {:.0} at last", first * 1e6, last * 1e6);
    show(row("live-names-cpu", text, ("<= 3 times the first", last <= 3.0 * first)));
    Ok(())
}

/// Submits until there are so many names; the CPU seconds of each submission of the last part.
fn grow(
    daemon: &Daemon,
    named: &mut usize,
    until: usize,
    show: &mut impl FnMut(Row),
) -> Result<f64> {
    let (mut slowest, mut each, mut text) = (f64::INFINITY, 0.0, String::new());
    while *named < until {
        let count = PART.min(until - *named);
        let done = submit(daemon, named, count, None)?;
        let rate = count as f64 / done.wall.as_secs_f64();
        each = done.cpu_seconds / count as f64;
        if rate < slowest {
            slowest = rate;
            text = format!("{rate:.0}/s at least, {}, {:.0} CPU us", done.figures(), each * 1e6);
        }
    }
    let name = format!("live-names-{}k", until / 1000);
    show(row(&name, text, (">= 1000/s", slowest >= 1_000.0)));
    Ok(each)
}

/// How long a comparison of policies takes when no two jobs have the same name.
fn compare(daemon: &Daemon, show: &mut impl FnMut(Row)) -> Result<()> {
    let (cpu, begun) = (daemon.cpu_seconds()?, Instant::now());
    let request = "{\"policies\":[\"las\",\"srtf\",\"fifo\"]}";
    let answer = daemon.connect()?.post("/v1/whatif", request);
    let (wall, cpu) = (begun.elapsed(), daemon.cpu_seconds()? - cpu);
    let said = match answer.and_then(|bytes| Ok(serde_json::from_slice::<Value>(&bytes)?)) {
        Ok(answer) => {
            let rows = answer["rows"].as_array().cloned().unwrap_or_default();
            let cut = rows.iter().filter(|row| !row["trouble"].is_null()).count();
            format!("{} policies, {cut} cut off", rows.len())
        }
        Err(error) => error.to_string(),
    };
    let text = format!("{:.1} s, {cpu:.1} CPU s with {COMPARED} names: {said}", wall.as_secs_f64());
    let met = wall <= Duration::from_secs(10) && said.ends_with(" 0 cut off");
    show(row("live-whatif", text, ("<= 10 s", met)));
    Ok(())
}

/// Submits jobs of new names over all clients, as fast as it goes or at a pace of so many a second.
fn submit(daemon: &Daemon, named: &mut usize, count: usize, pace: Option<f64>) -> Result<Done> {
    let lines = (0..CLIENTS).map(|_| daemon.connect()).collect::<Result<Vec<Line>>>()?;
    let (next, first) = (AtomicUsize::new(0), *named);
    let (cpu, begun) = (daemon.cpu_seconds()?, Instant::now());
    let send = |mut line: Line| {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok::<_, anyhow::Error>(own);
            }
            let mut due = Instant::now();
            if let Some(pace) = pace {
                due = begun + Duration::from_secs_f64(number as f64 / pace);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            line.post("/v1/jobs", &format!("{{\"jobs\":[{}]}}", job(first + number, "true")))?;
            // From when it should have been sent: a client that is held up must not hide it.
            own.push(due.elapsed());
        }
    };
    let mut latencies = Vec::with_capacity(count);
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> =
            lines.into_iter().map(|line| scope.spawn(move || send(line))).collect();
        for thread in threads {
            latencies.extend(thread.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        Ok(())
    })?;
    *named += count;
    latencies.sort_unstable();
    Ok(Done { wall: begun.elapsed(), cpu_seconds: daemon.cpu_seconds()? - cpu, latencies })
}

impl Done {
    fn at(&self, share: f64) -> Duration {
        let index = (self.latencies.len() as f64 * share) as usize;
        self.latencies[index.min(self.latencies.len() - 1)]
    }

    fn figures(&self) -> String {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        format!("p50 {:.1} ms, p99 {:.1} ms", millis(self.at(0.5)), millis(self.at(0.99)))
    }
}

/// A job of a name of its own.
pub fn job(number: usize, program: &str) -> String {
    format!(
        "{{\"name\":\"train-{number}\",\"argv\":[\"{program}\",\"--seed={number}\"],\"cwd\":\"/\",\"gpus\":1,\
         \"expected_seconds\":3600,\"env\":{{\"EPOCHS\":\"90\",\"DATA\":\"/data/imagenet\"}}}}"
    )
}

/// A figure with its target.
pub fn row(name: &str, text: String, (target, met): (&str, bool)) -> Row {
    Row { name: name.to_owned(), text, target: target.to_owned(), met }
}
