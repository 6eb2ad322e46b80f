//! Commits a second, beside the disk's own rate of syncs.
//!
//! `cargo run --release -p trainyard-store --example commits -- FOLDER [SECONDS]`

use std::path::Path;
use std::time::{Duration, Instant};
use trainyard_store::{Store, StoreError, Write, fsync_rate};

fn main() -> Result<(), StoreError> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".to_owned());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(3);
    let folder = Path::new(&folder);
    println!("disk: {:.0} syncs/s", fsync_rate(folder)?);
    for jobs in [1, 8, 64, 512] {
        let path = folder.join(format!("commits-{}-{jobs}.db", std::process::id()));
        let rate = rate(&path, jobs, Duration::from_secs(seconds))?;
        println!(
            "{jobs:>4} jobs a commit: {rate:>7.0} commits/s, {:>8.0} jobs/s",
            rate * f64::from(jobs)
        );
        for suffix in ["", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }
    println!("disk: {:.0} syncs/s", fsync_rate(folder)?);
    Ok(())
}

/// Commits a second, each with this many submissions: a job, its key and its event.
fn rate(path: &Path, jobs: u32, time: Duration) -> Result<f64, StoreError> {
    let mut store = Store::open(path)?;
    let mut next = 0;
    let mut commits = 0;
    let begin = Instant::now();
    while begin.elapsed() < time {
        let list: Vec<Write> = (next..next + jobs).flat_map(submission).collect();
        store.commit(&list)?;
        next += jobs;
        commits += 1;
    }
    let rate = f64::from(commits) / begin.elapsed().as_secs_f64();
    store.close()?;
    Ok(rate)
}

fn submission(job: u32) -> [Write; 3] {
    let wall = i64::from(job);
    let user = format!("user{}", job % 16);
    let spec = format!(
        "{{\"name\":\"train-{job}\",\"argv\":[\"python3\",\"train.py\",\"--config\",\"configs/{job}.yaml\"],\
         \"gpus\":{},\"directory\":\"/home/user/runs/{job}\",\"environment\":{{\"RUN\":\"{job}\"}}}}",
        job % 8 + 1
    );
    let state = "{\"phase\":\"waiting\"}".to_owned();
    let (key, digest) = (format!("key-{job}"), format!("{job:064x}"));
    let answer = format!("{{\"job\":{job}}}");
    let kind = "submitted".to_owned();
    let job_user = Some(user.clone());
    [
        Write::AddJob { job, user: user.clone(), tenant: user.clone(), spec, state, wall },
        Write::AddKey { user, key, digest, answer, wall },
        Write::AddEvent { wall, kind, job: Some(job), user: job_user, data: "{}".to_owned() },
    ]
}
