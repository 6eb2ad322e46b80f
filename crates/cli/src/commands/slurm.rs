//! `trainyard slurm ...`.

mod happened;
mod lengths;
mod rebuilt;
mod shadow;
mod verdict;
mod watch;

use crate::args::slurm::{ClientArgs, SlurmCommand};
use crate::failure::Failure;
use crate::options;
use crate::output::Output;
use std::time::Duration;
use trainyard_slurm::{CallError, CallSettings, Calls};

/// Runs one of the commands.
pub fn run(command: &SlurmCommand, output: &Output) -> Result<(), Failure> {
    match command {
        SlurmCommand::Shadow(args) => shadow::run(args, output),
    }
}

/// Calls of Slurm by the flags.
fn calls(args: &ClientArgs) -> Result<Calls, Failure> {
    let timeout = options::span("--slurm-timeout", &args.slurm_timeout)?;
    Ok(Calls::new(CallSettings {
        folder: args.slurm_bin.clone(),
        conf: args.slurm_conf.clone(),
        timeout: Duration::from_micros(timeout.0),
    }))
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
