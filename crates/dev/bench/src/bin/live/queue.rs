//! Submissions, a long queue, a restart with it.

use crate::Row;
use crate::daemon::{Daemon, Line};
use anyhow::{Result, anyhow};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Single submissions in all.
const SINGLES: usize = 20_000;
/// Jobs of one request in the other case.
const BATCH: usize = 100;

/// What many connections did.
struct Done {
    wall: Duration,
    cpu_seconds: f64,
    latencies: Vec<Duration>,
}

pub fn run(program: &Path, folder: &Path, jobs: usize, show: &mut impl FnMut(Row)) -> Result<()> {
    let mut daemon = Daemon::new(program, folder)?;
    let told = |name: &str, text: String, (target, met): (&str, bool)| Row {
        name: name.to_owned(),
        text,
        target: target.to_owned(),
        met,
    };
    let syncs = daemon.syncs_per_second()?;
    show(told("disk", format!("{syncs:.0} syncs/s of 4 KiB, one after the other"), ("", true)));
    daemon.start()?;
    let empty = daemon.resident_mib()?;
    let occupy = job("sleep", 0).replace("--seed=0", "600");
    daemon.connect()?.post("/v1/jobs", &format!("{{\"jobs\":[{occupy}]}}"))?;

    let done = together(&daemon, SINGLES, 1)?;
    let rate = SINGLES as f64 / done.wall.as_secs_f64();
    let text = format!("{rate:.0} submits/s, {}", done.figures(SINGLES));
    show(told("live-submit", text, (">= 2000/s", rate >= 2_000.0)));

    let before = daemon.resident_mib()?;
    let done = together(&daemon, jobs / BATCH, BATCH)?;
    let rate = jobs as f64 / done.wall.as_secs_f64();
    let text = format!("{rate:.0} jobs/s, {}", done.figures(jobs));
    show(told("live-batch", text, (">= 20000/s", rate >= 20_000.0)));
    let grown = daemon.resident_mib()? - before;
    let each = grown / (jobs as f64 / 10_000.0);
    let text = format!("{each:.1} MiB for each 10,000 queued jobs ({grown:.0} MiB grown)");
    show(told("live-memory", text, ("<= 22.9 MiB (24 MB)", each * 1.048_576 <= 24.0)));

    daemon.kill()?;
    let start = daemon.start()?;
    let cpu = daemon.cpu_seconds()?;
    let text = format!(
        "{:.2} s from exec to the first answer with {} queued, {cpu:.2} CPU s",
        start.as_secs_f64(),
        jobs + SINGLES
    );
    show(told("live-restart", text, ("<= 2 s", start <= Duration::from_secs(2))));
    let each = (daemon.resident_mib()? - empty) / ((jobs + SINGLES) as f64 / 10_000.0);
    let text = format!("{each:.1} MiB for each 10,000 after the restart, with what reading took");
    show(told("live-memory-restart", text, ("", true)));
    Ok(())
}

/// Sends so many requests of so many jobs over all connections at once.
fn together(daemon: &Daemon, requests: usize, jobs: usize) -> Result<Done> {
    let next = AtomicUsize::new(0);
    let lines = (0..CONNECTIONS).map(|_| daemon.connect()).collect::<Result<Vec<Line>>>()?;
    let (cpu, begun) = (daemon.cpu_seconds()?, Instant::now());
    let mut latencies = Vec::with_capacity(requests);
    thread::scope(|scope| -> Result<()> {
        let send = |mut line: Line| {
            let mut own = Vec::new();
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= requests {
                    break;
                }
                let each: Vec<String> =
                    (0..jobs).map(|index| job("true", request * jobs + index)).collect();
                let body = format!("{{\"jobs\":[{}]}}", each.join(","));
                let sent = Instant::now();
                line.post("/v1/jobs", &body)?;
                own.push(sent.elapsed());
            }
            Ok::<_, anyhow::Error>(own)
        };
        let threads: Vec<_> =
            lines.into_iter().map(|line| scope.spawn(move || send(line))).collect();
        for thread in threads {
            latencies.extend(thread.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        Ok(())
    })?;
    let wall = begun.elapsed();
    latencies.sort_unstable();
    Ok(Done { wall, cpu_seconds: daemon.cpu_seconds()? - cpu, latencies })
}

impl Done {
    fn figures(&self, jobs: usize) -> String {
        let at = |share: f64| {
            let index = (self.latencies.len() as f64 * share) as usize;
            self.latencies[index.min(self.latencies.len() - 1)].as_secs_f64() * 1e3
        };
        let each = self.cpu_seconds / jobs as f64 * 1e6;
        format!("p50 {:.1} ms, p99 {:.1} ms, {each:.0} CPU us/job", at(0.5), at(0.99))
    }
}

/// A job as a command would submit it; no two are alike.
fn job(program: &str, number: usize) -> String {
    format!(
        "{{\"name\":\"train\",\"argv\":[\"{program}\",\"--seed={number}\"],\"cwd\":\"/\",\"gpus\":1,\"expected_seconds\":3600,\
         \"env\":{{\"EPOCHS\":\"90\",\"DATA\":\"/data/imagenet\"}}}}"
    )
}
