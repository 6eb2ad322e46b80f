//! Stores of every version that ever was.

use crate::place::Place;
use rusqlite::Connection;
use std::path::Path;
use trainyard_store::schema::VERSION;
use trainyard_store::{Keep, Reader, Retention, Store, StoreError};

/// A text for every version, frozen when the next version came.
const FIXTURES: &[&str] = &[include_str!("../fixtures/v1.sql"), include_str!("../fixtures/v2.sql")];

#[test]
fn every_version_has_a_fixture_and_opens_as_todays() {
    assert_eq!(FIXTURES.len(), VERSION as usize, "a new version needs a fixture of the one before");
    let fresh = Place::new();
    drop(fresh.open());
    for (index, fixture) in FIXTURES.iter().enumerate() {
        let place = Place::new();
        write(&place.store(), fixture);
        let mut store = place.open();
        let loaded = store.load().unwrap();
        let ids: Vec<u32> = loaded.jobs.iter().map(|row| row.job).collect();
        assert_eq!(ids, [1, 4], "version {}", index + 1);
        assert_eq!(loaded.jobs[0].state, "{\"phase\":\"running\"}");
        assert_eq!((loaded.attempts.len(), loaded.attempts[0].attempt), (1, 1));
        assert_eq!((loaded.next_job, loaded.last_event), (5, 2));
        assert_eq!(loaded.meta["epoch"], "3");
        assert_eq!(loaded.tokens[0].name, "laptop");
        let reader = store.reader().unwrap();
        assert_eq!(reader.key("ada", "k1").unwrap(), Some(("d1".into(), "{\"job\":0}".into())));
        assert_eq!(reader.check().unwrap(), Vec::<String>::new());
        drop(reader);
        // Job 0 ended at 9000 by its last launch, job 2 at 3000 by its submission.
        let nothing = Keep { age: None, count: None };
        let keep = Retention {
            now: 9_000,
            ended_jobs: Keep { age: Some(5_000), count: None },
            events: nothing,
            audit: nothing,
            keys: nothing,
            slice: 10,
        };
        assert_eq!(store.compact(&keep).unwrap().jobs, 1);
        assert_eq!(store.reader().unwrap().job(2).unwrap(), None);
        store.close().unwrap();
        assert_eq!(tables(&place.store()), tables(&fresh.store()), "version {}", index + 1);
    }
}

#[test]
fn an_upgrade_that_fails_leaves_the_old_store() {
    let place = Place::new();
    write(&place.store(), FIXTURES[0]);
    // The step to version 2 wants to make this table itself.
    edit(&place.store(), "CREATE TABLE floors (id INTEGER)");
    assert!(matches!(Store::open(&place.store()), Err(StoreError::Damaged { .. })));
    edit(&place.store(), "DROP TABLE floors");
    assert_eq!(place.open().load().unwrap().jobs.len(), 2);
}

#[test]
fn a_reader_does_not_upgrade() {
    let place = Place::new();
    write(&place.store(), FIXTURES[0]);
    let refused = Reader::open(&place.store()).unwrap_err().to_string();
    assert!(refused.contains("version 1") && refused.contains("next start"), "{refused}");
}

#[test]
fn a_newer_version_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    edit(&place.store(), "PRAGMA user_version = 99");
    let before = std::fs::read(place.store()).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    let expected = StoreError::Newer { path: place.store(), found: 99, known: VERSION };
    assert_eq!(refused, expected);
    assert!(refused.to_string().contains("version 99"));
    assert_eq!(std::fs::read(place.store()).unwrap(), before);
}

#[test]
fn a_store_whose_mark_is_older_than_its_tables_is_called_newer_and_left_alone() {
    let place = Place::new();
    drop(place.open());
    edit(&place.store(), "PRAGMA user_version = 1");
    let before = std::fs::read(place.store()).unwrap();
    let refused = Store::open(&place.store()).unwrap_err();
    let expected = StoreError::Mismarked { path: place.store(), marked: 1, found: VERSION };
    assert_eq!(refused, expected);
    let text = refused.to_string();
    assert!(text.contains("newer") && !text.contains("damaged"), "{text}");
    assert_eq!(Reader::open(&place.store()).unwrap_err(), expected);
    assert_eq!(std::fs::read(place.store()).unwrap(), before);
    edit(&place.store(), &format!("PRAGMA user_version = {VERSION}"));
    place.open();
}

#[test]
fn somebody_elses_database_is_refused() {
    let place = Place::new();
    write(&place.store(), "CREATE TABLE photos (name TEXT)");
    let refused = Store::open(&place.store()).unwrap_err();
    assert_eq!(refused, StoreError::Foreign { path: place.store() });
}

fn write(path: &Path, fixture: &str) {
    Connection::open(path).unwrap().execute_batch(fixture).unwrap();
}

fn edit(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Names of all tables, columns and indexes.
fn tables(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let sql = "SELECT s.type || ' ' || s.name || ' ' || coalesce(c.name || ' ' || c.type, '')
               FROM sqlite_schema s LEFT JOIN pragma_table_info(s.name) c ORDER BY 1";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map((), |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}
