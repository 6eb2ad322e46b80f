//! An upgrade tried on a copy.

use crate::place::{Place, add_job};
use std::collections::BTreeMap;
use trainyard_store::{Rehearsal, StoreError};

fn bytes(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| (name.clone(), std::fs::read(place.path(&name)).unwrap());
    place.names().into_iter().map(read).collect()
}

fn jobs(rehearsal: &Rehearsal) -> u64 {
    rehearsal.texts(("jobs", "spec"), |_, text| assert!(text.is_ok())).unwrap()
}

/// The files as a killed daemon leaves them: its newest commits are in the log alone.
fn killed(place: &Place) -> Place {
    let mut store = place.open();
    store.commit(&[add_job(1), add_job(2)]).unwrap();
    let left = Place::new();
    for name in place.names().iter().filter(|name| !name.ends_with("-shm")) {
        std::fs::copy(place.path(name), left.path(name)).unwrap();
    }
    left
}

#[test]
fn what_a_killed_daemon_left_in_its_log_is_seen_and_left_there() {
    let place = Place::new();
    let left = killed(&place);
    let before = bytes(&left);
    assert!(before.contains_key("store.db-wal"), "the test has a log: {:?}", before.keys());
    let scratch = Place::new();
    let rehearsal = Rehearsal::begin(&left.store(), scratch.folder()).unwrap();
    assert_eq!((jobs(&rehearsal), rehearsal.in_use), (2, None));
    assert_eq!(bytes(&left), before);
}

#[test]
fn a_log_that_is_missed_at_a_start_is_missed_here() {
    let place = Place::new();
    let left = killed(&place);
    std::fs::remove_file(left.path("store.db-wal")).unwrap();
    let refused = Rehearsal::begin(&left.store(), Place::new().folder()).unwrap_err();
    assert!(matches!(refused, StoreError::LogGone { .. }), "{refused}");
}

#[test]
fn a_store_in_use_is_copied_with_what_is_in_its_log() {
    let place = Place::new();
    let mut store = place.open();
    store.commit(&[add_job(1)]).unwrap();
    let scratch = Place::new();
    let rehearsal = Rehearsal::begin(&place.store(), scratch.folder()).unwrap();
    let process = rehearsal.in_use.map(|user| user.process);
    assert_eq!((jobs(&rehearsal), process), (1, Some(Some(std::process::id()))));
    store.commit(&[add_job(2)]).unwrap();
    assert_eq!(jobs(&rehearsal), 1, "the copy is a moment");
}
