//! The parts of Trainyard that run beside jobs, without the rest: what runs as root should be small.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    trainyard_backend::program::main(&arguments).unwrap_or_else(|| {
        eprintln!("{}", trainyard_backend::program::USAGE);
        ExitCode::from(2)
    })
}
