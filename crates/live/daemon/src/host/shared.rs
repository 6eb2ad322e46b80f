//! What other threads see of the host and say to it.

use crate::access::{Caller, Role};
use crate::clock::wall_micros;
use crate::core::{Ask, Said};
use crate::metrics::Metrics;
use crate::policy_worker::PolicyAnswer;
use crate::seen::{DaemonSnapshot, Health};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::{oneshot, watch};
use trainyard_api::Problem;
use trainyard_api::answer::SubmitRequest;
use trainyard_api::token::TokenInfo;
use trainyard_backend::Report;
use trainyard_engine::Engine;
use trainyard_framework::Pipeline;
use trainyard_store::{TokenRow, Write};
use trainyard_types::{End, Job, JobId};

/// A look that is younger than this is shown again, in microseconds.
const FRESH: i64 = 100_000;

/// Jobs that ended are remembered for the forecaster, which learns from them; so many at most.
const ENDED_MAX: usize = 10_000;

/// Why something was not done.
pub enum Refusal {
    /// For good.
    Problem(Problem),
    /// Something else got in between; asked again, it may work.
    Again,
}

/// Jobs as they would be, with the name of the tenant of each, and the moment they would come at.
pub type Drafted = (Vec<(Job, String)>, Arc<DaemonSnapshot>);

/// What is said to the host.
pub enum Message {
    /// A caller asks for a change.
    Ask {
        /// Who.
        caller: Caller,
        /// What.
        ask: Box<Ask>,
        /// The policy that was built, where another one is asked for.
        pipeline: Option<Pipeline>,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<Said, Refusal>>,
    },
    /// The backend says something.
    Report(Report),
    /// The policy has thought.
    PolicyOutcome(PolicyAnswer),
    /// A reader asks for a snapshot.
    Look(oneshot::Sender<Arc<DaemonSnapshot>>),
    /// A caller dry-runs a submission.
    Draft {
        /// Who.
        caller: Caller,
        /// What.
        request: SubmitRequest,
        /// How jobs ended that they wait for.
        ends: BTreeMap<u32, End>,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<Drafted, Problem>>,
    },
    /// The forecast service wants a fork of the engine to simulate forward.
    Fork(oneshot::Sender<Result<Moment, Problem>>),
    /// Something that others have learnt must survive a restart.
    Keep {
        /// Its name among what is kept.
        name: String,
        /// As it is kept.
        value: String,
    },
    /// The end.
    Stop,
}

/// The daemon at one moment, with a fork of its engine.
pub struct Moment {
    /// What there is to see.
    pub seen: Arc<DaemonSnapshot>,
    /// The engine at that moment.
    pub fork: Engine,
}

/// What the host shows.
pub struct Shared {
    seen: RwLock<Option<Arc<DaemonSnapshot>>>,
    turn: AtomicU64,
    health: RwLock<Health>,
    /// Tokens by the digest of their secret.
    tokens: RwLock<BTreeMap<String, TokenInfo>>,
    /// Jobs that ended and that the forecaster has not taken yet.
    ended: Mutex<Vec<JobId>>,
    /// The number of the newest event.
    pub events: watch::Sender<u64>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl Shared {
    pub(super) fn new(health: Health, last_event: u64, metrics: Arc<Metrics>) -> Shared {
        Shared {
            seen: RwLock::default(),
            turn: AtomicU64::new(0),
            health: RwLock::new(health),
            tokens: RwLock::default(),
            ended: Mutex::default(),
            events: watch::Sender::new(last_event),
            metrics,
        }
    }

    /// The newest look, if it is new enough to be shown.
    pub fn fresh(&self) -> Option<Arc<DaemonSnapshot>> {
        let seen = self.latest()?;
        let same = seen.turn == self.turn.load(Ordering::Acquire);
        let age = wall_micros() - seen.wall;
        (same && (0..FRESH).contains(&age)).then_some(seen)
    }

    /// The newest look, however old.
    pub fn latest(&self) -> Option<Arc<DaemonSnapshot>> {
        self.seen.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn set_seen(&self, seen: Arc<DaemonSnapshot>) {
        *self.seen.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(seen);
    }

    /// How many turns were taken.
    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// Jobs that are over since the last call, as far as they are remembered.
    pub fn take_ended(&self) -> Vec<JobId> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub(super) fn note_ended(&self, jobs: impl Iterator<Item = JobId>) {
        let mut ended = self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let room = ENDED_MAX.saturating_sub(ended.len());
        ended.extend(jobs.take(room));
    }

    pub(super) fn set_turn(&self, turn: u64) {
        self.turn.store(turn, Ordering::Release);
    }

    /// How the daemon is.
    pub fn health(&self) -> Health {
        self.health.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn set_health(&self, health: Health) {
        *self.health.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = health;
    }

    /// All tokens, by name.
    pub fn tokens(&self) -> Vec<TokenInfo> {
        let tokens = self.tokens.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut all: Vec<TokenInfo> = tokens.values().cloned().collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The token with that digest, over or not.
    pub fn token(&self, digest: &str) -> Option<TokenInfo> {
        let tokens = self.tokens.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        tokens.get(digest).cloned()
    }

    pub(super) fn set_tokens(&self, rows: &[TokenRow]) {
        let infos = rows.iter().filter_map(|row| {
            // A role that a newer program wrote allows nothing here.
            let role = Role::named(&row.role)?;
            let seconds = |micros: i64| micros as f64 / 1e6;
            let info = TokenInfo {
                name: row.name.clone(),
                user: row.user.clone(),
                role,
                created: seconds(row.created),
                expires: row.expires.map(seconds),
            };
            Some((row.digest.clone(), info))
        });
        let tokens = infos.collect();
        *self.tokens.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = tokens;
    }

    /// Tokens as they are after what was committed.
    pub(super) fn follow_tokens(&self, writes: &[Write]) {
        let concerned =
            |write: &Write| matches!(write, Write::AddToken { .. } | Write::DropToken { .. });
        if !writes.iter().any(concerned) {
            return;
        }
        let mut tokens = self.tokens.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        for write in writes {
            match write {
                Write::AddToken { name, digest, user, role, created, expires } => {
                    let Some(role) = Role::named(role) else { continue };
                    let info = TokenInfo {
                        name: name.clone(),
                        user: user.clone(),
                        role,
                        created: *created as f64 / 1e6,
                        expires: expires.map(|micros| micros as f64 / 1e6),
                    };
                    tokens.insert(digest.clone(), info);
                }
                Write::DropToken { name } => tokens.retain(|_, info| info.name != *name),
                _ => {}
            }
        }
    }
}
