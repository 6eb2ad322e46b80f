//! Which processes may open a store, and what is refused.

use crate::place::{Place, add_job};
use std::os::unix::fs::PermissionsExt;
use trainyard_store::{Store, StoreError};

#[test]
fn a_new_store_is_its_owners_alone() {
    let place = Place::new();
    let path = place.path("made/here/store.db");
    let mut store = Store::open(&path).unwrap();
    store.commit(&[add_job(1)]).unwrap();
    let rights = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(rights(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let file = path.with_file_name(format!("store.db{suffix}"));
        assert_eq!(rights(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_store_that_was_there_is_missed_when_it_or_its_log_is_gone() {
    let place = Place::new();
    let (log, lock) = (place.path("store.db-wal"), place.path("store.db.lock"));
    // One in which nothing was ever kept is made again.
    drop(place.open());
    std::fs::remove_file(place.store()).unwrap();
    let mut store = place.open();
    store.commit(&[add_job(1)]).unwrap();
    // A process that is killed closes nothing.
    let kept = std::fs::read(&log).unwrap();
    let word = std::fs::read(&lock).unwrap();
    store.close().unwrap();
    assert!(!log.exists(), "closed well, it is one file");
    drop(place.open());

    std::fs::write(&lock, &word).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(matches!(refused, StoreError::LogGone { .. }), "{refused}");
    assert!(refused.to_string().contains("store.db-wal is gone"), "{refused}");
    std::fs::write(&log, &kept).unwrap();
    place.open().close().unwrap();

    std::fs::remove_file(place.store()).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    assert!(matches!(refused, StoreError::Gone { .. }), "{refused}");
    assert!(!place.store().exists(), "nothing is made in its place");
    // An operator who wants a new store removes the lock file, too.
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(place.open().load().unwrap().jobs.len(), 0);
}

#[test]
fn a_second_daemon_is_refused_and_told_who_has_the_store() {
    let place = Place::new();
    let first = place.open();
    let second = Store::open(&place.store()).unwrap_err();
    let holder = Some(std::process::id());
    assert_eq!(second, StoreError::Locked { path: place.store(), holder });
    drop(first);
    place.open();
}
