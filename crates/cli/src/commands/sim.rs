//! `trainyard sim`: one policy, in full.

use super::compare::{
    about, conclude, detail, grouped, headline, json_with, parts, prepare, sorted_out, write_jobs,
    write_report,
};
use crate::args::{RunArgs, SimArgs};
use crate::experiment::{self, Record};
use crate::failure::Failure;
use crate::output::Output;
use crate::{choice, figures};
use trainyard_report::html::More;
use trainyard_report::timeline;
use trainyard_report::{Comparison, chrome_trace, table, text};

/// Runs the command.
pub fn run(args: &SimArgs, output: &Output) -> Result<(), Failure> {
    let RunArgs { stages, world, out, .. } = &args.run;
    let (given, options) = prepare(&args.run)?;
    let entrant = choice::entrant_alone(&args.policy, stages, world.semantics.semantics())?;
    let entrants = [entrant];
    let record = recorded(args);
    let results = experiment::run_all(&given, &entrants, &options, (out, record))?;
    let (done, broken) = sorted_out(&entrants, results);
    let comparison = Comparison {
        about: about(&given, &args.run, &options),
        runs: done.iter().map(|one| one.run.clone()).collect(),
    };
    let groups = grouped(&given, &done, out);
    if out.json {
        output.print_json(&json_with(&comparison, &groups))?;
    } else if out.csv {
        output.print_with(|out| table::csv(&comparison, out))?;
    } else if let Some(run) = comparison.runs.first() {
        output.print(&headline(&comparison.about, &format!("seed {}", options.seed)))?;
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
        if let Some((by, runs)) = &groups {
            output.print(&format!(
                "\n{}",
                trainyard_report::groups::terminal(*by, runs, output.ink)
            ))?;
        }
    }
    let (detail, parts) = (detail(&given, &done), parts(&given, &done, out));
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
        write_jobs(&given, &done, path, output)?;
    }
    if let (Some(path), Some(one)) = (&args.log, done.first()) {
        let log = text::action_log(&given.workload, &one.actions);
        output.write_file(path, |file| file.write_all(log.as_bytes()))?;
    }
    conclude(&given, &done, broken)
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
