//! Policies side by side on several threads.

use crate::choice::{self, Entrant};
use crate::failure::Failure;
use crate::given::{Given, GivenCompact};
use crate::options::whole;
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trainyard_framework::Pipeline;
use trainyard_report::text::Recorder;
use trainyard_report::timeline::Timeline;
use trainyard_report::{Information, Run, Tally};
use trainyard_sim::{Observer, Options, Outcome, simulate, simulate_compact};
use trainyard_types::{Action, JobId, Time};

/// A run that came to its end.
pub struct Done {
    /// Its measures.
    pub run: Run,
    /// Its seed.
    pub seed: u64,
    /// What came of every job.
    pub outcome: Outcome,
    /// Every action, if it was asked for.
    pub actions: Recorder,
    /// Which job held which GPUs when, if it was asked for.
    pub timeline: Timeline,
}

/// What is taken down during a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Up to so many intervals of jobs on GPUs.
    Timeline(usize),
    /// Those, and every action.
    Everything(usize),
    /// Nothing but the outcome.
    Nothing,
}

impl Record {
    fn intervals_max(self) -> usize {
        match self {
            Record::Timeline(most) | Record::Everything(most) => most,
            Record::Nothing => 0,
        }
    }
}

/// How runs are made; no result depends on it but for what is taken down.
pub struct How<'a> {
    /// How many threads, as the user wrote it; all cores by default.
    pub threads: Option<&'a str>,
    /// What is taken down.
    pub record: Record,
    /// Told how far a run is, by the place of its entrant.
    pub progress: &'a (dyn Fn(usize, Progress) + Sync),
}

/// How far a run is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has begun, and so many of its jobs are over.
    Over(usize),
    /// It has ended, whether or not all jobs have.
    Ended,
}

/// Runs all entrants; what panics is told in words, and the others go on.
///
/// The order of the results is that of the entrants, and no result depends on the number of threads.
pub fn run_all(
    given: &Given,
    entrants: &[Entrant],
    options: &Options,
    how: &How<'_>,
) -> Result<Vec<Result<Done, String>>, Failure> {
    let mut pipelines = Vec::with_capacity(entrants.len());
    for entrant in entrants {
        let built = entrant.selection.build();
        pipelines.push(built.map_err(|error| Failure::config("", error))?);
    }
    let pool = pool(how.threads)?;
    let results = pool.install(|| {
        let both = entrants.par_iter().zip(pipelines.into_par_iter()).enumerate();
        // One at a time: runs differ too much in length to be dealt out in blocks.
        both.with_max_len(1)
            .map(|(at, (entrant, pipeline))| {
                (how.progress)(at, Progress::Over(0));
                let watch = Watch::new(how, at);
                let run = AssertUnwindSafe(|| run_one(given, entrant, (pipeline, options), watch));
                let done = catch_unwind(run).map_err(|panic| panic_text(panic.as_ref()));
                (how.progress)(at, Progress::Ended);
                done
            })
            .collect()
    });
    Ok(results)
}

/// As many threads as asked for, or as there are cores.
pub fn pool(threads: Option<&str>) -> Result<rayon::ThreadPool, Failure> {
    let threads = match threads {
        Some(text) => {
            let threads = whole("--threads", text, 4096).ok().filter(|threads| *threads > 0);
            let expected = "a whole number from 1 to 4096; without the flag all cores are used";
            threads.ok_or_else(|| Failure::flag("--threads", text, expected))? as usize
        }
        None => 0,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Failure::Operation(format!("cannot start threads: {error}")))
}

/// Runs one entrant on jobs in little room; a panic is told in words. The outcome lists no jobs but those that were
/// never over.
pub fn run_compact(
    given: &GivenCompact,
    entrant: &Entrant,
    options: &Options,
    how: &How<'_>,
) -> Result<Result<Done, String>, Failure> {
    let built = entrant.selection.build();
    let pipeline = built.map_err(|error| Failure::config("", error))?;
    let information = information(&pipeline, options);
    let pool = pool(how.threads)?;
    (how.progress)(0, Progress::Over(0));
    let run = || {
        let mut tally = Tally::new(&given.workload, &given.cluster);
        let mut watch = Watch::new(how, 0);
        let asked = (pipeline, options);
        let outcome =
            simulate_compact(&given.workload, &given.cluster, asked, &mut watch, &mut tally);
        let measures = tally.finish(&given.cluster, &outcome);
        let run = described(Run::of(&entrant.label, measures), entrant, information);
        watch.done((run, options.seed), outcome)
    };
    let done = pool.install(|| catch_unwind(AssertUnwindSafe(run)));
    (how.progress)(0, Progress::Ended);
    Ok(done.map_err(|panic| panic_text(panic.as_ref())))
}

fn information(pipeline: &Pipeline, options: &Options) -> Information {
    Information::new(&pipeline.needs, (options.estimate_error, options.speed_error))
}

/// The run with what its policy is.
fn described(run: Run, entrant: &Entrant, information: Information) -> Run {
    let about = entrant.entry.about.to_owned();
    Run { about, information, settings: choice::settings(entrant), ..run }
}

fn run_one(
    given: &Given,
    entrant: &Entrant,
    (pipeline, options): (Pipeline, &Options),
    mut watch: Watch<'_>,
) -> Done {
    let information = information(&pipeline, options);
    let outcome = simulate(&given.workload, &given.cluster, pipeline, options, &mut watch);
    let run = Run::new(&entrant.label, &given.workload, &given.cluster, &outcome);
    watch.done((described(run, entrant, information), options.seed), outcome)
}

/// Says how far it is, and takes actions down if asked to.
struct Watch<'a> {
    how: &'a How<'a>,
    /// The place of the entrant.
    at: usize,
    actions: Recorder,
    timeline: Timeline,
}

impl<'a> Watch<'a> {
    fn new(how: &'a How<'a>, at: usize) -> Watch<'a> {
        let timeline = Timeline::new(how.record.intervals_max());
        Watch { how, at, actions: Recorder::default(), timeline }
    }

    fn done(mut self, (run, seed): (Run, u64), outcome: Outcome) -> Done {
        self.timeline.close(outcome.ended);
        Done { run, seed, outcome, actions: self.actions, timeline: self.timeline }
    }
}

impl Observer for Watch<'_> {
    fn action(&mut self, at: Time, action: &Action) {
        if matches!(self.how.record, Record::Everything(_)) {
            self.actions.action(at, action);
        }
        if self.how.record != Record::Nothing {
            self.timeline.action(at, action);
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.timeline.released(at, job);
    }

    fn progress(&mut self, over: usize) {
        (self.how.progress)(self.at, Progress::Over(over));
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
