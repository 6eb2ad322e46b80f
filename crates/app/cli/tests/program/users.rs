//! An unprivileged daemon with a privileged helper: jobs run as the users who submit them, and users are kept apart.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Users that every Debian and Red Hat system has: the daemon's, and two who submit.
const DAEMON: &str = "1";
const ANN: (&str, &str) = ("2", "bin");
const BOB: &str = "3";
const PATIENCE: Duration = Duration::from_secs(20);

struct Yard {
    folder: PathBuf,
    program: PathBuf,
    running: Vec<Child>,
}

impl Yard {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start(&mut self, uid: Option<&str>, arguments: &[&str]) {
        let mut command = match uid {
            Some(uid) => as_user(uid, &self.program),
            None => Command::new(&self.program),
        };
        let log =
            fs::File::create(self.folder.join(format!("{}.log", arguments[0]))).expect("a log");
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running.push(child.spawn().expect("it starts"));
    }

    fn ask(&self, uid: &str, arguments: &[&str]) -> Output {
        let server = format!("unix:{}", self.path("s/api.sock"));
        let mut command = as_user(uid, &self.program);
        command.env("TRAINYARD_SERVER", server).env("HOME", "/").current_dir("/");
        command.args(arguments).output().expect("it runs")
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn as_user(uid: &str, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]).arg(program);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn an_unprivileged_daemon_runs_jobs_as_their_users_and_keeps_users_apart() {
    let is_root = fs::metadata("/proc/self")
        .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    if !is_root || Command::new("setpriv").arg("--version").output().is_err() {
        trainyard_testkit::skip!("root", "needs root and setpriv, to be several users");
        return;
    }
    let folder = std::env::temp_dir().join(format!("ty-{}-users", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).expect("a mode");
    chown(&folder, Some(1), Some(1)).expect("an owner");
    // The program lies where only root may look; every user needs a way to it.
    let program = folder.join("yard");
    fs::copy(env!("CARGO_BIN_EXE_trainyard"), &program).expect("a copy");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut yard = Yard { folder, program, running: Vec::new() };
    let (helper, run, state) = (yard.path("h.sock"), yard.path("s/run"), yard.path("s"));
    let daemon_name = "daemon";
    yard.start(
        None,
        &[
            "helper",
            "--socket",
            &helper,
            "--run-dir",
            &run,
            "--user",
            daemon_name,
            "--least-uid",
            "2",
        ],
    );
    let begun = Instant::now();
    while !yard.folder.join("h.sock").exists() && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20));
    }
    let tenants = yard.path("tenants.toml");
    let declared =
        "[[tenant]]\nname = \"vision\"\nmembers = [\"bin\"]\n[[tenant]]\nname = \"staff\"\n";
    fs::write(&tenants, declared).expect("a file");
    let serve = ["serve", "--state", &state, "--gpus", "2", "--helper", &helper];
    yard.start(Some(DAEMON), &[&serve[..], &["--tenants", &tenants]].concat());
    while yard.ask(ANN.0, &["status"]).status.code() != Some(0) {
        let log = fs::read_to_string(yard.folder.join("serve.log")).unwrap_or_default();
        assert!(begun.elapsed() < PATIENCE, "the daemon does not answer: {log}");
        sleep(Duration::from_millis(50));
    }
    let ran = yard.ask(ANN.0, &["run", "--gpus", "1", "--", "/usr/bin/id", "-un"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(said(&ran).contains(ANN.1), "{}", said(&ran));
    // What a job prints, and its life, are its owner's.
    let logs = yard.ask(BOB, &["logs", "1"]);
    assert_eq!(logs.status.code(), Some(5), "{}", said(&logs));
    let slow = yard.ask(ANN.0, &["run", "--detach", "--gpus", "1", "--", "/bin/sleep", "60"]);
    assert_eq!(slow.status.code(), Some(0), "{}", said(&slow));
    let cancelled = yard.ask(BOB, &["cancel", "2"]);
    assert_eq!(cancelled.status.code(), Some(5), "{}", said(&cancelled));
    let cancelled = yard.ask(ANN.0, &["cancel", "2"]);
    assert_eq!(cancelled.status.code(), Some(0), "{}", said(&cancelled));
    limits_of_roles(&yard);
    tokens_of_root(&yard);
}

/// Users take neither a higher priority nor a tenant that is not theirs, and are told what they may have.
fn limits_of_roles(yard: &Yard) {
    let run = |uid: &str, flags: &[&str]| {
        yard.ask(uid, &[&["run"], flags, &["--detach", "--", "/bin/true"]].concat())
    };
    for (uid, flags, code, part) in [
        (ANN.0, &["--priority", "1"][..], 5, "0 at most"),
        (ANN.0, &["--priority", "2147483647"], 5, "--priority-max"),
        (ANN.0, &["--tenant", "staff"], 5, "may use `bin`, `vision`"),
        (ANN.0, &["--tenant", "sys"], 5, "no member of the tenant `sys`"),
        (BOB, &["--tenant", "vision"], 5, "no member of the tenant `vision`"),
        (ANN.0, &["--tenant", "vision", "--priority", "-1"], 0, "job"),
        (DAEMON, &["--tenant", "staff", "--priority", "9"], 0, "job"),
    ] {
        let ran = run(uid, flags);
        assert_eq!(ran.status.code(), Some(code), "{uid} {flags:?}: {}", said(&ran));
        assert!(said(&ran).contains(part), "{uid} {flags:?}: {}", said(&ran));
    }
}

/// No token is root's, whichever user makes it.
fn tokens_of_root(yard: &Yard) {
    let create = |arguments: &[&str]| {
        let made = yard.ask("0", &[&["token", "create"], arguments].concat());
        (made.status.code(), said(&made))
    };
    let (code, text) = create(&["one"]);
    assert!(code == Some(3) && text.contains("--user NAME"), "{text}");
    let (code, text) = create(&["two", "--user", "root"]);
    assert!(code == Some(3) && text.contains("does not stand for `root`"), "{text}");
    let (code, text) = create(&["three", "--user", ANN.1]);
    assert!(code == Some(0) && text.contains("requests of bin as user"), "{text}");
    let (code, text) = create(&["four", "--role", "operator"]);
    assert!(code == Some(0) && text.contains("requests of @four as operator"), "{text}");
}
