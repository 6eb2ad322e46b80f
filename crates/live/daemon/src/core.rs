//! The durable core: the engine with its records, as a state machine without input or output.
//!
//! A turn takes what came in and says, in this order, what must be on disk ([`Turn::writes`]), what may then be
//! answered ([`Turn::replies`]) and what may then be done ([`Turn::orders`]). The host that drives it keeps that order;
//! if the writes fail, the turn is as if it had never been: the core is dropped and made anew from the store.
//!
//! - `submit`: from a submission to a job.
//! - `surroundings`: the image, virtual environment and copy of code that a job runs in.
//! - `acts`: what users and operators do.
//! - `reports`: what comes back from the backend.
//! - `names`: the ids of names without a profile.
//! - `nodes`: what the backend sees of nodes.
//! - `gpus`: GPUs that are ill.
//! - `hangs`: jobs that make no progress any more.
//! - `trial`: a policy that goes by itself.
//! - `windows`: maintenance and reservations.
//! - `obey`: from the engine's actions to orders.
//! - `aside`: jobs that are put aside in host memory.
//! - `resizing`: jobs that change their GPUs while they run.
//! - `open`: from the store to a core.

mod acts;
mod aside;
mod described;
mod ending;
mod gpus;
mod hangs;
mod names;
mod nodes;
mod obey;
mod open;
mod pools;
mod reports;
mod resizing;
mod shape;
mod sharing;
mod submit;
mod surroundings;
mod trial;
mod windows;

pub use gpus::{Chart, Illness};
pub(crate) use obey::holds;
pub(crate) use open::check_meta;
pub use open::{Opening, StartError, beliefs};
pub use pools::KeptPools;
pub use submit::{JOBS_MAX, OPEN_PER_USER_MAX};
pub use trial::{Trial, TrialAsked};
pub use windows::{KeptWindow, KeptWindows};

use crate::access::{Caller, Rules};
use crate::flight::Line;
use crate::hang::Rule;
use crate::notify::{Notice, NotifyRules};
use crate::record::{Packer, PersistedRun, Record};
use crate::service::NewToken;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use trainyard_api::answer::{SubmitRequest, Submitted};
use trainyard_api::request::{Act, NodeAct};
use trainyard_api::trial::Measure;
use trainyard_api::window::WindowRequest;
use trainyard_api::{Code, Problem};
use trainyard_backend::{Identity, NodeSeen, Order, Report, SharingSeen};
use trainyard_engine::{DecisionRequest, Engine, PolicyOutcome, Setup};
use trainyard_profile::Catalog;
use trainyard_store::Write;
use trainyard_types::{Cluster, End, Event, GpuAt, IdMap, JobId, Span, Time, Why};

/// How many client keys and ends are remembered beside the store.
const REMEMBERED_MAX: usize = 100_000;
/// How often what is only of use to policies is written down.
const KEEP_EVERY: Span = Span::secs(5);
/// How many overdue moments are caught up with in one turn.
const CATCH_UP_MAX: u32 = 1000;

/// How a core is set up.
#[derive(Clone)]
pub struct CoreOptions {
    /// The machine, as nodes of one GPU type each.
    pub cluster: Arc<Cluster>,
    /// For each node the GPUs of the machine that are its own: index, and what a process is told.
    pub devices: Vec<Vec<(u8, String)>>,
    /// Profiles.
    pub catalog: Arc<Catalog>,
    /// The engine's settings.
    pub setup: Setup,
    /// The policy, as it is shown.
    pub policy: String,
    /// The half-life of use that the policy names.
    pub half_life: Span,
    /// This start of the machine.
    pub boot: String,
    /// What an attempt may use at most.
    pub processes_max: u32,
    /// Bytes of log kept for each process.
    pub log_bytes_max: u64,
    /// Whether the backend is told of jobs that wait.
    pub announces: bool,
    /// How far the submissions of each role may go.
    pub rules: Rules,
    /// Jobs that one user may have waiting and running at once.
    pub open_per_user_max: usize,
    /// After how long in quarantine a GPU with which nothing is wrong any more returns by itself, if it does.
    pub gpu_return_after: Option<Span>,
    /// From when on a job hangs that says nothing of it itself.
    pub hang: Rule,
    /// Whom jobs may have told when they have ended.
    pub notify: Arc<NotifyRules>,
}

/// Something that came in.
pub enum Input {
    /// A caller asks.
    Ask {
        /// Where the answer goes.
        ticket: u64,
        /// Who.
        caller: Caller,
        /// What.
        ask: Ask,
    },
    /// The backend says something.
    Report(Report),
    /// The policy has an answer to the request that is out.
    Outcome(PolicyOutcome),
}

/// What can be asked that changes something.
pub enum Ask {
    /// Takes jobs on.
    Submit {
        /// The jobs.
        request: SubmitRequest,
        /// Who they run as.
        identity: Option<Identity>,
        /// What the store knows of the key: digest of the request and answer.
        known: Option<(String, String)>,
        /// How jobs ended that they wait for, as far as the store knows.
        ends: BTreeMap<u32, End>,
    },
    /// Does something to a job.
    Act {
        /// The job.
        job: u32,
        /// What.
        act: Act,
    },
    /// Does something to a node.
    Node {
        /// Its name.
        node: String,
        /// What.
        act: NodeAct,
    },
    /// Declares a maintenance window or a reservation.
    AddWindow(WindowRequest),
    /// Takes one back.
    RemoveWindow(u32),
    /// The owner of a pool needs so many of its nodes.
    NeedNodes {
        /// The pool's name.
        pool: String,
        /// How many.
        needed: u32,
    },
    /// Another policy decides from now on; the caller has built it.
    SetPolicy {
        /// As it is shown.
        label: String,
        /// The half-life it names.
        half_life: Span,
    },
    /// The same for a while; the one before comes back by itself.
    TryPolicy(TrialAsked),
    /// Ends a trial before its time, and keeps its policy or goes back.
    EndTrial {
        /// Whether the policy on trial stays.
        keep: bool,
    },
    /// Takes a token on.
    AddToken(NewToken),
    /// Drops a token.
    DropToken(String),
    /// Something was refused.
    Refused {
        /// What.
        action: String,
        /// On what.
        target: String,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Jobs were taken on.
    Submitted(Submitted),
    /// A window was declared, under this number.
    Window(u32),
    /// It is done.
    Done,
}

/// What comes of a turn, in the order in which it must be dealt with.
#[derive(Default)]
pub struct Turn {
    /// First this must be on disk, whole.
    pub writes: Vec<Write>,
    /// Then these are answered.
    pub replies: Vec<(u64, Result<Said, Problem>)>,
    /// And these the backend obeys.
    pub orders: Vec<Order>,
    /// The flight record of the turn.
    pub lines: Vec<Line>,
    /// The policy that came back by itself, with the half-life it names; it is asked from now on.
    pub policy: Option<(String, Span)>,
    /// What the policy is asked now.
    pub request: Option<DecisionRequest>,
    /// Ends of jobs that are to be told.
    pub notices: Vec<Notice>,
    /// Jobs that ended, for the metrics and the forecaster.
    pub ended: Vec<(JobId, End)>,
    /// Attempts that were ordered to start, with how long their jobs had waited.
    pub launched: Vec<(JobId, Span)>,
    /// Why attempts were ordered to stop.
    pub stops: Vec<Why>,
    /// How many attempts failed by their own fault.
    pub failed: u64,
    /// How many GPUs were put into quarantine.
    pub quarantined: u64,
    /// How many jobs were said to hang.
    pub hung: u64,
}

/// The core. See the module's documentation.
pub struct Core {
    pub(crate) options: CoreOptions,
    pub(crate) engine: Engine,
    /// Jobs that have not ended, shared with readers.
    pub(crate) records: Arc<IdMap<JobId, Arc<Record>>>,
    pub(crate) next_job: u32,
    packer: Packer,
    /// How many jobs that have not ended each user has.
    open_of: BTreeMap<String, usize>,
    tenant_ids: HashMap<String, trainyard_types::TenantId>,
    /// Whether this turn made tenants: all are written once, at its end.
    has_new_tenants: bool,
    /// Keys used since the start, oldest first.
    keys: HashMap<(String, String), (String, String)>,
    key_order: VecDeque<(String, String)>,
    /// How jobs ended since the start.
    ends: BTreeMap<JobId, End>,
    /// Jobs of arrays that wait because enough of them run, and how many run.
    pub(crate) arrays: BTreeMap<JobId, ArrayState>,
    /// Nodes out of service by an operator, with the reason.
    pub(crate) drained: BTreeMap<String, String>,
    /// Maintenance and reservations, by number.
    pub(crate) windows: KeptWindows,
    /// What owners of pools need and have.
    pools: KeptPools,
    /// Nodes as the backend last saw them.
    pub(crate) nodes: BTreeMap<String, NodeSeen>,
    /// GPUs that are ill, or were told of as if.
    pub(crate) gpus: BTreeMap<GpuAt, Chart>,
    /// Jobs on shared GPUs as their arbiters last told of them.
    pub(crate) shared: BTreeMap<JobId, SharingSeen>,
    /// When which job is looked at, whether it hangs.
    hang_looks: BTreeSet<(Time, JobId)>,
    /// Names of tokens that are good or have run out.
    tokens: BTreeSet<String>,
    /// The policy on trial.
    pub(crate) trial: Option<Trial>,
    /// What happened lately, to compare a trial with.
    lately: trial::Lately,
    request: Option<DecisionRequest>,
    kept_at: Time,
    /// Whether something was written since: what policies use is written then too, at the latest after `KEEP_EVERY`.
    is_unkept: bool,
    /// Rows of jobs that this turn took on, among its writes; their states are put in at its end.
    added: BTreeMap<JobId, usize>,
    pub(crate) wall: i64,
    pub(crate) now: Time,
    /// The moment of the turn: what is done before it has caught up goes by it.
    called_at: Time,
    turn: Turn,
}

/// An array with a limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArrayState {
    /// How many may be in the queue or run at once.
    pub at_once: u32,
    /// How many do.
    pub active: u32,
    /// The rest, in order.
    pub waiting: VecDeque<JobId>,
}

impl Core {
    /// Takes a turn at engine time `at` and Unix time `wall` in microseconds.
    ///
    /// A new policy counts first: the request that a turn asks is for the policy in force after it, and one that was
    /// out before is answered by the policy that was asked.
    pub fn turn(&mut self, at: Time, wall: i64, inputs: Vec<Input>) -> Turn {
        self.wall = wall;
        self.called_at = at.max(self.engine.state().now);
        let sets_policy = |input: &Input| {
            matches!(input, Input::Ask { ask: Ask::SetPolicy { .. } | Ask::TryPolicy(_), .. })
        };
        let (first, mut rest): (Vec<Input>, Vec<Input>) = inputs.into_iter().partition(sets_policy);
        // An ill GPU counts before a decision of the same turn launches on it.
        rest.sort_by_key(|input| !matches!(input, Input::Report(Report::Gpu(_))));
        self.take(first);
        for _ in 0..CATCH_UP_MAX {
            match self.engine.due() {
                Some(due) if due < at => self.moment(due),
                _ => break,
            }
        }
        self.now = at.max(self.engine.state().now);
        self.take(rest);
        self.return_gpus();
        self.look_for_hangs();
        self.settle_trial();
        self.moment(self.now);
        self.note_reclaimed();
        self.measure();
        self.keep();
        std::mem::take(&mut self.turn)
    }

    fn take(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            match input {
                Input::Ask { ticket, caller, ask } => {
                    let answer = self.ask(&caller, ask);
                    self.turn.replies.push((ticket, answer));
                }
                Input::Report(report) => self.report(report),
                Input::Outcome(outcome) => self.concluded(outcome),
            }
        }
    }

    /// When a turn is due though nothing comes in.
    pub fn due(&self) -> Option<Time> {
        let keep = self.is_unkept.then(|| self.kept_at + KEEP_EVERY);
        // While a request is out its answer is waited for, and the turn that takes it ends the trial.
        let trial = self.trial_due().filter(|_| self.request.is_none());
        let own = self.gpu_due().into_iter().chain(self.hang_due()).chain(trial);
        self.engine.due().into_iter().chain(keep).chain(own).min()
    }

    /// The engine, to be looked at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Fires what is due, and asks the policy if it must be asked.
    fn moment(&mut self, at: Time) {
        self.now = at.max(self.engine.state().now);
        let request = self.engine.request(self.now, self.options.half_life);
        self.turn.lines.push(Line::Request { at: self.now });
        if let Some(request) = request {
            self.request = Some(request.clone());
            self.turn.request = Some(request);
        }
        // What is planned is done while the policy thinks, and what the fallback order decided in its place.
        self.tick();
    }

    /// Takes down what the turn did, to compare a trial with.
    fn measure(&mut self) {
        let waits: Vec<f64> =
            self.turn.launched.iter().map(|(_, waited)| waited.as_secs_f64()).collect();
        for wait in waits {
            self.measured(Measure::Wait, wait);
        }
        let moved = |why: &&Why| matches!(why, Why::Preempted | Why::Moved);
        for _ in 0..self.turn.stops.iter().filter(moved).count() {
            self.measured(Measure::Restarts, 1.0);
        }
    }

    fn tick(&mut self) {
        self.turn.lines.push(Line::Tick { at: self.now });
        let actions = self.engine.tick(self.now);
        self.obey(actions);
    }

    fn concluded(&mut self, outcome: PolicyOutcome) {
        let Some(request) = self.request.take() else { return };
        if let Some(trouble) = trouble(&outcome) {
            self.event("policy-failed", None, &trouble, Value::Null);
        }
        self.turn.lines.push(Line::concluded(self.now, &outcome));
        self.engine.conclude(self.now, &request, outcome);
        self.tick();
    }

    /// Something happened: the engine is told, and the flight record notes it.
    pub(crate) fn apply(&mut self, event: Event) {
        self.turn.lines.push(Line::Event { at: self.now, event: event.clone() });
        self.engine.apply(self.now, event);
    }

    fn ask(&mut self, caller: &Caller, ask: Ask) -> Result<Said, Problem> {
        match ask {
            Ask::Submit { request, identity, known, ends } => {
                self.submit(caller, &request, identity, known, &ends)
            }
            Ask::Act { job, act } => self.act(caller, JobId(job), act),
            Ask::Node { node, act } => self.act_on_node(caller, &node, act),
            Ask::AddWindow(request) => self.add_window(caller, request),
            Ask::RemoveWindow(id) => self.remove_window(caller, id),
            Ask::NeedNodes { pool, needed } => self.need_nodes(caller, &pool, needed),
            Ask::SetPolicy { label, half_life } => self.set_policy(caller, label, half_life),
            Ask::TryPolicy(asked) => self.try_policy(caller, asked),
            Ask::EndTrial { keep } => self.end_trial(caller, keep),
            Ask::AddToken(token) => self.add_token(caller, token),
            Ask::DropToken(name) => self.drop_token(caller, name),
            Ask::Refused { action, target } => {
                self.audit(&caller.user, &action, &target, false);
                Ok(Said::Done)
            }
        }
    }

    /// Writes what changed: states of jobs, and now and then what policies use.
    fn keep(&mut self) {
        for (live, end) in self.engine.take_over() {
            self.ended(&live, end);
        }
        let mut added = std::mem::take(&mut self.added);
        for job in self.engine.take_touched() {
            let Some(state) = self.course_of(job) else { continue };
            match added.remove(&job) {
                Some(index) => self.complete(index, state),
                None => self.turn.writes.push(Write::SetState { job: job.0, state, end: None }),
            }
        }
        for (job, index) in added {
            if let Some(state) = self.course_of(job) {
                self.complete(index, state);
            }
        }
        if std::mem::take(&mut self.has_new_tenants) {
            self.meta("tenants", &json!(self.engine.state().tenants));
        }
        if !self.turn.writes.is_empty() {
            self.meta("last_at", &json!(self.now.0));
            self.is_unkept = true;
        }
        if self.is_unkept && self.now.since(self.kept_at) >= KEEP_EVERY {
            self.keep_all();
        }
    }

    /// What is to be kept of a job that is not over.
    fn course_of(&self, job: JobId) -> Option<String> {
        let (record, kept) = (self.records.get(&job)?, self.engine.kept(job)?);
        Some(text(&record.course(kept)))
    }

    /// Puts the state into the row of a new job.
    fn complete(&mut self, index: usize, known: String) {
        if let Some(Write::AddJob { state, .. }) = self.turn.writes.get_mut(index) {
            *state = known;
        }
    }

    /// Writes what only policies use: at times, and before a clean end.
    pub fn keep_all(&mut self) {
        self.kept_at = self.now;
        self.is_unkept = false;
        let usage = json!(self.engine.usage());
        self.meta("usage", &usage);
        if let Some(learnt) = self.engine.beliefs().kept() {
            self.turn.writes.push(Write::SetMeta { name: "learnt".to_owned(), value: learnt });
        }
    }

    /// What `keep_all` wants written, outside a turn.
    pub fn parting_writes(&mut self) -> Vec<Write> {
        self.keep_all();
        std::mem::take(&mut self.turn).writes
    }

    pub(crate) fn meta(&mut self, name: &str, value: &Value) {
        self.turn.writes.push(Write::SetMeta { name: name.to_owned(), value: value.to_string() });
    }

    pub(crate) fn event(&mut self, kind: &str, job: Option<JobId>, sentence: &str, data: Value) {
        let user = job.and_then(|job| self.records.get(&job));
        let user = user.map(|record| record.submission.user.clone());
        self.event_of(kind, (job, user), sentence, data);
    }

    /// An event of a job whose owner is known.
    fn event_of(
        &mut self,
        kind: &str,
        (job, user): (Option<JobId>, Option<String>),
        sentence: &str,
        data: Value,
    ) {
        self.turn.writes.push(Write::AddEvent {
            wall: self.wall,
            kind: kind.to_owned(),
            job: job.map(|job| job.0),
            user,
            data: json!({ "text": sentence, "data": data }).to_string(),
        });
    }

    pub(crate) fn audit(&mut self, user: &str, action: &str, target: &str, allowed: bool) {
        self.turn.writes.push(Write::AddAudit {
            wall: self.wall,
            user: user.to_owned(),
            action: action.to_owned(),
            target: target.to_owned(),
            allowed,
        });
    }

    pub(crate) fn record_mut(&mut self, job: JobId) -> Option<&mut Record> {
        Arc::make_mut(&mut self.records).get_mut(&job).map(Arc::make_mut)
    }

    /// A job is over: it leaves the records, and the store keeps what is left of it.
    fn ended(&mut self, live: &trainyard_framework::Live, end: End) {
        let job = live.spec.id;
        self.ends.insert(job, end);
        if self.ends.len() > REMEMBERED_MAX {
            self.ends.pop_first();
        }
        let name = end.name();
        let Some(record) = self.records.get(&job).map(Arc::clone) else { return };
        let sentence = match &record.said {
            Some(said) => format!("job {} ended: {name} ({said})", job.0),
            None => format!("job {} ended: {name}", job.0),
        };
        self.event("ended", Some(job), &sentence, json!({ "end": name }));
        if end == End::Finished {
            let seconds = (self.wall - record.submission.wall) as f64 / 1e6;
            self.measured(Measure::Jct, seconds);
        }
        let state = trainyard_types::JobState { planned: None, ..live.state.clone() };
        let kept = trainyard_engine::SavedState {
            state,
            by_user: false,
            throttled: false,
            retry_at: None,
            ending: None,
            requeued: false,
            resizing: None,
            suspending: false,
            unsuspendable: false,
            discarding: false,
        };
        let course = PersistedRun { report: record.report.clone(), ..record.course(kept) };
        let state = text(&course);
        if let Some(index) = self.added.remove(&job) {
            self.complete(index, state.clone());
        }
        self.turn.writes.push(Write::SetState { job: job.0, state, end: Some(name.to_owned()) });
        self.turn.ended.push((job, end));
        self.have_told(&record, live, end);
        Arc::make_mut(&mut self.records).remove(&job);
        self.count_closed(&record.submission.user);
        if self.options.announces {
            self.turn.orders.push(Order::Withdraw(job));
        }
        self.let_next_of_array(&record);
    }
}

impl Core {
    /// Has an end told, if the operator or the job's user wants it.
    fn have_told(&mut self, record: &Record, live: &trainyard_framework::Live, end: End) {
        let notify = record.submission.notify.as_deref().cloned().unwrap_or_default();
        if !self.options.notify.wants(&notify, end) {
            return;
        }
        let submission = &record.submission;
        let exit = record.launch.as_ref().and_then(|launch| launch.exit.as_ref());
        self.turn.notices.push(Notice {
            job: live.spec.id.0,
            end,
            names: [submission.name.clone(), submission.user.clone(), submission.tenant.clone()],
            why: record.said.clone(),
            times: [submission.wall as f64 / 1e6, self.wall as f64 / 1e6],
            attempts: record.launch.as_ref().map_or(0, |launch| launch.attempt.0),
            exit_code: exit.and_then(|exit| exit.code),
            notify,
        });
    }
}

fn trouble(outcome: &PolicyOutcome) -> Option<String> {
    match outcome {
        PolicyOutcome::Decided(_) => None,
        PolicyOutcome::Failed(error) => Some(format!("the policy could not decide: {error}")),
        PolicyOutcome::Panicked => Some("the policy panicked; the plan is kept".to_owned()),
        PolicyOutcome::Stuck => Some("the policy took too long and was cut off".to_owned()),
    }
}

/// As it is stored. Our own types always have a text.
pub(crate) fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a type of our own becomes JSON")
}

/// No such job, or one that has ended.
pub(crate) fn no_such_job(job: JobId, ends: &BTreeMap<JobId, End>) -> Problem {
    match ends.get(&job) {
        Some(end) => over_already(job, end.name()),
        None => {
            Problem::new(Code::NotFound, format!("there is no job {} that has not ended", job.0))
        }
    }
}

/// The job ended before it could be acted on.
pub(crate) fn over_already(job: JobId, end: &str) -> Problem {
    Problem::new(Code::Conflict, format!("job {} has ended already: {end}", job.0))
}
