//! The service: changes go to the loop, looks to a frozen moment, the past to the store.
//!
//! - `asking`: changes, and what must be looked up before the loop is asked.
//! - `looking`: jobs, logs, events, use.
//! - `forecasting`: what is expected, and what another policy would make of it.
//! - `planning`: a dry run of the policy.
//! - `showing`: what changed since a client last asked, and which job ran where.

mod asking;
mod forecasting;
mod looking;
mod planning;
mod showing;

pub use asking::label;
pub use forecasting::{CONFIDENCE, POLICIES_MAX};

use crate::access::{self, Caller, Right};
use crate::clock::wall_micros;
use crate::core::{Ask, Said};
use crate::forecaster::Forecaster;
use crate::frame::BoardView;
use crate::host::{Message, Shared};
use crate::policy_worker::PolicyFactory;
use crate::recorder::RecordReader;
use crate::seen::DaemonSnapshot;
use crate::service::{NewToken, Reply, Service, Stale};
use forecasting::ForecastCache;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use trainyard_api::endpoint::types::{
    AcctRequest, AcctRow, Act, BoardQuery, EtaAnswer, EtaQuery, EtasQuery, EventRow, EventsQuery,
    FairRow, GpuUsage, JobDetail, JobFilter, JobRow, LogChunk, LogRequest, NodeAct, NodeRow,
    PlanAnswer, PolicyRequest, PolicyRow, PoolRequest, PoolRow, Status, SubmitRequest, Submitted,
    TimelineRow, TokenInfo, TrialEnd, TrialRequest, WhatIfAnswer, WhatIfRequest, WhyAnswer,
    WindowRequest, WindowRow,
};
use trainyard_api::request::ROWS_DEFAULT;
use trainyard_api::{Code, Problem};
use trainyard_store::{Reader, StoreError};

/// How long a look waits for the loop before it is shown what was seen last.
const LOOK_WAIT: Duration = Duration::from_secs(2);
/// Readers that are kept open.
const READERS_KEPT: usize = 16;

/// The service of a running host.
#[derive(Clone)]
pub struct ServiceImpl(Arc<Parts>);

struct Parts {
    messages: Sender<Message>,
    shared: Arc<Shared>,
    record: RecordReader,
    factory: PolicyFactory,
    store: PathBuf,
    run_dir: PathBuf,
    readers: Mutex<Vec<Reader>>,
    forecast_cache: Option<ForecastCache>,
    showing: tokio::sync::Mutex<showing::Showing>,
    usage: Option<UsageSource>,
    policies: Vec<PolicyRow>,
}

/// Tells how much of each GPU is used, without waiting.
pub type UsageSource = Arc<dyn Fn() -> Vec<GpuUsage> + Send + Sync>;

impl ServiceImpl {
    /// The service of a host whose store is at `store` and whose attempts are in `run_dir`.
    pub fn new(
        host: &crate::host::Running,
        factory: PolicyFactory,
        store: PathBuf,
        run_dir: PathBuf,
    ) -> ServiceImpl {
        ServiceImpl(Arc::new(Parts {
            forecast_cache: None,
            messages: host.messages.clone(),
            shared: Arc::clone(&host.shared),
            record: host.record.clone(),
            factory,
            store,
            run_dir,
            readers: Mutex::default(),
            showing: tokio::sync::Mutex::new(showing::Showing::new()),
            usage: None,
            policies: Vec::new(),
        }))
    }

    /// The same with forecasts.
    ///
    /// # Panics
    /// When the service is shared already.
    pub fn with_forecasts(mut self, forecaster: Arc<dyn Forecaster>) -> ServiceImpl {
        let parts = Arc::get_mut(&mut self.0).expect("forecasts come before any client is served");
        parts.forecast_cache = Some(ForecastCache::new(forecaster));
        self
    }

    /// The same with the use of GPUs, and with the policies that can be set.
    ///
    /// # Panics
    /// When the service is shared already.
    pub fn with_facts(mut self, usage: UsageSource, policies: Vec<PolicyRow>) -> ServiceImpl {
        let parts = Arc::get_mut(&mut self.0).expect("facts come before any client is served");
        (parts.usage, parts.policies) = (Some(usage), policies);
        self
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    fn say(&self, message: Message) -> Result<(), Problem> {
        self.0.messages.send(message).map_err(|_| ending())
    }

    /// The daemon as it is now.
    async fn look(&self) -> Result<Arc<DaemonSnapshot>, Problem> {
        if let Some(seen) = self.shared().fresh() {
            return Ok(seen);
        }
        let (reply, seen) = oneshot::channel();
        self.say(Message::Look(reply))?;
        match tokio::time::timeout(LOOK_WAIT, seen).await {
            Ok(Ok(seen)) => Ok(seen),
            Ok(Err(_)) | Err(_) => self.shared().latest().ok_or_else(ending),
        }
    }

    /// Asks the store on a thread where waiting does not delay other requests.
    async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let front = self.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let kept = lock(&front.0.readers).pop();
            let reader = kept.map_or_else(|| Reader::open(&front.0.store), Ok)?;
            let answer = ask(&reader)?;
            let mut readers = lock(&front.0.readers);
            if readers.len() < READERS_KEPT {
                readers.push(reader);
            }
            Ok(answer)
        });
        let answer: Result<T, StoreError> = answer.await.map_err(|_| lost())?;
        answer.map_err(|error| Problem::new(Code::StoreFailed, error.to_string()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn ending() -> Problem {
    Problem::new(Code::Unreachable, "the daemon is ending; try again when it is back")
}

fn damaged(why: String) -> Problem {
    Problem::new(
        Code::Internal,
        format!("the store cannot be read: {why}; try `trainyard store check`"),
    )
}

fn lost() -> Problem {
    Problem::new(Code::Internal, "a thread was lost; try again")
}

impl Service for ServiceImpl {
    fn submit(&self, caller: Caller, body: SubmitRequest) -> Reply<'_, Submitted> {
        Box::pin(self.take_submission(caller, body))
    }

    fn plan(&self, caller: Caller, body: SubmitRequest) -> Reply<'_, PlanAnswer> {
        Box::pin(self.take_plan(caller, body))
    }

    fn act(&self, caller: Caller, job: u32, body: Act) -> Reply<'_, JobRow> {
        Box::pin(async move {
            if let Err(problem) = self.ask(&caller, || Ask::Act { job, act: body.clone() }).await {
                return Err(self.unless_over(job, problem).await);
            }
            let (row, _) = self.row(job).await?;
            Ok(row)
        })
    }

    fn jobs(&self, caller: Caller, query: JobFilter) -> Reply<'_, Vec<JobRow>> {
        Box::pin(self.list(caller, query))
    }

    fn job(&self, caller: Caller, job: u32) -> Reply<'_, JobDetail> {
        Box::pin(self.detail(caller, job))
    }

    fn why(&self, caller: Caller, job: u32) -> Reply<'_, WhyAnswer> {
        Box::pin(self.reasons(caller, job))
    }

    fn eta(&self, caller: Caller, job: u32, query: EtaQuery) -> Reply<'_, EtaAnswer> {
        Box::pin(self.expect_one(caller, job, query.confidence))
    }

    fn etas(&self, caller: Caller, query: EtasQuery) -> Reply<'_, Vec<EtaAnswer>> {
        Box::pin(self.expect_all(caller, query.limit.unwrap_or(ROWS_DEFAULT), query.confidence))
    }

    fn whatif(&self, caller: Caller, body: WhatIfRequest) -> Reply<'_, WhatIfAnswer> {
        Box::pin(self.compare(caller, body))
    }

    fn logs(&self, caller: Caller, job: u32, query: LogRequest) -> Reply<'_, LogChunk> {
        Box::pin(self.log(caller, job, query))
    }

    fn nodes(&self, caller: Caller) -> Reply<'_, Vec<NodeRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.nodes())
        })
    }

    fn gpus(&self, caller: Caller) -> Reply<'_, Vec<GpuUsage>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.0.usage.as_ref().map(|usage| usage()).unwrap_or_default())
        })
    }

    fn policies(&self, caller: Caller) -> Reply<'_, Vec<PolicyRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.0.policies.clone())
        })
    }

    fn node(&self, caller: Caller, name: String, body: NodeAct) -> Reply<'_, NodeRow> {
        Box::pin(async move {
            self.ask(&caller, || Ask::Node { node: name.clone(), act: body.clone() }).await?;
            let rows = self.look().await?.nodes();
            // A GPU is shown with its node.
            let of_gpu = name.rsplit_once(':').map(|(node, _)| node);
            let is = |node: &str| rows.iter().find(|row| row.name == node).cloned();
            let row = is(&name).or_else(|| is(of_gpu?));
            row.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no node `{name}`")))
        })
    }

    fn windows(&self, caller: Caller) -> Reply<'_, Vec<WindowRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.windows())
        })
    }

    fn add_window(&self, caller: Caller, body: WindowRequest) -> Reply<'_, WindowRow> {
        Box::pin(async move {
            let Said::Window(id) = self.ask(&caller, || Ask::AddWindow(body.clone())).await? else {
                return Err(lost());
            };
            let row = self.look().await?.windows().into_iter().find(|row| row.id == id);
            row.ok_or_else(|| {
                Problem::new(Code::NotFound, format!("window {id} has ended already"))
            })
        })
    }

    fn remove_window(&self, caller: Caller, window: u32) -> Reply<'_, ()> {
        Box::pin(async move {
            self.ask(&caller, || Ask::RemoveWindow(window)).await?;
            Ok(())
        })
    }

    fn pools(&self, caller: Caller) -> Reply<'_, Vec<PoolRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.pools())
        })
    }

    fn need_nodes(&self, caller: Caller, name: String, body: PoolRequest) -> Reply<'_, PoolRow> {
        Box::pin(async move {
            let needed = body.needed;
            self.ask(&caller, || Ask::NeedNodes { pool: name.clone(), needed }).await?;
            let row = self.look().await?.pools().into_iter().find(|row| row.name == name);
            row.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no pool `{name}`")))
        })
    }

    fn fair(&self, caller: Caller) -> Reply<'_, Vec<FairRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.fair())
        })
    }

    fn acct(&self, caller: Caller, query: AcctRequest) -> Reply<'_, Vec<AcctRow>> {
        Box::pin(self.use_of(caller, query))
    }

    fn events(&self, caller: Caller, query: EventsQuery) -> Reply<'_, Vec<EventRow>> {
        Box::pin(self.happened(caller, query))
    }

    fn status(&self, caller: Caller) -> Reply<'_, Status> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            let seen = self.look().await?;
            Ok(seen.status(&self.shared().health(), &caller.user, caller.role.name()))
        })
    }

    fn set_policy(&self, caller: Caller, body: PolicyRequest) -> Reply<'_, Status> {
        Box::pin(async move {
            self.change_policy(&caller, body).await?;
            self.status(caller).await
        })
    }

    fn try_policy(&self, caller: Caller, body: TrialRequest) -> Reply<'_, Status> {
        Box::pin(async move {
            self.put_on_trial(&caller, body).await?;
            self.status(caller).await
        })
    }

    fn end_trial(&self, caller: Caller, body: TrialEnd) -> Reply<'_, Status> {
        Box::pin(async move {
            self.ask(&caller, || Ask::EndTrial { keep: body.keep }).await?;
            self.status(caller).await
        })
    }

    fn capture(&self, caller: Caller) -> Reply<'_, Vec<u8>> {
        Box::pin(async move {
            access::check(&caller, Right::RulePolicy, None)?;
            let record = self.0.record.read().await;
            record.map_err(|why| Problem::new(Code::StoreFailed, why))
        })
    }

    fn tokens(&self, caller: Caller) -> Reply<'_, Vec<TokenInfo>> {
        Box::pin(async move {
            access::check(&caller, Right::RuleStore, None)?;
            let now = wall_micros() as f64 / 1e6;
            let mut tokens = self.shared().tokens();
            tokens.retain(|token| token.expires.is_none_or(|expires| expires > now));
            Ok(tokens)
        })
    }

    fn add_token(&self, caller: Caller, token: NewToken) -> Reply<'_, TokenInfo> {
        Box::pin(self.take_token(caller, token))
    }

    fn drop_token(&self, caller: Caller, name: String) -> Reply<'_, ()> {
        Box::pin(self.let_token_go(caller, name))
    }

    fn whose(&self, digest: String) -> Reply<'_, Option<TokenInfo>> {
        let now = wall_micros() as f64 / 1e6;
        let token = self.shared().token(&digest);
        let good = token.filter(|token| token.expires.is_none_or(|expires| expires > now));
        Box::pin(std::future::ready(Ok(good)))
    }

    fn refused(&self, user: String, action: String, target: String) {
        let caller = Caller::named(&user, access::Role::Viewer);
        let ask = Box::new(Ask::Refused { action, target });
        let (reply, _) = oneshot::channel();
        // No client waits for the answer.
        let _ = self.say(Message::Ask { caller, ask, pipeline: None, reply });
    }

    fn board(&self, caller: Caller, query: BoardQuery) -> Reply<'_, BoardView> {
        Box::pin(self.show(caller, query.since, query.wait))
    }

    fn timeline(&self, caller: Caller, since: f64, until: f64) -> Reply<'_, Vec<TimelineRow>> {
        Box::pin(self.ran(caller, since, until))
    }

    fn stale(&self) -> Option<Stale> {
        let since = self.shared().health().store_since?;
        let as_of = self.shared().latest().map_or(since, |seen| seen.wall);
        Some(Stale { since: since as f64 / 1e6, as_of: as_of as f64 / 1e6 })
    }

    fn metrics(&self) -> Reply<'_, String> {
        Box::pin(async move {
            let seen = self.look().await?;
            let front = self.clone();
            let text = tokio::task::spawn_blocking(move || {
                let metrics = &front.shared().metrics;
                metrics.set_levels(&seen.levels());
                metrics.encode()
            });
            text.await.map_err(|_| lost())
        })
    }
}
