//! The child that calls the driver: it puts one process aside or brings it back, and says what came of it.
//!
//! It is started by a keeper for each order (`program driver`), lives as long as the call and runs as the job's own user.
//! Before it becomes that user it makes sure that each process it was told of is still the same one and belongs to the
//! attempt: by a descriptor of the process, by when it began, and by its cgroup or its ancestors. A driver that hangs, or
//! that crashes, takes this child along and nothing else.

use crate::order::Identity as UnixUser;
use crate::processes;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trainyard_driver::{Calls, Identity, Stage};

/// A request names the processes of an attempt, of which there are not that many.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// What the GPU was given by the process must be done within this time.
const LOCK_MS: u32 = 10_000;
/// A program that has just begun may not have used the GPU yet: so long it is waited for, for it cannot be put aside before.
const CONTEXT_WAIT: Duration = Duration::from_secs(15);
/// How long lies between two looks meanwhile.
const CONTEXT_LOOK: Duration = Duration::from_millis(100);
/// Host memory that is left to all other programs, in MiB.
const LEFT_MIB: u64 = 512;

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// What.
    pub what: What,
    /// Processes of the attempt, with when they began.
    pub processes: Vec<(i32, u64)>,
    /// The keeper that they descend from.
    pub keeper: i32,
    /// The cgroup that they are in, where there is one.
    pub cgroup: Option<PathBuf>,
    /// The user whose they are; nothing for the user of this child.
    pub identity: Option<UnixUser>,
    /// The driver's library; the usual one unless it is named.
    pub library: Option<PathBuf>,
}

/// What is to be done.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Say whether the driver can do it at all.
    Probe,
    /// Put the one process aside that uses the GPU; it may take so much host memory.
    Suspend {
        /// In MiB; 0 where that is not known.
        memory_mib: u64,
    },
    /// Let all go on, whatever stage they are in.
    Resume,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverAnswer {
    /// Why it could not be done; nothing if it was.
    pub refused: Option<String>,
    /// The process that was put aside.
    pub pid: Option<i32>,
    /// How long the driver took.
    pub seconds: f64,
    /// Host memory that the process has more than before.
    pub memory_mib: u64,
    /// How far it came is not known: the child is gone.
    #[serde(default)]
    pub unsettled: bool,
}

/// How long a probe may take: the driver may have to wake up.
const PROBE_MAX: Duration = Duration::from_secs(20);

/// Whether the driver of this machine can put processes aside. `program` is one with the hidden command `driver`; a driver
/// that hangs or crashes takes no more along than that.
pub fn probe(program: &Path, library: Option<&Path>) -> Result<(), String> {
    let request = Request {
        what: What::Probe,
        processes: Vec::new(),
        keeper: 0,
        cgroup: None,
        identity: None,
        library: library.map(Path::to_path_buf),
    };
    let failed = |error: io::Error| format!("{} driver: {error}", program.display());
    let mut child = std::process::Command::new(program)
        .arg("driver")
        .current_dir("/")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut line = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
    line.push(b'\n');
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(&line);
    }
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(failed)? {
            Some(_) => break,
            None if begun.elapsed() > PROBE_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the driver did not answer".to_owned());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        let _ = output.read_to_string(&mut text);
    }
    let answer: DriverAnswer = serde_json::from_str(&text)
        .map_err(|_| "the child that asks the driver ended without an answer".to_owned())?;
    answer.refused.map_or(Ok(()), Err)
}

/// Does what the line on standard input says, and answers with a line.
pub fn main() -> ExitCode {
    let mut line = String::new();
    let mut input = BufReader::new(io::stdin().take(REQUEST_BYTES_MAX));
    let read = input.read_line(&mut line).map_err(|error| error.to_string());
    let request = read.and_then(|_| {
        serde_json::from_str::<Request>(&line).map_err(|error| format!("no request: {error}"))
    });
    let refused = |why: String| DriverAnswer { refused: Some(why), ..DriverAnswer::default() };
    let answer = match request {
        Ok(request) => obey(&request).unwrap_or_else(refused),
        Err(why) => refused(why),
    };
    let is_done = answer.refused.is_none();
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let written = writeln!(io::stdout(), "{text}");
    if is_done && written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn obey(request: &Request) -> Result<DriverAnswer, String> {
    let mut known = Vec::new();
    for (pid, began) in &request.processes {
        // One that has ended meanwhile has nothing to be put aside.
        let Ok(identity) = Identity::of(*pid) else { continue };
        if belongs(request, *pid, *began)? {
            known.push((*pid, identity));
        }
    }
    if let Some(user) = &request.identity {
        crate::rank::become_user(user)?;
    }
    let calls = Calls::load(request.library.as_deref()).map_err(|refusal| refusal.to_string())?;
    match request.what {
        What::Probe => Ok(DriverAnswer::default()),
        What::Suspend { memory_mib } => suspend(&calls, &known, memory_mib),
        What::Resume => resume(&calls, &known),
    }
}

/// Whether a process is the one that was meant and of the attempt. One that is not is an error: nothing is done then.
fn belongs(request: &Request, pid: i32, began: u64) -> Result<bool, String> {
    let Some(process) = processes::one(pid) else { return Ok(false) };
    if process.began_ticks != began {
        return Err(format!(
            "process {pid} is not the one that was meant: its number is used again"
        ));
    }
    if process.is_zombie {
        return Ok(false);
    }
    let of_attempt = match &request.cgroup {
        Some(cgroup) => in_cgroup(pid, cgroup),
        None => processes::descendants(request.keeper).contains(&pid),
    };
    if !of_attempt {
        return Err(format!("process {pid} does not belong to the attempt"));
    }
    if let Some(user) = &request.identity {
        let owner = std::fs::metadata(format!("/proc/{pid}")).map(|data| data.uid());
        if owner.is_ok_and(|owner| owner != user.uid) {
            return Err(format!("process {pid} is not of user {}", user.name));
        }
    }
    Ok(true)
}

/// Whether a process is in a cgroup or below it, as the kernel says.
fn in_cgroup(pid: i32, cgroup: &Path) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("");
    let Ok(cgroup) = cgroup.canonicalize() else { return false };
    // The path within the hierarchy is the end of the path of the directory.
    let mut parts = Path::new(own).ancestors().filter(|part| part.as_os_str() != "/");
    parts.any(|part| cgroup.ends_with(part.strip_prefix("/").unwrap_or(part)))
}

/// Those of some processes that use the driver.
fn users<'a>(
    calls: &Calls,
    known: &'a [(i32, Identity)],
) -> Result<Vec<(i32, &'a Identity)>, String> {
    let mut users = Vec::new();
    for (pid, identity) in known {
        match calls.stage(*pid) {
            Ok(Stage::Running | Stage::Locked | Stage::Checkpointed) => {
                users.push((*pid, identity))
            }
            Ok(Stage::Failed) => return Err(format!("the driver has given up process {pid}")),
            // It does not use the driver.
            Err(_) => {}
        }
    }
    Ok(users)
}

/// The same once there are any, which is waited for as long as one of them lives.
fn users_soon<'a>(
    calls: &Calls,
    known: &'a [(i32, Identity)],
) -> Result<Vec<(i32, &'a Identity)>, String> {
    let begun = Instant::now();
    loop {
        let users = users(calls, known)?;
        let waits = begun.elapsed() < CONTEXT_WAIT && known.iter().any(|(_, one)| one.lives());
        if !users.is_empty() || !waits {
            return Ok(users);
        }
        std::thread::sleep(CONTEXT_LOOK);
    }
}

fn suspend(
    calls: &Calls,
    known: &[(i32, Identity)],
    memory_mib: u64,
) -> Result<DriverAnswer, String> {
    let users = users_soon(calls, known)?;
    let [(pid, identity)] = users[..] else {
        return Err(match users.len() {
            0 if !known.iter().any(|(_, one)| one.lives()) => "all its processes have ended".into(),
            0 => format!(
                "no process of it uses the GPU, {} s after it was asked",
                CONTEXT_WAIT.as_secs()
            ),
            many => format!("{many} processes of it use the GPU, and only one was ever put aside"),
        });
    };
    let available = available_mib();
    if available.is_some_and(|available| memory_mib + LEFT_MIB > available) {
        let available = available.unwrap_or(0);
        return Err(format!(
            "it may take {memory_mib} MiB of host memory, and {available} MiB are available"
        ));
    }
    let before = resident_mib(pid);
    let begun = Instant::now();
    let done = calls.lock(pid, LOCK_MS).and_then(|()| calls.checkpoint(pid));
    if let Err(refusal) = done {
        // It goes on as it was, as far as the driver can.
        let back = bring_back(calls, pid).err();
        let and = back.map_or_else(String::new, |why| format!("; and {why}"));
        return Err(format!("{refusal}{and}"));
    }
    if !identity.lives() {
        return Err(format!("process {pid} ended meanwhile"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let memory_mib = resident_mib(pid).saturating_sub(before);
    Ok(DriverAnswer { pid: Some(pid), seconds, memory_mib, ..DriverAnswer::default() })
}

fn resume(calls: &Calls, known: &[(i32, Identity)]) -> Result<DriverAnswer, String> {
    let begun = Instant::now();
    let mut last = None;
    for (pid, identity) in known {
        // A process that does not use the driver is told by an error, and is not to be brought back.
        if calls.stage(*pid).is_err() {
            continue;
        }
        bring_back(calls, *pid)?;
        if !identity.lives() {
            return Err(format!("process {pid} ended meanwhile"));
        }
        last = Some(*pid);
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(DriverAnswer { pid: last, seconds, ..DriverAnswer::default() })
}

/// Lets a process go on from whatever stage it is in.
fn bring_back(calls: &Calls, pid: i32) -> Result<(), String> {
    let said = |refusal: trainyard_driver::Refusal| refusal.to_string();
    if calls.stage(pid).map_err(said)? == Stage::Checkpointed {
        calls.restore(pid).map_err(said)?;
    }
    match calls.stage(pid).map_err(said)? {
        Stage::Running => Ok(()),
        Stage::Locked => calls.unlock(pid).map_err(said),
        Stage::Checkpointed => Err(format!("process {pid} did not come back")),
        Stage::Failed => Err(format!("the driver has given up process {pid}")),
    }
}

/// What a process has in host memory.
fn resident_mib(pid: i32) -> u64 {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:").unwrap_or(0) / 1024
}

/// What the machine could give without swapping.
fn available_mib() -> Option<u64> {
    kilobytes("/proc/meminfo", "MemAvailable:").map(|kilobytes| kilobytes / 1024)
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
