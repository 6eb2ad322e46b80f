//! What looks cost with a long queue, and the memory of many clients that watch it.

use crate::Row;
use crate::daemon::{Daemon, Line};
use crate::names::{job, row};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Looks of each kind.
const LOOKS: usize = 20;
/// How long a look may take.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// How many clients watch: most on the Unix socket, as many as one user may have, the rest over TCP.
const WATCHERS_LOCAL: usize = 180;
const WATCHERS_REMOTE: usize = 40;
/// For how long they do.
const WATCHED: Duration = Duration::from_secs(15);
/// How much memory they may take together.
// An idle machine answers 220 watchers 2,500 times a second, and what is on its way to them counts (140 MiB measured).
const WATCHERS_MIB_MAX: f64 = 192.0;

/// Times looks; a job comes before each, so that none is answered from what was shown before.
pub fn run(daemon: &Daemon, named: &mut usize, show: &mut impl FnMut(Row)) -> Result<()> {
    let mut line = daemon.connect()?;
    let whole: Value = serde_json::from_slice(&line.get("/v1/board")?)?;
    let cursor = whole["cursor"].as_u64().context("a cursor")?;
    let looks = [
        ("ps", "/v1/jobs".to_owned()),
        ("why", "/v1/jobs/5000/why".to_owned()),
        ("job", "/v1/jobs/5000".to_owned()),
        ("status", "/v1/status".to_owned()),
        ("metrics", "/metrics".to_owned()),
        ("board", "/v1/board".to_owned()),
        ("board-gzip", "/v1/board".to_owned()),
        ("board-changes", format!("/v1/board?since={cursor}")),
    ];
    for (name, path) in looks {
        let mut times = Vec::with_capacity(LOOKS);
        let (mut bytes, mut cpu) = (0, 0.0);
        if name == "board-gzip" {
            line.accept_gzip();
        }
        for _ in 0..LOOKS {
            *named += 1;
            line.post("/v1/jobs", &format!("{{\"jobs\":[{}]}}", job(*named, "true")))?;
            // The board is made anew five times a second at most: the look is one that makes it.
            thread::sleep(Duration::from_millis(250));
            let (before, begun) = (daemon.cpu_seconds()?, Instant::now());
            bytes = line.get(&path)?.len();
            times.push(begun.elapsed());
            cpu += daemon.cpu_seconds()? - before;
        }
        times.sort_unstable();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let (middle, worst) = (times[LOOKS / 2], times[LOOKS - 1]);
        let text = format!(
            "p50 {:.1} ms, worst {:.1} ms, {:.0} CPU ms, {} KiB",
            millis(middle),
            millis(worst),
            cpu / LOOKS as f64 * 1e3,
            bytes / 1024
        );
        show(row(&format!("live-{name}"), text, ("<= 100 ms", worst <= LOOK_MAX)));
    }
    Ok(())
}

/// The memory that many watchers take while jobs come.
pub fn watchers(daemon: &Daemon, named: &mut usize, show: &mut impl FnMut(Row)) -> Result<()> {
    let mut lines = daemon.connect_tcp(WATCHERS_REMOTE)?;
    for _ in 0..WATCHERS_LOCAL {
        lines.push(daemon.connect()?);
    }
    let count = lines.len();
    let (before, cpu) = (daemon.resident_mib()?, daemon.cpu_seconds()?);
    daemon.forget_peak()?;
    let (over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let watch = |(index, mut line): (usize, Line)| {
        if index % 2 == 0 {
            line.accept_gzip();
        }
        let mut since = String::new();
        while !over.load(Ordering::Relaxed) {
            let answer = line.get(&format!("/v1/board?wait=2{since}"))?;
            answers.fetch_add(1, Ordering::Relaxed);
            // Every third asks for everything again and again, as a page that is loaded anew does.
            since = match cursor(&answer).filter(|_| index % 3 > 0) {
                Some(cursor) => format!("&since={cursor}"),
                None => String::new(),
            };
        }
        Ok::<_, anyhow::Error>(())
    };
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> =
            lines.into_iter().enumerate().map(|one| scope.spawn(move || watch(one))).collect();
        let mut line = daemon.connect()?;
        while begun.elapsed() < WATCHED {
            *named += 1;
            line.post("/v1/jobs", &format!("{{\"jobs\":[{}]}}", job(*named, "true")))?;
            thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a watcher panicked"))??;
        }
        Ok(())
    })?;
    let grown = daemon.peak_mib()? - before;
    let text = format!(
        "{grown:.0} MiB at most for {count}, {} answers, {:.1} CPU s in {:.0} s",
        answers.load(Ordering::Relaxed),
        daemon.cpu_seconds()? - cpu,
        begun.elapsed().as_secs_f64()
    );
    show(row("live-watchers", text, ("<= 192 MiB", grown <= WATCHERS_MIB_MAX)));
    Ok(())
}

/// What to ask with the next time; a packed answer is not unpacked here, its watcher asks for everything.
fn cursor(answer: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(answer.get(..200.min(answer.len()))?).ok()?;
    let rest = text.split_once("\"cursor\":")?.1;
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}
