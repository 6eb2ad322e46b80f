//! The thread that does the work of the local backend.

use super::{LocalOptions, archive};
use crate::attempt_dir::{
    self, AttemptDir, BatchOrder, KeeperMark, KeeperOrder, Launch, Told, parse_name,
};
use crate::cgroup::Cgroup;
use crate::health::watch::Look;
use crate::keeper::Wakeup;
use crate::report::is_full_disk;
use crate::shared_gpu::SharedGpus;
use crate::{AsideOrder, AsideSeen, Exit, Found, LaunchOrder, Order, Report, processes};
use nix::unistd::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_api::wire::FromJob;
use trainyard_types::{Attempt, JobId, Rate, Sample, Span, Work};

/// An attempt by name.
pub type Key = (JobId, Attempt);

/// How long processes that a dead keeper left are waited for, when the daemon asks what there is.
const RECLAIM_WAIT: Duration = Duration::from_secs(3);
/// How long a run directory that cannot be read is tried: too many open files, a network that is slow.
const READ_WAIT: Duration = Duration::from_secs(60);
/// How long an end that may be the fault of a GPU waits for a look at the GPUs.
const LOOK_WAIT: Duration = Duration::from_secs(5);
/// How often old output is looked through.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// What the worker may have of the daemon's environment for keepers.
const KEEPER_ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    // A keeper that watches GPUs finds the driver's library where the daemon does; it is not handed on to ranks.
    "LD_LIBRARY_PATH",
];

/// What the worker is to do.
#[derive(Debug)]
pub enum Task {
    /// What the daemon wants.
    Obey(Order),
    /// Answer with all there is.
    ListAttempts(Sender<Vec<Found>>),
    /// The GPUs were looked at.
    Looked(Look),
    /// A keeper has news.
    Poked(Wakeup),
    /// The backend is dropped.
    End,
}

/// What an attempt's directory says.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptState {
    /// Its keeper lives.
    Kept {
        /// Whether its ranks run.
        started: bool,
    },
    /// It is over.
    Over(Box<Exit>),
    /// Its keeper is gone, its processes are not yet.
    Dying,
}

/// The thread's own.
pub struct Worker {
    pub(super) options: LocalOptions,
    cgroup: Option<PathBuf>,
    reports: Box<dyn Fn(Report) + Send>,
    reported: BTreeMap<Key, Reported>,
    keepers: Vec<Child>,
    unwritten: BTreeMap<(Key, &'static str), KeeperOrder>,
    tidied: Option<Instant>,
    /// Where a look at the GPUs is asked for, if a thread watches them.
    pub(super) asks: Option<Sender<u64>>,
    asked: u64,
    shared: SharedGpus,
    /// Ends that wait for the GPUs to be looked at, with the number of the look, until then at most.
    held: Vec<(u64, Instant, Report)>,
}

#[derive(Clone, Debug, Default)]
struct Reported {
    started: bool,
    ended: bool,
    aside: Option<AsideSeen>,
}

/// Turns pokes into tasks until the backend is over.
pub fn listen(socket: UnixDatagram, tasks: Sender<Task>, over: Arc<AtomicBool>) {
    thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count) = socket.recv(&mut bytes) {
            if over.load(Ordering::Relaxed) {
                return;
            }
            // What is no poke is of a stranger: it neither ends this nor is it heard.
            if let Ok(poke) = serde_json::from_slice(&bytes[..count])
                && tasks.send(Task::Poked(poke)).is_err()
            {
                return;
            }
        }
    });
}

impl Worker {
    /// A worker that has reported nothing yet.
    pub fn new(
        options: LocalOptions,
        cgroup: Option<PathBuf>,
        reports: Box<dyn Fn(Report) + Send>,
    ) -> Worker {
        let (reported, unwritten) = (BTreeMap::new(), BTreeMap::new());
        let keepers = Vec::new();
        let shared = SharedGpus::new(&options);
        Worker {
            shared,
            options,
            cgroup,
            reports,
            reported,
            keepers,
            unwritten,
            tidied: None,
            asks: None,
            asked: 0,
            held: Vec::new(),
        }
    }

    /// Works until the backend is dropped.
    pub fn run(mut self, queue: &Receiver<Task>) {
        let mut rescan = Instant::now() + self.options.rescan;
        loop {
            let held = self.held.iter().map(|(_, until, _)| *until).min();
            let wake = held.map_or(rescan, |until| until.min(rescan));
            match queue.recv_timeout(wake.saturating_duration_since(Instant::now())) {
                Ok(Task::End) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Ok(task) => self.work(task),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.let_go(0);
            if Instant::now() >= rescan {
                self.look_at_all();
                rescan = Instant::now() + self.options.rescan;
            }
        }
    }

    fn end(&self) {
        // Keepers that have just been started still need the group.
        if let (Some(cgroup), Ok(keys)) = (&self.cgroup, self.keys())
            && keys.is_empty()
        {
            let _ = std::fs::remove_dir(cgroup);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Launch(order) => self.launch(*order),
            Order::Stop(job, attempt, stop) => self.order((job, attempt), KeeperOrder::Stop(stop)),
            Order::SetBatch(job, attempt, size) => {
                self.order((job, attempt), KeeperOrder::Batch(BatchOrder { size }));
            }
            Order::Resize(job, attempt, order) => {
                self.order((job, attempt), KeeperOrder::Resize(order));
            }
            Order::Aside(job, attempt, order) => {
                let order = AsideOrder { library: self.options.driver.clone(), ..order };
                self.order((job, attempt), KeeperOrder::Aside(order));
            }
            Order::Share(job, attempt, sharing) => {
                if let Some(what) = self.shared.change((job, attempt), &sharing) {
                    (self.reports)(Report::Notice { job: Some(job), what });
                }
            }
            Order::Forget(job, attempt) => {
                let key = (job, attempt);
                if archive::put(&self.options.run_dir, key).is_ok() {
                    self.reported.remove(&key);
                }
            }
            // There is no queue but the daemon's, and the daemon itself keeps work off a node; what is remembered of
            // a job that is over goes.
            Order::Withdraw(job) => self.shared.forget(job),
            Order::Announce(_) | Order::Drain(..) => {}
        }
    }

    fn work(&mut self, task: Task) {
        match task {
            Task::Obey(order) => self.obey(order),
            Task::ListAttempts(answer) => {
                let _ = answer.send(self.list_attempts());
            }
            Task::Poked(poke) => self.poked(poke),
            Task::Looked(look) => self.looked(look),
            Task::End => {}
        }
    }

    fn dir(&self, (job, attempt): Key) -> AttemptDir {
        AttemptDir::new(&self.options.run_dir, job, attempt)
    }

    fn launch(&mut self, mut order: LaunchOrder) {
        let key = (order.job, order.attempt);
        if let Some(exit) = archive::exit(&self.options.run_dir, key) {
            // The daemon has forgotten that it knows; it must not run again all the same.
            return (self.reports)(Report::Ended { job: key.0, attempt: key.1, exit });
        }
        let dir = self.dir(key);
        match dir.create() {
            Ok(()) => {
                if let Some(what) = self.shared.join(&mut order) {
                    (self.reports)(Report::Notice { job: Some(key.0), what });
                }
                if let Err(error) = self.start(&dir, order) {
                    self.never_ran(&dir, &error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.reported.remove(&key);
            }
            Err(error) => {
                let why = format!("{} cannot be made: {error}", dir.path().display());
                let exit = Exit::unstarted(why);
                return (self.reports)(Report::Ended { job: key.0, attempt: key.1, exit });
            }
        }
        self.look_at(key);
    }

    /// Starts the keeper. From the exclusive mkdir on, this is the only place that does, and it holds the lock or has
    /// asked the helper, which takes it: a directory without a lock is one for which no keeper will ever start.
    fn start(&mut self, dir: &AttemptDir, order: LaunchOrder) -> io::Result<()> {
        let uid = order.identity.as_ref().map(|who| who.uid);
        let launch = Launch { order, cgroup: self.cgroup.clone() };
        let lock = dir.try_lock()?.ok_or_else(|| io::Error::other("its lock is held"))?;
        attempt_dir::write_durably(&dir.file("orders/launch.json"), &launch)?;
        match (&self.options.helper, uid) {
            (Some(helper), Some(uid)) if !geteuid().is_root() => {
                drop(lock);
                crate::helper::start_keeper(helper, dir.path(), uid)
            }
            _ => self.start_keeper(dir, lock),
        }
    }

    fn start_keeper(&mut self, dir: &AttemptDir, lock: File) -> io::Result<()> {
        let child = spawn_keeper(&self.options.program, dir, lock, None)?;
        self.keepers.push(child);
        Ok(())
    }

    /// Writes down that an attempt never ran, unless a keeper has it after all.
    fn never_ran(&self, dir: &AttemptDir, error: &io::Error) {
        if let Ok(Some(_lock)) = dir.try_lock()
            && !dir.file("keeper.json").exists()
            && !dir.file("exit.json").exists()
        {
            let why = format!("its keeper cannot be started: {error}");
            let exit = Exit::unstarted(why);
            let _ = attempt_dir::write_durably(&dir.file("exit.json"), &exit);
        }
    }

    /// Gives an order by file, which lasts, and by message, which works on a full disk. A file that cannot be written
    /// is tried again.
    fn order(&mut self, key: Key, order: KeeperOrder) {
        let dir = self.dir(key);
        // An attempt that is not here has ended and is forgotten: there is no keeper to stop.
        if !dir.path().exists() {
            return;
        }
        if attempt_dir::write_durably(&dir.file(order.file()), &order).is_err() {
            self.unwritten.insert((key, order.file()), order.clone());
        }
        if let (Ok(socket), Ok(bytes)) = (UnixDatagram::unbound(), serde_json::to_vec(&order)) {
            let _ = socket.set_nonblocking(true);
            let _ = socket.send_to(&bytes, dir.file("control.sock"));
        }
    }

    fn order_again(&mut self) {
        for ((key, _), order) in std::mem::take(&mut self.unwritten) {
            self.order(key, order);
        }
    }

    fn poked(&mut self, poke: Wakeup) {
        let Some((job, attempt)) = parse_name(&poke.attempt) else { return };
        match poke.said {
            None => self.look_at((job, attempt)),
            Some(message) => {
                // A job that reports something has started.
                self.look_at((job, attempt));
                let sample = sample(&message);
                (self.reports)(Report::Said { job, attempt, sample, message });
            }
        }
    }

    fn look_at_all(&mut self) {
        self.keepers.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.order_again();
        // A directory that cannot be read now can be in a second.
        for key in self.keys().unwrap_or_default() {
            self.look_at(key);
        }
        for report in self.shared.look() {
            (self.reports)(report);
        }
        if self.tidied.is_none_or(|at| at.elapsed() > TIDY_EVERY) {
            self.tidied = Some(Instant::now());
            archive::tidy(&self.options);
        }
    }

    fn keys(&self) -> io::Result<BTreeSet<Key>> {
        let mut keys = BTreeSet::new();
        for entry in std::fs::read_dir(&self.options.run_dir)? {
            keys.extend(entry?.file_name().to_str().and_then(parse_name));
        }
        Ok(keys)
    }

    /// All attempts. To leave one out would be to say that it does not run, so there is no answer without all of them.
    fn all_keys(&self) -> BTreeSet<Key> {
        let deadline = Instant::now() + READ_WAIT;
        loop {
            match self.keys() {
                Ok(keys) => return keys,
                Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(100)),
                Err(error) => {
                    panic!("{} cannot be read: {error}", self.options.run_dir.display())
                }
            }
        }
    }

    /// Reports what is new about an attempt.
    fn look_at(&mut self, key: Key) {
        let (job, attempt) = key;
        let before = self.reported.get(&key).cloned().unwrap_or_default();
        if before.ended || !self.dir(key).path().exists() {
            return;
        }
        let mut now = before.clone();
        match self.state_of(key) {
            AttemptState::Kept { started } => {
                if started && !before.started {
                    (self.reports)(Report::Started { job, attempt });
                }
                now.started = before.started || started;
                now.aside = self.dir(key).aside();
                if let Some(seen) = now.aside.clone().filter(|_| now.aside != before.aside) {
                    (self.reports)(Report::Aside { job, attempt, seen });
                }
            }
            AttemptState::Over(exit) => {
                // Whether a neighbour is to blame may show a moment later: it is looked at again then.
                let Some(exit) = self.shared.judge(key, *exit) else { return };
                if exit.launch_error.is_none() && !exit.lost && !before.started {
                    (self.reports)(Report::Started { job, attempt });
                }
                now = Reported { started: true, ended: true, aside: None };
                self.shared.leave(key);
                self.tell_end(key, exit);
            }
            AttemptState::Dying => {}
        }
        self.reported.insert(key, now);
    }

    /// Tells of an end. One that may be the fault of a GPU waits until the GPUs were looked at, so that the daemon has
    /// heard of the GPU before.
    fn tell_end(&mut self, (job, attempt): Key, exit: Exit) {
        let by_itself = exit.launch_error.is_none() && !exit.lost && !exit.asked_to_stop;
        let suspect = by_itself && exit.code != Some(0) && !exit.finished;
        let report = Report::Ended { job, attempt, exit };
        self.asked += 1;
        match &self.asks {
            Some(asks) if suspect && asks.send(self.asked).is_ok() => {
                self.held.push((self.asked, Instant::now() + LOOK_WAIT, report));
            }
            _ => (self.reports)(report),
        }
    }

    fn looked(&mut self, look: Look) {
        if let Some(what) = look.notice {
            (self.reports)(Report::Notice { job: None, what });
        }
        for gpu in look.gpus {
            (self.reports)(Report::Gpu(gpu));
        }
        self.let_go(look.answers);
    }

    /// Tells of ends that waited for a look up to that one, or for long enough.
    fn let_go(&mut self, answers: u64) {
        let now = Instant::now();
        let (ready, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(number, until, _)| *number <= answers || *until <= now);
        self.held = held;
        let ready: Vec<(u64, Instant, Report)> = ready;
        for (_, _, report) in ready {
            (self.reports)(report);
        }
    }

    fn list_attempts(&mut self) -> Vec<Found> {
        let keys = self.all_keys();
        let deadline = Instant::now() + RECLAIM_WAIT;
        keys.into_iter().map(|key| self.find(key, deadline)).collect()
    }

    fn find(&mut self, key: Key, deadline: Instant) -> Found {
        let (job, attempt) = key;
        let reported = self.reported.entry(key).or_default();
        loop {
            match state_of(&self.options, key) {
                AttemptState::Kept { started } => {
                    reported.started |= started;
                    self.shared.found(key);
                    return Found::Running { job, attempt, started };
                }
                AttemptState::Over(exit) => {
                    *reported = Reported { started: true, ended: true, aside: None };
                    self.shared.found(key);
                    self.shared.leave(key);
                    return Found::Ended { job, attempt, exit: *exit };
                }
                AttemptState::Dying if Instant::now() >= deadline => {
                    return Found::Running { job, attempt, started: true };
                }
                AttemptState::Dying => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn state_of(&self, key: Key) -> AttemptState {
        state_of(&self.options, key)
    }
}

/// What an attempt's directory says. A keeper that is gone without an end is cleared up after.
fn state_of(options: &LocalOptions, (job, attempt): Key) -> AttemptState {
    let dir = AttemptDir::new(&options.run_dir, job, attempt);
    match dir.exit() {
        Ok(Some(exit)) => return AttemptState::Over(Box::new(exit)),
        Ok(None) => {}
        // An end that cannot be read is an end all the same; it was written whole, so the disk lost it.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return AttemptState::Over(Box::new(Exit { lost: true, ..Exit::default() }));
        }
        Err(_) => return AttemptState::Kept { started: dir.has_started() },
    }
    let is_ours = std::fs::metadata(dir.path())
        .is_ok_and(|data| geteuid().is_root() || data.uid() == geteuid().as_raw());
    match dir.try_lock() {
        Ok(Some(lock)) if is_ours => reclaim(&dir, &lock),
        Ok(Some(lock)) => {
            // The processes of another user, and a directory that is root's for now, are the helper's to clear.
            drop(lock);
            if let Some(helper) = &options.helper {
                let _ = crate::helper::reclaim(helper, dir.path());
            }
            AttemptState::Dying
        }
        Ok(None) | Err(_) => AttemptState::Kept { started: dir.has_started() },
    }
}

/// Clears up after a keeper that died, holding its lock: first no process may be left, then its end is written.
pub fn reclaim(dir: &AttemptDir, _lock: &File) -> AttemptState {
    // It may have written its end between the look for it and the lock.
    if let Ok(Some(exit)) = dir.exit() {
        return AttemptState::Over(Box::new(exit));
    }
    if let Ok(Some(mark)) = attempt_dir::read::<KeeperMark>(&dir.file("keeper.json")) {
        let session = (mark.boot == processes::boot()).then_some((mark.pid, mark.began_ticks));
        let find = || processes::remains(session, &dir.ack_file());
        let cgroup = mark.cgroup.as_deref().map(Cgroup::at);
        if let Some(cgroup) = &cgroup {
            cgroup.kill();
        }
        processes::kill_all(find);
        if !find().is_empty() || cgroup.as_ref().is_some_and(|group| !group.is_empty()) {
            return AttemptState::Dying;
        }
        if let Some(cgroup) = &cgroup {
            cgroup.remove();
        }
    }
    // A keeper that refused to begin says why in its own log.
    let refused = std::fs::read_to_string(dir.file("keeper.log")).unwrap_or_default();
    let refused = Some(refused.trim().to_owned())
        .filter(|text| !text.is_empty() && !dir.file("keeper.json").exists());
    let mut told: Told =
        attempt_dir::read(&dir.file("told.json")).ok().flatten().unwrap_or_default();
    if let Some(work) = dir.saved_by_file() {
        told.note_saved(work);
    }
    crate::keeper::give_back(dir);
    let exit = Exit {
        lost: refused.as_deref().is_none_or(is_full_disk),
        launch_error: refused,
        asked_to_stop: matches!(dir.stop_order(), Ok(Some(_))),
        ..told.exit()
    };
    match attempt_dir::write_durably(&dir.file("exit.json"), &exit) {
        Ok(()) => AttemptState::Over(Box::new(exit)),
        // As long as its end cannot be kept, it is not reported.
        Err(_) => AttemptState::Dying,
    }
}

/// Starts a keeper that inherits the lock. It outlives the process that starts it. `uid` is the one user whom its ranks
/// may run as.
pub fn spawn_keeper(
    program: &std::path::Path,
    dir: &AttemptDir,
    lock: File,
    uid: Option<u32>,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg("keeper").arg(dir.path());
    if let Some(uid) = uid {
        command.arg(uid.to_string());
    }
    command.env_clear();
    for name in KEEPER_ENVIRONMENT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut log = OpenOptions::new();
    let log = log.create_new(true).append(true).mode(0o640).open(dir.file("keeper.log"))?;
    command.current_dir("/").stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(log);
    command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))
}

/// What the engine learns from a message.
pub fn sample(message: &FromJob) -> Sample {
    let work = |done: f64| Some(done).filter(|done| done.is_finite() && *done >= 0.0).map(Work);
    let span = |seconds: Option<f64>| {
        seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0).map(Span::from_secs_f64)
    };
    match *message {
        FromJob::Progress {
            done,
            total,
            rate,
            step_seconds,
            sync_seconds,
            batch,
            accumulation,
            noise_scale,
            loss,
            epoch,
            ..
        } => Sample {
            done: done.and_then(work),
            rate: rate.filter(|rate| rate.is_finite() && *rate >= 0.0).map(Rate),
            step: span(step_seconds),
            sync: span(sync_seconds),
            batch,
            accumulation,
            noise: noise_scale.filter(|noise| noise.is_finite()),
            loss: loss.filter(|loss| loss.is_finite()),
            epoch,
            total: total.and_then(work),
            ..Sample::default()
        },
        FromJob::Saved { done, .. } | FromJob::Restored { done, .. } => {
            Sample { done: work(done), ..Sample::default() }
        }
        FromJob::Finished | FromJob::Saving | FromJob::Resized { .. } => Sample::default(),
    }
}
