//! `trainyard slurm shadow`: what other policies would have made of the jobs that a live Slurm ran.

use super::observed_run::happened;
use super::rebuilt::{Assumed, Counts, Rebuilt, rebuild};
use super::verdict::{self, Verdict};
use super::watch::watch;
use crate::args::VERSION;
use crate::args::slurm::ShadowArgs;
use crate::choice::{self, Entrant};
use crate::commands::compare;
use crate::experiment::{self, Done};
use crate::failure::Failure;
use crate::output::Output;
use crate::{figures, options};
use trainyard_framework::Knowledge;
use trainyard_policies::registry::Traits;
use trainyard_report::html::More;
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
    pub verdicts: Vec<Verdict>,
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

/// Runs the command.
pub fn run(args: &ShadowArgs, output: &Output) -> Result<(), Failure> {
    figures::refuse_early(&args.out)?;
    let options = read_options(args)?;
    let semantics = args.world.semantics.semantics();
    let entrants = choice::entrants(&args.policies, &args.stages, (semantics, Traits::default()))?;
    let history = watch(args)?;
    let inventory = inventory(&history, args);
    if inventory.cluster.nodes.is_empty() {
        return Err(Failure::Operation(inventory.warnings.join("; ")));
    }
    let rebuilt = rebuilt(args, (&history, &inventory), (&options, 1.0));
    if rebuilt.counts.measured == 0 {
        return output.print(&verdict::too_early(&history, &inventory, &rebuilt.counts));
    }
    let (shown, done) = compared(args, (&history, &inventory, rebuilt), (&entrants, &options))?;
    verdict::print(&shown, &args.out, output)?;
    let (done, given) = done;
    let detail = compare::detail(&given.given, &done);
    let more = More { detail: Some(&detail), parts: None, replicas: None };
    if let Some(path) = compare::report_path(&args.out) {
        compare::write_report(&shown.comparison, &more, (&path, &args.out), output)?;
    }
    figures::write(&shown.comparison, &more, &args.out, output)?;
    match &args.out.jobs_out {
        Some(path) => compare::write_jobs(&given.given, &done, path, output),
        None => Ok(()),
    }
}

fn read_options(args: &ShadowArgs) -> Result<Options, Failure> {
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let mut options = options::read(&args.world, seed)?;
    if args.world.measure.is_some() {
        return Err(Failure::flag(
            "--measure",
            "given",
            "nothing: the watch says what is measured",
        ));
    }
    if args.world.estimate_error.is_none() {
        // Policies are told what could have been known, which is wrong enough by itself.
        options.estimate_error = 0.0;
    }
    Ok(options)
}

/// The nodes that were in service at any time, with what is known of their GPUs.
fn inventory(history: &History, args: &ShadowArgs) -> Inventory {
    let served = history.nodes.values().filter(|node| history.in_at_times.contains(&node.name));
    let seen = SlurmSeen { nodes: served.cloned().collect(), ..SlurmSeen::default() };
    let filter = NodeFilter { partitions: args.partition.clone() };
    let mut inventory = Inventory::of(&seen, &filter);
    for kind in &mut inventory.cluster.kinds {
        if let Some(known) = cluster::default_kind(&kind.name) {
            *kind = trainyard_types::GpuKind { name: kind.name.clone(), ..known };
        }
    }
    inventory
}

fn rebuilt(
    args: &ShadowArgs,
    (history, inventory): (&History, &Inventory),
    (options, left): (&Options, f64),
) -> Rebuilt {
    let assumed = Assumed { left, preemptible: !args.keep_running, costs: options.costs };
    rebuild(history, inventory, (&args.partition, assumed))
}

type Watched<'a> = (&'a History, &'a Inventory, Rebuilt);
type Entered<'a> = (&'a [Entrant], &'a Options);

/// Simulates every policy and puts reality beside them.
fn compared(
    args: &ShadowArgs,
    (history, inventory, first): Watched<'_>,
    (entrants, options): Entered<'_>,
) -> Result<(Shown, (Vec<Done>, Rebuilt)), Failure> {
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
    let mut verdicts: Vec<Verdict> = Vec::new();
    let is_open = first.counts.running + first.counts.waiting > 0;
    for left in LEFT.into_iter().take(if is_open { LEFT.len() } else { 1 }) {
        let again = rebuilt(args, (history, inventory), (options, left));
        let record = compare::recorded(&args.out);
        let results = experiment::run_all(&again.given, entrants, options, (&args.out, record))?;
        let (runs, broken) = compare::sorted_out(entrants, results);
        if !broken.is_empty() {
            return Err(Failure::Operation(broken.join("; ")));
        }
        for (index, mut one) in runs.into_iter().enumerate() {
            let mut whole = during_run(&one.outcome, window);
            cut(&mut one, &again, window);
            whole.utilisation = one.run.summary.utilisation;
            match verdicts.get_mut(index) {
                Some(verdict) => verdict.widen(&again, (&done[0].outcome, &one.outcome)),
                None => {
                    verdicts.push(Verdict::new(&one.run, &again, (&done[0].outcome, &one.outcome)));
                    during.push(whole);
                    done.push(one);
                }
            }
        }
    }
    let comparison = Comparison {
        about: about(args, (history, &first, options)),
        runs: done.iter().map(|one| one.run.clone()).collect(),
    };
    let counts = first.counts.clone();
    let notes = verdict::notes(history, inventory, (&counts, args.keep_running));
    Ok((Shown { comparison, verdicts, during, counts, notes }, (done, first)))
}

fn about(args: &ShadowArgs, (history, rebuilt, options): (&History, &Rebuilt, &Options)) -> About {
    let given = &rebuilt.given;
    let load = given.workload.offered_load(&given.cluster);
    let mut listed = options::listed(&args.world, options);
    listed.push(("watched".to_owned(), format!("{} s", history.to - history.from)));
    listed.push(("looks".to_owned(), history.looks.to_string()));
    About {
        version: VERSION.to_owned(),
        workload: "watched in Slurm".to_owned(),
        jobs: u64::from(rebuilt.counts.measured),
        offered_load: load.is_finite().then_some(load),
        cluster: cluster::line_of(&given.cluster),
        gpus: given.cluster.gpus(),
        seed: options.seed,
        options: listed,
    }
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
    outcome.gpu_seconds_held = held;
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
