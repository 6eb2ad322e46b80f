//! `trainyard compare`: policies side by side.

use super::bound;
use crate::args::{CompareArgs, OutArgs, RunArgs, VERSION};
use crate::failure::Failure;
use crate::output::Output;
use crate::side_by_side::{load, load_compact};
use crate::{figures, side_by_side};
use std::path::{Path, PathBuf};
use trainyard_experiment::choice::{self, Entrant};
use trainyard_experiment::given::{Given, Loaded};
use trainyard_experiment::options;
use trainyard_experiment::runs::{Done, Record};
use trainyard_report::groups::{self, By, Group};
use trainyard_report::html::{Detail, More, RunDetail};
use trainyard_report::jobs::JobsCsv;
use trainyard_report::parts::Parts;
use trainyard_report::timeline::INTERVALS_MAX;
use trainyard_report::units::Unit;
use trainyard_report::{About, Comparison, html, table};
use trainyard_sim::Options;
use trainyard_types::{Cluster, JobId};
use trainyard_workload::cluster;

/// Where the report goes unless a flag says otherwise.
const REPORT: &str = "trainyard-report.html";

/// Runs the command.
pub fn run(args: &CompareArgs, output: &Output) -> Result<(), Failure> {
    if let Some(seeds) = &args.seeds {
        return super::repeat::run(args, seeds, output);
    }
    let RunArgs { stages, world, out, .. } = &args.run;
    let (given, options) = prepare(&args.run)?;
    let jobs = choice::traits_of(&given.workload);
    let entrants = choice::entrants(&args.policies, stages, (world.semantics, jobs))?;
    let bounds = bound::of(args.run.bound, &given, &options)?;
    let results = side_by_side::run_all(&given, &entrants, &options, (out, recorded(out)))?;
    let (mut done, broken) = sorted_out(&entrants, results);
    bound::add(&mut done, bounds.as_ref());
    let comparison = Comparison {
        about: about(&given, &args.run, &options),
        runs: done.iter().map(|one| one.run.clone()).collect(),
    };
    let groups = grouped(&given, &done, out);
    print(&comparison, &groups, out, output)?;
    let (detail, parts) = (detail(&given, &done), parts(&given, &done, out));
    let more = More { detail: Some(&detail), parts: parts.as_ref(), replicas: None };
    if let Some(path) = report_path(out) {
        write_report(&comparison, &more, (&path, out), output)?;
    }
    figures::write(&comparison, &more, out, output)?;
    if let Some(path) = &out.jobs_out {
        write_jobs(&given, &done, path, output)?;
    }
    conclude(&given, &done, broken)
}

/// The jobs, the cluster and the options of a run.
pub fn prepare(run: &RunArgs) -> Result<(Given, Options), Failure> {
    figures::refuse_early(&run.out)?;
    let seed = options::whole("--seed", &run.given.seed, options::SEED_MAX)?;
    let options = options::read(&run.world, seed)?;
    let given = load(&run.given)?;
    options::refuse_window(&options, &given.workload)?;
    options::refuse_pool(&options, &given.cluster)?;
    Ok((given, options))
}

/// The same with the jobs in little room where that is possible.
pub fn prepare_compact(run: &RunArgs) -> Result<(Loaded, Options), Failure> {
    figures::refuse_early(&run.out)?;
    let seed = options::whole("--seed", &run.given.seed, options::SEED_MAX)?;
    let options = options::read(&run.world, seed)?;
    let loaded = load_compact(&run.given)?;
    options::refuse_pool(&options, loaded.cluster())?;
    Ok((loaded, options))
}

/// What is common to all runs.
pub fn about(given: &Given, run: &RunArgs, options: &Options) -> About {
    let Given { workload, cluster, .. } = given;
    let (jobs, load) = (workload.jobs.len(), workload.offered_load(cluster));
    about_jobs((&workload.name, jobs, load), cluster, run, options)
}

/// The same of so many jobs of a workload of that name, which need such a part of the cluster.
pub fn about_jobs(
    (name, jobs, load): (&str, usize, f64),
    cluster: &Cluster,
    run: &RunArgs,
    options: &Options,
) -> About {
    About {
        version: VERSION.to_owned(),
        workload: name.to_owned(),
        jobs: jobs as u64,
        offered_load: load.is_finite().then_some(load),
        cluster: cluster::line_of(cluster),
        gpus: cluster.gpus(),
        seed: options.seed,
        options: options::listed(&run.world, options),
    }
}

/// Runs that came to their end, and a sentence for each that did not.
pub fn sorted_out(
    entrants: &[Entrant],
    results: Vec<Result<Done, String>>,
) -> (Vec<Done>, Vec<String>) {
    let (mut done, mut broken) = (Vec::new(), Vec::new());
    for (entrant, result) in entrants.iter().zip(results) {
        match result {
            Ok(one) => done.push(one),
            Err(panic) => broken.push(format!("the run of {} broke down: {panic}", entrant.label)),
        }
    }
    (done, broken)
}

/// One sentence about what is being run.
///
/// `seeds` is told as it stands.
pub fn headline(about: &About, seeds: &str) -> String {
    let load = match about.offered_load {
        Some(load) => format!(", load {load:.2}"),
        None => String::new(),
    };
    format!(
        "{} jobs ({}) on {}: {} GPUs{load}, {seeds}\n\n",
        Unit::Count.text(about.jobs as f64),
        about.workload,
        about.cluster,
        about.gpus,
    )
}

/// Writes the page, and says so to people.
pub fn write_report(
    comparison: &Comparison,
    more: &More<'_>,
    (path, out): (&Path, &OutArgs),
    output: &Output,
) -> Result<(), Failure> {
    let page = html::page_with(comparison, more);
    output.write_file(path, |file| file.write_all(page.as_bytes()))?;
    if out.json || out.csv {
        return Ok(());
    }
    output.print(&format!("Report: {}\n", path.display()))
}

/// What the page shows of single jobs.
pub fn detail<'a>(given: &'a Given, done: &'a [Done]) -> Detail<'a> {
    let run = |one: &'a Done| RunDetail { outcome: &one.outcome, timeline: &one.timeline };
    let runs = done.iter().map(run).collect();
    Detail { workload: &given.workload, cluster: &given.cluster, runs }
}

/// Writes what came of every job.
pub fn write_jobs(
    given: &Given,
    done: &[Done],
    path: &Path,
    output: &Output,
) -> Result<(), Failure> {
    output.write_file(path, |file| {
        let mut jobs = JobsCsv::new(&given.workload, &given.cluster, file)?;
        for one in done {
            jobs.add(&one.run.policy, &one.outcome)?;
        }
        jobs.finish()
    })
}

/// Fails when a job was left unfinished or a policy did not work.
pub fn conclude(given: &Given, done: &[Done], troubles: Vec<String>) -> Result<(), Failure> {
    conclude_named(&|job| given.workload.label(job), done, troubles)
}

/// The same with what jobs are called.
pub fn conclude_named(
    label: &dyn Fn(JobId) -> String,
    done: &[Done],
    mut troubles: Vec<String>,
) -> Result<(), Failure> {
    for one in done {
        let (name, summary) = (&one.run.policy, &one.run.summary);
        if summary.unfinished > 0 {
            let first = one.outcome.unfinished.iter().take(5);
            let labels: Vec<String> = first.map(|job| label(*job)).collect();
            let more = if one.outcome.unfinished.len() > 5 { ", ..." } else { "" };
            troubles.push(format!(
                "{name} left {} of {} jobs UNFINISHED ({}{more})",
                summary.unfinished,
                summary.jobs,
                labels.join(", ")
            ));
        }
        let trouble = summary.trouble;
        if trouble != Default::default() {
            let first = one.outcome.stats.fault_samples.first();
            let example = first.map(|fault| format!(", such as {fault:?}")).unwrap_or_default();
            troubles.push(format!(
                "{name} did not work properly: {} faulty grants, {} errors, {} panics, {} decisions by a fallback order instead{example}",
                trouble.faults, trouble.errors, trouble.panics, trouble.fallbacks
            ));
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(Failure::Operation(troubles.join("; "))) }
}

/// The measures by what `--by` names, for each run.
pub type Grouped = Option<(By, Vec<(String, Vec<Group>)>)>;

/// The second table, where one is asked for.
pub fn grouped(given: &Given, done: &[Done], out: &OutArgs) -> Grouped {
    let by = out.by?.by();
    let of = |one: &Done| groups::groups(&given.workload, &given.cluster, &one.outcome, by);
    Some((by, done.iter().map(|one| (one.run.policy.clone(), of(one))).collect()))
}

/// The same for the page.
pub fn parts(given: &Given, done: &[Done], out: &OutArgs) -> Option<Parts> {
    let mut parts = Parts::new(out.by?.by());
    add_parts(&mut parts, given, done);
    Some(parts)
}

/// Adds what came of one seed.
pub fn add_parts(parts: &mut Parts, given: &Given, done: &[Done]) {
    let Some(seed) = done.first().map(|one| one.seed) else { return };
    let of = |one: &Done| groups::groups(&given.workload, &given.cluster, &one.outcome, parts.by);
    let runs: Vec<_> = done.iter().map(|one| (&one.run, of(one))).collect();
    parts.add(seed, &runs);
}

/// What the page and the figures need.
pub fn recorded(out: &OutArgs) -> Record {
    let is_drawn = report_path(out).is_some() || out.svg.is_some() || out.png.is_some();
    if is_drawn { Record::Timeline(INTERVALS_MAX) } else { Record::Nothing }
}

/// A comparison as JSON, with the second table where there is one.
pub fn json_with(comparison: &Comparison, grouped: &Grouped) -> serde_json::Value {
    let mut value = comparison.json();
    bound::add_to_json(comparison, &mut value);
    if let Some((by, runs)) = grouped {
        value["groups"] = groups::json(*by, runs);
    }
    value
}

fn print(
    comparison: &Comparison,
    grouped: &Grouped,
    out: &OutArgs,
    output: &Output,
) -> Result<(), Failure> {
    if out.json {
        return output.print_json(&json_with(comparison, grouped));
    }
    if out.csv {
        return output.print_with(|out| table::csv(comparison, out));
    }
    output.print(&headline(&comparison.about, &format!("seed {}", comparison.about.seed)))?;
    output.print(&table::terminal(comparison, output.ink, output.width))?;
    output.print(
        "\n* best of its column. JCT: job completion time. information: what the policy was told of job sizes and speeds.\n",
    )?;
    for run in &comparison.runs {
        if let Some(gap) = run.summary.gap_worst {
            let (label, percent) = (&run.policy, 100.0 * gap);
            output.print(&format!(
                "{label}: every decision is proven to be within {percent:.4} % of the best.\n"
            ))?;
        }
    }
    output.print(&bound::sentences(comparison))?;
    match grouped {
        Some((by, runs)) => {
            output.print(&format!("\n{}\n", groups::terminal(*by, runs, output.ink)))
        }
        None => Ok(()),
    }
}

/// Where the page goes, if there is to be one.
pub fn report_path(out: &OutArgs) -> Option<PathBuf> {
    match &out.report {
        Some(path) if path.as_os_str() == "none" => None,
        Some(path) => Some(path.clone()),
        None if out.json || out.csv => None,
        None => Some(PathBuf::from(REPORT)),
    }
}
