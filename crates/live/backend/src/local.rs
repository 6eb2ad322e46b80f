//! The backend of one machine: a keeper for each attempt, and files that say what became of it.
//!
//! One thread does everything in order: orders of the daemon, pokes of keepers, and a look at all directories every
//! second. What it remembers is only what it has reported; the truth is on disk.
//!
//! - `worker`: that thread.
//! - `archive`: what is kept of attempts that are forgotten.

mod archive;
pub(crate) mod worker;

use crate::attempt_dir::make_dir;
use crate::cgroup::{self, Cgroups};
use crate::health::watch;
use crate::{
    Backend, Found, HealthOptions, Order, Report, checkpoints, helper, shared_gpu, suspender,
};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use worker::sample;
use worker::{Task, Worker};

/// Names of sockets have 108 bytes (unix(7)); the longest of ours adds `/4294967295.4294967295/control.sock`.
const RUN_DIR_BYTES_MAX: usize = 108 - 36;

/// How long another daemon is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How a local backend works.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Where attempts have their directories; made if it is missing.
    pub run_dir: PathBuf,
    /// A program with the hidden commands `keeper` and `rank`: `trainyard` itself, or `trainyard-keeper`.
    pub program: PathBuf,
    /// The socket of a privileged helper, which starts keepers where this process may not change users.
    pub helper: Option<PathBuf>,
    /// Whether cgroups are used where they can be had.
    pub cgroups: bool,
    /// How often directories are looked at without a poke.
    pub rescan: Duration,
    /// How long the output of an attempt is kept after it was forgotten.
    pub logs_keep: Duration,
    /// How many bytes of such output are kept in all; the oldest goes first.
    pub logs_bytes_max: u64,
    /// The library that is loaded into programs that share a GPU; without it they run by time slicing.
    pub library: Option<PathBuf>,
    /// The control program of MPS, where attempts with a share are to be clients of MPS instead of taking turns.
    pub mps: Option<PathBuf>,
    /// The driver's library by which attempts are put aside, where it is not the usual one.
    pub driver: Option<PathBuf>,
    /// How the health of GPUs is watched, if it is; where there is no NVIDIA driver there is nothing to watch.
    pub health: Option<HealthOptions>,
}

impl LocalOptions {
    /// The usual: cgroups where they can be had, the library for shared GPUs where it stands beside the program, a look every second, output kept for 30 days within 10 GiB.
    pub fn new(run_dir: impl Into<PathBuf>, program: impl Into<PathBuf>) -> LocalOptions {
        let program = program.into();
        LocalOptions {
            run_dir: run_dir.into(),
            library: shared_gpu::find_library(&program),
            program,
            helper: None,
            cgroups: true,
            rescan: Duration::from_secs(1),
            logs_keep: Duration::from_secs(30 * 86_400),
            logs_bytes_max: 10 << 30,
            mps: None,
            driver: None,
            health: None,
        }
    }
}

/// The backend of one machine. Dropping it leaves every job running.
#[derive(Debug)]
pub struct Local {
    tasks: Sender<Task>,
    worker: Option<JoinHandle<()>>,
    warnings: Vec<String>,
    changes_users: bool,
    program: PathBuf,
    driver: Option<PathBuf>,
    poke_path: PathBuf,
    over: Arc<AtomicBool>,
    /// Held as long as this is the one backend on its run directory.
    _lock: File,
}

impl Local {
    /// Takes over a run directory. `reports` is called from a thread of the backend's own and must not block for long.
    pub fn new(
        options: LocalOptions,
        reports: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Local> {
        let run_dir = prepare(&options.run_dir)?;
        let lock = only_one(&run_dir)?;
        let cgroups = if options.cgroups {
            cgroup::prepare(&run_dir)
        } else {
            Cgroups { parent: None, warnings: vec!["cgroups are turned off".to_owned()] }
        };
        let root = nix::unistd::geteuid().is_root();
        let changes_users = root || options.helper.is_some();
        let mut warnings = cgroups.warnings.clone();
        if !changes_users {
            warnings.push(
                "jobs of all users run as the user of the daemon: it is neither root nor given a helper"
                    .to_owned(),
            );
        }
        if let Some(Err(error)) = options.helper.as_deref().filter(|_| !root).map(helper::ping) {
            warnings
                .push(format!("{error}; jobs of other users cannot be started until it answers"));
        }
        let helper = options.helper.as_deref().filter(|_| !root);
        warnings.extend(settle_checkpoints(&run_dir, helper)?);
        let poke_path = run_dir.join("poke.sock");
        let _ = std::fs::remove_file(&poke_path);
        let pokes = UnixDatagram::bind(&poke_path)?;
        std::fs::set_permissions(&poke_path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let (tasks, queue) = mpsc::channel();
        let over = Arc::new(AtomicBool::new(false));
        worker::listen(pokes, tasks.clone(), over.clone());
        let options = LocalOptions { run_dir, ..options };
        let (program, driver) = (options.program.clone(), options.driver.clone());
        let mut worker = Worker::new(options, cgroups.parent, Box::new(reports));
        if let Some(health) = worker.options.health.clone() {
            let (ask, asks) = mpsc::channel();
            let looks = tasks.clone();
            watch::start(health, asks, move |look| looks.send(Task::Looked(look)).is_ok())?;
            worker.asks = Some(ask);
        }
        let worker = thread::Builder::new()
            .name("local-backend".to_owned())
            .spawn(move || worker.run(&queue))?;
        let worker = Some(worker);
        Ok(Local {
            tasks,
            worker,
            warnings,
            changes_users,
            program,
            driver,
            poke_path,
            over,
            _lock: lock,
        })
    }

    /// Whether jobs run as the users who submitted them.
    pub fn changes_users(&self) -> bool {
        self.changes_users
    }

    fn send(&self, task: Task) {
        // The worker ends only with this value, or by a bug that the next answer would show.
        let _ = self.tasks.send(task);
    }
}

impl Backend for Local {
    fn obey(&mut self, order: Order) {
        self.send(Task::Obey(order));
    }

    fn list_attempts(&mut self) -> Vec<Found> {
        let (answer, found) = mpsc::channel();
        self.send(Task::ListAttempts(answer));
        // Nothing found would mean that nothing runs, which is not known without the thread.
        found.recv().expect("the thread of the backend lives as long as the backend")
    }

    fn cannot_suspend(&self) -> Option<String> {
        suspender::probe(&self.program, self.driver.as_deref()).err()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.send(Task::End);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
        // The thread that listens ends with a last poke.
        self.over.store(true, Ordering::Relaxed);
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.send_to(b"end", &self.poke_path);
        }
    }
}

fn prepare(run_dir: &Path) -> io::Result<PathBuf> {
    for (dir, mode) in [(run_dir.to_path_buf(), 0o711), (run_dir.join("logs"), 0o700)] {
        if let Some(parent) = dir.parent().filter(|parent| !parent.exists()) {
            std::fs::create_dir_all(parent)?;
        }
        match make_dir(&dir, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                let what = format!("directory {} cannot be made: {error}", dir.display());
                return Err(io::Error::new(error.kind(), what));
            }
            _ => {}
        }
    }
    let run_dir = run_dir.canonicalize()?;
    if run_dir.as_os_str().len() > RUN_DIR_BYTES_MAX {
        let what = format!(
            "run directory {} is longer than {RUN_DIR_BYTES_MAX} bytes, which the names of sockets in it do not \
             allow; choose a shorter one",
            run_dir.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(run_dir)
}

/// Closes the directory for checkpoints to others, and moves what an older version left there; what stays is named.
fn settle_checkpoints(run_dir: &Path, helper: Option<&Path>) -> io::Result<Vec<String>> {
    checkpoints::settle(run_dir).map_err(io::Error::other)?;
    if let Some(helper) = helper {
        // What it could not do is left over below, and said there; its absence has been said.
        let _ = helper::move_checkpoints(helper);
    }
    checkpoints::move_old(run_dir, 0).map_err(io::Error::other)
}

fn only_one(run_dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let lock = options.open(run_dir.join("lock"))?;
    // A process that the last daemon was about to start holds what that had open, for a moment after its end.
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                let what = format!("another daemon works in {}; stop it first", run_dir.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
            }
        }
    }
}
