//! What is left after a crash.
//!
//! A killed process loses nothing that the system holds for it, so `kill -9` tests that an acknowledged list is whole;
//! what a power cut does to the end of the log is tested by tearing it.

use crate::place::{Place, add_job, attempt, event, key};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trainyard_store::{Reader, Store, Write};

const STORE: &str = "TRAINYARD_STORE_UNDER_TEST";
const ROUNDS: u32 = 30;

/// What the child commits for each job: a list that must be there whole.
fn list(job: u32) -> [Write; 4] {
    let wall = i64::from(job);
    [add_job(job), attempt(job, 0, (wall, None)), key(&job.to_string(), wall), event(wall)]
}

#[test]
#[ignore = "a child of the test below, which kills it"]
fn child_that_commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let mut store = Store::open(path.as_ref()).unwrap();
    let mut job = store.load().unwrap().next_job;
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        store.commit(&list(job)).unwrap();
        println!("acknowledged {job}");
        std::io::stdout().flush().unwrap();
        job += 1;
    }
}

#[test]
fn whatever_was_acknowledged_survives_kill_9() {
    let place = Place::new();
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let (mut acknowledged, mut kills) = (None, 0);
    for round in 0..ROUNDS {
        acknowledged = killed_child(&place, random.next_u32() % 60).or(acknowledged);
        kills += 1;
        let mut store = place.open();
        let loaded = store.load().unwrap();
        let count = loaded.jobs.len() as u32;
        let least = acknowledged.map_or(0, |job: u32| job + 1);
        // The list on its way when the kill came may be there or not.
        assert!((least..=least + 1).contains(&count), "round {round}: {count} of {least}");
        assert!(loaded.jobs.iter().map(|row| row.job).eq(0..count), "round {round}: a gap");
        assert_eq!(loaded.attempts.len() as u32, count, "round {round}: half a list");
        assert_eq!(loaded.last_event, u64::from(count), "round {round}: half a list");
        let reader = store.reader().unwrap();
        assert!((0..count).all(|job| reader.key("ada", &job.to_string()).unwrap().is_some()));
        assert_eq!(reader.check().unwrap(), Vec::<String>::new(), "round {round}");
    }
    println!("{kills} kills, {} acknowledged jobs, none lost", acknowledged.unwrap_or(0) + 1);
    assert!(acknowledged.is_some_and(|job| job > ROUNDS), "the child did too little to test");
}

/// Lets a child commit for a while, kills it, and tells the last job that it acknowledged.
fn killed_child(place: &Place, after_lists: u32) -> Option<u32> {
    let test = "crash::child_that_commits_until_it_is_killed";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"])
        .env(STORE, place.store())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let job = |line: String| line.split("acknowledged ").nth(1)?.parse::<u32>().ok();
    // A count of lists instead of a sleep; the kill itself falls anywhere in the next one.
    let mut last = lines.by_ref().map_while(Result::ok).filter_map(job).nth(after_lists as usize);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines.map_while(Result::ok) {
        last = job(line).or(last);
    }
    last
}

#[test]
fn a_torn_log_loses_only_what_is_behind_the_tear() {
    let place = Place::new();
    let mut store = place.open();
    let log = place.path("store.db-wal");
    let mut lengths = Vec::new();
    for job in 0..120 {
        store.commit(&list(job)).unwrap();
        lengths.push(fs::metadata(&log).unwrap().len());
    }
    let mut random = ChaCha8Rng::seed_from_u64(4);
    for round in 0..60u32 {
        let torn = Place::new();
        fs::copy(place.store(), torn.store()).unwrap();
        fs::copy(&log, torn.path("store.db-wal")).unwrap();
        let length = *lengths.last().unwrap();
        let tear = 32 + random.next_u64() % (length - 32);
        let file = OpenOptions::new().write(true).open(torn.path("store.db-wal")).unwrap();
        if round % 2 == 0 {
            file.set_len(tear).unwrap();
        } else {
            let mut garbage = vec![0; (length - tear) as usize];
            random.fill_bytes(&mut garbage);
            file.write_all_at(&garbage, tear).unwrap();
        }
        let whole = lengths.iter().filter(|length| **length <= tear).count();
        let mut store = torn.open();
        let loaded = store.load().unwrap();
        assert_eq!(loaded.jobs.len(), whole, "round {round}, torn at {tear} of {length}");
        store.commit(&list(loaded.next_job)).unwrap();
        store.close().unwrap();
        let reader = Reader::open(&torn.store()).unwrap();
        assert_eq!(reader.check().unwrap(), Vec::<String>::new());
    }
}
