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
        "name = \"{name}\"\ncommand = [\"python3\", \"{}\", \"--steps\", \"{steps}\", \"--step-seconds\", \"0.2\", \"--scales\"]\n\
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
    let long = submit(&daemon, "long", 300);
    wait_for(&daemon, "alone it has all GPUs", || sizes(&daemon, &long).last() == Some(&4));
    let short = submit(&daemon, "short", 30);
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

/// A job that goes over to other GPUs when it is told of them, if it hears, and is faster the more it has.
const NIMBLE: &str = r#"
import json, os, socket, sys, threading, time
steps, hears = int(sys.argv[1]), sys.argv[2] == "hears"
gpus = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
link = socket.socket(socket.AF_UNIX); link.connect(os.environ["TRAINYARD_SOCKET"])
def tell(**message):
    link.sendall((json.dumps(message) + "\n").encode())
def listen():
    global gpus
    for line in link.makefile("r"):
        message = json.loads(line)
        if message["type"] == "stop":
            os._exit(85)
        if message["type"] == "resize" and hears:
            time.sleep(0.2)
            gpus = len(message["devices"])
            tell(type="resized", devices=message["devices"])
            print("goes on with", gpus, flush=True)
threading.Thread(target=listen, daemon=True).start()
done = 0.0
while done < steps:
    done += gpus
    tell(type="progress", done=done, rate=20.0 * gpus, batch=32, noise_scale=1e6)
    time.sleep(0.05)
"#;

fn submit_nimble(daemon: &Daemon, name: &str, steps: u32, hears: &str) -> String {
    fs::write(daemon.folder.join("nimble.py"), NIMBLE).expect("a file");
    let text = format!(
        "name = \"{name}\"\ncommand = [\"python3\", \"nimble.py\", \"{steps}\", \"{hears}\"]\n\
         gpus = 1\ngpus_max = 4\nsteps = {steps}\nretries = 0\nresizes_in_place = true\n",
    );
    let file = format!("{name}.toml");
    fs::write(daemon.folder.join(&file), text).expect("a file");
    daemon.json(&["submit", &file, "--json"])["jobs"][0].to_string()
}

fn four_gpus(name: &str, policy: &str, wait: &str) -> Daemon {
    let options = ["--gpus", "4", "--policy", policy, "--resize-wait", wait];
    Daemon::start_with(name, &options)
}

#[test]
fn a_job_that_resizes_in_place_is_told_of_its_gpus_and_goes_on_without_a_restart() {
    let daemon = four_gpus("in-place", "afs-l", "30s");
    let long = submit_nimble(&daemon, "long", 1_000_000, "hears");
    wait_for(&daemon, "alone it has all GPUs", || sizes(&daemon, &long) == [4]);
    daemon.wait_until(&long, "running");
    let short = submit_nimble(&daemon, "short", 200, "hears");
    wait_for(&daemon, "the other runs", || sizes(&daemon, &short).len() == 1);
    let held = sizes(&daemon, &long);
    assert!(held.len() == 1 && held[0] < 4, "one attempt, on fewer GPUs: {held:?}");
    let told = daemon.said(&["events"]);
    let at = |what: &str| told.find(what).unwrap_or_else(|| panic!("no `{what}`: {told}"));
    let (asked, gone) =
        (at("is told to go from 4 to"), at(&format!("job {long} attempt 1 goes on with")));
    assert!(asked < gone && gone < at(&format!("job {short} attempt 1 on")), "{told}");
    wait_for(&daemon, "the other ends", || daemon.state(&short) == "finished");
    wait_for(&daemon, "it has all again", || sizes(&daemon, &long) == [4]);
    daemon.wait_to_hear(&["logs", &long], "goes on with 4");
    daemon.said(&["cancel", &long]);

    daemon.said(&["capture", "-o", "record.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "record.jsonl", "--json"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert_eq!(again["different"], 0, "{again}");
}

#[test]
fn a_job_that_does_not_go_over_in_time_is_stopped_and_started() {
    let daemon = four_gpus("deaf", "afs-l", "1s");
    let job = submit_nimble(&daemon, "deaf", 1_000_000, "is deaf");
    wait_for(&daemon, "alone it has all GPUs", || sizes(&daemon, &job) == [4]);
    daemon.wait_until(&job, "running");
    submit_nimble(&daemon, "other", 1_000_000, "hears");
    wait_for(&daemon, "it begins anew", || sizes(&daemon, &job).len() == 2);
    let told = daemon.said(&["events"]);
    assert!(told.contains("it has not gone over to its new GPUs in time"), "{told}");
}

#[test]
fn a_job_whose_gradients_grow_noisy_gets_gpus_while_it_runs_under_kungfu() {
    let daemon = four_gpus("kungfu", "kungfu:every=1s", "30s");
    let job = submit_nimble(&daemon, "noisy", 1_000_000, "hears");
    wait_for(&daemon, "it grows in place", || sizes(&daemon, &job) == [4]);
}
