//! Real training, preempted and moved by the daemon, ends with the loss of an unbroken run, and what it cost is learnt.

use super::daemon::{Daemon, PATIENCE, program, ran};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const OPTIONS: [&str; 4] = ["--gpus", "2", "--policy", "priority:preempt=priority"];

/// A training script and the Python that runs it.
struct Training {
    python: &'static str,
    script: &'static str,
    arguments: &'static [&'static str],
}

const PLAIN: Training = Training {
    python: "python3",
    script: "sgd.py",
    arguments: &["--steps", "150", "--step-seconds", "0.02"],
};

const TORCH: Training = Training {
    python: "/usr/bin/python3",
    script: "torch_sgd.py",
    arguments: &["--steps", "6000"],
};

impl Training {
    fn package() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python")
    }

    fn argv(&self) -> Vec<String> {
        let script = Training::package().join("examples").join(self.script);
        let mut argv = vec![self.python.to_owned(), script.display().to_string()];
        argv.extend(self.arguments.iter().map(|&argument| argument.to_owned()));
        argv
    }

    /// The last line of a run that is not interrupted.
    fn unbroken(&self, folder: &Path) -> String {
        let argv = self.argv();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).current_dir(folder);
        command.env("PYTHONPATH", Training::package()).env("OMP_NUM_THREADS", "1");
        let output = command.output().expect("Python starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        final_loss(&String::from_utf8_lossy(&output.stdout))
    }

    fn submit(&self, daemon: &Daemon) -> String {
        let text = format!(
            "name = \"training\"\ncommand = {:?}\ngpus = 1\nretries = 0\nenv = {{ PYTHONPATH = \"{}\", OMP_NUM_THREADS = \"1\" }}\n",
            self.argv(),
            Training::package().display(),
        );
        fs::write(daemon.folder.join("training.toml"), text).expect("a file");
        let submitted = daemon.json(&["submit", "training.toml", "--json"]);
        submitted["jobs"][0].to_string()
    }
}

fn final_loss(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("final loss "));
    line.unwrap_or_else(|| panic!("no final loss in {text}")).to_owned()
}

fn detail(daemon: &Daemon, job: &str) -> Value {
    daemon.json(&["job", "show", job, "--json"])
}

/// Runs a command with a priority and does not wait for it; the id of the job.
fn run(daemon: &Daemon, gpus: &str, priority: &str, seconds: &str) -> String {
    let arguments = ["run", "--detach", "--json", "--gpus", gpus, "--priority", priority, "--"];
    let submitted = daemon.json(&[&arguments[..], &["sleep", seconds]].concat());
    submitted["jobs"][0].to_string()
}

/// Trains on the first GPU, is stopped for a job that takes both, and goes on on the second, for the first is taken.
fn is_moved_and_ends_alike(name: &str, training: &Training) {
    let mut daemon = Daemon::start_with(name, &OPTIONS);
    let unbroken = training.unbroken(&daemon.folder);
    let job = training.submit(&daemon);
    let begun = Instant::now();
    while detail(&daemon, &job)["report"]["done"].as_f64().is_none_or(|done| done < 10.0) {
        assert!(begun.elapsed() < 3 * PATIENCE, "no progress: {}", daemon.said(&["logs", &job]));
        sleep(Duration::from_millis(50));
    }
    let wide = run(&daemon, "2", "2", "0.5");
    let narrow = run(&daemon, "1", "1", "60");
    daemon.wait_until(&wide, "finished");
    daemon.wait_until(&narrow, "running");
    let begun = Instant::now();
    while daemon.state(&job) != "finished" {
        assert!(begun.elapsed() < 3 * PATIENCE, "{}", daemon.said(&["logs", &job]));
        sleep(Duration::from_millis(50));
    }

    let over = detail(&daemon, &job);
    let holds = |attempt: usize| over["attempts"][attempt]["holds"][0]["gpus"].clone();
    assert_eq!((holds(0), holds(1)), (vec![0].into(), vec![1].into()), "it was moved: {over}");
    assert_eq!(over["preemptions"], 1, "{over}");
    // Once it has said that all is saved, what is left of it may be killed: on a busy machine PyTorch takes its time to end.
    let (code, signal) = (&over["attempts"][0]["exit_code"], &over["attempts"][0]["signal"]);
    assert!(code == 85 || signal == 9, "{over}");
    let log = daemon.said(&["logs", &job]);
    assert!(log.contains("resumed at step "), "{log}");
    assert_eq!(final_loss(&log), unbroken, "to the last digit");
    for what in ["start", "save", "restore", "rate"] {
        let figure = over["measured"][what].as_f64();
        assert!(figure.is_some_and(|figure| figure > 0.0), "{what}: {over}");
    }
    let shown = daemon.said(&["job", "show", &job]);
    assert!(shown.contains("measured   start ") && shown.contains(" restore "), "{shown}");
    is_remembered(&mut daemon, &over["measured"]);
}

/// What was measured is what policies believe about jobs of that name, also after the daemon was killed.
fn is_remembered(daemon: &mut Daemon, measured: &Value) {
    daemon.said(&["capture", "-o", "before.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "before.jsonl"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    // What was learnt is written within five seconds, though nothing else happens.
    sleep(Duration::from_secs(6));
    daemon.kill();
    daemon.start_again();
    daemon.said(&["capture", "-o", "after.jsonl"]);
    let record = fs::read_to_string(daemon.folder.join("after.jsonl")).expect("a record");
    let first: Value = serde_json::from_str(record.lines().next().expect("a base")).expect("JSON");
    let learnt = first["base"]["learnt"].as_str().expect("what was learnt");
    let learnt: Value = serde_json::from_str(learnt).expect("JSON");
    let all = learnt["kin"].as_array().expect("kin");
    // One job was measured, and was stopped once.
    let saves: Vec<f64> = all.iter().filter_map(|kin| kin[1]["save"].as_f64()).collect();
    let starts: Vec<f64> = all.iter().filter_map(|kin| kin[1]["start"].as_f64()).collect();
    let save = measured["save"].as_f64().expect("a figure");
    assert!(saves.iter().any(|one| (one - save).abs() < 1e-6), "{learnt} and {measured}");
    assert!(starts.iter().any(|one| *one > 0.0), "{learnt}");
}

#[test]
fn training_in_plain_python_is_preempted_moved_and_ends_with_the_same_loss() {
    is_moved_and_ends_alike("plain", &PLAIN);
}

#[test]
fn training_in_pytorch_is_preempted_moved_and_ends_with_the_same_loss() {
    let torch = Command::new(TORCH.python).args(["-c", "import torch"]).output();
    if !torch.is_ok_and(|output| output.status.success()) {
        trainyard_testkit::skip!("torch", "{} has no PyTorch", TORCH.python);
        return;
    }
    is_moved_and_ends_alike("torch", &TORCH);
}
