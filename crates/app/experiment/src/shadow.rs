//! What other policies would have made of the jobs that a live Slurm ran.
//!
//! - [`mod@rebuilt`]: the workload that ran; [`lengths`]: how long jobs are that did not end.
//! - [`observed_run`]: what Slurm really did, in the form of a run.
//! - [`verdict`]: what each policy would have gained, and how sure that is.

pub mod lengths;
pub mod observed_run;
pub mod rebuilt;
pub mod verdict;

pub use rebuilt::{Counts, Rebuilt};
pub use verdict::ShadowVerdict;

use crate::given::Given;
use crate::runs::Done;
use observed_run::happened;
use rebuilt::{Assumed, rebuild};
use trainyard_framework::Knowledge;
use trainyard_report::{About, Comparison, Information, Run};
use trainyard_sim::{Options, Outcome, Point, Series};
use trainyard_slurm::{History, Inventory, NodeFilter, SlurmSeen};
use trainyard_types::{Span, Time};
use trainyard_workload::cluster;

/// What the row of reality is called.
const REALITY: &str = "Slurm, as it happened";
/// Estimates of what is left of unfinished jobs are taken as they are, and then wrong by half and by double.
const LEFT: [f64; 3] = [1.0, 0.5, 2.0];

/// What is shown in the end.
pub struct Shown {
    /// Reality first, then the policies.
    pub comparison: Comparison,
    /// One for each policy.
    pub verdicts: Vec<ShadowVerdict>,
    /// The measures of the watch that hold for all jobs, by row of the comparison.
    pub during: Vec<During>,
    /// How many jobs of which sort there are.
    pub counts: Counts,
    /// What must be known to judge it.
    pub notes: Vec<String>,
}

/// What happened during the watch, over all jobs.
#[derive(Copy, Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct During {
    /// Jobs that ended.
    pub ended: u64,
    /// Jobs that waited, on the average.
    pub waiting_mean: f64,
    /// The part of all GPUs that was held, on the average.
    pub utilisation: f64,
}

/// How watched jobs are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Only these partitions; all where none is named.
    pub partitions: Vec<String>,
    /// Whether no policy may stop a job that runs.
    pub keep_running: bool,
}

/// The nodes that were in service at any time, with what is known of their GPUs.
pub fn inventory(history: &History, partitions: &[String]) -> Inventory {
    let served = history.nodes.values().filter(|node| history.in_at_times.contains(&node.name));
    let seen = SlurmSeen { nodes: served.cloned().collect(), ..SlurmSeen::default() };
    let filter = NodeFilter { partitions: partitions.to_vec() };
    let mut inventory = Inventory::of(&seen, &filter);
    for kind in &mut inventory.cluster.kinds {
        if let Some(known) = cluster::default_kind(&kind.name) {
            *kind = trainyard_types::GpuKind { name: kind.name.clone(), ..known };
        }
    }
    inventory
}

/// The workload that ran, with so much of what is expected to be left of unfinished jobs.
pub fn rebuilt(
    (history, inventory): (&History, &Inventory),
    taken: &Taken,
    (options, left): (&Options, f64),
) -> Rebuilt {
    let assumed = Assumed { left, preemptible: !taken.keep_running, costs: options.costs };
    rebuild(history, inventory, (&taken.partitions, assumed))
}

/// What was watched, and the workload that was rebuilt from it.
pub type Watched<'a> = (&'a History, &'a Inventory, Rebuilt);

/// Simulates every policy, by a function that does so, and puts reality beside them.
pub fn compared<E>(
    (history, inventory, first): Watched<'_>,
    (options, taken, about): (&Options, &Taken, About),
    run_all: impl Fn(&Given) -> Result<Vec<Done>, E>,
) -> Result<(Shown, (Vec<Done>, Rebuilt)), E> {
    let window = Time::ZERO + Span::secs((history.to - history.from).max(1) as u64);
    let (outcome, timeline) = happened(history, inventory, &first);
    let ended = outcome.jobs.len() as u64 + u64::from(first.counts.ran_before);
    let mut during = vec![During { ended, ..during(&outcome.series, (window, outcome.gpus)) }];
    let run = Run {
        about: "what the cluster's own scheduler did, as squeue told it".to_owned(),
        ..Run::new(REALITY, &first.given.workload, &first.given.cluster, &outcome)
    };
    let mut done =
        vec![Done { run, seed: options.seed, outcome, actions: Default::default(), timeline }];
    let mut verdicts: Vec<ShadowVerdict> = Vec::new();
    let is_open = first.counts.running + first.counts.waiting > 0;
    for left in LEFT.into_iter().take(if is_open { LEFT.len() } else { 1 }) {
        let again = rebuilt((history, inventory), taken, (options, left));
        let runs = run_all(&again.given)?;
        for (index, mut one) in runs.into_iter().enumerate() {
            let mut whole = during_run(&one.outcome, window);
            cut(&mut one, &again, window);
            whole.utilisation = one.run.summary.utilisation;
            match verdicts.get_mut(index) {
                Some(verdict) => verdict.widen(&again, (&done[0].outcome, &one.outcome)),
                None => {
                    verdicts.push(ShadowVerdict::new(
                        &one.run,
                        &again,
                        (&done[0].outcome, &one.outcome),
                    ));
                    during.push(whole);
                    done.push(one);
                }
            }
        }
    }
    let comparison = Comparison { about, runs: done.iter().map(|one| one.run.clone()).collect() };
    let counts = first.counts.clone();
    let notes = verdict::notes(history, inventory, (&counts, taken.keep_running));
    Ok((Shown { comparison, verdicts, during, counts, notes }, (done, first)))
}

/// Levels over the watch.
fn during(series: &Series, (window, gpus): (Time, u32)) -> During {
    During {
        ended: 0,
        waiting_mean: mean_until(series, window, |point| point.waiting),
        utilisation: mean_until(series, window, |point| point.used) / f64::from(gpus.max(1)),
    }
}

fn during_run(outcome: &Outcome, window: Time) -> During {
    let ended = outcome.jobs.iter().filter(|one| one.ended <= window).count() as u64;
    During { ended, ..during(&outcome.series, (window, outcome.gpus)) }
}

/// The mean of a level from the beginning to a moment; after its end a series is at nothing.
fn mean_until(series: &Series, until: Time, of: impl Fn(&Point) -> f64) -> f64 {
    let every = series.every.as_secs_f64();
    let (mut sum, mut at) = (0.0, series.start.as_secs_f64());
    let end = until.as_secs_f64();
    for point in &series.points {
        let width = (end - at).min(every);
        if width <= 0.0 {
            break;
        }
        sum += of(point) * width;
        at += every;
    }
    sum / end
}

/// Cuts a simulated run to what the watch could see: the measured jobs, and use within the window.
fn cut(done: &mut Done, rebuilt: &Rebuilt, window: Time) {
    let outcome = &mut done.outcome;
    let held = during(&outcome.series, (window, outcome.gpus)).utilisation
        * f64::from(outcome.gpus)
        * window.as_secs_f64();
    let part = if outcome.gpu_seconds_held > 0.0 { held / outcome.gpu_seconds_held } else { 0.0 };
    // What the series says counts a shared GPU once.
    (outcome.gpu_seconds_held, outcome.gpu_seconds_doubled) = (held, 0.0);
    outcome.gpu_seconds_by_kind.iter_mut().for_each(|seconds| *seconds *= part);
    outcome.gpu_seconds_overhead *= part;
    outcome.gpu_seconds_restarting *= part;
    outcome.gpu_seconds_lost *= part;
    (outcome.started, outcome.ended) = (Time::ZERO, window);
    let is_measured = |index: usize| rebuilt.jobs[index].1;
    let all = std::mem::take(&mut outcome.jobs);
    (outcome.jobs, outcome.beside) = all.into_iter().partition(|one| is_measured(one.job.index()));
    outcome.unfinished.retain(|job| is_measured(job.index()));
    let points = (window.as_secs_f64() / outcome.series.every.as_secs_f64()).ceil() as usize;
    outcome.series.points.truncate(points.max(1));
    let given = &rebuilt.given;
    let old = &done.run;
    let mut information = old.information;
    if information.work_left != Knowledge::Nothing {
        // What was expected at submission is an estimate, however it was made.
        let error = (rebuilt.error_of_lengths() * 100.0).round() / 100.0;
        information = Information { work_left: Knowledge::Estimate, error, ..information };
    }
    done.run = Run {
        about: old.about.clone(),
        information,
        settings: old.settings.clone(),
        ..Run::new(&old.policy, &given.workload, &given.cluster, outcome)
    };
}
