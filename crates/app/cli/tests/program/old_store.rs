//! Folders that daemons of landed versions left behind: this one opens them, with all that they hold.

use crate::daemon::{Daemon, fresh_folder, program, ran};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Jobs of every kind, as files.
const JOBS: [(&str, &str); 8] = [
    ("finished", "command = ['true']\n"),
    ("failed", "command = ['sh', '-c', 'exit 3']\nretries = 0\n"),
    ("cancelled", "command = ['true']\nhold = true\n"),
    ("running", "command = ['sleep', '600']\nidle = '1h'\n"),
    (
        "full",
        "command = ['true']\nhold = true\ngpus = 2\ngpus_min = 1\ngpus_max = 2\ncpus = 2\nmemory = '1GiB'\n\
         gpu_memory = '1GiB'\nnodes_max = 1\npriority = 3\nweight = 2.0\nmodel = 'gavel-resnet50-b64'\nsteps = 1000\n\
         batch = 64\nbatch_max = 256\nbatch_mode = 'gns'\nsearch = 'rates'\nclass = 'guaranteed'\nbegin = 'now+1d'\n\
         deadline = '3000d'\ntolerance = '1h'\ntime_limit = '2h'\nmin_run = '1m'\nretries = 1\non_hang = 'restart'\n\
         env = { A = 'b' }\n[checkpoint]\nsignal = 'USR1'\ngrace = '5s'\nexit_code = 85\n",
    ),
    ("held", "command = ['true']\nhold = true\npreemptible = false\n"),
    ("array", "command = ['true']\narray = '0-2%1'\nhold = true\n"),
    ("after", "script = \"#!/bin/sh\\ntrue\\n\"\nafter = [6]\ngpu_share = 0.5\n"),
];

/// Stores as a daemon wrote them, by the month of its version. Frozen: what they hold must be read for ever. A version
/// that writes something else gets one of its own, by the ignored test below.
fn written() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/fixtures");
    let files =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let mut all: Vec<(String, String)> = files
        .map(|file| {
            let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, fs::read_to_string(&file).expect("a text"))
        })
        .collect();
    all.sort();
    assert!(!all.is_empty(), "there is a store of the first version");
    all
}

fn rows(daemon: &Daemon) -> Vec<Value> {
    let all = daemon.json(&["ps", "-a", "--json"]);
    all["jobs"].as_array().expect("rows").clone()
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no job {name}: {rows:?}"))
}

#[test]
fn a_store_that_an_older_daemon_wrote_opens_with_all_it_holds() {
    for (version, text) in written() {
        let folder = fresh_folder(&version);
        fs::create_dir(folder.join("s")).expect("a folder");
        let store = Connection::open(folder.join("s/store.db")).expect("a file");
        store.execute_batch(&text.replace(NODE, &node())).expect("a store");
        drop(store);
        let checked = ran(program(&folder, &["upgrade-check", "s"]));
        assert_eq!(checked.code, 0, "{version}: {}{}", checked.out, checked.err);
        let daemon = Daemon::start_in(folder, "", &["--gpus", "2"]);
        let rows = rows(&daemon);
        let state = |name: &str| row(&rows, name)["state"].as_str().expect("a state").to_owned();
        for ended in ["finished", "failed", "cancelled"] {
            assert_eq!(state(ended), ended, "{version}");
        }
        for held in ["full", "held", "array", "after"] {
            assert_eq!(state(held), "blocked", "{version}: {held}");
        }
        assert!(rows.iter().any(|row| row["name"] == "running"), "{version}: {rows:?}");
        assert_eq!(rows.iter().filter(|row| row["name"] == "array").count(), 3, "{version}");
        let full = daemon.json(&["job", "show", &row(&rows, "full")["id"].to_string(), "--json"]);
        let fields = [("gpus_min", 1), ("gpus_max", 2), ("priority", 3), ("batch_max", 256)];
        for (field, value) in fields {
            assert_eq!(full["spec"][field], value, "{version}: {field} of {full}");
        }
        assert_eq!(full["spec"]["env"]["A"], "b", "{version}: {full}");
        // What was held can go on.
        let held = row(&rows, "held")["id"].to_string();
        assert!(daemon.said(&["release", &held]).contains("released"), "{version}");
        end_what_runs(&daemon);
    }
}

/// The job that sleeps ends with its processes before the folder goes.
fn end_what_runs(daemon: &Daemon) {
    let id = row(&rows(daemon), "running")["id"].to_string();
    daemon.said(&["cancel", &id]);
    daemon.wait_until(&id, "cancelled");
}

/// Stands for the name of the machine.
const NODE: &str = "@NODE@";

fn node() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    name.trim().to_owned()
}

/// Writes the store of this version: `STORE_FIXTURE=crates/app/cli/tests/program/fixtures/store-MONTH.sql cargo test
/// -p trainyard --test program -- --ignored writes_the_store_of_this_version`; then put `NODE` in place of the machine's
/// name.
#[test]
#[ignore = "makes a fixture; only for a version that writes another store"]
fn writes_the_store_of_this_version() {
    let to = std::env::var("STORE_FIXTURE").expect("STORE_FIXTURE names a file");
    let daemon = Daemon::start("fixture");
    for (name, text) in JOBS {
        let text = format!("name = '{name}'\ncwd = '/'\n{text}");
        fs::write(daemon.folder.join("job.toml"), text).expect("a file");
        daemon.said(&["submit", "job.toml"]);
        match name {
            "finished" | "failed" => {
                let id = row(&rows(&daemon), name)["id"].to_string();
                daemon.wait_until(&id, name);
            }
            "cancelled" => drop(daemon.said(&["cancel", "--name", name])),
            "running" => daemon.wait_until(&row(&rows(&daemon), name)["id"].to_string(), name),
            _ => {}
        }
    }
    let window = ["--nodes", &node(), "--from", "now+1d", "--for", "4h", "--reason", "new driver"];
    daemon.said(&[&["window", "add"], &window[..]].concat());
    daemon.said(&["token", "create", "laptop", "--user", "ann", "--role", "user"]);
    // The daemon goes on with its own file: what opens that from outside takes its log away.
    daemon.said(&["store", "backup", "s/store.db", "copy.db"]);
    fs::write(to, dumped(&daemon.folder.join("copy.db"))).expect("a file");
    end_what_runs(&daemon);
}

/// A store as a text that makes it again.
fn dumped(path: &Path) -> String {
    let store = Connection::open(path).expect("a store");
    let mut text = String::new();
    for pragma in ["auto_vacuum", "application_id", "user_version"] {
        let value: i64 =
            store.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0)).expect("a number");
        writeln!(text, "PRAGMA {pragma} = {value};").expect("a text grows");
    }
    let tables =
        "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name";
    let mut found = store.prepare(tables).expect("a question");
    let found = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    let found: Vec<(String, String)> = found.collect::<Result<_, _>>().expect("texts");
    for (_, sql) in &found {
        writeln!(text, "{sql};").expect("a text grows");
    }
    for (table, _) in found.iter().filter(|(_, sql)| sql.starts_with("CREATE TABLE")) {
        let mut all =
            store.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).expect("a question");
        let columns = all.column_count();
        let mut rows = all.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            let values: Vec<String> =
                (0..columns).map(|at| quoted(row.get_ref(at).expect("a value"))).collect();
            writeln!(text, "INSERT INTO {table} VALUES ({});", values.join(", "))
                .expect("a text grows");
        }
    }
    text
}

fn quoted(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(bytes) => {
            format!("'{}'", String::from_utf8_lossy(bytes).replace('\'', "''"))
        }
        ValueRef::Blob(bytes) => {
            format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
    }
}
