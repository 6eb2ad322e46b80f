//! The `trainyard` program: the only place that opens files, reads the environment or prints.
//!
//! - [`args`]: the command line; without a command, `compare` is meant.
//! - `commands`: one file for each command.
//! - [`given`], [`files`], [`packing`]: the cluster and the workload a run is given, from flags and files.
//! - [`choice`], [`options`], [`spec`]: policies, options and generator laws by name, with typed settings.
//! - [`seeds`]: several seeds from one text.
//! - [`sweep`]: the runs of a sweep, each with a name that never changes; `parquet_file`: rows as Parquet, with the feature.
//! - [`published`]: what can be redone of published results.
//! - [`experiment`]: policies side by side on several threads.
//! - `live`: the client of the daemon, behind the feature of that name.
//! - [`plot`]: a curve drawn with characters; [`figures`]: pictures as files, also as PNG with the feature of that name.
//! - [`output`], [`failure`]: what comes out, and the exit code.

mod args;
mod choice;
mod commands;
mod experiment;
mod failure;
mod figures;
mod files;
mod given;
#[cfg(feature = "live")]
mod live;
mod options;
mod output;
mod packing;
#[cfg(feature = "parquet")]
mod parquet_file;
mod plot;
#[cfg(feature = "png")]
mod png;
mod published;
mod seeds;
mod spec;
mod sweep;
mod sweep_table;
mod trainings;

use failure::Failure;
use output::Output;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // What follows `--` belongs to somebody else's command.
    let own = arguments.iter().take_while(|argument| *argument != "--");
    let wants_json = own.into_iter().any(|argument| argument == "--json");
    // What runs beside jobs comes before anything that starts threads or catches signals.
    if let Some(code) = trainyard_backend::program::main(&arguments[arguments.len().min(1)..]) {
        return code;
    }
    let output = Output::new();
    output.watch_interrupts();
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        // A panic becomes one message below, or is counted by the engine.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let outcome = match args::parse(arguments) {
        Ok(command) => catch_unwind(AssertUnwindSafe(|| commands::run(command, &output)))
            .unwrap_or_else(|panic| Err(Failure::Operation(internal(panic.as_ref())))),
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
    let what = output::panic_text(panic);
    format!("internal error: {what}; set RUST_BACKTRACE=1 for details, and please report it")
}
