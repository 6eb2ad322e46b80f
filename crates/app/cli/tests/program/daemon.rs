//! The real daemon in a folder of its own, with declared slots.

use super::place::Ran;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon with a folder of its own, short enough for the names of sockets.
pub struct Daemon {
    pub folder: PathBuf,
    process: Child,
    options: Vec<String>,
    /// What a shell does before it becomes the daemon.
    before: String,
    /// Where libraries are looked for first.
    libraries: Option<PathBuf>,
}

impl Daemon {
    /// A daemon with two slots.
    pub fn start(name: &str) -> Daemon {
        Daemon::start_with(name, &["--gpus", "2"])
    }

    pub fn start_with(name: &str, options: &[&str]) -> Daemon {
        Daemon::start_in(fresh_folder(name), "", options)
    }

    /// A daemon with two slots, started by a shell that does something first.
    pub fn start_below(name: &str, before: &str) -> Daemon {
        Daemon::start_in(fresh_folder(name), before, &["--gpus", "2"])
    }

    /// A daemon in a folder that is prepared already.
    pub fn start_in(folder: PathBuf, before: &str, options: &[&str]) -> Daemon {
        Daemon::begin(folder, (before, None), options)
    }

    /// A daemon that finds other libraries than this machine's.
    pub fn start_on(name: &str, options: &[&str], libraries: Option<&Path>) -> Daemon {
        Daemon::begin(fresh_folder(name), ("", libraries), options)
    }

    fn begin(
        folder: PathBuf,
        (before, libraries): (&str, Option<&Path>),
        options: &[&str],
    ) -> Daemon {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let process = spawn(&folder, (before, libraries), &options);
        let libraries = libraries.map(Path::to_owned);
        Daemon { folder, process, options, before: before.to_owned(), libraries }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends the daemon as a crash would, and waits.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    pub fn start_again(&mut self) {
        self.process =
            spawn(&self.folder, (&self.before, self.libraries.as_deref()), &self.options);
    }

    pub fn ask(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.folder, arguments);
        command
            .env("TRAINYARD_SERVER", format!("unix:{}", self.folder.join("s/api.sock").display()));
        command
    }

    pub fn said(&self, arguments: &[&str]) -> String {
        let ran = self.ask(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(arguments)).expect("JSON")
    }

    /// What the daemon answers to a request of a browser's kind.
    pub fn got(&self, path: &str) -> Value {
        let mut socket = UnixStream::connect(self.folder.join("s/api.sock")).expect("it listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// Submits a shell script that needs so many GPUs; the id of the job.
    pub fn submit(&self, name: &str, script: &str, gpus: u32) -> String {
        let file = format!("{name}.toml");
        let text = format!(
            "name = \"{name}\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\ngpus = {gpus}\nretries = 0\n"
        );
        fs::write(self.folder.join(&file), text).expect("a file");
        let submitted = self.json(&["submit", &file, "--json"]);
        submitted["jobs"][0].as_u64().expect("an id").to_string()
    }

    pub fn state(&self, job: &str) -> String {
        let all = self.json(&["ps", "-a", "--json"]);
        let rows = all["jobs"].as_array().expect("rows");
        let id: u64 = job.parse().expect("an id");
        let row = rows.iter().find(|row| row["id"].as_u64() == Some(id));
        row.map_or_else(String::new, |row| row["state"].as_str().unwrap_or("").to_owned())
    }

    /// Asks again until the answer contains a text.
    pub fn wait_to_hear(&self, args: &[&str], text: &str) {
        let begun = Instant::now();
        loop {
            let said = self.said(args);
            if said.contains(text) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{args:?} does not say `{text}`: {said}");
            sleep(Duration::from_millis(100));
        }
    }

    pub fn wait_until(&self, job: &str, state: &str) {
        let begun = Instant::now();
        while self.state(job) != state {
            let late = begun.elapsed() > PATIENCE;
            assert!(!late, "job {job} is {} and not {state}", self.state(job));
            sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let jobs = self.ask(&["ps", "--json"]).out;
        let jobs: Value = serde_json::from_str(&jobs).unwrap_or_default();
        for row in jobs["jobs"].as_array().into_iter().flatten() {
            self.ask(&["cancel", &row["id"].to_string()]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for name in ["STATE", "SERVER", "TOKEN", "TOKEN_FILE", "CA"] {
        command.env_remove(format!("TRAINYARD_{name}"));
    }
    command
}

pub fn ran(mut command: Command) -> Ran {
    let output = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let code = output.status.code().unwrap_or(-1);
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}

/// An empty folder of its own, short enough for the names of sockets.
pub fn fresh_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ty-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn spawn(folder: &Path, (before, libraries): (&str, Option<&Path>), options: &[String]) -> Child {
    let mut command = program(folder, &[]);
    if !before.is_empty() {
        let itself = command.get_program().to_owned();
        command = Command::new("sh");
        command.current_dir(folder).stdin(Stdio::null());
        command.arg("-c").arg(format!("{before}exec \"$0\" \"$@\"")).arg(itself);
    }
    command.args(["serve", "--state", "s"]).args(options);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    let log = fs::File::create(folder.join("serve.log")).expect("a log");
    command.stdout(log.try_clone().expect("a log")).stderr(log);
    let process = command.spawn().expect("the daemon starts");
    let begun = Instant::now();
    while UnixStream::connect(folder.join("s/api.sock")).is_err() {
        let log = fs::read_to_string(folder.join("serve.log")).unwrap_or_default();
        assert!(begun.elapsed() < PATIENCE, "the daemon does not answer: {log}");
        sleep(Duration::from_millis(20));
    }
    process
}
