//! Retention, backup and restore.

use crate::place::{Place, add_job, attempt, audit, end_job, event, key};
use std::fs;
use trainyard_store::{Existing, Keep, Reader, Retention, Store, StoreError, Write, restore};

const ALL: Keep = Keep { age: None, count: None };

fn keep_all(now: i64) -> Retention {
    Retention { now, events: ALL, audit: ALL, ended_jobs: ALL, keys: ALL, slice: 50 }
}

/// Jobs 0 to 99; those below 80 have ended, job `n` at time `n`.
fn hundred_jobs(store: &mut Store) {
    for job in 0..100 {
        let wall = i64::from(job);
        let launch = attempt(job, 0, (wall - 1, Some(wall)));
        let key = key(&job.to_string(), wall);
        let Write::AddJob { job, user, tenant, spec, state, .. } = add_job(job) else { panic!() };
        let add = Write::AddJob { job, user, tenant, spec, state, wall };
        store.commit(&[add, launch, key, event(wall), audit(wall)]).unwrap();
        if job < 80 {
            store.commit(&[end_job(job), event(wall)]).unwrap();
        }
    }
}

#[test]
fn age_and_count_drop_the_oldest_and_only_of_their_kind() {
    let place = Place::new();
    let mut store = place.open();
    hundred_jobs(&mut store);
    let by_age = Retention { ended_jobs: Keep { age: Some(40), count: None }, ..keep_all(100) };
    let done = store.compact(&by_age).unwrap();
    assert_eq!((done.jobs, done.attempts, done.events, done.more), (50, 50, 0, true));
    let done = store.compact(&by_age).unwrap();
    assert_eq!((done.jobs, done.attempts), (10, 10), "jobs that ended before time 60 go");
    let few = Keep { age: None, count: Some(7) };
    let by_count = Retention { events: few, audit: few, keys: few, ..keep_all(100) };
    let mut calls = 0;
    while store.compact(&by_count).unwrap().more {
        calls += 1;
        assert!(calls < 100, "it comes to an end");
    }
    let reader = store.reader().unwrap();
    let events: Vec<u64> = reader.events(0, 100).unwrap().iter().map(|row| row.seq).collect();
    assert_eq!(events, (174..=180).collect::<Vec<u64>>());
    assert_eq!(reader.audit(100).unwrap().len(), 7);
    assert!(
        reader.key("ada", "92").unwrap().is_none() && reader.key("ada", "93").unwrap().is_some()
    );
    assert_eq!(reader.ended_jobs(None, None, 100).unwrap().len(), 20);
    assert_eq!(store.load().unwrap().jobs.len(), 20, "open jobs stay");
}

#[test]
fn numbers_are_not_given_again_when_everything_old_is_dropped() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(0), add_job(1), event(1), event(2)]).unwrap();
    store.commit(&[end_job(0), end_job(1), event(3)]).unwrap();
    let none = Keep { age: Some(0), count: Some(0) };
    let keep = Retention { now: i64::MAX, ended_jobs: none, events: none, ..keep_all(0) };
    store.compact(&keep).unwrap();
    store.close().unwrap();
    let loaded = place.open().load().unwrap();
    assert_eq!((loaded.next_job, loaded.last_event), (2, 3));
}

#[test]
fn what_is_dropped_goes_back_to_the_disk() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&(0..4_000).map(event).collect::<Vec<_>>()).unwrap();
    store.commit(&(0..4_000).map(add_job).collect::<Vec<_>>()).unwrap();
    store.commit(&(0..4_000).map(end_job).collect::<Vec<_>>()).unwrap();
    let nothing = Keep { age: None, count: Some(1) };
    let keep = Retention { events: nothing, ended_jobs: nothing, slice: 300, ..keep_all(0) };
    let (mut bytes, mut calls) = (0, 0);
    loop {
        let done = store.compact(&keep).unwrap();
        assert!(done.jobs <= 300 && done.events <= 300, "{done:?}");
        bytes += done.bytes;
        calls += 1;
        if !done.more {
            break;
        }
        // A commit between two slices.
        store.commit(&[Write::SetMeta { name: "m".into(), value: calls.to_string() }]).unwrap();
    }
    let left = fs::metadata(place.store()).unwrap().len();
    let log = fs::metadata(place.path("store.db-wal")).unwrap().len();
    println!("{bytes} bytes given back in {calls} calls, {left} left, log {log}");
    assert!(bytes > 1_000_000 && left < 200_000 && log <= 9 << 20 && calls > 10);
    assert_eq!(store.reader().unwrap().check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_backup_taken_between_commits_restores_to_the_same() {
    let place = Place::new();
    let mut store = place.open();
    hundred_jobs(&mut store);
    let expected = store.load().unwrap();
    let backup = place.path("backup.db");
    let copied = store.reader().unwrap().backup(&backup).unwrap();
    assert_eq!((copied.jobs, copied.path.as_path()), (100, backup.as_path()));
    assert_eq!(store.backup(&backup), Err(StoreError::Exists { path: backup.clone() }));
    store.commit(&[add_job(500)]).unwrap();

    let busy = restore(&backup, &place.store(), Existing::SetAside);
    assert!(matches!(busy, Err(StoreError::Locked { .. })), "{busy:?}");
    drop(store);
    let refused = restore(&backup, &place.store(), Existing::Refuse);
    assert_eq!(refused, Err(StoreError::Exists { path: place.store() }));

    let restored = restore(&backup, &place.store(), Existing::SetAside).unwrap();
    assert_eq!(place.open().load().unwrap(), expected);
    let old = restored.set_aside.expect("the old file is kept");
    assert!(Reader::open(&old).unwrap().job(500).unwrap().is_some());
    assert!(place.names().iter().all(|name| !name.contains(".new") && !name.contains("partial")));
}

#[test]
fn a_restore_sets_a_log_aside_that_belongs_to_the_old_file() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1)]).unwrap();
    let backup = place.path("backup.db");
    store.backup(&backup).unwrap();
    store.commit(&[add_job(2)]).unwrap();
    // As after a crash: a main file and a log that was not copied into it.
    let crashed = place.path("crashed.db");
    fs::copy(place.store(), &crashed).unwrap();
    fs::copy(place.path("store.db-wal"), place.path("crashed.db-wal")).unwrap();
    let restored = restore(&backup, &crashed, Existing::SetAside).unwrap();
    let ids: Vec<u32> =
        Store::open(&crashed).unwrap().load().unwrap().jobs.iter().map(|row| row.job).collect();
    assert_eq!(ids, [1]);
    assert!(Reader::open(&restored.set_aside.unwrap()).unwrap().job(2).unwrap().is_some());
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let place = Place::new();
    let mut store = place.open();
    hundred_jobs(&mut store);
    let backup = place.path("backup.db");
    store.backup(&backup).unwrap();
    drop(store);
    let mut bytes = fs::read(&backup).unwrap();
    let page = bytes.len() / 2 / 4096 * 4096;
    bytes[page..page + 4096].fill(0xa5);
    fs::write(&backup, bytes).unwrap();
    let refused = restore(&backup, &place.store(), Existing::SetAside).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
    assert_eq!(place.open().load().unwrap().jobs.len(), 20, "the store is untouched");
}
