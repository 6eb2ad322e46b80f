//! A daemon with a folder of its own, and the one place that opens its socket.

use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon that can be killed and started again; its folder stays.
pub struct Yard {
    pub folder: PathBuf,
    /// The policy of the next start, where it is not the one of the last.
    pub policy: Option<&'static str>,
    arguments: Vec<String>,
    process: Option<Child>,
}

impl Yard {
    /// A folder whose name is short enough for sockets; nothing runs yet.
    pub fn new(name: &str, arguments: &[&str]) -> Yard {
        let folder = std::env::temp_dir().join(format!("tyc-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("s")).expect("a folder");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Yard { folder, policy: None, arguments, process: None }
    }

    /// Starts the daemon and does not wait for it.
    pub fn spawn(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("serve.log"));
        let log = log.expect("a log");
        command.args(["serve", "--state", "s", "--listen", "unix:api.sock"]).args(&self.arguments);
        command.args(self.policy.iter().flat_map(|policy| ["--policy", policy]));
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        for name in ["STATE", "SERVER", "TOKEN", "TOKEN_FILE", "CA"] {
            command.env_remove(format!("TRAINYARD_{name}"));
        }
        self.process = Some(command.spawn().expect("the daemon starts"));
    }

    /// Starts the daemon and waits until it answers.
    pub fn start(&mut self) {
        self.spawn();
        within("the daemon answers", || UnixStream::connect(self.socket()).is_ok());
    }

    /// Ends the daemon as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Whether the daemon ended by itself, and what it said.
    pub fn gave_up(&mut self) -> Option<String> {
        let status = self.process.as_mut()?.try_wait().ok()??;
        Some(format!("{status}: {}", self.log()))
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("serve.log")).unwrap_or_default()
    }

    /// The answer to a request that must be answered well.
    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = ask(&self.socket(), "GET", path, None).expect("an answer");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// An answer that is no JSON.
    pub fn text(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        ask(&self.socket(), "POST", path, Some(body)).expect("an answer")
    }

    /// Submits one shell script; its id.
    pub fn submit(&self, script: &str, change: impl FnOnce(&mut Value)) -> u64 {
        let body = self.request(script, change);
        let (status, answer) = self.post("/v1/jobs", &body);
        assert_eq!(status, 200, "{answer}");
        answer["jobs"][0].as_u64().expect("an id")
    }

    /// A submission of one shell script that is not tried again.
    pub fn request(&self, script: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut spec = serde_json::json!({
            "name": "chaos", "argv": ["sh", "-c", script], "cwd": self.folder, "retries": 0,
        });
        change(&mut spec);
        serde_json::json!({ "jobs": [spec] })
    }

    pub fn state(&self, job: u64) -> String {
        let row = self.get(&format!("/v1/jobs/{job}"));
        row["state"].as_str().unwrap_or_default().to_owned()
    }

    pub fn until(&self, job: u64, state: &str) {
        within(&format!("job {job} is {state}"), || self.state(job) == state);
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let jobs = ask(&self.socket(), "GET", "/v1/jobs", None).map(|(_, jobs)| jobs);
        for row in jobs.unwrap_or_default()["jobs"].as_array().into_iter().flatten() {
            let cancel = serde_json::json!({ "action": "cancel" });
            let path = format!("/v1/jobs/{}/act", row["id"]);
            let _ = ask(&self.socket(), "POST", &path, Some(&cancel));
        }
        self.kill();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Waits for something that must come.
#[track_caller]
pub fn within(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// One request on a connection of its own. An error means that it is unknown whether it was done.
pub fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> io::Result<(u16, Value)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::other("the answer is torn"))
}

fn parse(answer: &[u8]) -> Option<(u16, Value)> {
    let answer = std::str::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = body.get(..length?)?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// Numbers that look random and follow from a seed (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
