//! The directory of one attempt, which is all that is known about it.
//!
//! ```text
//! RUN_DIR/JOB.ATTEMPT/         made by an exclusive mkdir: the process that made it may start a keeper, once
//!   lock                       held (flock) by the process that starts the keeper, then by the keeper until its end
//!                              is written
//!   orders/launch.json         what is to be run; written by the daemon before the keeper starts
//!   orders/stop.json           a request to stop; the newest counts
//!   orders/batch.json          a batch size; the newest counts
//!   orders/resize.json         GPUs to go over to; the newest counts
//!   orders/aside.json          whether it is to be in host memory, put aside; the newest counts
//!   orders/share.json          another share of its GPU; the newest counts
//!   keeper.json                who the keeper is; without it nothing ever ran
//!   started.json               all ranks run
//!   aside.json                 whether it is there
//!   told.json                  what the job last said that must not be lost
//!   exit.json                  how it ended; written whole and synced before the lock is let go
//!   keeper.log                 what the keeper itself complains about
//!   control.sock               orders once more, for when no file can be written
//!   job/socket, job/saved      for the job: where it speaks, and the file that says "saved"
//!   logs/RANK/OFFSET           its output
//! ```

use crate::{AsideOrder, AsideSeen, Exit, LaunchOrder, ResizeOrder, StopOrder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use trainyard_api::wire::FromJob;
use trainyard_types::{Attempt, JobId};

/// No file that is read back is larger: a launch order holds an environment and arguments, of which the kernel takes
/// two megabytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The directory of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    path: PathBuf,
}

/// What a keeper is started with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The order.
    pub order: LaunchOrder,
    /// The cgroup in which the attempt gets its own, where there is one.
    pub cgroup: Option<PathBuf>,
}

/// Which process a keeper is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperMark {
    /// Its process, which is also its session.
    pub pid: i32,
    /// When it began, in ticks since the machine did: a pid that is used again differs here.
    pub began_ticks: u64,
    /// The boot it belongs to.
    pub boot: String,
    /// The cgroup of the attempt.
    pub cgroup: Option<PathBuf>,
}

/// What a job said that must outlive its keeper.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Work of its newest checkpoint.
    pub saved: Option<f64>,
    /// Whether there is such a checkpoint, whose work it need not tell.
    #[serde(default)]
    pub checkpoint: bool,
    /// Work done.
    pub done: Option<f64>,
    /// Work in all.
    #[serde(default)]
    pub total: Option<f64>,
    /// Whether all work is done.
    pub finished: bool,
    /// Seconds it took to read its checkpoint.
    pub restore_seconds: Option<f64>,
}

impl Told {
    /// Takes note of a message.
    pub fn note(&mut self, message: &FromJob) {
        match message {
            // Rank 0, or a report without a rank, speaks for the job.
            FromJob::Progress { rank: Some(1..), .. } => {}
            FromJob::Progress { done, total, .. } => {
                self.done = done.or(self.done);
                self.total = total.or(self.total);
            }
            FromJob::Saved { done, .. } => self.note_saved(Some(*done)),
            FromJob::Restored { seconds, .. } => self.restore_seconds = *seconds,
            FromJob::Finished => self.finished = true,
            FromJob::Saving | FromJob::Resized { .. } => {}
        }
    }

    /// Takes note of a checkpoint, and of the work in it if that is known.
    pub fn note_saved(&mut self, work: Option<f64>) {
        self.checkpoint = true;
        self.saved = work.or(self.saved);
    }

    /// What it adds to an end.
    pub fn exit(&self) -> Exit {
        Exit {
            finished: self.finished,
            checkpoint: self.checkpoint || self.saved.is_some(),
            saved: self.saved,
            done: self.done,
            total: self.total,
            restore_seconds: self.restore_seconds,
            ..Exit::default()
        }
    }
}

/// What a running attempt is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeeperOrder {
    /// Stop.
    Stop(StopOrder),
    /// Use another batch size.
    Batch(BatchOrder),
    /// Go over to other GPUs.
    Resize(ResizeOrder),
    /// Be put aside, or come back.
    Aside(AsideOrder),
}

impl KeeperOrder {
    /// The file that keeps it.
    pub fn file(&self) -> &'static str {
        match self {
            KeeperOrder::Stop(_) => "orders/stop.json",
            KeeperOrder::Batch(_) => "orders/batch.json",
            KeeperOrder::Resize(_) => "orders/resize.json",
            KeeperOrder::Aside(_) => "orders/aside.json",
        }
    }
}

/// A batch size to be used.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchOrder {
    /// The size over all GPUs.
    pub size: u32,
}

impl AttemptDir {
    /// The directory of an attempt that is not forgotten.
    pub fn new(run_dir: &Path, job: JobId, attempt: Attempt) -> AttemptDir {
        AttemptDir { path: run_dir.join(name(job, attempt)) }
    }

    /// The directory at a path.
    pub fn at(path: &Path) -> AttemptDir {
        AttemptDir { path: path.to_path_buf() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, once in the life of the run directory; an error of kind `AlreadyExists` for every other caller.
    pub fn create(&self) -> io::Result<()> {
        make_dir(&self.path, 0o711)?;
        make_dir(&self.path.join("orders"), 0o700)?;
        sync_dir(self.path.parent().unwrap_or(Path::new("/")))
    }

    /// The lock, if no process holds it.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(self.path.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the job speaks.
    pub fn socket(&self) -> PathBuf {
        self.path.join("job/socket")
    }

    /// The file that says "saved".
    pub fn ack_file(&self) -> PathBuf {
        self.path.join("job/saved")
    }

    /// Whether the file that says "saved" is there, and the work it names. The job owns its directory: a link is not
    /// followed, and what is no file does not count.
    pub fn saved_by_file(&self) -> Option<Option<f64>> {
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.ack_file());
        let file = file.ok().filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
        let mut text = String::new();
        let _ = file.take(64).read_to_string(&mut text);
        let work = text.trim().parse::<f64>().ok();
        Some(work.filter(|work| work.is_finite() && *work >= 0.0))
    }

    /// The script that is run in place of its command; only its user can read it.
    pub fn script(&self) -> PathBuf {
        self.path.join("job/script")
    }

    /// How it ended, if that is known.
    pub fn exit(&self) -> io::Result<Option<Exit>> {
        read(&self.file("exit.json"))
    }

    /// The newest request to stop.
    pub fn stop_order(&self) -> io::Result<Option<StopOrder>> {
        read(&self.file("orders/stop.json"))
    }

    /// Whether it is put aside, if it ever was to be.
    pub fn aside(&self) -> Option<AsideSeen> {
        read(&self.file("aside.json")).ok().flatten()
    }

    /// Whether its processes have started.
    pub fn has_started(&self) -> bool {
        self.file("started.json").exists()
    }
}

/// The name of an attempt's directory.
pub fn name(job: JobId, attempt: Attempt) -> String {
    format!("{}.{}", job.0, attempt.0)
}

/// The attempt that a directory's name means.
pub fn parse_name(name: &str) -> Option<(JobId, Attempt)> {
    let (job, attempt) = name.split_once('.')?;
    let key = (JobId(job.parse().ok()?), Attempt(attempt.parse().ok()?));
    // `07.1` and `+7.1` mean no attempt: a name stands for one, and one alone.
    (self::name(key.0, key.1) == name).then_some(key)
}

/// Reads a file of ours; nothing if it is absent.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let mut options = OpenOptions::new();
    // A file where a link or a pipe stands is not ours.
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags).open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| {
        let what = format!("{} cannot be read: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    Ok(Some(value))
}

/// Writes a file so that it is there whole after a power cut, or not at all.
pub fn write_durably<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, value, true)
}

/// Writes a file so that no reader sees half of it.
pub fn write_whole<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, value, false)
}

fn replace<T: Serialize>(path: &Path, value: &T, durable: bool) -> io::Result<()> {
    let bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
    let partial = path.with_extension("partial");
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // `create_new` follows no link, so nothing outside the directory can be overwritten.
    let mut file = options.write(true).create_new(true).mode(0o640).open(&partial)?;
    file.write_all(&bytes)?;
    if durable {
        file.sync_all()?;
    }
    std::fs::rename(&partial, path)?;
    match path.parent() {
        Some(folder) if durable => sync_dir(folder),
        _ => Ok(()),
    }
}

/// Makes one directory with exactly this mode.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    // The mask of the process may have taken bits away.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}

/// Makes the names in a directory survive a power cut.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_attempt_and_one_alone() {
        assert_eq!(parse_name("7.2"), Some((JobId(7), Attempt(2))));
        for wrong in ["07.2", "7", "7.2.1", "+7.2", "logs", "7.", ".2", "7.-1", "7.99999999999"] {
            assert_eq!(parse_name(wrong), None, "{wrong}");
        }
    }
}
