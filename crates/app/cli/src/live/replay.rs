//! `replay`: the decisions of a flight record, taken again.

use super::host_args::ReplayArgs;
use super::policy_factory;
use crate::failure::Failure;
use crate::output::Output;
use std::io::BufRead;
use std::sync::Arc;
use trainyard_client::show::versioned;
use trainyard_daemon::core::beliefs;
use trainyard_daemon::flight::{Line, ReplayError, Replayed, replay};
use trainyard_diagnostic::InputError;
use trainyard_experiment::{files, given};
use trainyard_framework::Beliefs;
use trainyard_types::Cluster;

/// `replay`.
pub fn run(args: &ReplayArgs, output: &Output) -> Result<(), Failure> {
    let catalog = given::load_catalog(&args.profiles)?;
    let reader = files::open(&args.record)?;
    let lines = reader.lines().zip(1u64..).map(|(line, number)| {
        let problem = |problem: String| ReplayError::Line { line: number, problem };
        let line = line.map_err(|error| problem(error.to_string()))?;
        serde_json::from_str::<Line>(&line).map_err(|fault| problem(fault.to_string()))
    });
    let build = |label: &str| policy_factory::build(label).map_err(|failure| failure.message());
    let believe = |cluster: &Cluster, learnt: Option<&str>| -> Arc<dyn Beliefs> {
        beliefs(&catalog, cluster, learnt)
    };
    let seen = replay(lines, &build, &believe).map_err(|error| {
        let fault = InputError::wrong(0, "", "", "a flight record");
        Failure::file(&args.record, error.to_string(), fault)
    })?;
    if args.json {
        output.print_json(&versioned(&seen))?;
    } else {
        output.print(&described(&seen))?;
    }
    match seen.different {
        0 => Ok(()),
        count => Err(Failure::Operation(format!(
            "{count} of {} decisions came out otherwise",
            seen.decisions
        ))),
    }
}

fn described(seen: &Replayed) -> String {
    let mut text = format!(
        "{} decisions taken again, {} came out otherwise; {} events, {} actions, {} without an answer\n",
        seen.decisions, seen.different, seen.events, seen.actions, seen.without_answer
    );
    if let Some((line, was, again)) = &seen.first {
        text.push_str(&format!("first difference, line {line}:\n  was   {was}\n  again {again}\n"));
    }
    text
}
