//! The daemon at one moment, for readers: rows are made from it without holding up the loop.
//!
//! - `census`: what one walk over all jobs tells.
//! - `rows`: lists of jobs, nodes and shares.
//! - `windows`: maintenance and reservations, as rows and in words.
//! - `shown`: all of it at once, for the board.
//! - `absent`: what a job could use if it were there.
//! - `outcome`: why a job waits and what would change that.

mod absent;
mod census;
mod outcome;
mod pools;
mod rows;
mod shown;
mod windows;

use crate::core::{Chart, Core, KeptWindow};
use crate::record::Record;
use census::Census;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use trainyard_api::answer::{AsideMemory, Status};
use trainyard_api::trial::TrialRow;
use trainyard_backend::{NodeSeen, SharingSeen};
use trainyard_engine::{Outlook, Stats};
use trainyard_framework::{Live, Snapshot};
use trainyard_types::{GpuAt, IdMap, JobId, NodeId, Time};

pub use outcome::forecast;
pub use rows::{detail_of_ended, row_of_ended};

/// The daemon at one moment.
pub struct DaemonSnapshot {
    /// The turn after which it was taken.
    pub turn: u64,
    /// Unix time in microseconds when it was taken.
    pub wall: i64,
    /// What the engine knows.
    pub snapshot: Snapshot,
    /// Why jobs wait.
    pub outlook: Outlook,
    /// Jobs that are not over.
    pub records: Arc<IdMap<JobId, Arc<Record>>>,
    /// Nodes out of service by an operator, with the reason.
    pub drained: BTreeMap<String, String>,
    /// Maintenance and reservations, by number.
    pub windows: BTreeMap<u32, KeptWindow>,
    /// Nodes that are left alone because they failed too often, and until when.
    pub quarantined: BTreeMap<NodeId, Time>,
    /// Nodes that the owners of their pools have taken back.
    pub reclaimed: BTreeSet<NodeId>,
    /// GPUs that are ill, or were told of as if.
    pub gpus: BTreeMap<GpuAt, Chart>,
    /// Jobs on shared GPUs as their arbiters last told of them.
    pub shared: BTreeMap<JobId, SharingSeen>,
    /// GPUs of nodes that others use.
    pub claimed: BTreeMap<NodeId, u64>,
    /// Nodes as the backend last saw them.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// The policy, as it is shown.
    pub policy: String,
    /// The trial that it is on, if it is.
    pub trial: Option<TrialRow>,
    /// Whether the fallback order stands in for it.
    pub in_backoff: bool,
    /// What the engine counted.
    pub stats: Stats,
    /// The seed of policies, for dry runs.
    pub seed: u64,
    /// How much a policy may spend, for dry runs.
    pub work_max: u64,
    /// The next free id.
    pub next_job: u32,
    census: OnceLock<Census>,
}

/// What is known of the daemon beside its core.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// How often it has started on this store.
    pub epoch: u64,
    /// Since when it runs, in microseconds of Unix time.
    pub since: i64,
    /// Whether jobs run as the users who submitted them.
    pub runs_as_users: bool,
    /// What the backend has to say.
    pub backend: Vec<String>,
    /// Why nothing can be written, if so.
    pub store: Option<String>,
    /// Since when, in microseconds of Unix time.
    pub store_since: Option<i64>,
    /// Why nothing is recorded, if so.
    pub record: Option<String>,
    /// Why the policy does not answer, if so.
    pub policy: Option<String>,
}

impl DaemonSnapshot {
    /// Takes a look.
    pub fn take(core: &Core, turn: u64, now: Time, wall: i64) -> DaemonSnapshot {
        let engine = core.engine();
        let nodes = core.options.cluster.nodes.iter();
        let quarantined =
            nodes.filter_map(|node| Some((node.id, engine.quarantined_until(node.id)?)));
        let nodes = core.options.cluster.nodes.iter().map(|node| node.id);
        let reclaimed = nodes.clone().filter(|node| engine.is_reclaimed(*node)).collect();
        let claimed = nodes.map(|id| (id, engine.claimed(id))).filter(|(_, mask)| *mask != 0);
        DaemonSnapshot {
            claimed: claimed.collect(),
            reclaimed,
            gpus: core.gpus.clone(),
            shared: core.shared.clone(),
            nodes: core.nodes.clone(),
            turn,
            wall,
            snapshot: Snapshot { now, ..engine.snapshot() },
            outlook: engine.outlook(),
            records: Arc::clone(&core.records),
            drained: core.drained.clone(),
            windows: core.windows.all.clone(),
            quarantined: quarantined.collect(),
            policy: core.options.policy.clone(),
            trial: core.trial.as_ref().map(|trial| trial.row(now, wall)),
            in_backoff: engine.in_backoff(now),
            stats: engine.stats().clone(),
            seed: core.options.setup.seed,
            work_max: core.options.setup.work_max,
            next_job: core.next_job,
            census: OnceLock::new(),
        }
    }

    /// What there is to say while nothing can be written.
    fn store_warning(&self, health: &Health) -> Option<String> {
        let why = health.store.as_ref()?;
        let since = time_of_day(health.store_since.unwrap_or(self.wall));
        Some(format!(
            "since {since} {why}; nothing new is accepted, jobs that run go on, and what is shown is as of {}",
            time_of_day(self.wall)
        ))
    }

    /// What one walk over all jobs tells; made when it is first asked for.
    pub(crate) fn census(&self) -> &Census {
        self.census.get_or_init(|| Census::new(&self.snapshot.state))
    }

    /// Jobs that hold GPUs.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Live> {
        self.census().holders.iter().filter_map(|job| self.snapshot.state.live(*job))
    }

    /// An engine's moment in seconds of Unix time.
    pub fn unix(&self, at: Time) -> f64 {
        (self.wall as f64 + at.0 as f64 - self.snapshot.now.0 as f64) / 1e6
    }

    /// The daemon as a whole.
    pub fn status(&self, health: &Health, user: &str, role: &str) -> Status {
        let jobs = self.census().phases().map(|(name, count)| (name.to_owned(), count)).collect();
        let state = &self.snapshot.state;
        let mut held = vec![0u64; state.cluster.nodes.len()];
        for live in self.holders() {
            for (node, mask) in live.state.held.iter().flat_map(|held| held.placement.masks()) {
                held[node.index()] |= mask;
            }
        }
        let used = held.iter().map(|mask| mask.count_ones()).sum();
        let up = state.cluster.nodes.iter().map(|node| self.snapshot.free.up(node.id).count_ones());
        let lost = state.cluster.gpus() - up.sum::<u32>();
        let failing = self.in_backoff.then(|| {
            "it failed too often; the fallback order decides until it is asked again".to_owned()
        });
        let mut warnings = health.backend.clone();
        warnings.extend(self.store_warning(health));
        warnings.extend(health.record.clone());
        let aside = &state.aside;
        let memory = aside.rule.map(|rule| AsideMemory {
            memory_mib: rule.memory_mib,
            used_mib: aside.taken.values().map(|(_, memory)| *memory).sum(),
            jobs: aside.taken.len() as u32,
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema_version: trainyard_api::SCHEMA_VERSION,
            policy: self.policy.clone(),
            policy_trouble: health.policy.clone().or(failing),
            trial: self.trial.clone(),
            jobs,
            gpus: state.cluster.gpus(),
            gpus_used: used,
            gpus_lost: lost,
            epoch: health.epoch,
            since: health.since as f64 / 1e6,
            role: role.to_owned(),
            user: user.to_owned(),
            runs_as_users: health.runs_as_users,
            warnings,
            aside: memory,
            stats: serde_json::to_value(&self.stats).unwrap_or_default(),
        }
    }
}

/// The time of day of a moment in microseconds of Unix time, such as `14:03:22 UTC`.
fn time_of_day(wall: i64) -> String {
    let seconds = wall.div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
