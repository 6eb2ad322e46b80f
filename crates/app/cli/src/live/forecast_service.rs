//! Forecasts for the daemon: its engine in the simulated world.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use trainyard_api::forecast::WhatIfRow;
use trainyard_daemon::forecaster::{Ended, Eta, Forecast, Forecaster, GoesOn, Interval};
use trainyard_daemon::policy_worker::PolicyFactory;
use trainyard_engine::Engine;
use trainyard_forecast::ledger::estimates;
use trainyard_forecast::lengths::Sorted;
use trainyard_forecast::sizes::ideal_spans;
use trainyard_forecast::spread::{Intervals, Steadiness};
use trainyard_forecast::{
    Class, Cut, ForecastRow, Foreseen, ForeseenJob, Grounds, Ledger, Limits, PastJob, Sizes, What,
    foresee,
};
use trainyard_framework::Pipeline;
use trainyard_types::{JobId, Span, Time};

/// Looks into the future with the simulator, and learns how far it was off.
pub struct ForecastService {
    factory: PolicyFactory,
    ledger: Arc<Mutex<Ledger>>,
}

impl ForecastService {
    /// With what was learnt before, if that can be read; what cannot is learnt again.
    pub fn new(factory: PolicyFactory, kept: Option<&str>) -> ForecastService {
        let ledger = kept.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        ForecastService { factory, ledger: Arc::new(Mutex::new(ledger)) }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    fn past(&self) -> Sorted {
        self.ledger().lengths.sorted()
    }

    fn lead(&self, fork: Engine, policy: &str, goes_on: GoesOn<'_>) -> Result<Foreseen, String> {
        let pipeline = self.build(policy)?;
        let sizes = Sizes::new(&fork, &self.past());
        let limits = Limits { goes_on: &|| goes_on(), ..Limits::WIDE };
        Ok(foresee(fork, sizes, pipeline, limits))
    }

    fn build(&self, policy: &str) -> Result<Pipeline, String> {
        (self.factory)(policy).map_err(|why| format!("`{policy}` cannot be built: {why}"))
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    // A thread that panicked left no half-written change: every change is one call.
    ledger.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Forecaster for ForecastService {
    fn foresee(
        &self,
        fork: Engine,
        policy: &str,
        goes_on: GoesOn<'_>,
    ) -> Result<Arc<dyn Forecast>, String> {
        let foreseen = self.lead(fork, policy, goes_on)?;
        self.ledger().note(&foreseen);
        Ok(Arc::new(Told::new(foreseen, policy, Arc::clone(&self.ledger))))
    }

    fn suppose(
        &self,
        fork: Engine,
        policy: &str,
        goes_on: GoesOn<'_>,
    ) -> Result<Arc<dyn Forecast>, String> {
        let foreseen = self.lead(fork, policy, goes_on)?;
        Ok(Arc::new(Told::new(foreseen, policy, Arc::clone(&self.ledger))))
    }

    fn compare(
        &self,
        fork: Engine,
        policy: &str,
        horizon: Option<Span>,
        goes_on: GoesOn<'_>,
    ) -> WhatIfRow {
        let pipeline = match self.build(policy) {
            Ok(pipeline) => pipeline,
            Err(why) => return WhatIfRow { trouble: Some(why), ..WhatIfRow::default() },
        };
        let until = horizon.map_or(Time::NEVER, |horizon| fork.state().now + horizon);
        let sizes = Sizes::new(&fork, &self.past());
        let ideal = ideal_spans(&fork, &sizes);
        let limits = Limits { until, goes_on: &|| goes_on(), ..Limits::WIDE };
        let foreseen = foresee(fork, sizes, pipeline, limits);
        shown(&foreseen, &ForecastRow::new(&foreseen, |job| ideal.get(&job).copied()))
    }

    fn awaited(&self) -> Vec<JobId> {
        self.ledger().awaited().collect()
    }

    fn learn(&self, ended: Vec<Ended>, gone: &[JobId]) {
        let mut ledger = self.ledger();
        for one in ended {
            ledger.settle(&PastJob {
                job: one.job.id,
                model: one.job.model,
                gpus: one.job.want.gpus,
                first_start: one.state.first_start,
                ended: one.at,
                end: one.end,
                ran: one.state.ran,
                over_told: one.over_told,
            });
        }
        for job in gone {
            ledger.drop_job(*job);
        }
    }

    fn kept(&self) -> String {
        serde_json::to_string(&*self.ledger()).expect("our own types become JSON")
    }
}

fn shown(foreseen: &Foreseen, row: &ForecastRow) -> WhatIfRow {
    let cut = foreseen.cut.and_then(|(at, cut)| {
        let hours = at.since(foreseen.now).as_secs_f64() / 3600.0;
        match cut {
            Cut::Horizon => None,
            Cut::Steps | Cut::Caller => Some(format!("cut off after {hours:.1} simulated hours")),
        }
    });
    let troubles: Vec<String> = row.trouble.clone().into_iter().chain(cut).collect();
    WhatIfRow {
        finished: row.finished,
        mean_completion_seconds: row.completion_s.mean,
        p95_completion_seconds: row.completion_s.p95,
        mean_wait_seconds: row.wait_s.mean,
        makespan_seconds: row.makespan.as_secs_f64(),
        utilisation: row.utilisation,
        worst_rho: row.worst_rho,
        deadlines_met: row.deadlines_met,
        deadlines: row.deadlines,
        preemptions: row.preemptions,
        gpu_hours_lost: row.gpu_hours_lost,
        trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
        ..WhatIfRow::default()
    }
}

/// A forecast, kept for as long as it is shown.
struct Told {
    now: Time,
    jobs: Vec<ForeseenJob>,
    /// How steadily those that run came nearer to their ends.
    steady: BTreeMap<JobId, Steadiness>,
    cut: Option<(Time, Cut)>,
    /// Whether a job whose end is unknown holds GPUs, so that others may wait for it for ever.
    endless: bool,
    policy: String,
    ledger: Arc<Mutex<Ledger>>,
    /// The intervals that were last asked for, with their confidence.
    intervals: Mutex<Option<(f64, Arc<Intervals>)>>,
}

impl Told {
    fn new(foreseen: Foreseen, policy: &str, ledger: Arc<Mutex<Ledger>>) -> Told {
        let endless = foreseen.jobs.iter().any(|one| one.grounds == Grounds::Nothing && !one.held);
        let steady = lock(&ledger).steadiness(&foreseen);
        Told {
            now: foreseen.now,
            jobs: foreseen.jobs,
            steady,
            cut: foreseen.cut,
            endless,
            policy: policy.to_owned(),
            ledger,
            intervals: Mutex::default(),
        }
    }

    fn intervals(&self, confidence: f64) -> Arc<Intervals> {
        let mut known = self.intervals.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((of, intervals)) = &*known
            && *of == confidence
        {
            return Arc::clone(intervals);
        }
        let intervals = Arc::new(lock(&self.ledger).intervals(self.now, confidence));
        *known = Some((confidence, Arc::clone(&intervals)));
        intervals
    }

    fn eta(&self, one: &ForeseenJob, intervals: &Intervals) -> Eta {
        let (mut starts, mut ends, mut rests_on) = (None, None, 0);
        let steady = self.steady.get(&one.job).copied().unwrap_or_default();
        for (class, seconds) in estimates(one, self.now) {
            let (around, count) = around(intervals, (class, seconds), steady);
            match class.what {
                What::Start => starts = Some(around),
                What::EndOfWaiting | What::EndOfRunning => {
                    ends = Some(self.before_its_limit(one, &starts, around));
                    rests_on = count;
                }
            }
        }
        Eta { job: one.job, starts, ends, basis: self.basis(one, rests_on) }
    }

    /// An interval for an end, cut where the job's time limit ends it at the latest.
    fn before_its_limit(
        &self,
        one: &ForeseenJob,
        starts: &Option<Interval>,
        ends: Interval,
    ) -> Interval {
        let at = |seconds: f64| self.now + Span::from_secs_f64(seconds);
        let start = starts.as_ref().map(|starts| at(starts.high)).or(one.starts);
        let Some(latest) = start.and_then(|start| one.latest_end(start)) else { return ends };
        let latest = latest.since(self.now).as_secs_f64();
        let Interval { low, likely, high } = ends;
        Interval { low: low.min(latest), likely: likely.min(latest), high: high.min(latest) }
    }

    fn basis(&self, one: &ForeseenJob, rests_on: usize) -> String {
        if one.held {
            return "its user holds it: nothing can be told before it is released".to_owned();
        }
        if one.ends.is_none() {
            return self.why_not(one);
        }
        let length = match one.grounds {
            Grounds::Reported => "at the pace that it reports",
            Grounds::Told => "as long as was told",
            Grounds::Past => "as long as past jobs like it",
            Grounds::Limit => "until its time limit, for nothing else is known of its length",
            Grounds::Nothing => "of unknown length",
        };
        let spread = match rests_on {
            0 => "no past estimates to compare with yet".to_owned(),
            count => format!("the interval from {count} past estimates"),
        };
        format!(
            "simulated forward under `{}` without further arrivals, {length}; {spread}",
            self.policy
        )
    }

    fn why_not(&self, one: &ForeseenJob) -> String {
        match (one.grounds, self.cut) {
            (Grounds::Nothing, _) => {
                "nothing is known of its length: declare it, set a time limit, or wait until jobs like it have ended"
                    .to_owned()
            }
            (_, Some((at, _))) => {
                let hours = at.since(self.now).as_secs_f64() / 3600.0;
                format!("not known beyond {hours:.1} hours: the simulation was cut off there")
            }
            _ if self.endless => {
                "it may have to wait for a job of whose length nothing is known".to_owned()
            }
            _ => format!("`{}` never serves it as things are", self.policy),
        }
    }
}

fn around(
    intervals: &Intervals,
    (class, seconds): (Class, f64),
    steady: Steadiness,
) -> (Interval, usize) {
    let ((low, high), likely, count) = intervals.of_steady(class, seconds, steady);
    (Interval { low, likely, high }, count)
}

impl Forecast for Told {
    fn etas(&self, jobs: &[JobId], confidence: f64) -> Vec<Eta> {
        let intervals = self.intervals(confidence);
        let find = |job: &JobId| self.jobs.binary_search_by_key(job, |one| one.job).ok();
        let found = jobs.iter().filter_map(find);
        found.map(|index| self.eta(&self.jobs[index], &intervals)).collect()
    }
}
