//! The keeper: one process for each attempt, which starts it, watches it, stops it and writes down how it ended.
//!
//! It lives in a session of its own and does not need the daemon. What it must know comes as files in the attempt's
//! directory ([`crate::attempt_dir`]), what it knows goes there; pokes only make the other side look sooner.
//!
//! - `aside`: putting it aside in host memory and bringing it back.
//! - `gang`: the ranks, started together.
//! - `idle`: whether its GPUs do anything.
//! - `talk`: the socket between job and keeper.
//! - `watch`: what happens from start to end.

mod aside;
mod gang;
mod idle;
mod talk;
mod watch;

use crate::attempt_dir::{self, AttemptDir, KeeperMark, KeeperOrder, Launch};
use crate::cgroup::Cgroup;
use crate::checkpoints::{self, Owner, Refusal};
use crate::order::Identity;
use crate::{Exit, LaunchOrder, processes};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid, User, chown, geteuid, setsid};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};
use talk::Talk;
use trainyard_api::wire::FromJob;

/// More are not kept: a sender that has more waits.
const EVENTS_MAX: usize = 1024;

/// What a keeper hears of.
#[derive(Debug)]
pub enum Event {
    /// A process below it ended.
    Exited(i32, Status),
    /// No process is below it any more.
    AllGone,
    /// The job said something.
    Said(FromJob),
    /// The child that calls the driver has an answer.
    Driver(crate::suspender::DriverAnswer),
    /// There is an order, or may be one in a file.
    Ordered(Option<KeeperOrder>),
}

/// How a process ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What a keeper tells the daemon at once, if that listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wakeup {
    /// The attempt's directory by name.
    pub attempt: String,
    /// What the job said; nothing if a file changed.
    pub said: Option<FromJob>,
}

/// Everything a keeper holds while its attempt runs.
struct KeeperState {
    dir: AttemptDir,
    order: LaunchOrder,
    cgroup: Option<Cgroup>,
    events: Receiver<Event>,
    sender: SyncSender<Event>,
    talk: Talk,
    poke: UnixDatagram,
    began: Instant,
}

/// Between two tries to write the end.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// As many tries in a row without a directory are the end of them.
const GONE_MAX: u32 = 10;

/// Keeps the attempt of a directory until it ended. `uid` is the only user it may run as, if it is given.
///
/// Its standard input must be the directory's lock, held: it is what proves that no other process keeps this attempt.
pub fn main(dir: &Path, uid: Option<u32>) -> ExitCode {
    let dir = AttemptDir::at(dir);
    let launch = match take_over(&dir, uid) {
        Ok(launch) => launch,
        Err(why) => {
            complain(&why);
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let exit = match KeeperState::new(&dir, launch, began) {
        Ok(post) => watch::run(post),
        Err(error) => Exit {
            launch_error: Some(format!(
                "its keeper cannot work in {}: {error}",
                dir.path().display()
            )),
            // A full disk or a directory that is gone is the machine's fault, and never the job's.
            lost: true,
            ran_seconds: began.elapsed().as_secs_f64(),
            ..Exit::default()
        },
    };
    give_back(&dir);
    let (mut failures, mut gone) = (0, 0);
    while let Err(error) = attempt_dir::write_durably(&dir.file("exit.json"), &exit) {
        // A full disk must not lose the end: as long as it is not written, the attempt counts as running.
        if failures == 0 {
            complain(&format!("its end cannot be written, which is tried until it can: {error}"));
        }
        failures += 1;
        // Where the directory itself is gone for good, no daemon will ever look for the end.
        gone = if dir.path().exists() { 0 } else { gone + 1 };
        if gone >= GONE_MAX {
            return ExitCode::FAILURE;
        }
        thread::sleep(WRITE_PAUSE);
    }
    if let Ok(socket) = UnixDatagram::unbound() {
        send_poke(&socket, &dir, None);
    }
    ExitCode::SUCCESS
}

/// Writes to the keeper's log, which may be on a full disk: `eprintln` would panic.
fn complain(why: &str) {
    let _ = writeln!(io::stderr(), "trainyard keeper: {why}");
}

/// Makes sure that this process, and no other, keeps the attempt.
fn take_over(dir: &AttemptDir, uid: Option<u32>) -> Result<Launch, String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let lock = File::from(stdin.map_err(|error| failed("standard input", error))?);
    let inode = |data: std::fs::Metadata| (data.dev(), data.ino());
    let held = lock.metadata().map(inode).ok();
    let expected = std::fs::metadata(dir.file("lock")).map(inode).ok();
    if held.is_none() || held != expected || lock.try_lock().is_err() {
        return Err("a keeper is started by the daemon and not by hand".to_owned());
    }
    if dir.file("exit.json").exists() || dir.file("keeper.json").exists() {
        return Err(format!("{} was kept already", dir.path().display()));
    }
    let launch: Option<Launch> = attempt_dir::read(&dir.file("orders/launch.json"))
        .map_err(|error| failed("launch.json", error))?;
    let mut launch = launch.ok_or("launch.json is missing")?;
    let wanted = launch.order.identity.as_ref().map(|who| who.uid);
    if uid.is_some_and(|uid| uid == 0 || wanted != Some(uid)) {
        return Err(format!("it may run as user {uid:?} alone, and the order names {wanted:?}"));
    }
    if let Some(uid) = uid {
        launch.order.identity = Some(known_user(uid)?);
        launch.cgroup = launch.cgroup.filter(|parent| is_cgroup(parent));
    }
    Ok(launch)
}

/// A user as the system knows it: the order may not choose another name, group or home for it.
fn known_user(uid: u32) -> Result<Identity, String> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let user = user.ok_or_else(|| format!("no user has number {uid}"))?;
    Ok(Identity {
        uid,
        gid: user.gid.as_raw(),
        name: user.name,
        home: user.dir.display().to_string(),
    })
}

fn is_cgroup(path: &Path) -> bool {
    use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
    statfs(path).is_ok_and(|system| system.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

impl KeeperState {
    fn new(dir: &AttemptDir, launch: Launch, began: Instant) -> io::Result<KeeperState> {
        let _ = setsid();
        umask(Mode::from_bits_truncate(0o027));
        block_signals()?;
        nix::sys::prctl::set_child_subreaper(true)?;
        let order = launch.order;
        let name = attempt_dir::name(order.job, order.attempt);
        let cgroup = match &launch.cgroup {
            Some(parent) => Some(Cgroup::create(parent, &name, &order.limits)?),
            None => None,
        };
        let pid = std::process::id() as i32;
        let mark = KeeperMark {
            pid,
            began_ticks: processes::one(pid).map_or(0, |own| own.began_ticks),
            boot: processes::boot(),
            cgroup: cgroup.as_ref().map(|group| group.path().to_path_buf()),
        };
        attempt_dir::write_durably(&dir.file("keeper.json"), &mark)?;
        attempt_dir::make_dir(&dir.file("logs"), 0o750)?;
        let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
        let control = UnixDatagram::bind(dir.file("control.sock"))?;
        std::fs::set_permissions(dir.file("control.sock"), PermissionsExt::from_mode(0o660))?;
        let pokes = sender.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4 << 10];
            while let Ok(count) = control.recv(&mut bytes) {
                let order = serde_json::from_slice(&bytes[..count]).ok();
                if pokes.send(Event::Ordered(order)).is_err() {
                    return;
                }
            }
        });
        attempt_dir::make_dir(&dir.file("job"), 0o700)?;
        let talk = Talk::open(&dir.socket(), sender.clone())?;
        if let Some(who) = gang::identity(&order) {
            let (uid, gid) = (Some(Uid::from_raw(who.uid)), Some(Gid::from_raw(who.gid)));
            // The socket before the directory: once the directory is the user's, nothing in it can be trusted.
            chown(&dir.socket(), uid, gid)?;
            chown(&dir.file("job"), uid, gid)?;
        }
        let poke = UnixDatagram::unbound()?;
        poke.set_nonblocking(true)?;
        Ok(KeeperState { dir: dir.clone(), order, cgroup, events, sender, talk, poke, began })
    }

    /// Makes sure of the directory for the job's checkpoints before anything names it. One that the user named is left to
    /// the ranks, which have that user's rights and no more.
    fn claim_checkpoints(&mut self) -> Result<(), Refusal> {
        if self.order.names_checkpoints() {
            return Ok(());
        }
        let owner = Owner::of(gang::identity(&self.order));
        let run_dir = self.dir.path().parent().unwrap_or(Path::new("/"));
        let first = self.order.attempt.0 <= 1;
        let dir = checkpoints::claim(run_dir, self.order.job, owner, first)?;
        self.order.checkpoint_dir = dir.display().to_string();
        Ok(())
    }

    /// Tells the daemon, if that listens. Progress may get lost, for more will come.
    fn poke(&self, said: Option<FromJob>) {
        let tries = if matches!(said, Some(FromJob::Progress { .. })) { 1 } else { 20 };
        for _ in 0..tries {
            if send_poke(&self.poke, &self.dir, said.clone()) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Signals meant for a daemon or a terminal end no keeper. They are blocked and not ignored, because ranks would inherit
/// that.
fn block_signals() -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        signals.add(signal);
    }
    Ok(signals.thread_block()?)
}

/// Whether there is no use in trying again.
fn send_poke(socket: &UnixDatagram, dir: &AttemptDir, said: Option<FromJob>) -> bool {
    let (Some(run_dir), Some(name)) = (dir.path().parent(), dir.path().file_name()) else {
        return true;
    };
    let poke = Wakeup { attempt: name.to_string_lossy().into_owned(), said };
    let Ok(bytes) = serde_json::to_vec(&poke) else { return true };
    // No daemon may be listening; the files say the same.
    let sent = socket.send_to(&bytes, run_dir.join("poke.sock"));
    !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// What belongs to the job is removed; what is left is given to the user who gave the orders, if that is another one.
pub fn give_back(dir: &AttemptDir) {
    let _ = std::fs::remove_dir_all(dir.file("job"));
    let _ = std::fs::remove_file(dir.file("control.sock"));
    let Ok(owner) = std::fs::symlink_metadata(dir.file("orders")).map(|data| data.uid()) else {
        return;
    };
    if !geteuid().is_root() || owner == 0 {
        return;
    }
    let mut open = vec![dir.path().to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() && !path.is_symlink() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()));
        }
        let _ = std::os::unix::fs::lchown(&path, Some(owner), None);
    }
}
