//! Slurm's own programs, run one at a time: no shell, a limit in time, failures with a type.
//!
//! A call never looks at what a program prints beyond telling its failures apart; [`crate::read`] does.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The most bytes taken from one stream of a program: a hundred thousand jobs are less.
const OUTPUT_MAX: u64 = 512 << 20;
/// How often a program whose file is being written is tried again.
const BUSY_TRIES: u32 = 20;
/// How much of a message is shown.
const SHOWN_MAX: usize = 400;

/// Where Slurm's programs are and how long one may take.
#[derive(Clone, Debug)]
pub struct CallSettings {
    /// The folder of the programs; without it they are looked for on `PATH`.
    pub folder: Option<PathBuf>,
    /// The configuration they read, given to them as `SLURM_CONF`; without it the environment's own stays.
    pub conf: Option<PathBuf>,
    /// After this a program is killed.
    pub timeout: Duration,
}

impl Default for CallSettings {
    fn default() -> CallSettings {
        // With slurmctld away, the programs of 22.05 try for nine seconds before they say so.
        CallSettings { folder: None, conf: None, timeout: Duration::from_secs(20) }
    }
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no such program.
    #[error("`{program}` was not found: install Slurm's client programs, or name their folder")]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// It could not be started or spoken to.
    #[error("`{program}` could not be run")]
    NotRun {
        /// The program.
        program: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// Its configuration could not be read.
    #[error("`{program}` found no valid configuration: {message}; check SLURM_CONF")]
    NotConfigured {
        /// The program.
        program: String,
        /// What it says.
        message: String,
    },
    /// slurmctld or munge did not answer.
    #[error("Slurm's controller does not answer `{program}`: {message}")]
    Down {
        /// The program.
        program: String,
        /// What it says.
        message: String,
    },
    /// The account may not do this.
    #[error(
        "this account may not do this: `{call}`: {message}; see the guide for the least rights"
    )]
    NoRights {
        /// The whole call.
        call: String,
        /// What it says.
        message: String,
    },
    /// Slurm knows no such job: it never did, or has forgotten it.
    #[error("Slurm knows no such job: `{call}`: {message}")]
    NoSuchJob {
        /// The whole call.
        call: String,
        /// What it says.
        message: String,
    },
    /// Slurm said no.
    #[error("Slurm refused `{call}`: {message}")]
    Refused {
        /// The whole call.
        call: String,
        /// What it says.
        message: String,
        /// What it printed all the same: of several things asked for, some may have been done.
        stdout: String,
    },
    /// It printed what is no answer.
    #[error("what `{call}` printed is no JSON: {problem}; it begins with `{begin}`")]
    NotJson {
        /// The whole call.
        call: String,
        /// What is wrong.
        problem: String,
        /// The first bytes.
        begin: String,
    },
    /// It did not end in time and was killed.
    #[error("`{call}` did not end within {seconds} s and was killed")]
    TooSlow {
        /// The whole call.
        call: String,
        /// The limit.
        seconds: u64,
    },
}

impl CallError {
    /// Whether the same call may succeed later with nothing changed here.
    pub fn may_pass(&self) -> bool {
        match self {
            CallError::Down { .. } | CallError::TooSlow { .. } | CallError::NotJson { .. } => true,
            CallError::NotInstalled { .. }
            | CallError::NotRun { .. }
            | CallError::NotConfigured { .. }
            | CallError::NoRights { .. }
            | CallError::NoSuchJob { .. }
            | CallError::Refused { .. } => false,
        }
    }

    /// Whether the job is not what it was taken for: it is gone, has started or has ended meanwhile.
    pub fn is_outdated(&self) -> bool {
        match self {
            CallError::NoSuchJob { .. } => true,
            CallError::Refused { message, .. } => {
                let said = message.to_lowercase();
                CHANGED.iter().any(|word| said.contains(word))
            }
            _ => false,
        }
    }
}

/// What a program printed that ended with success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Printed {
    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// What the calls so far have cost.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Spent {
    /// Calls.
    pub calls: u64,
    /// Those among them that failed.
    pub failed: u64,
    /// Seconds spent in them.
    pub seconds: f64,
}

/// Runs Slurm's programs and counts what that costs.
#[derive(Debug, Default)]
pub struct Calls {
    settings: CallSettings,
    calls: AtomicU64,
    failed: AtomicU64,
    micros: AtomicU64,
}

impl Calls {
    /// Calls by these settings.
    pub fn new(settings: CallSettings) -> Calls {
        Calls { settings, ..Calls::default() }
    }

    /// The settings.
    pub fn settings(&self) -> &CallSettings {
        &self.settings
    }

    /// What the calls so far have cost.
    pub fn spent(&self) -> Spent {
        Spent {
            calls: self.calls.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            seconds: self.micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }

    /// Runs a program and waits for its end.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<Printed, CallError> {
        self.run_with(program, arguments, b"")
    }

    /// Runs a program that reads `input` from its standard input, such as commands for `scontrol`.
    pub fn run_with(
        &self,
        program: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Printed, CallError> {
        let limit = self.settings.timeout;
        self.counted(|| self.finished(self.command(program), (program, arguments), input, limit))
    }

    /// Runs a program that changes something, with a limit of its own. While slurmctld is away Slurm's programs try again
    /// for many seconds: what was true when it was asked need not be when it answers.
    pub fn run_within(
        &self,
        limit: Duration,
        (program, arguments): (&str, &[&str]),
        input: &[u8],
    ) -> Result<Printed, CallError> {
        let limit = limit.min(self.settings.timeout);
        let command = self.command(program);
        self.counted(|| self.finished(command, (program, arguments), input, limit))
    }

    /// Runs a program that sees nothing of this process's environment but where Slurm is: `sbatch` hands what it sees
    /// on to the job, which may be another user's.
    pub fn run_bare(&self, program: &str, arguments: &[&str]) -> Result<Printed, CallError> {
        let mut command = self.command(program);
        command.env_clear().env("LC_ALL", "C");
        for name in ["PATH", "SLURM_CONF", "TZ"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(conf) = &self.settings.conf {
            command.env("SLURM_CONF", conf);
        }
        self.counted(|| self.finished(command, (program, arguments), b"", self.settings.timeout))
    }

    fn counted(
        &self,
        call: impl FnOnce() -> Result<Printed, CallError>,
    ) -> Result<Printed, CallError> {
        let begin = Instant::now();
        let result = call();
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(begin.elapsed().as_micros() as u64, Ordering::Relaxed);
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn finished(
        &self,
        command: Command,
        (program, arguments): (&str, &[&str]),
        input: &[u8],
        limit: Duration,
    ) -> Result<Printed, CallError> {
        let deadline = Instant::now() + limit;
        let mut child = started(command, (program, arguments))?;
        let fed = feed(&mut child, input);
        let stdout = drain(child.stdout.take());
        let stderr = drain(child.stderr.take());
        let printed = taken(&stdout, deadline)
            .and_then(|stdout| taken(&stderr, deadline).map(|stderr| Printed { stdout, stderr }));
        let ended = printed.and_then(|printed| Some((printed, ended(&mut child, deadline)?)));
        drop(fed);
        let Some((printed, status)) = ended else {
            // The only process ended here is the one started above, by its handle.
            let _ = child.kill();
            let _ = child.wait();
            let seconds = limit.as_secs();
            return Err(CallError::TooSlow { call: call_of(program, arguments), seconds });
        };
        let status =
            status.map_err(|source| CallError::NotRun { program: program.to_owned(), source })?;
        if status.success() {
            return Ok(printed);
        }
        let stderr = String::from_utf8_lossy(&printed.stderr);
        let message = match stderr.trim() {
            "" => format!("it ended with {status} and no message"),
            said => said.to_owned(),
        };
        Err(failure(program, arguments, &message, printed.text()))
    }

    fn command(&self, program: &str) -> Command {
        let path = match &self.settings.folder {
            Some(folder) => folder.join(program),
            None => PathBuf::from(program),
        };
        let mut command = Command::new(path);
        // Messages are recognised by their words, and times are read as numbers.
        command.env("LC_ALL", "C").env("SLURM_TIME_FORMAT", "%s");
        for name in ["SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SINFO_FORMAT"] {
            command.env_remove(name);
        }
        if let Some(conf) = &self.settings.conf {
            command.env("SLURM_CONF", conf);
        }
        command
    }
}

fn started(
    mut command: Command,
    (program, arguments): (&str, &[&str]),
) -> Result<Child, CallError> {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawned(&mut command).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => CallError::NotInstalled { program: program.to_owned() },
        _ => CallError::NotRun { program: program.to_owned(), source },
    })
}

/// Starts a program; one that is being replaced at this moment is tried again.
fn spawned(command: &mut Command) -> std::io::Result<Child> {
    for _ in 0..BUSY_TRIES {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
    command.spawn()
}

/// The kind of a failure by the words of Slurm's message.
pub(crate) fn failure(
    program: &str,
    arguments: &[&str],
    message: &str,
    stdout: String,
) -> CallError {
    let said = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let message = shown(message);
    let (program, call) = (program.to_owned(), call_of(program, arguments));
    if says(&NO_SUCH_JOB) {
        CallError::NoSuchJob { call, message }
    } else if says(&NO_RIGHTS) {
        CallError::NoRights { call, message }
    } else if says(&NOT_CONFIGURED) {
        CallError::NotConfigured { program, message }
    } else if says(&DOWN) {
        CallError::Down { program, message }
    } else {
        CallError::Refused { call, message, stdout }
    }
}

const NO_SUCH_JOB: [&str; 1] = ["invalid job id"];
/// What Slurm says when a job waits no more, runs no more or is on its way between the two.
const CHANGED: [&str; 5] = [
    "already completing or completed",
    "already finished",
    "no longer pending",
    "transition state",
    "job is pending",
];
const NO_RIGHTS: [&str; 5] = [
    "access/permission denied",
    "invalid user id",
    "permission denied",
    "user not authorized",
    "only root",
];
const NOT_CONFIGURED: [&str; 4] = [
    "unable to process configuration file",
    "could not establish a configuration source",
    "clustername needs to be specified",
    "unable to read slurm.conf",
];
/// `unexpected message received` is what 22.05 says when a connection was refused.
const DOWN: [&str; 18] = [
    "unable to contact slurm controller",
    "unexpected message received",
    "socket timed out",
    "connection refused",
    // What is cut off in the middle may have been done: the next look tells.
    "connection reset",
    "unexpected missing socket",
    "broken pipe",
    "connection timed out",
    "no route to host",
    "network is unreachable",
    "communication connection failure",
    "zero bytes were transmitted",
    "slurm backup controller in standby",
    "controller is in standby",
    "failed while looking for",
    "munge",
    "message receive failure",
    "transport endpoint",
];

/// Writes the input from a thread of its own: a program may print before it has read everything.
fn feed(child: &mut Child, input: &[u8]) -> Option<std::thread::JoinHandle<()>> {
    let mut stdin = child.stdin.take()?;
    if input.is_empty() {
        return None;
    }
    let input = input.to_vec();
    // A program that does not want its input closes the pipe; it then tells by its status what was wrong.
    Some(std::thread::spawn(move || drop(stdin.write_all(&input))))
}

/// Reads a stream to its end in a thread, so that no full pipe holds the program up.
fn drain(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let _ = stream.take(OUTPUT_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

fn taken(stream: &Receiver<Vec<u8>>, deadline: Instant) -> Option<Vec<u8>> {
    stream.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

/// The status of a program that has closed its streams, so that it is about to end or never will.
fn ended(
    child: &mut Child,
    deadline: Instant,
) -> Option<std::io::Result<std::process::ExitStatus>> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ok(status)),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
}

/// A call as one would type it, cut where it gets long.
pub(crate) fn call_of(program: &str, arguments: &[&str]) -> String {
    shown(&std::iter::once(program).chain(arguments.iter().copied()).collect::<Vec<_>>().join(" "))
}

/// A text on one line, cut where it gets long.
pub(crate) fn shown(text: &str) -> String {
    let line = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = line.collect::<Vec<_>>().join("; ");
    match line.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line,
    }
}
