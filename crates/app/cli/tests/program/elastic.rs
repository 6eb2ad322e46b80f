//! A job that allows several sizes shrinks and grows while it runs, and ends as if it had not been resized.

use super::daemon::{Daemon, PATIENCE, program, ran};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn submit(daemon: &Daemon, name: &str, steps: u32) -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python");
    let text = format!(
        "name = \"{name}\"\ncommand = [\"python3\", \"{}\", \"--steps\", \"{steps}\", \"--step-seconds\", \"0.04\", \"--scales\"]\n\
         gpus = 1\ngpus_max = 4\nsteps = {steps}\nretries = 0\nenv.PYTHONPATH = \"{}\"\n",
        package.join("examples/sgd.py").display(),
        package.display(),
    );
    let file = format!("{name}.toml");
    fs::write(daemon.folder.join(&file), text).expect("a file");
    daemon.json(&["submit", &file, "--json"])["jobs"][0].to_string()
}

/// How many GPUs each attempt of a job held.
fn sizes(daemon: &Daemon, job: &str) -> Vec<usize> {
    let detail = daemon.json(&["job", "show", job, "--json"]);
    let attempts = detail["attempts"].as_array().expect("attempts").clone();
    let held = |attempt: &Value| {
        let nodes = attempt["holds"].as_array().expect("nodes").clone();
        nodes.iter().map(|node| node["gpus"].as_array().map_or(0, Vec::len)).sum()
    };
    attempts.iter().map(held).collect()
}

fn wait_for(daemon: &Daemon, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < 3 * PATIENCE, "{what}: {}", daemon.said(&["ps", "-a"]));
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_running_job_shrinks_for_another_and_grows_again() {
    let daemon = Daemon::start_with("elastic", &["--gpus", "4", "--policy", "afs-l"]);
    let long = submit(&daemon, "long", 1500);
    wait_for(&daemon, "alone it has all GPUs", || sizes(&daemon, &long).last() == Some(&4));
    let short = submit(&daemon, "short", 150);
    wait_for(&daemon, "the other has some", || !sizes(&daemon, &short).is_empty());
    assert!(sizes(&daemon, &long).iter().any(|gpus| *gpus < 4), "{:?}", sizes(&daemon, &long));
    for job in [&short, &long] {
        wait_for(&daemon, "all end", || daemon.state(job) == "finished");
    }
    let held = sizes(&daemon, &long);
    assert_eq!(held.last(), Some(&4), "it grew again once it was alone: {held:?}");
    let log = daemon.said(&["logs", &long]);
    assert!(log.contains("resumed at step ") && log.contains("final loss"), "{log}");

    daemon.said(&["capture", "-o", "record.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "record.jsonl", "--json"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(again["different"], 0, "{again}");
}
