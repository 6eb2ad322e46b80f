//! Policies side by side, with a bar that shows how far they are.

use crate::args::OutArgs;
use crate::failure::Failure;
use crate::output::note;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Mutex;
use trainyard_experiment::args::GivenArgs;
use trainyard_experiment::choice::Entrant;
use trainyard_experiment::given::{self, Given, GivenCompact, Loaded};
use trainyard_experiment::runs::{self, Done, How, Progress, Record};
use trainyard_sim::Options;

/// What the flags name; what should be said about it goes to standard error.
pub fn load(args: &GivenArgs) -> Result<Given, Failure> {
    let given = given::load(args)?;
    given.notes.iter().for_each(|text| note(text));
    Ok(given)
}

/// The same with jobs in little room where that is possible.
pub fn load_compact(args: &GivenArgs) -> Result<Loaded, Failure> {
    let loaded = given::load_compact(args)?;
    loaded.notes().iter().for_each(|text| note(text));
    Ok(loaded)
}

/// Runs all entrants; what panics is told in words, and the others go on.
pub fn run_all(
    given: &Given,
    entrants: &[Entrant],
    options: &Options,
    (out, record): (&OutArgs, Record),
) -> Result<Vec<Result<Done, String>>, Failure> {
    with_bar(given.workload.jobs.len(), entrants, |progress| {
        let how = How { threads: out.threads.as_deref(), record, progress };
        Ok(runs::run_all(given, entrants, options, &how)?)
    })
}

/// Runs one entrant on jobs in little room.
pub fn run_compact(
    given: &GivenCompact,
    entrant: &Entrant,
    options: &Options,
    out: &OutArgs,
) -> Result<Result<Done, String>, Failure> {
    with_bar(given.workload.jobs.len(), std::slice::from_ref(entrant), |progress| {
        let how = How { threads: out.threads.as_deref(), record: Record::Nothing, progress };
        Ok(runs::run_compact(given, entrant, options, &how)?)
    })
}

/// Runs with a bar that is told how far each entrant is.
fn with_bar<T>(
    jobs: usize,
    entrants: &[Entrant],
    run: impl FnOnce(&(dyn Fn(usize, Progress) + Sync)) -> T,
) -> T {
    let bar = progress_bar(jobs, entrants);
    let labels = entrants.iter().map(|entrant| entrant.label.clone()).collect();
    let stand = Mutex::new(Stand::new(labels, jobs));
    let progress = |at: usize, progress: Progress| {
        // A thread that panicked while it told of its progress spoils the bar and nothing else.
        let Ok(mut stand) = stand.lock() else { return };
        stand.told(at, progress);
        bar.set_position(stand.over() as u64);
        bar.set_message(stand.message());
    };
    let result = run(&progress);
    bar.finish_and_clear();
    result
}

/// A bar on standard error; invisible where that is no terminal.
fn progress_bar(jobs: usize, entrants: &[Entrant]) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some((jobs * entrants.len()) as u64),
        ProgressDrawTarget::stderr_with_hz(10),
    );
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Runs that are named at once; a line is not longer.
const NAMED_MAX: usize = 3;

/// How far all runs are.
struct Stand {
    labels: Vec<String>,
    /// Jobs of each run.
    jobs: usize,
    /// What each run told last; nothing before it begins.
    runs: Vec<Option<Progress>>,
}

impl Stand {
    fn new(labels: Vec<String>, jobs: usize) -> Stand {
        Stand { runs: vec![None; labels.len()], labels, jobs }
    }

    fn told(&mut self, at: usize, progress: Progress) {
        self.runs[at] = Some(progress);
    }

    /// Jobs that have ended, in all runs.
    fn over(&self) -> usize {
        let over = self.runs.iter().flatten().map(|run| match run {
            Progress::Over(jobs) => *jobs,
            Progress::Ended => self.jobs,
        });
        over.sum()
    }

    /// What runs and how far it is, and how many policies are done where there are several.
    fn message(&self) -> String {
        let running = self.runs.iter().zip(&self.labels).filter_map(|(run, label)| match run {
            Some(Progress::Over(jobs)) => {
                Some(format!("{label} {} %", jobs * 100 / self.jobs.max(1)))
            }
            Some(Progress::Ended) | None => None,
        });
        let mut running: Vec<String> = running.collect();
        if running.len() > NAMED_MAX {
            let more = running.split_off(NAMED_MAX).len();
            running.push(format!("{more} more"));
        }
        let running = running.join(", ");
        let done = self.runs.iter().filter(|run| **run == Some(Progress::Ended)).count();
        match self.labels.len() {
            1 => format!("simulating {running}"),
            all => format!("{done} of {all} policies done, now {running}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_names_the_policies_that_run_and_how_far_each_is() {
        let mut stand = Stand::new(["fifo", "allox", "las"].map(str::to_owned).to_vec(), 200);
        stand.told(0, Progress::Over(0));
        stand.told(1, Progress::Over(0));
        stand.told(1, Progress::Over(90));
        assert_eq!(stand.message(), "0 of 3 policies done, now fifo 0 %, allox 45 %");
        stand.told(0, Progress::Ended);
        stand.told(2, Progress::Over(3));
        assert_eq!(stand.message(), "1 of 3 policies done, now allox 45 %, las 1 %");
        assert_eq!(stand.over(), 200 + 90 + 3);
    }
}
