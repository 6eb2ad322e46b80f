//! The arbiter of one GPU as a process that lives as long as it has clients, and what it is told.
//!
//! The host of jobs on a shared GPU speaks to it over a socket: one order and one answer, each a line of JSON, for
//! each connection. The process holds a lock in its folder, so that there is one at most for each GPU; it outlives
//! its host, and is found again by its socket.

use crate::server::{ClientOptions, Server, ServerOptions};
use crate::told::Told;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{geteuid, setsid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trainyard_arbiter::{ClientId, Share};
use trainyard_token::NO_CAP;

/// How long the other end may take to say its line.
const LINE_WITHIN: Duration = Duration::from_secs(2);
/// No line is longer.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long an arbiter without clients stays, unless it is told otherwise.
pub const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked at whether there is a client.
const LOOK: Duration = Duration::from_secs(1);

/// What an arbiter is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArbiterOrder {
    /// This job is to have these terms from now on; it comes if it is not there.
    Set(SharingTerms),
    /// The job with this socket goes.
    Remove(PathBuf),
    /// What is there to tell?
    Tell,
}

/// A job on the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingTerms {
    /// Where its programs speak to the arbiter, and the name by which it is known.
    pub socket: PathBuf,
    /// The user whose programs may.
    pub user: u32,
    /// Permille of the time that it gets whenever it wants to.
    pub request: u32,
    /// Permille of the time that it gets at most.
    pub limit: u32,
    /// Bytes that its programs may allocate together; nothing is no cap.
    pub memory_cap: Option<u64>,
    /// Whether its programs wait for turns, or are held to its share by other means; it stays as it was at first.
    #[serde(default = "yes")]
    pub turns: bool,
}

fn yes() -> bool {
    true
}

/// What an arbiter answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArbiterAnswer {
    /// It is done.
    Done,
    /// It cannot be done.
    Refused(String),
    /// What there is to tell.
    Told(Told),
}

/// Where an arbiter in this folder listens.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("control")
}

/// Gives the arbiter in this folder an order.
pub fn ask(folder: &Path, order: &ArbiterOrder) -> io::Result<ArbiterAnswer> {
    let mut stream = UnixStream::connect(socket(folder))?;
    stream.set_read_timeout(Some(LINE_WITHIN))?;
    stream.set_write_timeout(Some(LINE_WITHIN))?;
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut answer)?;
    serde_json::from_str(&answer).map_err(io::Error::from)
}

/// Serves in this folder until there has been no client for `idle`, and does then what is to be done before another
/// process can serve there. Nothing is done where another process serves.
pub fn serve(
    folder: &Path,
    options: ServerOptions,
    idle: Duration,
    at_end: impl FnOnce(),
) -> io::Result<()> {
    let Some(_lock) = lock(folder)? else { return Ok(()) };
    let _ = setsid();
    block_signals()?;
    let path = socket(folder);
    // Left by one that was killed: the lock says that it is gone.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let server = Server::start(options).map_err(io::Error::other)?;
    let mut control = Control { server, clients: BTreeMap::new() };
    let mut last_client = Instant::now();
    while last_client.elapsed() < idle {
        let mut places = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::MAX);
        if poll(&mut places, timeout).is_ok_and(|ready| ready > 0)
            && let Ok((stream, _)) = listener.accept()
        {
            // One that says nothing in time, or goes, is its own concern.
            let _ = control.hear(stream);
        }
        if !control.clients.is_empty() {
            last_client = Instant::now();
        }
    }
    let removed = std::fs::remove_file(&path);
    at_end();
    removed
}

/// The lock of the folder, if no process holds it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).mode(0o600).open(folder.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Signals meant for a daemon or a terminal do not end it: jobs that run depend on it.
fn block_signals() -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    Ok(signals.thread_block()?)
}

struct Control {
    server: Server,
    clients: BTreeMap<PathBuf, ClientId>,
}

impl Control {
    fn hear(&mut self, mut stream: UnixStream) -> io::Result<()> {
        let peer = getsockopt(&stream, PeerCredentials)?.uid();
        if peer != 0 && peer != geteuid().as_raw() {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LINE_WITHIN))?;
        stream.set_write_timeout(Some(LINE_WITHIN))?;
        let mut line = String::new();
        BufReader::new((&stream).take(LINE_BYTES_MAX)).read_line(&mut line)?;
        let answer = match serde_json::from_str(&line) {
            Ok(order) => self.obey(order),
            Err(error) => ArbiterAnswer::Refused(error.to_string()),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        stream.write_all(&line)
    }

    fn obey(&mut self, order: ArbiterOrder) -> ArbiterAnswer {
        match order {
            ArbiterOrder::Set(terms) => match self.set(terms) {
                Ok(()) => ArbiterAnswer::Done,
                Err(why) => ArbiterAnswer::Refused(why),
            },
            ArbiterOrder::Remove(socket) => {
                if let Some(client) = self.clients.remove(&socket) {
                    self.server.remove(client);
                }
                ArbiterAnswer::Done
            }
            ArbiterOrder::Tell => {
                let name = |path: &Path| path.display().to_string();
                let names = self.clients.iter().map(|(path, client)| (*client, name(path)));
                ArbiterAnswer::Told(Told::new(&self.server.stats(), &names.collect()))
            }
        }
    }

    fn set(&mut self, terms: SharingTerms) -> Result<(), String> {
        let share = Share { request: terms.request, limit: terms.limit };
        let memory_cap = terms.memory_cap.unwrap_or(NO_CAP);
        if let Some(client) = self.clients.get(&terms.socket) {
            let adjusted = self.server.adjust(*client, share, memory_cap);
            return adjusted.map_err(|error| error.to_string());
        }
        // A socket of an arbiter before this one; the lock says that it is gone.
        let _ = std::fs::remove_file(&terms.socket);
        let (socket, user) = (terms.socket, terms.user);
        let turns = terms.turns;
        let client = ClientOptions { share, memory_cap, socket: socket.clone(), user, turns };
        let client = self.server.add(client).map_err(|error| error.to_string())?;
        self.clients.insert(socket, client);
        Ok(())
    }
}
