//! A trace replayed with forecasts along the way that know only what had happened by then.

use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_forecast::ledger::estimates;
use trainyard_forecast::spread::{Intervals, horizon};
use trainyard_forecast::{Class, Foreseen, Ledger, Limits, PastJob, Sizes, What, foresee};
use trainyard_framework::{Beliefs, ChangeCost, Pipeline};
use trainyard_sim::{Observer, Options, simulate};
use trainyard_types::{Action, Cluster, Config, End, Job, JobId, Rate, Span, Time, Work};
use trainyard_workload::Workload;

/// Estimates of one forecast that are judged.
const JUDGED_OF_ONE: usize = 4;
/// The part of forecasts from which is only learnt.
const WARM_UP: f64 = 0.2;

/// How a trace is replayed.
pub struct Replay<'a> {
    /// The jobs.
    pub workload: &'a Workload,
    /// What they run on.
    pub cluster: &'a Arc<Cluster>,
    /// Makes the policy.
    pub policy: &'a dyn Fn() -> Pipeline,
    /// The error of sizes that are told, as the standard deviation of the logarithm; nothing if none are told.
    pub told: Option<f64>,
    /// How many forecasts are made, evenly over the submissions.
    pub forecasts: usize,
    /// How much of the time intervals shall be right.
    pub confidence: f64,
}

/// An estimate that came true, or not.
#[derive(Copy, Clone, Debug)]
pub struct Judged {
    /// What was estimated.
    pub class: Class,
    /// Seconds as they were expected: the interval and the best guess.
    pub expected: (f64, f64, f64),
    /// Seconds as they were.
    pub real: f64,
}

impl Judged {
    /// Whether it lay in the interval.
    pub fn is_right(&self) -> bool {
        (self.expected.0 - 1e-3..=self.expected.2 + 1e-3).contains(&self.real)
    }
}

/// Replays a trace and judges what was expected along the way.
pub fn judge(replay: &Replay<'_>) -> Vec<Judged> {
    let options = Options { estimate_error: replay.told.unwrap_or(0.0), ..Options::default() };
    let jobs = &replay.workload.jobs;
    let first = jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
    let last = jobs.last().map_or(Time::ZERO, |one| one.job.submitted);
    let mut seer = Seer {
        replay,
        every: Span(last.since(first).0 / replay.forecasts.max(1) as u64),
        next: first,
        first,
        last,
        ledger: Ledger::default(),
        past: BTreeMap::new(),
        told: BTreeMap::new(),
        made: Vec::new(),
    };
    let outcome = simulate(replay.workload, replay.cluster, (replay.policy)(), &options, &mut seer);
    let real: BTreeMap<JobId, (Option<Time>, Time)> =
        outcome.jobs.iter().map(|one| (one.job, (one.first_start, one.ended))).collect();
    let warm = first + last.since(first).scaled(WARM_UP);
    let made = seer.made.into_iter().filter(|made| made.at >= warm);
    let judged = made.filter_map(|made| {
        let (start, end) = real.get(&made.job)?;
        let at = if made.class.what == What::Start { (*start)? } else { *end };
        let real = at.since(made.at).as_secs_f64();
        Some(Judged { class: made.class, expected: made.expected, real })
    });
    judged.collect()
}

struct Made {
    at: Time,
    job: JobId,
    class: Class,
    expected: (f64, f64, f64),
}

#[derive(Default)]
struct Past {
    first_start: Option<Time>,
    since: Option<Time>,
    ran: Span,
}

/// Sees what an onlooker sees, and forecasts now and then.
struct Seer<'a> {
    replay: &'a Replay<'a>,
    every: Span,
    next: Time,
    first: Time,
    last: Time,
    ledger: Ledger,
    past: BTreeMap<JobId, Past>,
    /// What was told of the sizes of jobs.
    told: BTreeMap<JobId, f64>,
    made: Vec<Made>,
}

impl Seer<'_> {
    fn over(&mut self, at: Time, job: JobId, end: End) {
        let Past { first_start, ran, .. } = self.past.remove(&job).unwrap_or_default();
        let truth = &self.replay.workload.jobs[job.index()];
        let told = self.told.remove(&job);
        self.ledger.settle(&PastJob {
            job,
            model: truth.job.model,
            gpus: truth.job.want.gpus,
            first_start,
            ended: at,
            end,
            ran,
            over_told: told.map(|told| truth.work.0 / told),
        });
    }

    fn forecast(&mut self, engine: &Engine) {
        let now = engine.state().now;
        let mut fork = engine.fork(now);
        if self.replay.told.is_none() {
            fork.believe(Arc::new(Untold(fork.shared_beliefs())));
        }
        for live in fork.state().jobs.values() {
            if let Some(work) = fork.beliefs().work(&live.spec) {
                self.told.insert(live.spec.id, work.0);
            }
        }
        let sizes = Sizes::new(&fork, &self.ledger.lengths.sorted());
        let foreseen = foresee(fork, sizes, (self.replay.policy)(), Limits::WIDE);
        let intervals = self.ledger.intervals(now, self.replay.confidence);
        self.make(&foreseen, &intervals);
        self.ledger.note(&foreseen);
    }

    fn make(&mut self, foreseen: &Foreseen, intervals: &Intervals) {
        let now = foreseen.now;
        // Any jobs, but the same ones each time it is run.
        let step = (foreseen.jobs.len() / JUDGED_OF_ONE).max(1);
        let offset = (now.0 / 1_000_003) as usize % step;
        let jobs = foreseen.jobs.iter().skip(offset).step_by(step).take(JUDGED_OF_ONE);
        for one in jobs {
            for (class, seconds) in estimates(one, now) {
                let ((low, high), likely, _) = intervals.with_middle(class, seconds);
                let expected = (low, likely, high);
                self.made.push(Made { at: now, job: one.job, class, expected });
            }
        }
    }
}

impl Observer for Seer<'_> {
    fn action(&mut self, at: Time, action: &Action) {
        match action {
            Action::Launch { job, .. } => {
                let past = self.past.entry(*job).or_default();
                past.first_start.get_or_insert(at);
                past.since = Some(at);
            }
            Action::Ended { job, at, end } => self.over(*at, *job, *end),
            Action::Resume { job, .. } => {
                self.past.entry(*job).or_default().since = Some(at);
            }
            Action::Stop { .. } | Action::Suspend { .. } | Action::Adjust { .. } => {}
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        let past = self.past.entry(job).or_default();
        if let Some(since) = past.since.take() {
            past.ran += at.since(since);
        }
    }

    fn passed(&mut self, engine: &Engine) {
        let now = engine.state().now;
        if now < self.next || now < self.first || now > self.last {
            return;
        }
        self.next = now + self.every;
        self.forecast(engine);
    }
}

/// Beliefs without sizes.
#[derive(Clone)]
struct Untold(Arc<dyn Beliefs>);

impl Beliefs for Untold {
    fn rate(&self, job: &Job, on: &Config) -> Option<Rate> {
        self.0.rate(job, on)
    }

    fn change(&self, job: &Job, from: Option<&Config>, to: Option<&Config>) -> ChangeCost {
        self.0.change(job, from, to)
    }

    fn work(&self, _job: &Job) -> Option<Work> {
        None
    }

    fn copied(&self) -> Arc<dyn Beliefs> {
        Arc::new(self.clone())
    }
}

/// Coverage and width by what was estimated and how far ahead, for people.
pub fn table(judged: &[Judged]) -> String {
    let mut groups: BTreeMap<(What, u8), Vec<&Judged>> = BTreeMap::new();
    for one in judged {
        groups.entry((one.class.what, horizon(one.expected.1))).or_default().push(one);
    }
    let names = ["< 1 m", "< 10 m", "< 1 h", "< 6 h", "< 1 d", "< 3 d", "< 10 d", ">= 10 d"];
    let mut text = format!(
        "{:<14} {:<8} {:>6} {:>8} {:>8} {:>15} {:>12}\n",
        "what", "ahead", "number", "covered", "earlier", "median high/low", "median error"
    );
    let mut line = |what: &str, ahead: &str, group: &[&Judged]| {
        let right = group.iter().filter(|one| one.is_right()).count() as f64;
        let width = median(group.iter().map(|one| (one.expected.2 + 1.0) / (one.expected.0 + 1.0)));
        let error = median(group.iter().map(|one| {
            let factor = (one.real + 1.0) / (one.expected.1 + 1.0);
            factor.max(1.0 / factor)
        }));
        let covered = 100.0 * right / group.len() as f64;
        let early = group.iter().filter(|one| one.real < one.expected.0 - 1e-3).count() as f64;
        let early = 100.0 * early / group.len() as f64;
        text.push_str(&format!(
            "{what:<14} {ahead:<8} {:>6} {covered:>6.1} % {early:>6.1} % {width:>14.1}x {error:>11.2}x\n",
            group.len()
        ));
    };
    for ((what, ahead), group) in &groups {
        line(&format!("{what:?}"), names[usize::from(*ahead)], group);
    }
    line("all", "", &judged.iter().collect::<Vec<_>>());
    text
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The part that lay in its interval.
pub fn coverage(judged: &[Judged]) -> f64 {
    judged.iter().filter(|one| one.is_right()).count() as f64 / judged.len().max(1) as f64
}
