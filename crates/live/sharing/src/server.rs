//! The thread with the sockets, the clock and the signals.

use crate::exchange::{Effect, Exchange, Limits, Peer};
use crate::stats::Stats;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trainyard_arbiter::{ClientId, Settings, SettingsError, Share, ShareError};
use trainyard_token::FRAME;
use trainyard_types::{Span, Time};

/// Frames that are read from one connection before the others have their turn.
const FRAMES_AT_ONCE: usize = 16;
/// Connections that are taken from one socket before the others have their turn.
const ACCEPTS_AT_ONCE: usize = 16;
/// The pause where a connection cannot be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(1);
/// A program that leaves so many answers unread is gone.
const UNREAD_MAX: usize = 64 * FRAME;

/// How a server works.
#[derive(Copy, Clone, Debug)]
pub struct ServerOptions {
    /// The figures of the rules.
    pub settings: Settings,
    /// Bounds of what programs may do.
    pub limits: Limits,
}

impl Default for ServerOptions {
    /// Gemini's figures, but for quotas of at most 250 ms: a program that never pauses would otherwise come to keep the
    /// GPU for the limit's part of the window at a time, ten seconds where there is no limit.
    fn default() -> ServerOptions {
        let settings = Settings { quota_max: Some(Span(250_000)), ..Settings::default() };
        ServerOptions { settings, limits: Limits::default() }
    }
}

/// A job that comes to the GPU.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What it is promised.
    pub share: Share,
    /// Bytes that its programs may allocate together; [`trainyard_token::NO_CAP`] is no cap.
    pub memory_cap: u64,
    /// Where its socket is made. The directory is the caller's business; nothing may be there.
    pub socket: PathBuf,
    /// The user whose processes may connect.
    pub user: u32,
    /// Whether its programs wait for turns, or are held to its share by other means.
    pub turns: bool,
}

/// Why a job cannot come.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// Its share is refused.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// Its socket cannot be made.
    #[error("{}: {source}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// The server has ended.
    #[error("the arbiter has ended")]
    Ended,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its settings cannot work.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No thread or no pair of sockets.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

enum Command {
    Add(ClientOptions, Sender<Result<ClientId, AddError>>),
    Adjust(ClientId, (Share, u64), Sender<Result<(), ShareError>>),
    Remove(ClientId, Sender<()>),
    Stats(Sender<Stats>),
}

/// The arbiter of one GPU, on a thread of its own; it ends with this value.
pub struct Server {
    commands: Option<Sender<Command>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts it, without clients.
    pub fn start(options: ServerOptions) -> Result<Server, StartError> {
        let exchange = Exchange::new(options.settings, options.limits)?;
        let (wake, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let (commands, received) = channel();
        let work = Loop {
            exchange,
            start: Instant::now(),
            commands: received,
            woken,
            doors: BTreeMap::new(),
            lines: BTreeMap::new(),
            next_client: 0,
            next_peer: 0,
        };
        let thread =
            std::thread::Builder::new().name("gpu-arbiter".to_owned()).spawn(|| work.run())?;
        Ok(Server { commands: Some(commands), wake, thread: Some(thread) })
    }

    /// A job comes: its socket is there when this returns.
    pub fn add(&self, client: ClientOptions) -> Result<ClientId, AddError> {
        self.ask(|answer| Command::Add(client, answer)).unwrap_or(Err(AddError::Ended))
    }

    /// A job's share and cap change.
    pub fn adjust(
        &self,
        client: ClientId,
        share: Share,
        memory_cap: u64,
    ) -> Result<(), ShareError> {
        let unknown = Err(ShareError::Unknown(client));
        self.ask(|answer| Command::Adjust(client, (share, memory_cap), answer)).unwrap_or(unknown)
    }

    /// A job goes: its connections and its socket are gone when this returns.
    pub fn remove(&self, client: ClientId) {
        self.ask(|answer| Command::Remove(client, answer));
    }

    /// What there is to tell; nothing once the thread has ended.
    pub fn stats(&self) -> Stats {
        self.ask(Command::Stats).unwrap_or_default()
    }

    fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = channel();
        self.commands.as_ref()?.send(command(answer)).ok()?;
        // A full pair of sockets wakes as well.
        let _ = (&self.wake).write(&[1]);
        answered.recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.commands = None;
        let _ = (&self.wake).write(&[1]);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The socket of a client.
struct Door {
    listener: UnixListener,
    path: PathBuf,
    user: u32,
}

/// A connection.
struct Line {
    stream: UnixStream,
    /// The process at the other end, where the system has such descriptors and shows it to us.
    process: Option<OwnedFd>,
    partial: Vec<u8>,
    unsent: Vec<u8>,
}

struct Loop {
    exchange: Exchange,
    start: Instant,
    commands: Receiver<Command>,
    woken: UnixStream,
    doors: BTreeMap<ClientId, Door>,
    lines: BTreeMap<Peer, Line>,
    next_client: u32,
    next_peer: u64,
}

impl Loop {
    fn run(mut self) {
        while self.obey() {
            let now = self.now();
            let effects = self.exchange.tick(now);
            self.carry_out(effects);
            self.flush();
            let (doors, lines) = self.wait();
            for client in doors {
                self.accept(client);
            }
            for peer in lines {
                self.read(peer);
            }
        }
        for door in self.doors.values() {
            let _ = std::fs::remove_file(&door.path);
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Whether it goes on.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        let _ = self.woken.read(&mut bytes);
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey_one(command),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn obey_one(&mut self, command: Command) {
        // Who asked may be gone by now, which is its own business.
        match command {
            Command::Add(client, answer) => {
                let _ = answer.send(self.add(client));
            }
            Command::Adjust(client, to, answer) => {
                let done = self.exchange.adjust(self.now(), client, to);
                let _ = answer.send(done.map(|effects| self.carry_out(effects)));
            }
            Command::Remove(client, answer) => {
                let effects = self.exchange.leave(self.now(), client);
                self.carry_out(effects);
                if let Some(door) = self.doors.remove(&client) {
                    let _ = std::fs::remove_file(door.path);
                }
                let _ = answer.send(());
            }
            Command::Stats(answer) => {
                let _ = answer.send(self.exchange.stats(self.now()));
            }
        }
    }

    fn add(&mut self, client: ClientOptions) -> Result<ClientId, AddError> {
        let id = ClientId(self.next_client);
        self.exchange.join(id, client.share, client.memory_cap)?;
        if !client.turns {
            self.exchange.without_turns(id);
        }
        match open(&client) {
            Ok(listener) => {
                self.next_client += 1;
                self.doors.insert(id, Door { listener, path: client.socket, user: client.user });
                Ok(id)
            }
            Err(source) => {
                self.exchange.leave(self.now(), id);
                Err(AddError::Socket { path: client.socket, source })
            }
        }
    }

    /// Waits until something happens or is due; says where.
    fn wait(&self) -> (Vec<ClientId>, Vec<Peer>) {
        let mut places = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        let doors = self.doors.values();
        places.extend(doors.map(|door| PollFd::new(door.listener.as_fd(), PollFlags::POLLIN)));
        places.extend(self.lines.values().map(|line| {
            let out = if line.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            PollFd::new(line.stream.as_fd(), PollFlags::POLLIN | out)
        }));
        let timeout = match self.exchange.due() {
            None => PollTimeout::NONE,
            Some(moment) => {
                // Rounded up, so that it is not woken again and again just before.
                let left = moment.since(self.now()).0.div_ceil(1_000);
                PollTimeout::try_from(left.min(60_000)).unwrap_or(PollTimeout::MAX)
            }
        };
        // An interrupted wait is a short one.
        if poll(&mut places, timeout).is_err() {
            return (Vec::new(), Vec::new());
        }
        let is_ready = |place: &PollFd| place.any().unwrap_or(false);
        let (doors, lines) = places[1..].split_at(self.doors.len());
        let doors = self.doors.keys().zip(doors).filter(|(_, place)| is_ready(place));
        let lines = self.lines.keys().zip(lines).filter(|(_, place)| is_ready(place));
        (doors.map(|(id, _)| *id).collect(), lines.map(|(peer, _)| *peer).collect())
    }

    fn accept(&mut self, client: ClientId) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Some(door) = self.doors.get(&client) else { return };
            let stream = match door.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Without descriptors it is tried again, but not as fast as it goes.
                    std::thread::sleep(ACCEPT_AGAIN);
                    return;
                }
            };
            let credentials = getsockopt(&stream, PeerCredentials);
            let Some(peer) = credentials.ok().filter(|peer| peer.uid() == door.user) else {
                self.exchange.turned_away(client);
                continue;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let id = Peer(self.next_peer);
            self.next_peer += 1;
            if self.exchange.connected(self.now(), id, client, peer.pid()).is_err() {
                continue;
            }
            let process = Pid::from_raw(peer.pid());
            let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
            let line = Line { stream, process, partial: Vec::new(), unsent: Vec::new() };
            self.lines.insert(id, line);
        }
    }

    fn read(&mut self, peer: Peer) {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(line) = self.lines.get_mut(&peer) else { return };
            let mut bytes = [0; FRAME];
            let missing = FRAME - line.partial.len();
            match line.stream.read(&mut bytes[..missing]) {
                Ok(0) => return self.lost(peer),
                Ok(count) => line.partial.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.lost(peer),
            }
            if let Ok(frame) = <[u8; FRAME]>::try_from(line.partial.as_slice()) {
                line.partial.clear();
                let effects = self.exchange.received(self.now(), peer, &frame);
                self.carry_out(effects);
            }
        }
    }

    fn lost(&mut self, peer: Peer) {
        self.lines.remove(&peer);
        let effects = self.exchange.disconnected(self.now(), peer);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(peer, message) => {
                    if let Some(line) = self.lines.get_mut(&peer) {
                        line.unsent.extend_from_slice(&message.encode());
                        line.send();
                    }
                }
                Effect::Close(peer) => {
                    self.lines.remove(&peer);
                }
                Effect::Kill(peer) => {
                    if let Some(process) = self.lines.remove(&peer).and_then(|line| line.process) {
                        // It may have ended by itself.
                        let _ = pidfd_send_signal(process, Signal::KILL);
                    }
                }
            }
        }
    }

    /// Sends what is left, and lets go of those who do not read.
    fn flush(&mut self) {
        let mut gone = Vec::new();
        for (peer, line) in &mut self.lines {
            line.send();
            if line.unsent.len() > UNREAD_MAX {
                gone.push(*peer);
            }
        }
        for peer in gone {
            self.lost(peer);
        }
    }
}

impl Line {
    /// As much as goes; a broken connection is found by reading.
    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        if let Ok(count) = self.stream.write(&self.unsent) {
            self.unsent.drain(..count);
        }
    }
}

/// A socket that only its user can open.
fn open(client: &ClientOptions) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(&client.socket)?;
    let closed = || {
        std::fs::set_permissions(&client.socket, std::fs::Permissions::from_mode(0o600))?;
        if nix::unistd::geteuid().as_raw() != client.user {
            std::os::unix::fs::chown(&client.socket, Some(client.user), None)?;
        }
        listener.set_nonblocking(true)
    };
    if let Err(error) = closed() {
        let _ = std::fs::remove_file(&client.socket);
        return Err(error);
    }
    Ok(listener)
}
