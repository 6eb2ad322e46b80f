//! `trainyard slurm ...`.

#[cfg(feature = "live")]
mod adopt;
mod hand_back;
mod shadow;
mod verdict;
mod watch;

use crate::args::slurm::{ClientArgs, SlurmCommand};
use crate::failure::Failure;
use crate::output::Output;
use std::time::Duration;
use trainyard_experiment::options;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;
use trainyard_slurm::{CallError, CallSettings, Calls};

/// Runs one of the commands.
pub fn run(command: &SlurmCommand, output: &Output) -> Result<(), Failure> {
    match command {
        SlurmCommand::Shadow(args) => shadow::run(args, output),
        #[cfg(feature = "live")]
        SlurmCommand::Adopt(args) => adopt::run(args, output),
        SlurmCommand::HandBack(args) => hand_back::run(args, output),
    }
}

/// Calls of Slurm by the flags.
pub fn calls(args: &ClientArgs) -> Result<Calls, Failure> {
    let timeout = options::span("--slurm-timeout", &args.slurm_timeout)?;
    Ok(Calls::new(CallSettings {
        folder: args.slurm_bin.clone(),
        conf: args.slurm_conf.clone(),
        timeout: Duration::from_micros(timeout.0),
    }))
}

/// What was done, or would be, about one job of Slurm.
#[derive(Debug, serde::Serialize)]
struct Done {
    /// Its number in Slurm.
    slurm: u32,
    /// What it is called there.
    name: String,
    /// Its id in Trainyard, if it has one now.
    job: Option<u32>,
    /// Whether it was done.
    done: bool,
    /// What was done, or why not.
    what: String,
}

/// Shows what was done, job by job.
fn show(all: &[Done], json: bool, output: &Output) -> Result<(), Failure> {
    if json {
        let value = serde_json::json!({ "schema_version": SCHEMA_VERSION, "jobs": all });
        return output.print_json(&value);
    }
    let row = |one: &Done| vec![one.slurm.to_string(), one.name.clone(), one.what.clone()];
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    output.print(&listing(&["slurm", "name", "what"], &rows, output.ink, output.width))
}

/// What a call that came to nothing means for the user.
fn refused(error: &CallError) -> Failure {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Failure::Operation(text)
}
