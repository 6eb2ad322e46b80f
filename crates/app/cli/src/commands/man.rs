//! `trainyard man`.

use crate::args;
use crate::failure::Failure;
use crate::output::{Output, reason};
use clap_mangen::Man;
use std::path::Path;

/// Writes a manual page for the program and for each of its commands.
pub fn run(folder: &Path, output: &Output) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::Operation(format!("{}: cannot be made: {}", folder.display(), reason(&error)))
    })?;
    let mut whole = args::whole().disable_help_subcommand(true);
    whole.build();
    let source = format!("trainyard {}", args::VERSION);
    let mut pages = 0;
    let mut open = vec![whole];
    while let Some(command) = open.pop() {
        open.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let page = Man::new(command).source(&source).manual("Trainyard");
        output.write_file(&folder.join(page.get_filename()), |out| page.render(out))?;
        pages += 1;
    }
    output.print(&format!("{pages} pages in {}\n", folder.display()))
}
