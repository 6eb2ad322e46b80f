//! The loop around the core: one thread that owns the core, the store and the backend.
//!
//! Messages are gathered, the core takes a turn, what it writes is committed, and only then are callers answered and
//! orders carried out. A commit that fails undoes the turn: every caller in it is told, the core is dropped and made
//! anew from the store, and until that works the daemon stays up and says what is wrong.
//!
//! - `shared`: what other threads see and say.
//! - `turns`: one turn after the other.

mod shared;
mod turns;

pub use shared::{Drafted, Message, Moment, Refusal, Shared};

use crate::clock::{Clock, wall_micros};
use crate::core::{Core, CoreOptions, Opening, StartError};
use crate::notify::Notifier;
use crate::policy_worker::{PolicyAnswer, PolicyFactory, PolicyWorker};
use crate::recorder::Recorder;
use crate::seen::{DaemonSnapshot, Health};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use trainyard_backend::{Backend, Found, GpuSeen, NodeSeen};
use trainyard_engine::Stats;
use trainyard_store::{Loaded, Store, StoreError, Write};
use trainyard_types::{Tenants, Time};

/// Jobs that are named in a message.
const NAMED_MAX: usize = 8;

/// How a host is set up.
pub struct HostOptions {
    /// The core; its policy is the one to begin with.
    pub core: CoreOptions,
    /// Tenants that the operator declares.
    pub tenants: Tenants,
    /// Makes policies.
    pub factory: PolicyFactory,
    /// How long a policy may think.
    pub decision_limit: Duration,
    /// Where the flight record is kept.
    pub flight: PathBuf,
    /// Bytes of one file of it.
    pub record_bytes_max: u64,
    /// Whether jobs run as the users who submitted them.
    pub runs_as_users: bool,
    /// Tells ends of jobs, where notifications are set up.
    pub notifier: Option<Notifier>,
}

/// Why a host does not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is in it.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Jobs run that a new store knows nothing of: it is not theirs.
    #[error(
        "{running} attempts run here (of jobs {jobs}), and the store is new and knows none of them; they would be \
         ended: bring back their store with `trainyard store restore`, or, to begin with no jobs, move the folder of \
         attempts away, which ends them"
    )]
    Strangers {
        /// How many run.
        running: usize,
        /// The jobs of the first few.
        jobs: String,
    },
    /// The flight record or a thread.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
}

/// The host while it runs.
pub struct Host {
    options: HostOptions,
    store: Store,
    backend: Box<dyn Backend>,
    clock: Clock,
    core: Option<Core>,
    policy_worker: PolicyWorker,
    recorder: Recorder,
    messages: Receiver<Message>,
    shared: Arc<Shared>,
    /// Changes of the policy that wait until the present one has answered.
    put_off: Vec<Message>,
    /// Turns taken so far.
    turns: u64,
    counted: Stats,
    failing: Option<Failing>,
    /// Nodes as the backend last saw them, and what it cannot do now.
    nodes: BTreeMap<String, NodeSeen>,
    /// GPUs by name as the backend last saw them, with what happened that is not on disk yet.
    gpus: BTreeMap<String, GpuSeen>,
    trouble: Option<String>,
    compact_at: Instant,
    base_at: Instant,
    published_at: Instant,
}

/// The store takes nothing.
struct Failing {
    retry_at: Instant,
    pause: Duration,
}

/// A host on its thread.
pub struct Running {
    /// Where messages go.
    pub messages: Sender<Message>,
    /// What it shows.
    pub shared: Arc<Shared>,
    /// Its flight record.
    pub record: crate::recorder::RecordReader,
    thread: JoinHandle<()>,
}

impl Running {
    /// Ends it: what policies use is written, jobs go on.
    pub fn stop(self) {
        let _ = self.messages.send(Message::Stop);
        if self.thread.join().is_err() {
            tracing::error!(target: "trainyard::host", "the loop has panicked");
        }
    }
}

impl Host {
    /// Makes the core from the store and what the backend finds, and starts the loop.
    pub fn start(
        mut options: HostOptions,
        mut store: Store,
        mut backend: Box<dyn Backend>,
        (messages, queue): (Sender<Message>, Receiver<Message>),
        metrics: Arc<crate::metrics::Metrics>,
    ) -> Result<Running, HostError> {
        options.core.announces = backend.wants_announcements();
        let loaded = store.load()?;
        if !loaded.meta.contains_key("epoch") {
            refuse_strangers(&backend.list_attempts())?;
        }
        let (clock, epoch) = begin_epoch(&mut store, &loaded)?;
        let recorder = Recorder::start(&options.flight, epoch, options.record_bytes_max);
        let recorder = recorder.map_err(|source| HostError::Io {
            what: options.flight.display().to_string(),
            source,
        })?;
        let answers = messages.clone();
        let deliver = Arc::new(move |answer: PolicyAnswer| {
            // The receiver is gone when the daemon ends.
            let _ = answers.send(Message::PolicyOutcome(answer));
        });
        let label = options.core.policy.clone();
        let factory = Arc::clone(&options.factory);
        let policy_worker = PolicyWorker::new(factory, deliver, options.decision_limit, label);
        let health = Health {
            epoch,
            since: wall_micros(),
            runs_as_users: options.runs_as_users,
            backend: backend.warnings(),
            ..Health::default()
        };
        let shared = Arc::new(Shared::new(health, loaded.last_event, metrics));
        let now = Instant::now();
        let mut host = Host {
            options,
            store,
            backend,
            clock,
            core: None,
            policy_worker,
            recorder,
            messages: queue,
            shared: Arc::clone(&shared),
            put_off: Vec::new(),
            turns: 0,
            counted: Stats::default(),
            failing: None,
            nodes: BTreeMap::new(),
            gpus: BTreeMap::new(),
            trouble: None,
            compact_at: now + turns::COMPACT_AFTER,
            base_at: now,
            published_at: now,
        };
        host.open(loaded)?;
        let record = host.recorder.reader();
        let thread = thread::Builder::new().name("host".to_owned()).spawn(move || host.run());
        let thread =
            thread.map_err(|source| HostError::Io { what: "a thread".to_owned(), source })?;
        Ok(Running { messages, shared, record, thread })
    }

    /// Makes the core from what was loaded and deals with its first turn.
    fn open(&mut self, loaded: Loaded) -> Result<(), HostError> {
        self.shared.set_tokens(&loaded.tokens);
        let (at, wall) = (self.clock.now(), wall_micros());
        let found = self.backend.list_attempts();
        let tenants = self.options.tenants.clone();
        let nodes = self.nodes.clone();
        let gpus = self.gpus.values().cloned().collect();
        let opening = Opening { loaded, found, tenants, nodes, gpus, at, wall };
        let (core, turn) = Core::open(self.options.core.clone(), opening)?;
        let label = self.options.core.policy.clone();
        self.policy_worker.begin_anew(label, None);
        self.counted = core.engine().stats().clone();
        self.core = Some(core);
        self.base_at = Instant::now();
        self.commit(&turn.writes)?;
        self.carry_out(turn);
        self.publish();
        Ok(())
    }

    /// While nothing can be written there is no core, and what was shown last may be older than what is on disk. A core
    /// is made to be looked at once: what it would write and order never happens.
    fn show_what_is_kept(&mut self) {
        let (at, wall) = (self.clock.now(), wall_micros());
        let found = self.backend.list_attempts();
        let (tenants, nodes) = (self.options.tenants.clone(), self.nodes.clone());
        let Ok(loaded) = self.store.load() else { return };
        let gpus = self.gpus.values().cloned().collect();
        let opening = Opening { loaded, found, tenants, nodes, gpus, at, wall };
        let options = self.options.core.clone();
        let opened = catch_unwind(AssertUnwindSafe(|| Core::open(options, opening)));
        if let Ok(Ok((core, _))) = opened {
            self.turns += 1;
            self.shared.set_turn(self.turns);
            let seen = DaemonSnapshot::take(&core, self.turns, self.clock.now(), wall_micros());
            self.shared.set_seen(Arc::new(seen));
        }
    }

    /// Updates what clients see.
    fn publish(&mut self) {
        self.published_at = Instant::now();
        let mut health = self.shared.health();
        health.backend = self.backend.warnings();
        health.backend.extend(self.trouble.clone());
        health.record = self.recorder.trouble();
        health.policy = self.policy_worker.trouble().map(str::to_owned);
        self.shared.set_health(health);
        if let Some(core) = &self.core {
            let seen = DaemonSnapshot::take(core, self.turns, self.clock.now(), wall_micros());
            self.shared.set_seen(Arc::new(seen));
        }
    }
}

/// A new store next to attempts that run is a store that was lost: going on would end them all as unknown.
fn refuse_strangers(found: &[Found]) -> Result<(), HostError> {
    let running: Vec<String> = (found.iter())
        .filter_map(|found| match found {
            Found::Running { job, .. } => Some(job.0.to_string()),
            Found::Ended { .. } => None,
        })
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    let shown = running.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    Err(HostError::Strangers { running: running.len(), jobs: shown })
}

/// Counts this start and finds the engine's time. Both are on disk before anything else happens.
fn begin_epoch(store: &mut Store, loaded: &Loaded) -> Result<(Clock, u64), StoreError> {
    let number = |name: &str| loaded.meta.get(name).and_then(|text| text.parse::<i64>().ok());
    let born = number("born").unwrap_or_else(wall_micros);
    let epoch = number("epoch").unwrap_or(0) + 1;
    let last = number("last_at").unwrap_or(0).max(0) as u64;
    let set =
        |name: &str, value: i64| Write::SetMeta { name: name.to_owned(), value: value.to_string() };
    store.commit(&[set("born", born), set("epoch", epoch)])?;
    Ok((Clock::start(born, Time(last)), epoch as u64))
}
