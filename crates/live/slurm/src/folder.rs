//! The folder of one attempt on the directory that all nodes share, which is where daemon and batch script meet.
//!
//! ```text
//! RUN_DIR/JOB.ATTEMPT/      made by the daemon before anything is authorised
//!   order.json              what is to be run, for the daemon itself
//!   stop                    seconds left to save; by the daemon, for the script
//!   told.jsonl              what the job is told, one JSON object a line
//!   exit.json               how it ended; written by the daemon before it reports the end
//!   logs/RANK/0...          output of ranks
//!   job/                    the job's user's own: everything that the script and the job write
//! ```

use crate::script::{self, Paths};
use serde::Deserialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use trainyard_api::wire::{FromJob, ToJob};
use trainyard_backend::attempt_dir::{self, Told, make_dir, sync_dir};
use trainyard_backend::checkpoints::{self, Owner};
use trainyard_backend::{Exit, LaunchOrder};
use trainyard_types::{Attempt, JobId};

/// At most so many bytes of what a job says are read at once.
const SAID_BYTES_MAX: u64 = 1 << 20;
/// So often in a row what a job says is read.
const READS_MAX: usize = 64;
/// Files of the script are a line or two.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// An attempt's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// What the script has written so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// It has taken the attempt: it may run, or have run.
    pub taken: bool,
    /// Its ranks run, or did.
    pub started: bool,
    /// It is over.
    pub exit: bool,
}

/// How an attempt ended, as the script saw it. Times are of the node's clock: only their differences mean something.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ScriptExit {
    code: i32,
    /// A request to stop, from Trainyard or from Slurm, reached the rank that ended first.
    pub asked: bool,
    /// The request was Trainyard's, and not Slurm's own; scripts of older daemons looked for no other.
    #[serde(default = "yes")]
    ours: bool,
    killed: bool,
    began: f64,
    #[serde(default)]
    stopped: Option<f64>,
    ended: f64,
}

fn yes() -> bool {
    true
}

impl Folder {
    /// The folder of an attempt.
    pub fn new(run_dir: &Path, job: JobId, attempt: Attempt) -> Folder {
        Folder { path: run_dir.join(attempt_dir::name(job, attempt)) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it with all that the script needs. One that is there already is completed: nothing runs before it is
    /// authorised, which is after this.
    pub fn create(&self, order: &LaunchOrder, nodes: &[String], script: &Path) -> io::Result<()> {
        let owner = order.identity.as_ref().filter(|_| nix::unistd::geteuid().is_root());
        let owner = owner.map(|who| (who.uid, who.gid));
        let own = self.own("");
        for (dir, mode) in [(&self.path, 0o711), (&self.path.join("logs"), 0o711), (&own, 0o700)] {
            made(make_dir(dir, mode))?;
        }
        for rank in 0..script::ranks(order, nodes.len()) {
            let dir = self.path.join("logs").join(rank.to_string());
            made(make_dir(&dir, 0o711))?;
            // The user may write into it and not put anything else in its place.
            self.give(&dir.join(format!("{:020}", 0)), b"", 0o600, owner)?;
        }
        let [said, told, saved] = [self.own("said.jsonl"), self.told(), self.own("saved")];
        let own_script = self.own("script");
        let paths =
            Paths { script, said: &said, told: &told, saved: &saved, own_script: &own_script };
        let launch = script::launch_file(order, nodes, &paths);
        let environment = script::environment_file(order, nodes.len(), &paths);
        self.give(&self.own("launch.sh"), launch.as_bytes(), 0o600, owner)?;
        self.give(&self.own("env.sh"), environment.as_bytes(), 0o600, owner)?;
        self.give(&said, b"", 0o600, owner)?;
        if let Some(text) = &order.script {
            self.give(&own_script, text.as_bytes(), 0o700, owner)?;
        }
        self.give(&told, b"", 0o644, None)?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::lchown(&own, Some(uid), Some(gid))?;
        }
        attempt_dir::write_durably(&self.path.join("order.json"), order)?;
        sync_dir(self.path.parent().unwrap_or(Path::new("/")))
    }

    fn give(
        &self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        // A second try finds the files of the first.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
        file.sync_all()
    }

    /// What is to be run.
    pub fn order(&self) -> io::Result<Option<LaunchOrder>> {
        attempt_dir::read(&self.path.join("order.json"))
    }

    /// What the script has written. The names in the folder are listed and not asked for one by one: a network's file
    /// system remembers for a while that a name was not there, and notices a changed folder at once.
    pub fn written(&self) -> io::Result<Written> {
        let mut written = Written::default();
        for entry in std::fs::read_dir(self.own(""))? {
            match entry?.file_name().to_str() {
                Some("taken") => written.taken = true,
                Some("started") => written.started = true,
                Some("exit") => written.exit = true,
                _ => {}
            }
        }
        Ok(written)
    }

    /// When the script last showed that it lives, by the clock of the file server: only a change means something.
    pub fn alive(&self) -> Option<std::time::SystemTime> {
        std::fs::symlink_metadata(self.own("alive")).and_then(|data| data.modified()).ok()
    }

    /// Asks the script to stop its ranks; a second request may shorten the time.
    pub fn ask_to_stop(&self, grace_seconds: f64) -> io::Result<()> {
        let grace = script::whole_seconds(grace_seconds);
        let before: Option<u64> =
            small(&self.path.join("stop")).ok().and_then(|text| text.trim().parse().ok());
        if before.is_some_and(|before| before <= grace) {
            return Ok(());
        }
        self.tell(&ToJob::Stop { grace_seconds })?;
        let partial = self.path.join("stop.partial");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&partial)?;
        writeln!(file, "{grace}")?;
        file.sync_all()?;
        std::fs::rename(&partial, self.path.join("stop"))
    }

    /// Tells the job something.
    pub fn tell(&self, message: &ToJob) -> io::Result<()> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
        line.push(b'\n');
        OpenOptions::new().append(true).open(self.told())?.write_all(&line)
    }

    /// How the script says that it ended; nothing if it said nothing that can be read.
    pub fn script_exit(&self) -> Option<ScriptExit> {
        serde_json::from_str(&small(&self.own("exit")).ok()?).ok()
    }

    /// Why it could not begin.
    pub fn trouble(&self) -> Option<String> {
        let text = small(&self.own("trouble")).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Whether the place was to blame for that, and not the job.
    fn is_unfit(&self) -> bool {
        plain(&self.own("unfit")).is_ok()
    }

    /// What the job told of its checkpoints by files, beside what it said.
    fn with_files(&self, told: &Told) -> Told {
        let mut told = *told;
        for name in ["saved.before", "saved"] {
            let Ok(text) = small(&self.own(name)) else { continue };
            let work = text.trim().parse::<f64>().ok();
            told.note_saved(work.filter(|work| work.is_finite() && *work >= 0.0));
        }
        if plain(&self.own("rank_saved")).is_ok() {
            told.note_saved(None);
        }
        told
    }

    /// Whether the job said that it saved after its ranks were asked to stop. Nothing where no file says what it had
    /// said before, as under the script of an older daemon.
    fn acknowledged(&self) -> Option<bool> {
        let is_there = |name: &&str| plain(&self.own(name)).is_ok();
        let Ok(asked) = small(&self.own("asked")) else {
            return (!is_there(&"stopping")).then_some(false);
        };
        let by_file = ["saved", "rank_saved"].iter().any(is_there);
        let before: u64 = asked.trim().parse().ok()?;
        let mut ear = Ear { at: before, ..Ear::default() };
        // A job that talks without end is not listened to without end.
        for _ in 0..READS_MAX {
            if ear.listen(self).is_empty() {
                break;
            }
        }
        Some(by_file || ear.told.checkpoint)
    }

    /// The end that was written down for the daemon.
    pub fn exit(&self) -> io::Result<Option<Exit>> {
        attempt_dir::read(&self.path.join("exit.json"))
    }

    /// Writes the end down.
    pub fn set_exit(&self, exit: &Exit) -> io::Result<()> {
        attempt_dir::write_durably(&self.path.join("exit.json"), exit)
    }

    /// Puts what is kept of it in the archive where logs are found.
    pub fn archive(&self, run_dir: &Path) -> io::Result<()> {
        let _ = std::fs::remove_dir_all(self.own(""));
        for name in ["order.json", "stop", "told.jsonl"] {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        let name = self.path.file_name().unwrap_or_default();
        std::fs::rename(&self.path, run_dir.join("logs").join(name))
    }

    fn own(&self, name: &str) -> PathBuf {
        let own = self.path.join("job");
        if name.is_empty() { own } else { own.join(name) }
    }

    fn told(&self) -> PathBuf {
        self.path.join("told.jsonl")
    }
}

/// Reads what a job says, from where it was left.
#[derive(Clone, Debug, Default)]
pub struct Ear {
    at: u64,
    /// What must not be lost.
    pub told: Told,
}

impl Ear {
    /// What was said since the last time, as whole lines.
    pub fn listen(&mut self, folder: &Folder) -> Vec<FromJob> {
        let Ok(mut file) = plain(&folder.own("said.jsonl")) else { return Vec::new() };
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(self.at)).is_err()
            || file.take(SAID_BYTES_MAX).read_to_end(&mut bytes).is_err()
        {
            return Vec::new();
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // A line longer than all that is read at once is no message.
        let taken =
            if whole == 0 && bytes.len() as u64 == SAID_BYTES_MAX { bytes.len() } else { whole };
        self.at += taken as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
        let messages: Vec<FromJob> =
            lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        messages.iter().for_each(|message| self.told.note(message));
        messages
    }
}

/// What the job itself adds to an end, whether its script or Slurm reports that end.
pub fn told_exit(folder: &Folder, told: &Told) -> Exit {
    Exit { acknowledged: folder.acknowledged(), ..folder.with_files(told).exit() }
}

/// An end as the daemon knows it, from what script and job wrote.
pub fn exit_of(folder: &Folder, told: &Told) -> Option<Exit> {
    let script = folder.script_exit()?;
    let asked = script.asked && script.ours;
    let (code, signal) = match script.code {
        code @ 129..=192 => (None, Some(code - 128)),
        code => (Some(code), None),
    };
    let launch_error = folder.trouble();
    let told = told_exit(folder, told);
    // What came before the request is no answer to it, also when it is found after it.
    let acknowledged = if script.asked { told.acknowledged } else { Some(false) };
    let between = |from: f64| Some(script.ended - from).filter(|seconds| *seconds >= 0.0);
    Some(Exit {
        // What its stages ended with is not the job's.
        code: code.filter(|_| launch_error.is_none()),
        signal,
        asked_to_stop: asked,
        killed: script.killed && asked,
        save_seconds: script.stopped.filter(|_| asked).and_then(between),
        ran_seconds: between(script.began).unwrap_or(0.0),
        lost: launch_error.is_some() && folder.is_unfit(),
        launch_error,
        acknowledged,
        ..told
    })
}

/// The order with a directory for its checkpoints that is its user's alone; one that the user named is left to the script,
/// which has that user's rights and no more.
pub fn with_checkpoints(mut order: LaunchOrder, run_dir: &Path) -> Result<LaunchOrder, String> {
    if !order.names_checkpoints() {
        let owner = Owner::of(order.identity.as_ref());
        let dir = checkpoints::claim(run_dir, order.job, owner, order.attempt.0 <= 1);
        order.checkpoint_dir = dir.map_err(|refusal| refusal.to_string())?.display().to_string();
    }
    Ok(order)
}

fn made(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// A plain file: what stands in a job's own folder may be a link or a pipe that its user put there.
fn plain(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

fn small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    plain(path)?.take(SMALL_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
