//! `trainyard completions`.

use crate::args;
use crate::failure::Failure;
use crate::output::Output;
use clap_complete::Shell;

/// Prints a completion script.
pub fn run(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::whole(), "trainyard", &mut script);
    output.print_with(|out| out.write_all(&script))
}
