//! From the store to a core: jobs as they were kept, attempts as the backend finds them.

use super::described;
use super::gpus::Chart;
use super::names::{self, KIN_FROM};
use super::{Core, CoreOptions, KeptPools, KeptWindows, Order, Trial, Turn};
use crate::flight::{Base, FLIGHT_VERSION, Line};
use crate::learn::Learnt;
use crate::readable::{Fault, as_json};
use crate::record::{Packer, PersistedRun, Record, Submission};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use trainyard_backend::{Exit, Found, GpuSeen, NodeSeen, StopOrder};
use trainyard_engine::{Engine, SavedState};
use trainyard_framework::{Beliefs, Usage};
use trainyard_profile::{Catalog, Speeds};
use trainyard_store::{JobRow, Loaded};
use trainyard_types::{
    Attempt, Cluster, End, Event, IdMap, Job, JobId, NodeId, Phase, Span, Tenants, Time,
};

/// What a core is made from.
pub struct Opening {
    /// What the store holds.
    pub loaded: Loaded,
    /// What the backend knows.
    pub found: Vec<Found>,
    /// Tenants that the operator declares, with weights and ceilings.
    pub tenants: Tenants,
    /// Nodes as the backend has seen them so far.
    pub nodes: BTreeMap<String, NodeSeen>,
    /// GPUs as the backend has seen them so far, with what happened that is not on disk.
    pub gpus: Vec<GpuSeen>,
    /// Engine time.
    pub at: Time,
    /// Unix time in microseconds.
    pub wall: i64,
}

/// Why no core can be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A row cannot be read.
    #[error(
        "the store's row `{row}` cannot be read: {problem}; `trainyard upgrade-check` names all such rows"
    )]
    Row {
        /// Which.
        row: String,
        /// Why.
        problem: String,
    },
    /// The machine has become smaller under jobs that run.
    #[error(
        "job {job} still holds GPUs that this machine no longer declares: start with the GPUs as they were, drain, and change them when it has stopped"
    )]
    Smaller {
        /// Which.
        job: u32,
    },
    /// A job names a GPU type or model that is not here any more.
    #[error(
        "job {job} asks for `{name}`, which is not known any more: bring it back or cancel the job first"
    )]
    Unknown {
        /// Which.
        job: u32,
        /// What.
        name: String,
    },
}

/// Beliefs for a machine from profiles and what was learnt.
pub fn beliefs(catalog: &Catalog, cluster: &Cluster, learnt: Option<&str>) -> Arc<dyn Beliefs> {
    let speeds = Speeds::new(catalog, cluster);
    Arc::new(Learnt::new(Arc::new(speeds), KIN_FROM as usize, learnt))
}

impl Core {
    /// A core from what was kept. The turn that comes with it is to be dealt with like any other.
    pub fn open(options: CoreOptions, opening: Opening) -> Result<(Core, Turn), StartError> {
        let Opening { loaded, found, tenants, nodes, gpus, at, wall } = opening;
        let Loaded { jobs, meta: kept, next_job, tokens, .. } = loaded;
        let meta = Meta(&kept);
        let tenants = merged(meta.read("tenants")?.unwrap_or_default(), tenants);
        let usage: Vec<Usage> = meta.read("usage")?.unwrap_or_default();
        let drained: BTreeMap<String, String> = meta.read("drained")?.unwrap_or_default();
        let charts = meta.read("gpus")?.unwrap_or_default();
        let trial = meta.trial(&options.policy)?;
        let tenant_ids: HashMap<_, _> =
            tenants.iter().map(|(id, tenant)| (tenant.name.clone(), id)).collect();
        let numbered: Vec<String> = meta.read("kin")?.unwrap_or_default();
        let learnt = kept.get("learnt").map(|text| names::by_name(text, &numbered));
        let beliefs = beliefs(&options.catalog, &options.cluster, learnt.as_deref());
        let cluster = Arc::clone(&options.cluster);
        let mut core = Core {
            engine: Engine::new(cluster, tenants, beliefs, options.setup),
            options,
            records: Arc::default(),
            // People count from one.
            next_job: next_job.max(1),
            packer: Packer::new(),
            open_of: BTreeMap::new(),
            tenant_ids,
            has_new_tenants: false,
            keys: HashMap::new(),
            key_order: VecDeque::new(),
            ends: BTreeMap::new(),
            arrays: BTreeMap::new(),
            drained,
            windows: meta.windows(wall)?,
            pools: meta.read("pools")?.unwrap_or_default(),
            nodes: BTreeMap::new(),
            gpus: BTreeMap::new(),
            shared: BTreeMap::new(),
            hang_looks: BTreeSet::new(),
            tokens: tokens.into_iter().map(|token| token.name).collect(),
            trial,
            lately: super::trial::Lately::default(),
            request: None,
            kept_at: at,
            is_unkept: false,
            added: BTreeMap::new(),
            wall,
            now: at,
            called_at: at,
            turn: Turn::default(),
        };
        core.restore(jobs, &usage)?;
        if !numbered.is_empty() {
            core.meta("kin", &serde_json::json!([]));
            core.keep_all();
        }
        core.restore_gpus(charts);
        core.rebuild_arrays();
        core.watch_again();
        let base = core.base();
        core.turn.lines.push(base);
        let mut found: BTreeMap<(JobId, Attempt), Found> =
            found.into_iter().map(|found| (key_of(&found), found)).collect();
        for (node, seen) in nodes {
            core.node_seen(&node, seen);
        }
        gpus.iter().for_each(|seen| core.gpu_seen(seen));
        core.settle(&mut found);
        core.announce_all();
        let turn = core.turn(at, wall, Vec::new());
        Ok((core, turn))
    }

    /// The first line of a flight record: the engine as it is now. Only of use while no request is out.
    pub fn base(&self) -> Line {
        let state = self.engine.state();
        let jobs: Vec<(Arc<Job>, SavedState)> = (self.records.keys())
            .filter_map(|job| Some((Arc::clone(&state.live(job)?.spec), self.engine.kept(job)?)))
            .collect();
        let ends = satisfied(jobs.iter().map(|(job, _)| job.as_ref()), &self.records);
        Line::Base(Box::new(Base {
            version: FLIGHT_VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            at: self.now,
            wall: self.wall,
            cluster: self.options.cluster.as_ref().clone(),
            tenants: state.tenants.clone(),
            setup: self.options.setup,
            policy: self.options.policy.clone(),
            half_life: self.options.half_life,
            jobs,
            ends,
            usage: self.engine.usage().to_vec(),
            learnt: self.engine.beliefs().kept(),
            drained: self.drained_nodes(),
            quarantined: self.ill_gpus(),
            windows: self.engine.windows().iter().cloned().collect(),
            loans: self.loans(),
            reclaimed: self.reclaimed_nodes(),
        }))
    }

    fn drained_nodes(&self) -> Vec<NodeId> {
        self.drained.keys().filter_map(|name| self.node(name).ok()).collect()
    }

    fn restore(&mut self, rows: Vec<JobRow>, usage: &[Usage]) -> Result<(), StartError> {
        let mut jobs: Vec<(Arc<Job>, SavedState)> = Vec::with_capacity(rows.len());
        let mut records = IdMap::default();
        let mut is_described = false;
        // Row by row, so that the texts and what is made of them are never there all at once.
        for row in rows {
            let unreadable = |fault: serde_json::Error| StartError::Row {
                row: format!("job {}", row.job),
                problem: fault.to_string(),
            };
            let mut submission: Submission = serde_json::from_str(&row.spec).map_err(unreadable)?;
            let mut course: PersistedRun = serde_json::from_str(&row.state).map_err(unreadable)?;
            let models = submission.spec.model.as_deref().into_iter();
            is_described |= described::resolve_all(&mut self.options.catalog, models);
            self.bring_up_to_date(&mut submission)?;
            course.kept.state.planned = None;
            let kept = course.kept.clone();
            let submission = Arc::new(self.packer.brief(submission));
            let record = Record::from_course(Arc::clone(&submission), course);
            jobs.push((Arc::clone(&submission.job), kept));
            *self.open_of.entry(submission.user.clone()).or_default() += 1;
            records.insert(JobId(row.job), Arc::new(record));
        }
        let ends = satisfied(jobs.iter().map(|(job, _)| job.as_ref()), &records);
        self.check_held(&jobs)?;
        self.records = Arc::new(records);
        if is_described {
            self.believe_anew();
        }
        self.engine.restore(self.now, jobs, &ends, usage);
        for node in self.drained_nodes() {
            self.engine.apply(self.now, Event::NodeDrained(node));
        }
        for window in self.engine_windows() {
            self.engine.apply(self.now, Event::WindowSet(window));
        }
        let reclaimed = self.reclaimed_nodes();
        self.engine.restore_reclaimed(&reclaimed);
        for (pool, needed) in self.loans() {
            self.engine.apply(self.now, Event::Needed(pool, needed));
        }
        Ok(())
    }

    /// Ids of tenants, types and models may have changed since; names have not.
    fn bring_up_to_date(&self, submission: &mut Submission) -> Result<(), StartError> {
        let id = submission.job.id.0;
        let unknown = |name: &str| StartError::Unknown { job: id, name: name.to_owned() };
        let job = Arc::make_mut(&mut submission.job);
        let tenant = self.tenant_ids.get(&submission.tenant);
        job.tenant = *tenant.ok_or_else(|| unknown(&submission.tenant))?;
        if let Some(name) = &submission.spec.model {
            job.model = self.options.catalog.find(name).ok_or_else(|| unknown(name))?;
        } else {
            job.model = names::id(&submission.spec.name);
        }
        job.grace = Span::from_secs_f64(submission.spec.checkpoint.grace_seconds.max(0.0));
        job.want.kinds.clear();
        for name in &submission.spec.gpu_types {
            let kind = self.options.cluster.kind(name).ok_or_else(|| unknown(name))?;
            job.want.kinds.push(kind);
        }
        Ok(())
    }

    fn check_held(&self, jobs: &[(Arc<Job>, SavedState)]) -> Result<(), StartError> {
        let cluster = &self.options.cluster;
        for (job, kept) in jobs {
            let masks = kept.state.held.iter().flat_map(|held| held.placement.masks());
            let mut masks = masks.into_iter();
            let there = masks.all(|(node, mask)| {
                let node = cluster.nodes.get(node.index());
                node.is_some_and(|node| mask & !node.mask() == 0)
            });
            if !there {
                return Err(StartError::Smaller { job: job.id.0 });
            }
        }
        Ok(())
    }

    /// Compares what was kept with what the backend found, and puts right what differs.
    fn settle(&mut self, found: &mut BTreeMap<(JobId, Attempt), Found>) {
        let placed: Vec<(JobId, Attempt, Phase)> = (self.records.keys())
            .filter_map(|job| self.engine.state().live(job))
            .filter(|live| live.state.is_placed() || live.state.phase == Phase::Suspended)
            .map(|live| (live.spec.id, live.state.attempt, live.state.phase))
            .collect();
        for (job, attempt, phase) in placed {
            match found.remove(&(job, attempt)) {
                Some(Found::Running { started, .. }) => {
                    if started {
                        self.started(job, attempt);
                    }
                    let goes = phase == Phase::Saving && !self.engine.is_suspending(job);
                    if goes || self.engine.is_discarding(job) {
                        self.stop_again(job, attempt);
                    }
                    self.aside_again(job, attempt);
                    self.resize_again(job, attempt);
                    self.share_again(job, attempt);
                }
                Some(Found::Ended { exit, .. }) => self.attempt_ended(job, attempt, exit),
                None => self.not_found(job, attempt, phase),
            }
        }
        // What no placed job has: ends that are on disk already, and attempts that must not run.
        for ((job, attempt), found) in std::mem::take(found) {
            match found {
                Found::Ended { .. } => self.turn.orders.push(Order::Forget(job, attempt)),
                Found::Running { .. } => {
                    let why = "no job of the daemon has this attempt".to_owned();
                    let order = StopOrder { grace_seconds: 0.0, why };
                    self.turn.orders.push(Order::Stop(job, attempt, order));
                }
            }
        }
    }

    /// The backend knows nothing of an attempt: it never got the order, or the machine was started anew.
    fn not_found(&mut self, job: JobId, attempt: Attempt, phase: Phase) {
        let Some(record) = self.records.get(&job).map(Arc::clone) else { return };
        let same_boot = record
            .launch
            .as_ref()
            .is_some_and(|launch| launch.attempt == attempt && launch.boot == self.options.boot);
        let held = self.engine.state().live(job).and_then(|live| live.state.held.clone());
        let coming_back = self.is_coming_back(job);
        if let (Phase::Starting, true, Some(held), false) = (phase, same_boot, held, coming_back) {
            let order = self.launch_order(&record, attempt, &held);
            self.turn.orders.push(Order::Launch(Box::new(order)));
        } else {
            self.attempt_ended(job, attempt, Exit { lost: true, ..Exit::default() });
        }
    }

    fn stop_again(&mut self, job: JobId, attempt: Attempt) {
        let Some(record) = self.records.get(&job) else { return };
        let at_once = self.engine.is_discarding(job);
        let grace_seconds = if at_once { 0.0 } else { record.submission.grace_seconds };
        let order = StopOrder { grace_seconds, why: "the daemon was started anew".to_owned() };
        self.turn.orders.push(Order::Stop(job, attempt, order));
    }
}

/// Jobs that others name and that are not open have finished: had they not, those others would be over too.
fn satisfied<'a>(
    jobs: impl Iterator<Item = &'a Job>,
    open: &IdMap<JobId, Arc<Record>>,
) -> Vec<(JobId, End)> {
    let named = jobs.flat_map(|job| job.after.iter().copied());
    let mut all: Vec<JobId> = named.filter(|job| !open.contains_key(job)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|job| (job, End::Finished)).collect()
}

/// Tenants as they were, with what the operator declares now.
fn merged(mut kept: Tenants, declared: Tenants) -> Tenants {
    for (_, tenant) in declared.iter() {
        let parent = tenant.parent.map(|id| declared.get(id).name.clone());
        let parent = parent.and_then(|name| kept.find(&name));
        match kept.find(&tenant.name) {
            Some(id) => {
                kept.set_ceiling(id, tenant.ceiling);
                kept.set_weight(id, tenant.weight);
                kept.set_shares_gpus(id, tenant.shares_gpus);
            }
            None => {
                kept.insert(trainyard_types::Tenant { parent, ..tenant.clone() });
            }
        }
    }
    kept
}

fn key_of(found: &Found) -> (JobId, Attempt) {
    match found {
        Found::Running { job, attempt, .. } | Found::Ended { job, attempt, .. } => (*job, *attempt),
    }
}

/// Whether a named value can be read as it is when a daemon starts; names that are not read then are taken as they are.
pub(crate) fn check_meta(name: &str, text: &str) -> Result<(), Fault> {
    match name {
        "tenants" => as_json::<Tenants>(text),
        "usage" => as_json::<Vec<Usage>>(text),
        "drained" => as_json::<BTreeMap<String, String>>(text),
        "gpus" => as_json::<Vec<Chart>>(text),
        "pools" => as_json::<KeptPools>(text),
        "windows" => as_json::<KeptWindows>(text),
        "trial" => as_json::<Option<Trial>>(text),
        "kin" => as_json::<Vec<String>>(text),
        "policy" => as_json::<String>(text),
        "born" | "epoch" | "last_at" => as_json::<i64>(text),
        _ => Ok(()),
    }
}

struct Meta<'a>(&'a BTreeMap<String, String>);

impl Meta<'_> {
    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StartError> {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        let value = serde_json::from_str(text).map_err(|fault| StartError::Row {
            row: format!("meta {name}"),
            problem: fault.to_string(),
        })?;
        Ok(Some(value))
    }

    /// Windows that are not over.
    fn windows(&self, wall: i64) -> Result<KeptWindows, StartError> {
        let mut windows: KeptWindows = self.read("windows")?.unwrap_or_default();
        windows.all.retain(|_, kept| kept.window.until * 1e6 > wall as f64);
        Ok(windows)
    }

    /// The trial that goes on. A policy that was chosen by hand at the start ends it.
    fn trial(&self, policy: &str) -> Result<Option<Trial>, StartError> {
        let trial: Option<Trial> = self.read::<Option<Trial>>("trial")?.flatten();
        Ok(trial.filter(|trial| trial.policy == policy))
    }
}
