//! Slurm as a backend: one Slurm job for each job of ours, held while it waits, put in its place and released for each
//! attempt, requeued and held again after it.
//!
//! One thread does everything in order, and one looks at Slurm for it: a single `squeue` and `sinfo` for all jobs. What
//! the first decides is in [`crate::decide`]; what it must not forget is in [`crate::ledger`].

use crate::act::{Actor, Submitting};
use crate::call::Calls;
use crate::inventory::Inventory;
use crate::ledger::Ledger;
use crate::ownership::Key;
use crate::script;
use crate::worker::{Task, Worker, looker};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use trainyard_backend::attempt_dir::make_dir;
use trainyard_backend::{Backend, Found, Order, Report, checkpoints};

/// How long another daemon is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// How the backend works.
#[derive(Clone, Debug)]
pub struct SlurmOptions {
    /// Where attempts have their folders: a directory that every node sees under the same name.
    pub run_dir: PathBuf,
    /// Nodes as the daemon knows them.
    pub inventory: Inventory,
    /// The partition for jobs.
    pub partition: Option<String>,
    /// The account for jobs.
    pub account: Option<String>,
    /// How often Slurm is looked at when nothing happens; less often where a look takes long.
    pub poll: Duration,
    /// How often folders of attempts are looked at.
    pub scan: Duration,
    /// How long an attempt may wait in Slurm after it was released.
    pub patience: Duration,
    /// Whether `scontrol reconfigure` is called when Slurm counts GPUs as used that no job has.
    pub reconfigures: bool,
    /// How long it may wait where Slurm has no GPUs to give: then it is planned anew.
    pub crowded: Duration,
}

impl SlurmOptions {
    /// The usual: a look every second, three minutes for Slurm to start what was released.
    pub fn new(run_dir: impl Into<PathBuf>, inventory: Inventory) -> SlurmOptions {
        SlurmOptions {
            run_dir: run_dir.into(),
            inventory,
            partition: None,
            account: None,
            poll: Duration::from_secs(1),
            scan: Duration::from_millis(200),
            patience: Duration::from_secs(180),
            reconfigures: false,
            crowded: Duration::from_secs(30),
        }
    }
}

/// The backend. Dropping it leaves every job running, and those that wait held.
#[derive(Debug)]
pub struct Slurm {
    tasks: Sender<Task>,
    threads: Vec<JoinHandle<()>>,
    warnings: Vec<String>,
    changes_users: bool,
    /// Held as long as this is the one backend on its run directory.
    _lock: File,
}

impl Slurm {
    /// Takes over a run directory. `reports` is called from a thread of the backend's own and must not block for long.
    pub fn new(
        options: SlurmOptions,
        calls: Arc<Calls>,
        reports: impl Fn(Report) + Send + 'static,
    ) -> io::Result<Slurm> {
        let run_dir = prepare(&options.run_dir)?;
        let lock = only_one(&run_dir)?;
        let instance = instance(&run_dir)?;
        let key = Key::open(&run_dir.join("slurm/key"))?;
        let script = install(&run_dir)?;
        let ledger = Ledger::open(&run_dir.join("slurm/jobs"))?;
        let submitting = Submitting {
            partition: options.partition.clone(),
            account: options.account.clone(),
            script,
            run_dir: run_dir.clone(),
        };
        let changes_users = nix::unistd::geteuid().is_root();
        let mut warnings = options.inventory.warnings.clone();
        checkpoints::settle(&run_dir).map_err(io::Error::other)?;
        warnings.extend(checkpoints::move_old(&run_dir, 0).map_err(io::Error::other)?);
        if !changes_users {
            warnings.push(
                "jobs of all users run as the user of the daemon: only root may submit to Slurm for other users"
                    .to_owned(),
            );
        }
        let poll = options.poll;
        let options = SlurmOptions { run_dir, ..options };
        let (tasks, queue) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        let actor = Actor::new(Arc::clone(&calls), submitting);
        let worker =
            Worker::new(options, actor, (instance, key), ledger, (Box::new(reports), wake));
        let sender = tasks.clone();
        let look = move || looker(&calls, poll, &woken, &sender);
        let threads = vec![
            thread::Builder::new().name("slurm".to_owned()).spawn(move || worker.run(&queue))?,
            thread::Builder::new().name("slurm-look".to_owned()).spawn(look)?,
        ];
        Ok(Slurm { tasks, threads, warnings, changes_users, _lock: lock })
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

impl Backend for Slurm {
    fn obey(&mut self, order: Order) {
        self.send(Task::Obey(order));
    }

    fn list_attempts(&mut self) -> Vec<Found> {
        let (answer, found) = mpsc::channel();
        self.send(Task::ListAttempts(answer));
        // Nothing found would mean that nothing runs, which is not known without the thread.
        found.recv().expect("the thread of the backend lives as long as the backend")
    }

    fn wants_announcements(&self) -> bool {
        true
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.send(Task::End);
        // The worker ends and with it the channel on which the other thread waits; a call to Slurm that is under way
        // may take its time, and its result is dropped.
        if let Some(worker) = self.threads.drain(..).next() {
            let _ = worker.join();
        }
    }
}

fn prepare(run_dir: &Path) -> io::Result<PathBuf> {
    for (name, mode) in [("", 0o711), ("logs", 0o711), ("slurm", 0o711), ("slurm/jobs", 0o711)] {
        let dir = if name.is_empty() { run_dir.to_path_buf() } else { run_dir.join(name) };
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
    run_dir.canonicalize()
}

fn only_one(run_dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let lock = options.open(run_dir.join("lock"))?;
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

/// The name by which this daemon knows its jobs among all others, for ever.
fn instance(run_dir: &Path) -> io::Result<String> {
    let path = run_dir.join("slurm/instance");
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut bytes = [0; 6];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let partial = path.with_extension("partial");
    let mut file = File::create(&partial)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    std::fs::rename(&partial, &path)?;
    Ok(name)
}

/// Puts the script where every node finds it. A job that waits keeps the one it was submitted with, so that each
/// version stays.
fn install(run_dir: &Path) -> io::Result<PathBuf> {
    let path = run_dir.join(format!("slurm/run-{:016x}.sh", fnv(script::RUN.as_bytes())));
    if !path.exists() {
        let partial = path.with_extension("partial");
        std::fs::write(&partial, script::RUN)?;
        std::fs::set_permissions(&partial, PermissionsExt::from_mode(0o755))?;
        File::open(&partial)?.sync_all()?;
        std::fs::rename(&partial, &path)?;
    }
    Ok(path)
}

/// FNV-1a, to tell versions of one file apart.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
