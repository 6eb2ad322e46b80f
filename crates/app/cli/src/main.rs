//! The `trainyard` program: the only place that opens files, reads the environment or prints.
//!
//! - [`args`]: the command line; without a command, `compare` is meant.
//! - `commands`: one file for each command.
//! - `side_by_side`: policies side by side, with a bar; what is behind it is the crate `trainyard-experiment`.
//! - `parquet_file`: rows of a sweep as Parquet, with the feature.
//! - `live`: the client of the daemon, behind the feature of that name.
//! - [`plot`]: a curve drawn with characters; [`figures`]: pictures as files, also as PNG with the feature of that name.
//! - [`output`], [`failure`]: what comes out, and the exit code.

mod args;
mod commands;
mod failure;
mod figures;
#[cfg(feature = "live")]
mod live;
mod output;
#[cfg(feature = "parquet")]
mod parquet_file;
mod plot;
#[cfg(feature = "png")]
mod png;
mod side_by_side;

use failure::Failure;
use output::Output;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // What runs beside jobs comes before anything that starts threads or catches signals.
    if let Some(code) = trainyard_backend::program::main(&arguments[arguments.len().min(1)..]) {
        return code;
    }
    #[cfg(feature = "live")]
    if let Some(code) = live::interactive::inside(&arguments[arguments.len().min(1)..]) {
        return code;
    }
    let arguments = args::plain(arguments);
    // What follows `--` belongs to the command of the job.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let wants_json = own.into_iter().any(|argument| argument == "--json");
    let output = Output::new();
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        // A panic becomes one message below, or is counted by the engine.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let outcome = match args::parse(arguments) {
        Ok(command) => {
            if !command.ends_by_itself() {
                output.watch_interrupts();
            }
            catch_unwind(AssertUnwindSafe(|| commands::run(command, &output)))
                .unwrap_or_else(|panic| Err(Failure::Operation(internal(panic.as_ref()))))
        }
        Err(refused) => args::explain(refused, wants_json),
    };
    match outcome.and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.remove_unfinished();
            output::report_failure(&failure, wants_json);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn internal(panic: &(dyn std::any::Any + Send)) -> String {
    let what = trainyard_experiment::runs::panic_text(panic);
    format!("internal error: {what}; set RUST_BACKTRACE=1 for details, and please report it")
}
