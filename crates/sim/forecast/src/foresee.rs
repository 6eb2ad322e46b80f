//! The state of a moment simulated forward until all jobs ended, or until a limit is reached.

use crate::believed::{Believed, Frozen};
use crate::sizes::{Grounds, Sizes};
use std::collections::BTreeMap;
use std::sync::Arc;
use trainyard_engine::Engine;
use trainyard_framework::{Live, Pipeline};
use trainyard_sim::{Beginning, Observer, Options, Outcome, resume_from};
use trainyard_types::{Action, End, JobId, Span, Time};

/// Moments after which the caller is asked whether to go on.
const ASK_EVERY: u64 = 64;

/// How far a run may go.
#[derive(Copy, Clone)]
pub struct Limits<'a> {
    /// Not beyond this moment.
    pub until: Time,
    /// Not through more moments than so many.
    pub steps_max: u64,
    /// Not when the caller says no; asked now and then.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Limits<'_> {
    /// Until all jobs ended, within so many moments that no sound policy needs them.
    pub const WIDE: Limits<'static> =
        Limits { until: Time::NEVER, steps_max: 5_000_000, goes_on: &|| true };
}

/// Why a run was cut off.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It came to the last moment that was asked for.
    Horizon,
    /// It went through too many moments.
    Steps,
    /// The caller did not want to wait any longer.
    Caller,
}

/// What is expected of one job.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ForeseenJob {
    /// The job.
    pub job: JobId,
    /// Its first start; the past one of a job that has started.
    pub starts: Option<Time>,
    /// Its end, and how it ends.
    pub ends: Option<(Time, End)>,
    /// Whether it holds GPUs at the moment of the forecast.
    pub runs: bool,
    /// Whether its user keeps it aside.
    pub held: bool,
    /// Why it is taken to be as long as it is.
    pub grounds: Grounds,
    /// How much longer than that it may run before its time limit; its whole limit while its end is not known.
    pub spare: Option<Span>,
}

impl ForeseenJob {
    /// The latest end that its time limit allows, if it holds GPUs as long as foreseen and starts by `starts`.
    pub fn latest_end(&self, starts: Time) -> Option<Time> {
        let ((end, _), start, spare) = (self.ends?, self.starts?, self.spare?);
        let late = starts.since(start.min(starts));
        Some(end + late + spare)
    }
}

/// What is expected of all jobs of a moment.
pub struct Foreseen {
    /// The moment.
    pub now: Time,
    /// Jobs that are not over then, by id.
    pub jobs: Vec<ForeseenJob>,
    /// Where the run was cut off, if it was, and why.
    pub cut: Option<(Time, Cut)>,
    /// What came of the run.
    pub outcome: Outcome,
    /// The jobs with the sizes they were given.
    pub sizes: Sizes,
}

impl Foreseen {
    /// What is expected of a job of the moment.
    pub fn job(&self, job: JobId) -> Option<&ForeseenJob> {
        let found = self.jobs.binary_search_by_key(&job, |one| one.job);
        found.ok().map(|index| &self.jobs[index])
    }
}

/// Leads a fork of an engine on under a pipeline. The same arguments give the same answer.
///
/// Nothing arrives after the moment, nothing breaks, and every job is as long as [`Sizes`] say.
pub fn foresee(mut fork: Engine, sizes: Sizes, pipeline: Pipeline, limits: Limits<'_>) -> Foreseen {
    let now = fork.state().now;
    let before: Vec<ForeseenJob> =
        fork.state().jobs.values().map(|live| at_first(live, &fork, &sizes)).collect();
    let beliefs = fork.shared_beliefs();
    fork.believe(Arc::new(Frozen(Arc::clone(&beliefs))));
    let truth = Believed { beliefs, sizes: &sizes };
    let awaited = before.iter().filter(|one| one.grounds != Grounds::Nothing && !one.held).count();
    let mut watch =
        Watch { limits, awaited, steps: 0, at: now, starts: BTreeMap::new(), cut: None };
    let options = options(&fork);
    let beginning = Beginning { engine: fork, truth: &truth, arrivals: &[] };
    let outcome = resume_from(beginning, pipeline, &options, &mut watch);
    let cut = watch.cut.map(|cut| (watch.at, cut));
    let jobs = before.into_iter().map(|one| in_the_end(one, &outcome, &watch.starts)).collect();
    Foreseen { now, jobs, cut, outcome, sizes }
}

/// The world as the live side is: decisions as the engine is set up and at no cost, nothing breaks.
fn options(fork: &Engine) -> Options {
    let setup = *fork.setup();
    Options {
        seed: setup.seed,
        trigger: setup.trigger,
        estimate_error: 0.0,
        setup,
        ..Options::default()
    }
}

fn at_first(live: &Live, fork: &Engine, sizes: &Sizes) -> ForeseenJob {
    let job = live.spec.id;
    ForeseenJob {
        job,
        starts: live.state.first_start,
        ends: None,
        runs: live.state.is_placed(),
        held: fork.is_held(job),
        grounds: sizes.grounds(job).unwrap_or(Grounds::Nothing),
        spare: live.spec.run_max,
    }
}

fn in_the_end(one: ForeseenJob, outcome: &Outcome, starts: &BTreeMap<JobId, Time>) -> ForeseenJob {
    let found = outcome.jobs.binary_search_by_key(&one.job, |over| over.job);
    let over = found.ok().map(|index| &outcome.jobs[index]);
    ForeseenJob {
        starts: one.starts.or_else(|| starts.get(&one.job).copied()),
        ends: over.map(|over| (over.ended, over.end)),
        spare: one.spare.map(|limit| limit.minus(over.map_or(Span::ZERO, |over| over.ran))),
        ..one
    }
}

/// Keeps the limits, and notes which job starts when.
struct Watch<'a> {
    limits: Limits<'a>,
    /// Jobs that can end and have not.
    awaited: usize,
    steps: u64,
    at: Time,
    starts: BTreeMap<JobId, Time>,
    cut: Option<Cut>,
}

impl Observer for Watch<'_> {
    fn goes_on(&mut self, to: Time) -> bool {
        self.steps += 1;
        let asked = self.steps.is_multiple_of(ASK_EVERY);
        self.cut = match () {
            () if to > self.limits.until => Some(Cut::Horizon),
            () if self.steps > self.limits.steps_max => Some(Cut::Steps),
            () if asked && !(self.limits.goes_on)() => Some(Cut::Caller),
            () => None,
        };
        if self.cut.is_none() {
            self.at = to;
        }
        // Those that go on for ever are not waited for.
        self.cut.is_none() && self.awaited > 0
    }

    fn action(&mut self, at: Time, action: &Action) {
        match action {
            Action::Launch { job, .. } => {
                self.starts.entry(*job).or_insert(at);
            }
            Action::Ended { .. } => self.awaited = self.awaited.saturating_sub(1),
            Action::Stop { .. }
            | Action::Suspend { .. }
            | Action::Resume { .. }
            | Action::Adjust { .. } => {}
        }
    }
}
