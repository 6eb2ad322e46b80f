//! The package for Python against the real daemon.

use super::daemon::Daemon;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python")
}

/// Runs a program in Python that knows the package; what it prints.
fn python(daemon: &Daemon, text: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", text]).current_dir(&daemon.folder).env("PYTHONPATH", package());
    command.env_remove("TRAINYARD_TOKEN").envs(variables.iter().copied());
    let output = command.output().expect("Python starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn socket(daemon: &Daemon) -> String {
    format!("unix:{}", daemon.folder.join("s/api.sock").display())
}

const ASKS: &str = r#"
import time
from trainyard import Client, Problem
yard = Client()
def admitted(job):
    # The policy is asked for its admission in the next round, not by the request that submits.
    until = time.time() + 20
    while yard.job(job)["state"] == "unadmitted" and time.time() < until:
        time.sleep(0.05)
    return yard.job(job)["state"]
(job,) = yard.submit({"argv": ["sh", "-c", "echo from $PWD; exit 3"], "retries": 0})
ended = yard.wait(job, timeout=20, every=0.1)
print(ended["state"], ended["attempts"][-1]["exit_code"], yard.logs(job).strip())
again = [yard.submit({"argv": ["sleep", "60"], "gpus": 2}, key="mine") for _ in range(2)]
print(again[0] == again[1], [row["id"] for row in yard.jobs()] == again[0])
late, = yard.submit({"argv": ["true"], "gpus": 2})
print(bool(yard.why(late)["reasons"]), admitted(late))
yard.hold(late); print(yard.job(late)["state"]); yard.release(late)
yard.cancel(again[0][0], "enough")
print(yard.wait(late, timeout=20, every=0.1)["state"], yard.job(again[0][0])["state"])
print(len(yard.nodes()), yard.status()["role"], [e["kind"] for e in yard.events(max=1)])
try:
    yard.submit({"argv": ["true"], "gpus": 99})
except Problem as problem:
    print(problem.code, problem.field)
"#;

const ASKS_BY_TOKEN: &str = r#"
from trainyard import Client
yard = Client()
status = yard.status()
print(status["role"], status["user"])
job, = yard.submit({"argv": ["id", "-un"], "cwd": "/"})
print(yard.wait(job, timeout=20, every=0.1)["state"], yard.logs(job).strip())
late, = yard.submit({"argv": ["sleep", "60"], "cwd": "/", "hold": True})
print(late in [row["id"] for row in yard.jobs(state="blocked")], yard.cancel(late) or yard.job(late)["state"])
"#;

#[test]
fn a_client_in_python_submits_asks_and_acts_over_the_socket_and_over_http() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.expect("a port").to_string();
    let folder = super::daemon::fresh_folder("pyclient");
    let unix = format!("unix:{}", folder.join("s/api.sock").display());
    let options = ["--gpus", "2", "--listen", &unix, "--listen", &address];
    let daemon = Daemon::start_in(folder.clone(), "", &options);
    let told = python(&daemon, ASKS, &[("TRAINYARD_SERVER", &unix)]);
    let expected = format!(
        "failed 3 from {}\nTrue True\nTrue waiting\nblocked\nfinished cancelled\n1 admin ['submitted']\n\
         infeasible gpus\n",
        folder.canonicalize().expect("a folder").display()
    );
    assert_eq!(told, expected);
    let page = package().join("../docs/guide/python.md");
    let page = fs::read_to_string(page).expect("the page");
    let block = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let told = python(&daemon, block.expect("a block"), &[("TRAINYARD_SERVER", &unix)]);
    assert_eq!(told.trim(), "finished trained", "the first block of the guide's page");
    // No token is root's: root's daemon runs what such a caller submits as another user.
    let own = Command::new("id").arg("-un").output().expect("a user").stdout;
    let own = String::from_utf8_lossy(&own).trim().to_owned();
    let user = if own == "root" { "nobody".to_owned() } else { own };
    let made = ["token", "create", "py", "--role", "operator", "--user", &user, "--json"];
    let token = daemon.json(&made)["token"].as_str().expect("a token").to_owned();
    let server = format!("http://{address}");
    let told = python(
        &daemon,
        ASKS_BY_TOKEN,
        &[("TRAINYARD_SERVER", &server), ("TRAINYARD_TOKEN", &token)],
    );
    assert_eq!(told, format!("operator {user}\nfinished {user}\nTrue cancelled\n"));
    let none = "from trainyard import Client, Problem\ntry:\n    Client().jobs()\nexcept Problem as p:\n    print(p.status)";
    assert_eq!(python(&daemon, none, &[("TRAINYARD_SERVER", &server)]), "401\n");
}

/// A trial whose loss falls the faster the smaller its number is.
const TRIAL: &str = r#"
import sys, time, trainyard
number, epochs = int(sys.argv[1]), 100
yard = trainyard.join(total_steps=epochs, report_every=0.0)
start = int(open("epoch-%d" % number).read()) if yard.restore_from else 0
for epoch in range(start, epochs):
    time.sleep(0.1)
    if yard.step(epoch + 1, loss=1.0 / (1 + epoch / (1 + number)), epoch=epoch + 1):
        open("epoch-%d" % number, "w").write(str(epoch + 1))
        yard.exit_saved(epoch + 1)
yard.finished()
"#;

/// Four trials by the client alone, and by Optuna.
const PLAIN: &str = r#"
from trainyard import Client
yard = Client()
jobs = [{"argv": ["python3", "trial.py", str(n)], "search": "width", "steps": 100, "deadline_seconds": 20, "retries": 0,
         "env": {"PYTHONPATH": PACKAGE}} for n in range(4)]
ends = [yard.wait(job, timeout=60, every=0.2) for job in yard.submit(*jobs)]
print(sorted(end["state"] for end in ends), max(end["report"]["done"] for end in ends if end["report"]))
"#;

const OPTUNA: &str = r#"
import optuna
from trainyard import Client
from trainyard.optuna import Search
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(study_name="width")
for n in range(4):
    study.enqueue_trial({"n": n})
def job(trial):
    n = trial.suggest_int("n", 0, 3)
    return {"argv": ["python3", "trial.py", str(n)], "steps": 100, "retries": 0, "env": {"PYTHONPATH": PACKAGE}}
Search(Client(), study, job, deadline_seconds=20).run(trials=4, every=0.2)
print(study.best_params, sorted(trial.state.name for trial in study.trials))
pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
print(all(trial.intermediate_values for trial in pruned))
"#;

fn searched(name: &str, text: &str) -> String {
    // Fewer GPUs than trials: none is paused for a GPU that would stay idle.
    let options = ["--gpus", "2", "--policy", "hypersched:every=1s,eta=2,reallocate=none"];
    let daemon = Daemon::start_with(name, &options);
    fs::write(daemon.folder.join("trial.py"), TRIAL).expect("a file");
    let text = text.replace("PACKAGE", &format!("{:?}", package().display().to_string()));
    python(&daemon, &text, &[("TRAINYARD_SERVER", &socket(&daemon))])
}

#[test]
fn jobs_of_one_search_are_trials_to_hypersched_which_ends_those_that_lag() {
    let told = searched("search", PLAIN);
    assert!(told.contains("'finished'") && told.contains("'pruned'"), "{told}");
    assert!(told.ends_with("100.0\n"), "the result is kept: {told}");
}

#[test]
fn a_study_of_optuna_feeds_hypersched_and_learns_which_trials_it_ended() {
    let found = Command::new("python3").args(["-c", "import optuna"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        trainyard_testkit::skip!("optuna", "python3 has no Optuna");
        return;
    }
    let told = searched("optuna", OPTUNA);
    assert!(told.starts_with("{'n': 0}"), "the best trial goes on: {told}");
    assert!(told.contains("'PRUNED'") && told.contains("'COMPLETE'"), "{told}");
    assert!(told.ends_with("True\n"), "{told}");
}
