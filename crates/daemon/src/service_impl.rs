//! The service: changes go to the loop, looks to a frozen moment, the past to the store.
//!
//! - `asking`: changes, and what must be looked up before the loop is asked.
//! - `looking`: jobs, logs, events, use.
//! - `forecasting`: what is expected, and what another policy would make of it.
//! - `planning`: a dry run of the policy.
//! - `showing`: what changed since somebody last looked, and who ran where.

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
use crate::service::{
    AcctRequest, Act, JobFilter, LogChunk, LogRequest, NewToken, NodeAct, PolicyRequest, Reply,
    Service, Stale, TokenInfo,
};
use forecasting::ForecastCache;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use trainyard_api::answer::{
    AcctRow, EventRow, FairRow, JobDetail, JobRow, NodeRow, PlanAnswer, Status, SubmitRequest,
    Submitted, WhyAnswer,
};
use trainyard_api::board::TimelineRow;
use trainyard_api::forecast::{EtaAnswer, WhatIfAnswer, WhatIfRequest};
use trainyard_api::trial::{TrialEnd, TrialRequest};
use trainyard_api::window::{WindowRequest, WindowRow};
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
}

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
        }))
    }

    /// The same with forecasts.
    ///
    /// # Panics
    /// When the service is shared already.
    pub fn with_forecasts(mut self, forecaster: Arc<dyn Forecaster>) -> ServiceImpl {
        let parts = Arc::get_mut(&mut self.0).expect("forecasts come before anybody is served");
        parts.forecast_cache = Some(ForecastCache::new(forecaster));
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

    /// Asks the store on a thread where waiting holds nobody up.
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
    fn submit(&self, caller: Caller, request: SubmitRequest) -> Reply<'_, Submitted> {
        Box::pin(self.take_submission(caller, request))
    }

    fn plan(&self, caller: Caller, request: SubmitRequest) -> Reply<'_, PlanAnswer> {
        Box::pin(self.take_plan(caller, request))
    }

    fn act(&self, caller: Caller, job: u32, act: Act) -> Reply<'_, JobRow> {
        Box::pin(async move {
            if let Err(problem) = self.ask(&caller, || Ask::Act { job, act: act.clone() }).await {
                return Err(self.unless_over(job, problem).await);
            }
            let (row, _) = self.row(job).await?;
            Ok(row)
        })
    }

    fn jobs(&self, caller: Caller, filter: JobFilter) -> Reply<'_, Vec<JobRow>> {
        Box::pin(self.list(caller, filter))
    }

    fn job(&self, caller: Caller, job: u32) -> Reply<'_, JobDetail> {
        Box::pin(self.detail(caller, job))
    }

    fn why(&self, caller: Caller, job: u32) -> Reply<'_, WhyAnswer> {
        Box::pin(self.reasons(caller, job))
    }

    fn eta(&self, caller: Caller, job: u32, confidence: Option<f64>) -> Reply<'_, EtaAnswer> {
        Box::pin(self.expect_one(caller, job, confidence))
    }

    fn etas(
        &self,
        caller: Caller,
        limit: usize,
        confidence: Option<f64>,
    ) -> Reply<'_, Vec<EtaAnswer>> {
        Box::pin(self.expect_all(caller, limit, confidence))
    }

    fn whatif(&self, caller: Caller, request: WhatIfRequest) -> Reply<'_, WhatIfAnswer> {
        Box::pin(self.compare(caller, request))
    }

    fn logs(&self, caller: Caller, job: u32, request: LogRequest) -> Reply<'_, LogChunk> {
        Box::pin(self.log(caller, job, request))
    }

    fn nodes(&self, caller: Caller) -> Reply<'_, Vec<NodeRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.nodes())
        })
    }

    fn node(&self, caller: Caller, node: String, act: NodeAct) -> Reply<'_, NodeRow> {
        Box::pin(async move {
            self.ask(&caller, || Ask::Node { node: node.clone(), act: act.clone() }).await?;
            let rows = self.look().await?.nodes();
            // A GPU is shown with its node.
            let of_gpu = node.rsplit_once(':').map(|(node, _)| node);
            let is = |name: &str| rows.iter().find(|row| row.name == name).cloned();
            let row = is(&node).or_else(|| is(of_gpu?));
            row.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no node `{node}`")))
        })
    }

    fn windows(&self, caller: Caller) -> Reply<'_, Vec<WindowRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.windows())
        })
    }

    fn add_window(&self, caller: Caller, request: WindowRequest) -> Reply<'_, WindowRow> {
        Box::pin(async move {
            let Said::Window(id) = self.ask(&caller, || Ask::AddWindow(request.clone())).await?
            else {
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

    fn fair(&self, caller: Caller) -> Reply<'_, Vec<FairRow>> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            Ok(self.look().await?.fair())
        })
    }

    fn acct(&self, caller: Caller, request: AcctRequest) -> Reply<'_, Vec<AcctRow>> {
        Box::pin(self.use_of(caller, request))
    }

    fn events(
        &self,
        caller: Caller,
        after: u64,
        max: usize,
        wait_seconds: f64,
    ) -> Reply<'_, Vec<EventRow>> {
        Box::pin(self.happened(caller, after, max, wait_seconds))
    }

    fn status(&self, caller: Caller) -> Reply<'_, Status> {
        Box::pin(async move {
            access::check(&caller, Right::Look, None)?;
            let seen = self.look().await?;
            Ok(seen.status(&self.shared().health(), &caller.user, caller.role.name()))
        })
    }

    fn set_policy(&self, caller: Caller, request: PolicyRequest) -> Reply<'_, Status> {
        Box::pin(async move {
            self.change_policy(&caller, request).await?;
            self.status(caller).await
        })
    }

    fn try_policy(&self, caller: Caller, request: TrialRequest) -> Reply<'_, Status> {
        Box::pin(async move {
            self.put_on_trial(&caller, request).await?;
            self.status(caller).await
        })
    }

    fn end_trial(&self, caller: Caller, end: TrialEnd) -> Reply<'_, Status> {
        Box::pin(async move {
            self.ask(&caller, || Ask::EndTrial { keep: end.keep }).await?;
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
        // Nobody waits for it.
        let _ = self.say(Message::Ask { caller, ask, pipeline: None, reply });
    }

    fn board(&self, caller: Caller, since: Option<u64>, wait: f64) -> Reply<'_, BoardView> {
        Box::pin(self.show(caller, since, wait))
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
