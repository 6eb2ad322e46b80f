//! Who may open a store, and what is refused.

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
fn a_second_daemon_is_refused_and_told_who_has_the_store() {
    let place = Place::new();
    let first = place.open();
    let second = Store::open(&place.store()).unwrap_err();
    let holder = Some(std::process::id());
    assert_eq!(second, StoreError::Locked { path: place.store(), holder });
    drop(first);
    place.open();
}
