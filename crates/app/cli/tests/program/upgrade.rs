//! `upgrade-check`: folders of older, newer and broken versions.

use crate::place::{Place, words};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trainyard_api::JobSpec;
use trainyard_daemon::record::{Submission, Unit};
use trainyard_store::Store;
use trainyard_store::schema::VERSION;
use trainyard_types::{Job, JobId, Time};

/// A text for every version, as its own program wrote the tables.
const FIXTURES: [&str; 2] = [
    include_str!("../../../../live/store/tests/fixtures/v1.sql"),
    include_str!("../../../../live/store/tests/fixtures/v2.sql"),
];
const RUN: &str =
    include_str!("../../../../live/daemon/tests/fixtures/course-before-checkpoints.json");

/// A folder whose store has the tables of a version and records as a daemon writes them.
fn folder(name: &str, fixture: &str) -> Place {
    let place = Place::new(name);
    place.make_folder("state");
    let store = Connection::open(place.path("state/store.db")).expect("a file");
    store.execute_batch(fixture).expect("a store");
    let submission = Submission {
        job: Arc::new(Job::simple(JobId(1), Time(0), 1)),
        spec: JobSpec { argv: vec!["true".to_owned()], ..JobSpec::default() },
        user: "ada".to_owned(),
        tenant: "vision".to_owned(),
        identity: None,
        wall: 5,
        array: None,
        unit: Unit::Steps,
    };
    let submission = serde_json::to_string(&submission).expect("JSON");
    let run: Value = serde_json::from_str(RUN).expect("JSON");
    let launch = run["launch"].to_string();
    store.execute("UPDATE jobs SET spec = ?1, state = ?2", (&submission, RUN)).expect("rows");
    store.execute("UPDATE attempts SET data = ?1", [&launch]).expect("rows");
    let answer = r#"{"jobs":[0],"repeated":false}"#;
    store.execute("UPDATE keys SET answer = ?1", [answer]).expect("rows");
    place
}

fn edit(place: &Place, sql: &str) {
    let store = Connection::open(place.path("state/store.db")).expect("a file");
    store.execute_batch(sql).expect("it is changed");
}

/// Every file below a folder with its bytes.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.path().is_dir() {
            true => {
                let below = bytes(&entry.path()).into_iter();
                found.extend(below.map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
            }
            false => {
                found.insert(name, std::fs::read(entry.path()).expect("a file"));
            }
        }
    }
    found
}

/// Runs the check, which must not change a byte: exit code, JSON, and the text for people.
fn looked_at(place: &Place) -> (i32, Value, String) {
    let before = bytes(&place.path("state"));
    let run = place.run(&words("upgrade-check state --json"));
    let value: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}", run.err));
    let text = place.run(&words("upgrade-check --state state"));
    assert_eq!(text.code, run.code, "text and JSON agree: {}", text.err);
    assert_eq!(bytes(&place.path("state")), before, "nothing is changed");
    assert_eq!(value["ready"], run.code == 0, "{value}");
    let scratch = place.path("scratch");
    std::fs::create_dir_all(&scratch).expect("a folder");
    let again = place.command(&["upgrade-check", "state"]).env("TMPDIR", &scratch).output();
    assert_eq!(again.expect("it runs").status.code(), Some(run.code));
    assert_eq!(place.files_in("scratch"), Vec::<String>::new(), "no copy is left");
    (run.code, value, text.out)
}

#[test]
fn an_older_store_will_be_migrated_and_todays_will_not() {
    for (fixture, version) in FIXTURES.iter().zip(1u32..) {
        let place = folder(&format!("upgrade-from-{version}"), fixture);
        let (code, value, text) = looked_at(&place);
        assert_eq!(code, 0, "{text}");
        assert_eq!(value["store"]["version"], version);
        let steps = value["migrations"].as_array().expect("a list").len();
        assert_eq!(steps, (VERSION - version) as usize);
        assert_eq!(text.contains("will be migrated"), steps > 0, "{text}");
        assert!(value["records"].as_u64() >= Some(16), "{value}");
        // What was promised holds.
        Store::open(&place.path("state/store.db")).expect("it opens");
    }
}

#[test]
fn a_newer_store_is_refused() {
    let place = folder("upgrade-newer", FIXTURES[1]);
    edit(&place, "PRAGMA user_version = 99");
    let (code, _, text) = looked_at(&place);
    assert_eq!(code, 1);
    assert!(text.contains("BAD") && text.contains("version 99"), "{text}");
    assert!(text.contains(&format!("versions up to {VERSION}")), "{text}");
}

#[test]
fn a_record_that_cannot_be_read_is_named_by_table_row_and_field() {
    let place = folder("upgrade-unreadable", FIXTURES[0]);
    edit(&place, "UPDATE jobs SET spec = json_set(spec, '$.spec.gpus', 'many') WHERE job = 4");
    edit(&place, "INSERT INTO meta VALUES (7, 'tenants', '{')");
    edit(&place, "UPDATE tokens SET role = 'king'");
    let (code, value, text) = looked_at(&place);
    assert_eq!(code, 1);
    assert!(text.contains("table jobs, row 4, field spec.spec.gpus: "), "{text}");
    assert!(text.contains("table meta, row 7, field value.tenants: "), "{text}");
    assert!(text.contains("table tokens, row 1, field role: `king` is no role"), "{text}");
    assert_eq!(value["unreadable_in_all"], 3, "{value}");
    assert_eq!(value["unreadable"][0]["table"], "jobs", "{value}");
}

#[test]
fn a_damaged_page_is_called_damage() {
    let place = folder("upgrade-damaged", FIXTURES[1]);
    let mut store = place.read_bytes("state/store.db");
    let size = store.len();
    store[size - 4096..].fill(0xff);
    place.write("state/store.db", store);
    let (code, _, text) = looked_at(&place);
    assert_eq!(code, 1);
    assert!(text.contains("damaged") && text.contains("state/store.db"), "{text}");
    assert!(!text.contains("upgrade-check-"), "the copy is not named to the user: {text}");
}

#[test]
fn a_store_in_use_is_looked_at_and_its_user_named() {
    let place = folder("upgrade-in-use", FIXTURES[1]);
    let held = Store::open(&place.path("state/store.db")).expect("a store");
    let run = place.run(&words("upgrade-check state"));
    assert_eq!(run.code, 0, "{}", run.out);
    let holder = format!("process {} has the store open", std::process::id());
    assert!(run.out.contains(&holder), "{}", run.out);
    drop(held);
    let (_, value, _) = looked_at(&place);
    assert_eq!(value["in_use"], false);
}

#[test]
fn what_a_keeper_wrote_and_nobody_can_read_is_named() {
    let place = folder("upgrade-keeper", FIXTURES[1]);
    std::fs::create_dir_all(place.path("state/run/4.2/orders")).expect("folders");
    place.write("state/run/4.2/keeper.json", r#"{"pid":1,"began_ticks":0,"boot":"x"}"#);
    assert_eq!(looked_at(&place).0, 0);
    place.write("state/run/4.2/told.json", r#"{"saved":"much"}"#);
    let (code, value, text) = looked_at(&place);
    assert_eq!((code, &value["attempts"]["known"]), (1, &Value::from(1)));
    assert!(text.contains("run/4.2/told.json cannot be read"), "{text}");
}

#[test]
fn a_folder_that_is_no_daemons_is_bad_input() {
    let place = Place::new("upgrade-nothing");
    place.make_folder("empty");
    for (folder, expected) in [("empty", "there is no store"), ("none", "there is no such folder")]
    {
        let run = place.run(&["upgrade-check", folder]);
        assert_eq!(run.code, 3, "{}", run.err);
        assert!(run.err.contains(expected) && run.err.contains(folder), "{}", run.err);
    }
    assert_eq!(place.files(), ["empty"], "nothing is made");
}
