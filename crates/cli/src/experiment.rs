//! Policies side by side on several threads.

use crate::args::OutArgs;
use crate::choice::{self, Entrant};
use crate::failure::Failure;
use crate::given::Given;
use crate::options::whole;
use crate::output::panic_text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use trainyard_framework::Pipeline;
use trainyard_report::text::Recorder;
use trainyard_report::timeline::Timeline;
use trainyard_report::{Information, Run};
use trainyard_sim::{Observer, Options, Outcome, simulate};
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
    /// Who held which GPUs when, if it was asked for.
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

/// Runs all entrants; what panics is told in words, and the others go on.
///
/// The order of the results is that of the entrants, and no result depends on the number of threads.
pub fn run_all(
    given: &Given,
    entrants: &[Entrant],
    options: &Options,
    (out, record): (&OutArgs, Record),
) -> Result<Vec<Result<Done, String>>, Failure> {
    let mut pipelines = Vec::with_capacity(entrants.len());
    for entrant in entrants {
        let built = entrant.selection.build();
        pipelines.push(built.map_err(|error| Failure::config("", error))?);
    }
    let pool = pool(out.threads.as_deref())?;
    let bar = progress_bar(given.workload.jobs.len(), entrants);
    let results = pool.install(|| {
        let both = entrants.par_iter().zip(pipelines.into_par_iter());
        // One at a time: runs differ too much in length to be dealt out in blocks.
        both.with_max_len(1)
            .map(|(entrant, pipeline)| {
                let timeline = Timeline::new(record.intervals_max());
                let actions = Recorder::default();
                let watch = Watch { bar: &bar, seen: 0, record, actions, timeline };
                let run = AssertUnwindSafe(|| run_one(given, entrant, (pipeline, options), watch));
                catch_unwind(run).map_err(|panic| panic_text(panic.as_ref()))
            })
            .collect()
    });
    bar.finish_and_clear();
    Ok(results)
}

/// As many threads as asked for, or as there are cores.
pub fn pool(threads: Option<&str>) -> Result<rayon::ThreadPool, Failure> {
    let threads = match threads {
        Some(text) => whole("--threads", text, 4096)? as usize,
        None => 0,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Failure::Operation(format!("cannot start threads: {error}")))
}

fn run_one(
    given: &Given,
    entrant: &Entrant,
    (pipeline, options): (Pipeline, &Options),
    mut watch: Watch<'_>,
) -> Done {
    let information = Information::new(&pipeline.needs, options.estimate_error);
    let outcome = simulate(&given.workload, &given.cluster, pipeline, options, &mut watch);
    let run = Run {
        about: entrant.entry.about.to_owned(),
        information,
        settings: choice::settings(entrant),
        ..Run::new(&entrant.label, &given.workload, &given.cluster, &outcome)
    };
    watch.timeline.close(outcome.ended);
    Done { run, seed: options.seed, outcome, actions: watch.actions, timeline: watch.timeline }
}

/// Moves the bar, and takes actions down if asked to.
struct Watch<'a> {
    bar: &'a ProgressBar,
    seen: usize,
    record: Record,
    actions: Recorder,
    timeline: Timeline,
}

impl Observer for Watch<'_> {
    fn action(&mut self, at: Time, action: &Action) {
        if matches!(self.record, Record::Everything(_)) {
            self.actions.action(at, action);
        }
        if self.record != Record::Nothing {
            self.timeline.action(at, action);
        }
    }

    fn released(&mut self, at: Time, job: JobId) {
        self.timeline.released(at, job);
    }

    fn progress(&mut self, over: usize) {
        self.bar.inc((over - self.seen) as u64);
        self.seen = over;
    }
}

/// A bar on standard error; invisible where that is no terminal.
fn progress_bar(jobs: usize, entrants: &[Entrant]) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some((jobs * entrants.len()) as u64),
        ProgressDrawTarget::stderr_with_hz(10),
    );
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(match entrants {
        [one] => format!("simulating {}", one.label),
        many => format!("simulating {} policies", many.len()),
    });
    bar
}
