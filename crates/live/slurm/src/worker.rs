//! The thread that does the work of the backend.
//!
//! - `orders`: what the daemon wants.
//! - `steps`: what is decided about it.
//! - `proof`: whose a job of Slurm is, asked before anything is done to it.
//! - `acts`: what is done to jobs of Slurm.
//! - `ends`: how attempts end.
//! - `sight`: what is seen of Slurm: jobs, nodes, trouble.

mod acts;
mod ends;
mod orders;
mod proof;
mod sight;
mod steps;

use crate::act::Actor;
use crate::call::{CallError, Calls};
use crate::decide::Known;
use crate::folder::{Ear, Folder, Written};
use crate::ledger::{Ledger, PersistedRun, Stage};
use crate::look::Lookout;
use crate::ownership::Key as MarkKey;
use crate::seen::{SlurmJob, SlurmSeen};
use crate::slurm::SlurmOptions;
use crate::unaccounted::Unaccounted;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};
use trainyard_backend::{Found, NodeSeen, Order, Report};
use trainyard_types::{Attempt, JobId};

/// An attempt by name.
pub type Key = (JobId, Attempt);

/// The receiver of reports.
pub type Reports = Box<dyn Fn(Report) + Send>;

/// Looks at Slurm are at least so far apart, however often they are asked for.
const LOOK_GAP: Duration = Duration::from_millis(100);
/// The longest wait between looks while Slurm does not answer.
const BACK_OFF_MAX: Duration = Duration::from_secs(15);
/// So many tasks are taken before their consequences are seen to.
const TASKS_AT_ONCE: usize = 512;

/// What the worker is to do.
#[derive(Debug)]
pub enum Task {
    /// What the daemon wants.
    Obey(Order),
    /// SlurmAnswer with all there is.
    ListAttempts(Sender<Vec<Found>>),
    /// Slurm as it was at a moment.
    Seen(Instant, Box<Result<SlurmSeen, CallError>>),
    /// The backend is dropped.
    End,
}

/// What is known of a job beside its entry; all of it can be found out again.
#[derive(Debug)]
struct Run {
    known: Known,
    since: Instant,
    /// What is seen of Slurm before this is older than what was done to it.
    acted: Instant,
    slurm: Option<Box<SlurmJob>>,
    ear: Ear,
    written: Written,
    /// The newest sign of life of its script, and when it was seen.
    beat: (Option<SystemTime>, Instant),
    stop_told: bool,
    /// Slurm was told that it may be requeued, and it was not yet.
    requeueable: bool,
    kill_at: Option<Instant>,
    released: Option<Instant>,
    gone_told: bool,
    /// A node that it was put on was out of service when Slurm told that it is over.
    bad_node: bool,
    /// Whether it waited for something that does not come.
    hopeless: bool,
    /// How long it waited in vain, and what for, once it is taken back.
    given_up: Option<String>,
    /// Slurm refused to take it; tried again then.
    retry_at: Option<Instant>,
}

impl Run {
    fn new(known: Known) -> Run {
        let now = Instant::now();
        Run {
            known,
            since: now,
            acted: now,
            slurm: None,
            ear: Ear::default(),
            written: Written::default(),
            beat: (None, now),
            stop_told: false,
            requeueable: false,
            kill_at: None,
            released: None,
            gone_told: false,
            bad_node: false,
            hopeless: false,
            given_up: None,
            retry_at: None,
        }
    }

    /// How long it has waited since it was released, and what for in Slurm's words.
    fn waited(&self) -> String {
        let seconds = self.released.map_or(0, |at| at.elapsed().as_secs());
        let reason = self.slurm.as_deref().map_or("?", |job| job.reason.as_str());
        format!("{seconds} s (reason {reason})")
    }

    /// What a step did is known until Slurm is looked at again.
    fn now_is(&mut self, known: Known) {
        self.acted = Instant::now();
        self.see(known);
    }

    fn see(&mut self, known: Known) {
        if self.known != known {
            (self.known, self.since) = (known, Instant::now());
        }
    }
}

/// Seconds of Unix time.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The thread's own.
pub struct Worker {
    options: SlurmOptions,
    actor: Actor,
    instance: String,
    /// Makes and reads marks.
    key: MarkKey,
    ledger: Ledger,
    reports: Reports,
    wake: Sender<()>,
    runs: BTreeMap<JobId, Run>,
    /// Jobs to be decided about.
    dirty: BTreeSet<JobId>,
    nodes: BTreeMap<String, NodeSeen>,
    unaccounted: Unaccounted,
    /// Since when Slurm does not answer.
    down: Option<Instant>,
    /// What does not work, by what it is about.
    troubles: BTreeMap<&'static str, String>,
    told_trouble: Option<String>,
    scanned: Instant,
}

impl Worker {
    /// A worker that has reported nothing yet.
    pub fn new(
        options: SlurmOptions,
        actor: Actor,
        (instance, key): (String, MarkKey),
        ledger: Ledger,
        (reports, wake): (Reports, Sender<()>),
    ) -> Worker {
        let mut worker = Worker {
            options,
            actor,
            instance,
            key,
            ledger,
            reports,
            wake,
            runs: BTreeMap::new(),
            dirty: BTreeSet::new(),
            nodes: BTreeMap::new(),
            unaccounted: Unaccounted::default(),
            down: None,
            troubles: BTreeMap::new(),
            told_trouble: None,
            scanned: Instant::now(),
        };
        let jobs: Vec<JobId> = worker.ledger.entries.keys().copied().collect();
        jobs.into_iter().for_each(|job| worker.remember(job));
        worker
    }

    /// What a run is known to be from the ledger alone.
    fn remember(&mut self, job: JobId) {
        let Some(entry) = self.ledger.entries.get_mut(&job) else { return };
        entry.complete_claim(&self.instance, job);
        let absent = entry.slurm.is_none() && !entry.submitting;
        let mut run = Run::new(if absent { Known::Absent } else { Known::Unknown });
        if let Some(course) = &entry.attempt {
            let folder = Folder::new(&self.options.run_dir, job, course.attempt);
            // What was said before was reported before, but for the newest.
            run.ear.listen(&folder);
            if course.stage == Stage::Released {
                // Slurm has at least a few seconds with this daemon, whatever was before.
                let before = course.released.map_or(0, |at| unix_seconds().saturating_sub(at));
                let most = self.options.crowded.saturating_sub(Duration::from_secs(5));
                let before = Duration::from_secs(before).min(most);
                run.released = Instant::now().checked_sub(before).or(Some(Instant::now()));
            }
            run.kill_at = course.stop.as_ref().map(orders::kill_at);
        }
        self.runs.insert(job, run);
        self.dirty.insert(job);
    }

    /// Works until the backend is dropped.
    pub fn run(mut self, queue: &Receiver<Task>) {
        loop {
            let busy = self.has_submissions_left();
            let wait = if busy { Duration::ZERO } else { self.tick() };
            match queue.recv_timeout(wait) {
                Ok(Task::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(task) => self.work(task),
                Err(RecvTimeoutError::Timeout) => {}
            }
            for _ in 0..TASKS_AT_ONCE {
                match queue.try_recv() {
                    Ok(Task::End) => return,
                    Ok(task) => self.work(task),
                    Err(_) => break,
                }
            }
            self.scan();
            self.step();
            self.tell_trouble();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Announce(order) => self.announce(*order),
            Order::Launch(order) => self.launch(*order),
            Order::Stop(job, attempt, stop) => self.stop((job, attempt), stop),
            Order::SetBatch(job, attempt, size) => self.set_batch((job, attempt), size),
            // A job of Slurm keeps the GPUs that Slurm gave it; submissions that say otherwise are refused.
            Order::Resize(..) | Order::Share(..) | Order::Aside(..) => {}
            Order::Forget(job, attempt) => self.forget((job, attempt)),
            Order::Withdraw(job) => self.withdraw(job),
            Order::Drain(node, reason) => self.drain(&node, reason.as_deref()),
        }
    }

    fn work(&mut self, task: Task) {
        match task {
            Task::Obey(order) => self.obey(order),
            Task::ListAttempts(answer) => {
                let _ = answer.send(self.list_attempts());
            }
            Task::Seen(began, result) => self.seen(began, *result),
            Task::End => {}
        }
    }

    /// How long to wait for a task: folders of many attempts are looked at less often.
    fn tick(&self) -> Duration {
        let active = self.runs.values().filter(|run| run.released.is_some()).count() as u32;
        self.options.scan.max(Duration::from_millis(2) * active)
    }

    fn course(&self, (job, attempt): Key) -> Option<&PersistedRun> {
        let entry = self.ledger.entries.get(&job)?;
        entry.attempt.as_ref().filter(|course| course.attempt == attempt)
    }

    fn folder(&self, (job, attempt): Key) -> Folder {
        Folder::new(&self.options.run_dir, job, attempt)
    }

    /// Writes an entry; a disk that takes nothing is told of, and what depends on it is not done.
    fn keep(&mut self, job: JobId) -> bool {
        match self.ledger.keep(job) {
            Ok(()) => {
                self.troubles.remove("ledger");
                true
            }
            Err(error) => {
                let dir = self.options.run_dir.display();
                self.troubles.insert("ledger", format!("nothing can be kept in {dir}: {error}"));
                false
            }
        }
    }

    fn look_soon(&self) {
        let _ = self.wake.send(());
    }
}

/// Looks at Slurm until the worker ended: at each wake, and from time to time.
pub fn looker(calls: &Calls, poll: Duration, woken: &Receiver<()>, tasks: &Sender<Task>) {
    let lookout = Lookout::new(calls);
    let mut back_off = poll;
    loop {
        let began = Instant::now();
        let result = lookout.look();
        let cost = began.elapsed();
        let failed = result.is_err();
        if tasks.send(Task::Seen(began, Box::new(result))).is_err() {
            return;
        }
        // Slurm is not kept busy by us alone, however slow it is.
        let wait = if failed { back_off } else { poll.max(4 * cost) };
        back_off = if failed { (2 * back_off).min(BACK_OFF_MAX) } else { poll };
        match woken.recv_timeout(wait) {
            Ok(()) => std::thread::sleep(LOOK_GAP.max(cost).min(wait)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // All wakes that came meanwhile are answered by the next look.
        while woken.try_recv().is_ok() {}
    }
}
