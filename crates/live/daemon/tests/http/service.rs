//! A service in memory that keeps what it was asked and checks rights as the real one does.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use trainyard_api::answer::{Measured, QueueState};
use trainyard_api::endpoint::types::*;
use trainyard_api::forecast::WhatIfRow;
use trainyard_api::{Code, JobSpec, Problem, SCHEMA_VERSION};
use trainyard_daemon::access::{Caller, Right, Role, check};
use trainyard_daemon::frame::{Alive, BoardView, Frame};
use trainyard_daemon::http::secret;
use trainyard_daemon::metrics::Metrics;
use trainyard_daemon::service::{NewToken, Reply, Service};

#[derive(Default)]
pub struct Memory {
    pub jobs: Vec<(String, JobSpec)>,
    pub keys: BTreeMap<String, Vec<u32>>,
    pub tokens: BTreeMap<String, NewToken>,
    pub refused: Vec<(String, String, String)>,
    pub filters: Vec<JobFilter>,
}

pub struct FakeService {
    pub memory: Mutex<Memory>,
    pub metrics: Arc<Metrics>,
}

/// Seconds of Unix time.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

impl FakeService {
    pub fn new() -> Arc<FakeService> {
        Arc::new(FakeService { memory: Mutex::default(), metrics: Arc::new(Metrics::new()) })
    }

    /// A token of that user and role that ends so many seconds from now.
    pub fn token(&self, user: &str, role: Role, seconds: f64) -> String {
        let token = secret::draw().unwrap();
        let digest = secret::digest(&token);
        let name = format!("{user}-{}-{seconds}", role.name());
        let info = TokenInfo {
            name: name.clone(),
            user: user.to_owned(),
            role,
            created: now(),
            expires: Some(now() + seconds),
        };
        self.memory.lock().unwrap().tokens.insert(name, NewToken { info, digest });
        token
    }

    /// A job of that user.
    pub fn add_job(&self, user: &str) -> u32 {
        let mut memory = self.memory.lock().unwrap();
        memory.jobs.push((user.to_owned(), JobSpec::default()));
        memory.jobs.len() as u32
    }

    fn owner(&self, job: u32) -> Result<String, Problem> {
        let memory = self.memory.lock().unwrap();
        let found = (job as usize).checked_sub(1).and_then(|index| memory.jobs.get(index));
        let unknown = || Problem::new(Code::NotFound, format!("there is no job {job}"));
        found.map(|(user, _)| user.clone()).ok_or_else(unknown)
    }
}

fn row(id: u32, user: &str) -> JobRow {
    JobRow {
        id,
        name: "job".to_owned(),
        user: user.to_owned(),
        tenant: user.to_owned(),
        state: QueueState::Waiting,
        since: 0.0,
        gpus: 1,
        holds: Vec::new(),
        attempt: 0,
        submitted: 0.0,
        started: None,
        ended: None,
        ran_seconds: 0.0,
        progress: None,
        restarts: 0,
        preemptions: 0,
        priority: 0,
        why: String::new(),
        hung: None,
    }
}

fn ready<'a, T: Send + 'a>(said: Result<T, Problem>) -> Reply<'a, T> {
    Box::pin(std::future::ready(said))
}

fn allowed<'a, T: Send + 'a>(
    caller: &Caller,
    right: Right,
    owner: Option<&str>,
    value: impl FnOnce() -> T,
) -> Reply<'a, T> {
    ready(check(caller, right, owner).map(|()| value()))
}

fn expected(job: u32, confidence: f64) -> EtaAnswer {
    EtaAnswer {
        job,
        state: QueueState::Waiting,
        starts: None,
        ends: None,
        confidence,
        basis: String::new(),
    }
}

impl Service for FakeService {
    fn submit(&self, caller: Caller, request: SubmitRequest) -> Reply<'_, Submitted> {
        allowed(&caller, Right::Submit, None, || {
            let mut memory = self.memory.lock().unwrap();
            if let Some(jobs) = request.key.as_ref().and_then(|key| memory.keys.get(key)) {
                return Submitted { jobs: jobs.clone(), repeated: true };
            }
            let first = memory.jobs.len() as u32 + 1;
            let jobs: Vec<u32> = (first..first + request.jobs.len() as u32).collect();
            memory.jobs.extend(request.jobs.into_iter().map(|job| (caller.user.clone(), job)));
            if let Some(key) = request.key {
                memory.keys.insert(key, jobs.clone());
            }
            Submitted { jobs, repeated: false }
        })
    }

    fn plan(&self, caller: Caller, _: SubmitRequest) -> Reply<'_, PlanAnswer> {
        allowed(&caller, Right::Submit, None, || PlanAnswer {
            jobs: Vec::new(),
            basis: "nothing".to_owned(),
        })
    }

    fn act(&self, caller: Caller, job: u32, _: Act) -> Reply<'_, JobRow> {
        match self.owner(job) {
            Ok(owner) => {
                allowed(&caller, Right::RuleJob, Some(&owner.clone()), || row(job, &owner))
            }
            Err(problem) => ready(Err(problem)),
        }
    }

    fn jobs(&self, caller: Caller, filter: JobFilter) -> Reply<'_, Vec<JobRow>> {
        allowed(&caller, Right::Look, None, || {
            let mut memory = self.memory.lock().unwrap();
            let limit = filter.limit.unwrap_or(usize::MAX);
            memory.filters.push(filter);
            let rows = memory.jobs.iter().enumerate().take(limit);
            rows.map(|(index, (user, _))| row(index as u32 + 1, user)).collect()
        })
    }

    fn job(&self, caller: Caller, job: u32) -> Reply<'_, JobDetail> {
        match self.owner(job) {
            Ok(owner) => allowed(&caller, Right::Look, None, || JobDetail {
                row: row(job, &owner),
                spec: JobSpec::default(),
                attempts: Vec::new(),
                report: None,
                measured: Measured::default(),
                pace: Vec::new(),
            }),
            Err(problem) => ready(Err(problem)),
        }
    }

    fn why(&self, caller: Caller, job: u32) -> Reply<'_, WhyAnswer> {
        assert_ne!(job, 666, "a service that stumbles");
        allowed(&caller, Right::Look, None, || WhyAnswer {
            job,
            state: QueueState::Waiting,
            since: 0.0,
            reasons: Vec::new(),
            data: Vec::new(),
            blockers: Vec::new(),
            nearest_change: None,
            not_before: None,
        })
    }

    fn eta(&self, caller: Caller, job: u32, query: EtaQuery) -> Reply<'_, EtaAnswer> {
        let confidence = query.confidence.unwrap_or(0.8);
        allowed(&caller, Right::Look, None, || expected(job, confidence))
    }

    fn etas(&self, caller: Caller, query: EtasQuery) -> Reply<'_, Vec<EtaAnswer>> {
        let (limit, confidence) = (query.limit.unwrap(), query.confidence.unwrap_or(0.8));
        allowed(&caller, Right::Look, None, || {
            (1..=3).map(|job| expected(job, confidence)).take(limit).collect()
        })
    }

    fn whatif(&self, caller: Caller, request: WhatIfRequest) -> Reply<'_, WhatIfAnswer> {
        allowed(&caller, Right::Look, None, || WhatIfAnswer {
            at: 0.0,
            jobs: 0,
            rows: (request.policies.into_iter())
                .map(|policy| WhatIfRow { policy, ..WhatIfRow::default() })
                .collect(),
            basis: String::new(),
            took_seconds: 0.0,
        })
    }

    fn logs(&self, caller: Caller, job: u32, request: LogRequest) -> Reply<'_, LogChunk> {
        match self.owner(job) {
            Ok(owner) => allowed(&caller, Right::LookInside, Some(&owner), || LogChunk {
                text: "x".repeat(request.max.min(10)),
                next: request.from + 10,
                attempt: 1,
                over: true,
            }),
            Err(problem) => ready(Err(problem)),
        }
    }

    fn nodes(&self, caller: Caller) -> Reply<'_, Vec<NodeRow>> {
        allowed(&caller, Right::Look, None, || vec![node("n1")])
    }

    fn gpus(&self, caller: Caller) -> Reply<'_, Vec<GpuUsage>> {
        allowed(&caller, Right::Look, None, || {
            vec![GpuUsage { node: "n1".to_owned(), busy: Some(0.5), ..GpuUsage::default() }]
        })
    }

    fn policies(&self, caller: Caller) -> Reply<'_, Vec<PolicyRow>> {
        allowed(&caller, Right::Look, None, || {
            vec![PolicyRow { name: "fifo".to_owned(), ..PolicyRow::default() }]
        })
    }

    fn node(&self, caller: Caller, name: String, _: NodeAct) -> Reply<'_, NodeRow> {
        allowed(&caller, Right::RuleNodes, None, || node(&name))
    }

    fn windows(&self, caller: Caller) -> Reply<'_, Vec<WindowRow>> {
        allowed(&caller, Right::Look, None, Vec::new)
    }

    fn add_window(&self, caller: Caller, window: WindowRequest) -> Reply<'_, WindowRow> {
        let by = caller.user.clone();
        let state = "planned".to_owned();
        let row = || WindowRow { id: 1, window, by, state, leaving: Vec::new() };
        allowed(&caller, Right::RuleNodes, None, row)
    }

    fn remove_window(&self, caller: Caller, _: u32) -> Reply<'_, ()> {
        allowed(&caller, Right::RuleNodes, None, || ())
    }

    fn pools(&self, caller: Caller) -> Reply<'_, Vec<PoolRow>> {
        allowed(&caller, Right::Look, None, Vec::new)
    }

    fn need_nodes(&self, caller: Caller, name: String, body: PoolRequest) -> Reply<'_, PoolRow> {
        let row = || PoolRow { name, needed: body.needed, ..PoolRow::default() };
        allowed(&caller, Right::RuleNodes, None, row)
    }

    fn fair(&self, caller: Caller) -> Reply<'_, Vec<FairRow>> {
        allowed(&caller, Right::Look, None, Vec::new)
    }

    fn acct(&self, caller: Caller, _: AcctRequest) -> Reply<'_, Vec<AcctRow>> {
        allowed(&caller, Right::Look, None, Vec::new)
    }

    fn events(&self, caller: Caller, query: EventsQuery) -> Reply<'_, Vec<EventRow>> {
        let said = check(&caller, Right::Look, None).map(|()| Vec::new());
        Box::pin(async move {
            tokio::time::sleep(std::time::Duration::from_secs_f64(query.wait)).await;
            said
        })
    }

    fn status(&self, caller: Caller) -> Reply<'_, Status> {
        allowed(&caller, Right::Look, None, || status(&caller))
    }

    fn set_policy(&self, caller: Caller, request: PolicyRequest) -> Reply<'_, Status> {
        let policy = request.policy;
        allowed(&caller, Right::RulePolicy, None, || Status { policy, ..status(&caller) })
    }

    fn try_policy(&self, caller: Caller, request: TrialRequest) -> Reply<'_, Status> {
        let TrialRequest { policy, place, admit, .. } = request;
        self.set_policy(caller, PolicyRequest { policy, place, admit })
    }

    fn end_trial(&self, caller: Caller, _: TrialEnd) -> Reply<'_, Status> {
        allowed(&caller, Right::RulePolicy, None, || status(&caller))
    }

    fn capture(&self, caller: Caller) -> Reply<'_, Vec<u8>> {
        allowed(&caller, Right::RulePolicy, None, || b"{}\n".to_vec())
    }

    fn tokens(&self, caller: Caller) -> Reply<'_, Vec<TokenInfo>> {
        allowed(&caller, Right::RuleStore, None, || {
            let memory = self.memory.lock().unwrap();
            memory.tokens.values().map(|token| token.info.clone()).collect()
        })
    }

    fn add_token(&self, caller: Caller, token: NewToken) -> Reply<'_, TokenInfo> {
        allowed(&caller, Right::RuleStore, None, || {
            let info = token.info.clone();
            self.memory.lock().unwrap().tokens.insert(info.name.clone(), token);
            info
        })
    }

    fn drop_token(&self, caller: Caller, name: String) -> Reply<'_, ()> {
        allowed(&caller, Right::RuleStore, None, || {
            self.memory.lock().unwrap().tokens.remove(&name);
        })
    }

    /// Gives tokens that are over, too: the rim must not rely on it.
    fn whose(&self, digest: String) -> Reply<'_, Option<TokenInfo>> {
        let memory = self.memory.lock().unwrap();
        let found = memory.tokens.values().find(|token| token.digest == digest);
        ready(Ok(found.map(|token| token.info.clone())))
    }

    fn refused(&self, user: String, action: String, target: String) {
        self.memory.lock().unwrap().refused.push((user, action, target));
    }

    fn board(&self, caller: Caller, query: BoardQuery) -> Reply<'_, BoardView> {
        let said = check(&caller, Right::Look, None).map(|()| {
            let mut board = trainyard_daemon::board::Board::new(1);
            let count = self.memory.lock().unwrap().jobs.len() as u32;
            let open = (1..=count).map(|id| row(id, "ann")).collect();
            let shown = trainyard_daemon::board::Shown { open, ..Default::default() };
            board.take(shown);
            let frame = Frame::new(&board, query.since, &Alive::default()).unwrap();
            BoardView { frame: Arc::new(frame), status: status(&caller) }
        });
        Box::pin(async move {
            tokio::time::sleep(std::time::Duration::from_secs_f64(query.wait)).await;
            said
        })
    }

    fn timeline(&self, caller: Caller, _: f64, _: f64) -> Reply<'_, Vec<TimelineRow>> {
        allowed(&caller, Right::Look, None, Vec::new)
    }

    fn metrics(&self) -> Reply<'_, String> {
        ready(Ok(self.metrics.encode()))
    }
}

fn node(name: &str) -> NodeRow {
    NodeRow {
        claimed: Vec::new(),
        name: name.to_owned(),
        gpu_type: "v100".to_owned(),
        gpus: Vec::new(),
        state: "up".to_owned(),
        free: 0,
        cpus: 1,
        memory_mib: 1,
        reason: None,
        ill: Vec::new(),
    }
}

fn status(caller: &Caller) -> Status {
    Status {
        version: "test".to_owned(),
        schema_version: SCHEMA_VERSION,
        policy: "none".to_owned(),
        policy_trouble: None,
        trial: None,
        jobs: BTreeMap::new(),
        gpus: 0,
        gpus_used: 0,
        gpus_lost: 0,
        epoch: 1,
        since: 0.0,
        role: caller.role.name().to_owned(),
        user: caller.user.clone(),
        runs_as_users: false,
        warnings: Vec::new(),
        aside: None,
        stats: Value::Null,
    }
}
