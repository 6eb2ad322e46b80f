//! What is expected: the newest forecast, made at most once for a moment, and comparisons of policies.
//!
//! Runs have threads of their own. The loop only makes a fork, which costs what a look costs, so that decisions never
//! wait. A policy that hangs in a run is left to itself when its time is up, and only so many may be.

use super::{ServiceImpl, damaged, ending, lock};
use crate::access::{self, Caller, Right};
use crate::core::over_already;
use crate::forecaster::{Ended, Forecast, Forecaster, GoesOn};
use crate::host::{Message, Moment};
use crate::record::{PersistedRun, Submission, Unit};
use crate::seen::DaemonSnapshot;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use trainyard_api::forecast::{EtaAnswer, Expected, WhatIfAnswer, WhatIfRequest, WhatIfRow};
use trainyard_api::{Code, Problem};
use trainyard_store::{JobRow, Reader};
use trainyard_types::{End, JobId, Span};

/// How much of the time intervals are right unless another part is asked for.
pub const CONFIDENCE: f64 = 0.8;
/// Policies that one comparison may name.
pub const POLICIES_MAX: usize = 16;
/// A forecast that is younger than this is shown again whatever happened since.
const FRESH: Duration = Duration::from_secs(1);
/// While nothing happens, what was expected still is.
const FRESH_WHILE_QUIET: Duration = Duration::from_secs(10);
/// How long a run may take, and how much longer its thread is waited for.
const RUN_MAX: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(10);
/// Comparisons that run at once.
const RUNS_AT_ONCE: usize = 2;
/// Threads that may be lost to policies that do not come back.
const ABANDONED_MAX: usize = 4;
/// Jobs that are over and are looked up for one forecast.
const LEARNT_AT_ONCE: usize = 2000;
/// How often what was learnt is written down.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// A forecast is made this often though no client asks, so that there is a past to learn from.
const ON_ITS_OWN_EVERY: Duration = Duration::from_secs(60);

/// The forecaster, and its newest forecast.
pub(super) struct ForecastCache {
    forecaster: Arc<dyn Forecaster>,
    newest: Mutex<Option<Arc<Forecasted>>>,
    /// One forecast at a time.
    turn: tokio::sync::Mutex<()>,
    runs: Arc<Semaphore>,
    abandoned: Arc<AtomicUsize>,
    kept_at: Mutex<Instant>,
}

impl ForecastCache {
    pub(super) fn new(forecaster: Arc<dyn Forecaster>) -> ForecastCache {
        ForecastCache {
            forecaster,
            newest: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            runs: Arc::new(Semaphore::new(RUNS_AT_ONCE)),
            abandoned: Arc::default(),
            kept_at: Mutex::new(Instant::now()),
        }
    }
}

/// A forecast and the moment it is of.
struct Forecasted {
    seen: Arc<DaemonSnapshot>,
    forecast: Arc<dyn Forecast>,
    made: Instant,
    took: Duration,
}

impl Forecasted {
    fn answers(&self, jobs: &[JobId], confidence: f64) -> Vec<EtaAnswer> {
        let state = &self.seen.snapshot.state;
        let now = self.seen.unix(self.seen.snapshot.now);
        let etas = self.forecast.etas(jobs, confidence);
        let answer = |eta: crate::forecaster::Eta| {
            let live = state.live(eta.job)?;
            let expected = |around: crate::forecaster::Interval| Expected {
                low: now + around.low,
                likely: now + around.likely,
                high: now + around.high,
            };
            // What has happened is known exactly.
            let started = live.state.first_start.map(|at| self.seen.unix(at));
            let started = started.map(|at| Expected { low: at, likely: at, high: at });
            let mut basis = eta.basis;
            if eta.ends.is_none() && !live.state.is_placed() {
                // What is out of service may be all that it waits for.
                let absent = self.seen.absent(&live.spec.want);
                absent.iter().for_each(|sentence| basis.push_str(&format!("; {sentence}")));
            }
            Some(EtaAnswer {
                job: eta.job.0,
                state: live.state.phase.into(),
                starts: started.or(eta.starts.map(expected)),
                ends: eta.ends.map(expected),
                confidence,
                basis,
            })
        };
        etas.into_iter().filter_map(answer).collect()
    }
}

impl ServiceImpl {
    pub(super) async fn expect_one(
        &self,
        caller: Caller,
        job: u32,
        confidence: Option<f64>,
    ) -> Result<EtaAnswer, Problem> {
        access::check(&caller, Right::Look, None)?;
        let confidence = checked(confidence)?;
        // A forecast that is shown for a while may still know a job that is over.
        let (row, _) = self.row(job).await?;
        if row.state.is_over() {
            return Err(over_already(JobId(job), row.state.name()));
        }
        let told = self.foretold(Some(JobId(job))).await?;
        let just_now =
            || Problem::new(Code::Unreachable, format!("job {job} came just now; ask again"));
        told.answers(&[JobId(job)], confidence).pop().ok_or_else(just_now)
    }

    pub(super) async fn expect_all(
        &self,
        caller: Caller,
        limit: usize,
        confidence: Option<f64>,
    ) -> Result<Vec<EtaAnswer>, Problem> {
        access::check(&caller, Right::Look, None)?;
        let confidence = checked(confidence)?;
        let told = self.foretold(None).await?;
        let jobs: Vec<JobId> = told.seen.records.keys().take(limit).collect();
        Ok(told.answers(&jobs, confidence))
    }

    pub(super) async fn compare(
        &self,
        caller: Caller,
        request: WhatIfRequest,
    ) -> Result<WhatIfAnswer, Problem> {
        access::check(&caller, Right::Look, None)?;
        let begun = Instant::now();
        let horizon = horizon(&request)?;
        let forecast_cache = self.forecast_cache()?;
        let Moment { seen, fork } = self.fork().await?;
        let labels = self.labels(&request, &seen.policy)?;
        let runs = labels.iter().map(|label| {
            let (label, mut fork) = (label.clone(), fork.fork(seen.snapshot.now));
            let runs_now = label == seen.policy;
            if !runs_now {
                fork.reset_failures();
            }
            async move {
                let _room = forecast_cache.runs.acquire().await;
                let name = label.clone();
                let led = self.lead(move |forecaster, goes_on| {
                    forecaster.compare(fork, &label, horizon, goes_on)
                });
                // A policy that cannot be run spoils its own row only.
                let row = led.await.unwrap_or_else(|problem| WhatIfRow {
                    trouble: Some(problem.detail),
                    ..WhatIfRow::default()
                });
                WhatIfRow { policy: name, runs_now, ..row }
            }
        });
        let rows = futures_util::future::join_all(runs).await;
        Ok(WhatIfAnswer {
            at: seen.unix(seen.snapshot.now),
            jobs: seen.records.len() as u64,
            rows,
            basis: "each policy goes on from now with the jobs that run and wait, as long as they are believed to be, \
                    with no arrivals and no failures"
                .to_owned(),
            took_seconds: begun.elapsed().as_secs_f64(),
        })
    }

    /// The running policy, and those that are asked about.
    fn labels(&self, request: &WhatIfRequest, running: &str) -> Result<Vec<String>, Problem> {
        let wrong = |detail: String| Problem::field(Code::BadInput, "policies", detail);
        if request.policies.len() > POLICIES_MAX {
            let count = request.policies.len();
            return Err(wrong(format!(
                "`policies` names {count}, and {POLICIES_MAX} is allowed at most: ask in parts"
            )));
        }
        let mut labels = vec![running.to_owned()];
        for label in request.policies.iter().map(|label| label.trim().to_owned()) {
            if !labels.contains(&label) {
                (self.0.factory)(&label).map_err(wrong)?;
                labels.push(label);
            }
        }
        Ok(labels)
    }

    fn forecast_cache(&self) -> Result<&ForecastCache, Problem> {
        let missing =
            || Problem::new(Code::Infeasible, "this daemon was started without forecasts");
        self.0.forecast_cache.as_ref().ok_or_else(missing)
    }

    /// Forecasts now and then though no client asks: only what was expected can turn out right or wrong.
    pub async fn keep_forecasting(&self) {
        loop {
            tokio::time::sleep(ON_ITS_OWN_EVERY).await;
            let open = self.shared().latest().is_some_and(|seen| !seen.records.is_empty());
            if open && let Err(problem) = self.foretold(None).await {
                tracing::warn!(target: "trainyard::forecast", "no forecast: {}", problem.detail);
            }
        }
    }

    /// A forecast that is new enough, and that has seen a job if one is named.
    async fn foretold(&self, job: Option<JobId>) -> Result<Arc<Forecasted>, Problem> {
        let forecast_cache = self.forecast_cache()?;
        if let Some(told) = self.fresh_forecast(forecast_cache, job) {
            return Ok(told);
        }
        let _turn = forecast_cache.turn.lock().await;
        // The request that had the turn before may have made it.
        if let Some(told) = self.fresh_forecast(forecast_cache, job) {
            return Ok(told);
        }
        let begun = Instant::now();
        let Moment { seen, fork } = self.fork().await?;
        self.learn(forecast_cache, &seen).await?;
        let policy = seen.policy.clone();
        let led = self.lead(move |forecaster, goes_on| forecaster.foresee(fork, &policy, goes_on));
        let forecast = led.await?.map_err(|why| Problem::new(Code::Internal, why))?;
        let (made, took) = (Instant::now(), begun.elapsed());
        let told = Arc::new(Forecasted { seen, forecast, made, took });
        *lock(&forecast_cache.newest) = Some(Arc::clone(&told));
        self.keep(forecast_cache);
        Ok(told)
    }

    fn fresh_forecast(&self, of: &ForecastCache, job: Option<JobId>) -> Option<Arc<Forecasted>> {
        let told = lock(&of.newest).clone()?;
        let age = told.made.elapsed();
        let quiet = told.seen.turn == self.shared().turn() && age < FRESH_WHILE_QUIET;
        // A forecast that took long is shown for longer, so that forecasts do not take all of a core.
        let fresh = quiet || age < FRESH.max(told.took * 4);
        let knows = job.is_none_or(|job| told.seen.records.contains_key(&job));
        (fresh && knows).then_some(told)
    }

    pub(super) async fn fork(&self) -> Result<Moment, Problem> {
        let (reply, fork) = oneshot::channel();
        self.say(Message::Fork(reply))?;
        fork.await.map_err(|_| ending())?
    }

    /// Leads a run on a thread of its own, for so long at most.
    pub(super) async fn lead<T: Send + 'static>(
        &self,
        run: impl FnOnce(&dyn Forecaster, GoesOn<'_>) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let forecast_cache = self.forecast_cache()?;
        let abandoned = Arc::clone(&forecast_cache.abandoned);
        if abandoned.load(Ordering::SeqCst) >= ABANDONED_MAX {
            let detail = format!(
                "{ABANDONED_MAX} runs of policies do not come back; no more are begun until one does"
            );
            return Err(Problem::new(Code::TooMany, detail));
        }
        let forecaster = Arc::clone(&forecast_cache.forecaster);
        let (reply, mut answer) = oneshot::channel();
        let thread = std::thread::Builder::new().name("forecast".to_owned()).spawn(move || {
            let deadline = Instant::now() + RUN_MAX;
            let goes_on = || Instant::now() < deadline;
            let led = catch_unwind(AssertUnwindSafe(|| run(forecaster.as_ref(), &goes_on)));
            if reply.send(led.ok()).is_err() {
                // The request waits no more: this thread was counted as abandoned, and is back.
                abandoned.fetch_sub(1, Ordering::SeqCst);
            }
        });
        thread.map_err(|error| Problem::new(Code::Internal, format!("no thread: {error}")))?;
        let waited = tokio::time::timeout(RUN_MAX + PATIENCE, &mut answer).await;
        let panicked = || Problem::new(Code::Internal, "the run panicked");
        match waited {
            Ok(led) => led.ok().flatten().ok_or_else(panicked),
            Err(_) => {
                // Counted before the thread can find out that no request waits.
                forecast_cache.abandoned.fetch_add(1, Ordering::SeqCst);
                answer.close();
                if let Ok(Some(led)) = answer.try_recv() {
                    forecast_cache.abandoned.fetch_sub(1, Ordering::SeqCst);
                    return Ok(led);
                }
                let seconds = (RUN_MAX + PATIENCE).as_secs();
                let detail = format!("the policy did not come back within {seconds} s");
                Err(Problem::new(Code::Unreachable, detail))
            }
        }
    }

    /// Tells the forecaster of jobs that are over since the last time.
    async fn learn(
        &self,
        forecast_cache: &ForecastCache,
        seen: &DaemonSnapshot,
    ) -> Result<(), Problem> {
        let mut over = self.shared().take_ended();
        let awaited = forecast_cache.forecaster.awaited().into_iter();
        // Jobs whose end was not observed, such as between two starts.
        over.extend(awaited.filter(|job| !seen.records.contains_key(job)));
        over.sort_unstable();
        over.dedup();
        over.truncate(LEARNT_AT_ONCE);
        if over.is_empty() {
            return Ok(());
        }
        let forecaster = Arc::clone(&forecast_cache.forecaster);
        let learnt = self.read(move |reader: &Reader| {
            let (mut ended, mut gone) = (Vec::new(), Vec::new());
            for job in over {
                match reader.job(job.0)?.as_ref().map(ended_of) {
                    Some(Ok(one)) => ended.extend(one),
                    Some(Err(_)) | None => gone.push(job),
                }
            }
            forecaster.learn(ended, &gone);
            Ok(())
        });
        learnt.await
    }

    /// Now and then what was learnt is written down.
    fn keep(&self, forecast_cache: &ForecastCache) {
        let mut kept_at = lock(&forecast_cache.kept_at);
        if kept_at.elapsed() < KEEP_EVERY {
            return;
        }
        *kept_at = Instant::now();
        let value = forecast_cache.forecaster.kept();
        // A daemon that ends needs no word.
        let _ = self.say(Message::Keep { name: "forecasts".to_owned(), value });
    }
}

/// A job as the store has it, if it is over.
fn ended_of(row: &JobRow) -> Result<Option<Ended>, Problem> {
    let Some(end) = row.end.as_deref().and_then(End::named) else { return Ok(None) };
    let submission: Submission =
        serde_json::from_str(&row.spec).map_err(|fault| damaged(fault.to_string()))?;
    let course: PersistedRun =
        serde_json::from_str(&row.state).map_err(|fault| damaged(fault.to_string()))?;
    let (job, state) = (submission.job, course.kept.state);
    // The work of a job that never reported its progress is as long as it ran.
    let done = match (state.progress.done.0, submission.unit) {
        (done, _) if done > 0.0 => Some(done),
        (_, Unit::Seconds) => Some(state.ran.as_secs_f64()),
        (_, Unit::Steps) => None,
    };
    let told = job.declared.map(|work| work.0).filter(|told| *told > 0.0);
    let finished = end == trainyard_types::End::Finished;
    let over_told = done.zip(told).filter(|_| finished).map(|(done, told)| done / told);
    let at = state.since;
    Ok(Some(Ended { job, state, at, end, over_told }))
}

fn checked(confidence: Option<f64>) -> Result<f64, Problem> {
    let confidence = confidence.unwrap_or(CONFIDENCE);
    if (0.01..=0.99).contains(&confidence) {
        return Ok(confidence);
    }
    let detail = "`confidence`: expected a part from 0.01 to 0.99, such as 0.8";
    Err(Problem::field(Code::BadInput, "confidence", detail))
}

fn horizon(request: &WhatIfRequest) -> Result<Option<Span>, Problem> {
    match request.horizon_seconds {
        None => Ok(None),
        Some(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(Some(Span::from_secs_f64(seconds))),
        Some(_) => {
            let detail = "`horizon_seconds`: expected more than 0 and at most 1e9";
            Err(Problem::field(Code::BadInput, "horizon_seconds", detail))
        }
    }
}
