//! The privileged helper: the only part that runs as root where the daemon does not.
//!
//! It does three things, for the daemon's user alone: it starts a keeper for an attempt's directory that runs ranks as
//! one user, it clears up after a keeper that died, and it moves checkpoints of an older version to their owners. What to run stands in the directory, written by the daemon;
//! the helper trusts it with nothing but that:
//!
//! - The user who connects is known by the kernel (peer credentials), not by what is sent.
//! - A directory is named by job and attempt, so that it cannot lie outside the run directory.
//! - From the start of a keeper to its end the directory belongs to root, and nothing can be planted in it.
//! - No rank becomes root or a user of the system: numbers below a least one are refused, and name, main group and home
//!   of a user are the system's, whatever the order says.

use crate::attempt_dir::{AttemptDir, name, parse_name};
use crate::checkpoints;
use crate::local::worker::{AttemptState, reclaim as clear_up, spawn_keeper};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, User, fchown, geteuid, setgid};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::Duration;
use trainyard_types::{Attempt, JobId};

/// Users below this number belong to the system, on most of them.
const LEAST_UID: u32 = 1000;
const REQUEST_BYTES_MAX: u64 = 4 << 10;
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type", deny_unknown_fields)]
enum Request {
    /// Does the helper answer?
    Ping,
    /// Start a keeper.
    Start { job: JobId, attempt: Attempt, uid: u32 },
    /// Clear up after one that died.
    Reclaim { job: JobId, attempt: Attempt },
    /// Move checkpoints that an older version left open to all.
    MoveCheckpoints,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Answer {
    refused: Option<String>,
}

/// Asks a helper whether it serves this user.
pub fn ping(socket: &Path) -> io::Result<()> {
    ask(socket, &Request::Ping)
}

/// Has a keeper started for a directory, whose ranks run as a user.
pub fn start_keeper(socket: &Path, dir: &Path, uid: u32) -> io::Result<()> {
    let (job, attempt) = named(dir)?;
    ask(socket, &Request::Start { job, attempt, uid })
}

/// Has a directory cleared up whose keeper died. Its end is in it when that is done.
pub fn reclaim(socket: &Path, dir: &Path) -> io::Result<()> {
    let (job, attempt) = named(dir)?;
    ask(socket, &Request::Reclaim { job, attempt })
}

/// Has checkpoints that an older version left open to all moved to their owners.
pub fn move_checkpoints(socket: &Path) -> io::Result<()> {
    ask(socket, &Request::MoveCheckpoints)
}

fn named(dir: &Path) -> io::Result<(JobId, Attempt)> {
    let name = dir.file_name().and_then(|name| name.to_str()).and_then(parse_name);
    name.ok_or_else(|| io::Error::other(format!("{} is no attempt's", dir.display())))
}

fn ask(socket: &Path, request: &Request) -> io::Result<()> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("helper at {}: {error}", socket.display()))
    };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let sent = stream.write_all(&line);
    let mut text = String::new();
    let read = BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut text);
    if text.is_empty() {
        // A helper that refuses the client does not wait for the request: its answer counts, if there is one.
        sent.and(read).map_err(failed)?;
    }
    match serde_json::from_str::<Answer>(&text)?.refused {
        None => Ok(()),
        Some(why) => Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, why))),
    }
}

/// The helper itself.
struct Helper {
    run_dir: PathBuf,
    daemon: User,
    least_uid: u32,
    keepers: Vec<Child>,
}

/// Serves until it is ended: `--socket FILE --run-dir DIR --user NAME [--least-uid NUMBER]`.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("trainyard helper: {why}");
            ExitCode::from(2)
        }
    }
}

fn serve(arguments: &[OsString]) -> Result<(), String> {
    let (mut socket, mut run_dir, mut user, mut least_uid) = (None, None, None, LEAST_UID);
    for pair in arguments.chunks(2) {
        let [flag, value] = pair else { return Err(format!("{:?} needs a value", pair[0])) };
        let text = || value.to_str().ok_or_else(|| format!("{value:?} is not UTF-8"));
        match flag.to_str() {
            Some("--socket") => socket = Some(PathBuf::from(value)),
            Some("--run-dir") => run_dir = Some(PathBuf::from(value)),
            Some("--user") => user = Some(text()?.to_owned()),
            Some("--least-uid") => {
                least_uid = text()?.parse().map_err(|_| format!("{value:?} is no number"))?;
            }
            _ => return Err(format!("{flag:?} is not understood\n{}", crate::program::USAGE)),
        }
    }
    let (Some(socket), Some(run_dir), Some(user)) = (socket, run_dir, user) else {
        return Err(format!("a flag is missing\n{}", crate::program::USAGE));
    };
    if !geteuid().is_root() {
        return Err("only root can start processes as other users; start it as root".to_owned());
    }
    let daemon = User::from_name(&user).ok().flatten().ok_or(format!("no user {user:?}"))?;
    if daemon.uid.is_root() {
        return Err(
            "a daemon that runs as root needs no helper; name an unprivileged user".to_owned()
        );
    }
    // What it and its keepers write is for the daemon to read.
    setgid(daemon.gid).map_err(|error| format!("group {}: {error}", daemon.gid))?;
    let _ = std::fs::remove_file(&socket);
    let listen = || -> io::Result<UnixListener> {
        let listener = UnixListener::bind(&socket)?;
        // The mode first: that of another's file is not for its unit's rights to change.
        std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o600))?;
        std::os::unix::fs::lchown(&socket, Some(daemon.uid.as_raw()), None)?;
        Ok(listener)
    };
    let listener = listen().map_err(|error| format!("{}: {error}", socket.display()))?;
    let mut helper = Helper { run_dir, daemon, least_uid: least_uid.max(1), keepers: Vec::new() };
    for stream in listener.incoming().flatten() {
        helper.keepers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        helper.answer(stream);
    }
    Ok(())
}

impl Helper {
    /// The run directory as it really is. Looked up at each order: the daemon makes it when it first starts, which
    /// may be after the helper did.
    fn root(&self) -> io::Result<PathBuf> {
        let run_dir = &self.run_dir;
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", run_dir.display()))
        };
        run_dir.canonicalize().map_err(named)
    }

    fn answer(&mut self, mut stream: UnixStream) {
        let _ = stream.set_read_timeout(Some(TIMEOUT));
        let _ = stream.set_write_timeout(Some(TIMEOUT));
        let refused = self.obey(&stream).err();
        if let Ok(mut line) = serde_json::to_vec(&Answer { refused }) {
            line.push(b'\n');
            let _ = stream.write_all(&line);
        }
    }

    fn obey(&mut self, stream: &UnixStream) -> Result<(), String> {
        let peer = getsockopt(stream, PeerCredentials).map_err(|error| error.to_string())?;
        if peer.uid() != self.daemon.uid.as_raw() {
            return Err(format!("user {} is not the daemon's, {}", peer.uid(), self.daemon.name));
        }
        let mut text = String::new();
        let mut reader = BufReader::new(stream.take(REQUEST_BYTES_MAX));
        reader.read_line(&mut text).map_err(|error| error.to_string())?;
        let request =
            serde_json::from_str(&text).map_err(|error| format!("no request: {error}"))?;
        match request {
            Request::Ping => Ok(()),
            Request::Start { job, attempt, uid } => {
                self.start(&name(job, attempt), uid).map_err(|error| error.to_string())
            }
            Request::Reclaim { job, attempt } => self.reclaim(&name(job, attempt)),
            Request::MoveCheckpoints => {
                let run_dir = self.root().map_err(|error| error.to_string())?;
                let left = checkpoints::move_old(&run_dir, self.least_uid);
                // The daemon looks for itself at what is left.
                left.map(drop).map_err(|refusal| refusal.to_string())
            }
        }
    }

    fn start(&mut self, name: &str, uid: u32) -> io::Result<()> {
        if uid < self.least_uid {
            let why = format!("user {uid} is below {}: no job runs as it", self.least_uid);
            return Err(io::Error::other(why));
        }
        if User::from_uid(Uid::from_raw(uid))?.is_none() {
            return Err(io::Error::other(format!("no user has number {uid}")));
        }
        let dir = AttemptDir::at(&self.root()?.join(name));
        self.take(&dir)?;
        let lock = dir.try_lock()?;
        let lock = lock.ok_or_else(|| io::Error::other(format!("{name} is kept already")))?;
        let program = Path::new("/proc/self/exe");
        self.keepers.push(spawn_keeper(program, &dir, lock, Some(uid))?);
        Ok(())
    }

    /// Takes a directory that the daemon made, and looks into it only then: nothing can be put there any more.
    fn take(&self, dir: &AttemptDir) -> io::Result<()> {
        let flags = nix::libc::O_DIRECTORY | nix::libc::O_NOFOLLOW;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(dir.path())?;
        if file.metadata()?.uid() != self.daemon.uid.as_raw() {
            let why = format!("{} is not the daemon's, or was kept before", dir.path().display());
            return Err(io::Error::other(why));
        }
        fchown(&file, Some(Uid::from_raw(0)), Some(self.daemon.gid))?;
        file.set_permissions(PermissionsExt::from_mode(0o751))?;
        for entry in std::fs::read_dir(dir.path())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let expected = match entry.file_name().to_str() {
                Some("orders") => kind.is_dir(),
                Some("lock") => kind.is_file(),
                _ => false,
            };
            if !expected {
                let why = format!("{} does not belong there", entry.path().display());
                return Err(io::Error::other(why));
            }
        }
        Ok(())
    }

    fn reclaim(&self, name: &str) -> Result<(), String> {
        let dir = AttemptDir::at(&self.root().map_err(|error| error.to_string())?.join(name));
        let owner = std::fs::symlink_metadata(dir.path()).map_err(|error| error.to_string())?;
        if owner.uid() != 0 || !owner.is_dir() {
            return Err(format!("{} was not kept by this helper", dir.path().display()));
        }
        match dir.try_lock().map_err(|error| error.to_string())? {
            None => Err(format!("the keeper of {name} lives")),
            Some(lock) => match clear_up(&dir, &lock) {
                AttemptState::Over(_) => Ok(()),
                AttemptState::Dying | AttemptState::Kept { .. } => {
                    Err(format!("processes of {name} are still there; ask again"))
                }
            },
        }
    }
}
