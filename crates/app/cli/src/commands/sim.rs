//! `trainyard sim`: one policy, in full.

use super::bound;
use super::compare::{
    Grouped, about, about_jobs, conclude, conclude_named, detail, grouped, headline, json_with,
    parts, prepare, prepare_compact, sorted_out, write_jobs, write_report,
};
use crate::args::{OutArgs, RunArgs, SimArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::{figures, side_by_side};
use trainyard_experiment::choice;
use trainyard_experiment::given::{Given, GivenCompact, Loaded};
use trainyard_experiment::runs::Record;
use trainyard_report::html::More;
use trainyard_report::timeline;
use trainyard_report::{Comparison, chrome_trace, table, text};
use trainyard_sim::Options;

/// Runs the command.
pub fn run(args: &SimArgs, output: &Output) -> Result<(), Failure> {
    if lists_jobs(args) {
        let (given, options) = prepare(&args.run)?;
        return run_whole(args, (&given, &options), output);
    }
    match prepare_compact(&args.run)? {
        (Loaded::Whole(given), options) => run_whole(args, (&given, &options), output),
        (Loaded::Compact(given), options) => run_compact(args, (&given, &options), output),
    }
}

/// Whether something is asked for that takes all jobs side by side, so that none can go before the run has ended.
fn lists_jobs(args: &SimArgs) -> bool {
    let RunArgs { world, out, .. } = &args.run;
    let report = out.report.as_ref().is_some_and(|path| path.as_os_str() != "none");
    let files = [&args.log, &args.chrome_trace, &out.svg, &out.png, &out.jobs_out];
    report
        || files.into_iter().any(Option::is_some)
        || out.by.is_some()
        || world.measure.is_some()
        || args.run.bound
}

/// Runs a policy on jobs that are made when they come and go when they have ended.
fn run_compact(
    args: &SimArgs,
    (given, options): (&GivenCompact, &Options),
    output: &Output,
) -> Result<(), Failure> {
    let RunArgs { stages, world, out, .. } = &args.run;
    let entrants = [choice::entrant_alone(&args.policy, stages, world.semantics)?];
    let result = side_by_side::run_compact(given, &entrants[0], options, out)?;
    let (done, broken) = sorted_out(&entrants, vec![result]);
    let GivenCompact { workload, cluster, .. } = given;
    let (jobs, load) = (workload.jobs.len(), workload.offered_load(cluster));
    let comparison = Comparison {
        about: about_jobs((&workload.name, jobs, load), cluster, &args.run, options),
        runs: done.iter().map(|one| one.run.clone()).collect(),
    };
    print(&comparison, &None, out, output)?;
    conclude_named(&|job| workload.label(job), &done, broken)
}

/// Runs a policy on a list of jobs.
fn run_whole(
    args: &SimArgs,
    (given, options): (&Given, &Options),
    output: &Output,
) -> Result<(), Failure> {
    let RunArgs { stages, world, out, .. } = &args.run;
    let entrants = [choice::entrant_alone(&args.policy, stages, world.semantics)?];
    let record = recorded(args);
    let bounds = bound::of(args.run.bound, given, options)?;
    let results = side_by_side::run_all(given, &entrants, options, (out, record))?;
    let (mut done, broken) = sorted_out(&entrants, results);
    bound::add(&mut done, bounds.as_ref());
    let comparison = Comparison {
        about: about(given, &args.run, options),
        runs: done.iter().map(|one| one.run.clone()).collect(),
    };
    print(&comparison, &grouped(given, &done, out), out, output)?;
    let (detail, parts) = (detail(given, &done), parts(given, &done, out));
    let more = More { detail: Some(&detail), parts: parts.as_ref(), replicas: None };
    if let Some(path) = out.report.as_ref().filter(|path| path.as_os_str() != "none") {
        write_report(&comparison, &more, (path, out), output)?;
    }
    figures::write(&comparison, &more, out, output)?;
    if let (Some(path), Some(one)) = (&args.chrome_trace, done.first()) {
        output.write_file(path, |file| {
            chrome_trace::write(file, (&given.workload, &given.cluster), &one.timeline)
        })?;
    }
    if let Some(path) = &out.jobs_out {
        write_jobs(given, &done, path, output)?;
    }
    if let (Some(path), Some(one)) = (&args.log, done.first()) {
        let log = text::action_log(&given.workload, &one.actions);
        output.write_file(path, |file| file.write_all(log.as_bytes()))?;
    }
    conclude(given, &done, broken)
}

/// The measures, in the form that is asked for.
fn print(
    comparison: &Comparison,
    groups: &Grouped,
    out: &OutArgs,
    output: &Output,
) -> Result<(), Failure> {
    if out.json {
        return output.print_json(&json_with(comparison, groups));
    }
    if out.csv {
        return output.print_with(|out| table::csv(comparison, out));
    }
    let Some(run) = comparison.runs.first() else { return Ok(()) };
    let about = &comparison.about;
    output.print(&headline(about, &format!("seed {}", about.seed)))?;
    output.print(&format!(
        "{}: {}\ninformation: {}\n",
        run.policy,
        run.about,
        run.information.text()
    ))?;
    for (key, value) in &run.settings {
        output.print(&format!("{key} = {value}\n"))?;
    }
    output.print(&format!("\n{}", table::terminal_one(run, output.ink)))?;
    if run.summary.bound.is_some() {
        output.print(&format!("\n{}", bound::sentences(comparison)))?;
    }
    if let Some((by, runs)) = groups {
        let table = trainyard_report::groups::terminal(*by, runs, output.ink);
        output.print(&format!("\n{table}"))?;
    }
    Ok(())
}

/// What the files asked for need.
fn recorded(args: &SimArgs) -> Record {
    let most = match args.chrome_trace {
        Some(_) => chrome_trace::INTERVALS_MAX,
        None => timeline::INTERVALS_MAX,
    };
    let out = &args.run.out;
    let drawn = args.chrome_trace.is_some()
        || out.report.is_some()
        || out.svg.is_some()
        || out.png.is_some();
    match (args.log.is_some(), drawn) {
        (true, _) => Record::Everything(most),
        (false, true) => Record::Timeline(most),
        (false, false) => Record::Nothing,
    }
}
