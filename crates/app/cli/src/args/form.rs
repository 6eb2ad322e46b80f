//! `-o json`, as users of kubectl write it: the same as `--json`, for every command that has that flag.

use clap::{Arg, Command};
use std::ffi::OsString;

/// The name of the argument among those of a command.
const ID: &str = "output_form";

/// The command line with `-o` at every command that prints JSON, unless `-o` is something else there.
pub fn with_form(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let mut command = command;
    for name in names {
        command = command.mut_subcommand(name, with_form);
    }
    if !takes(&command) {
        return command;
    }
    let json = command.get_arguments().find(|arg| arg.get_id() == "json");
    let mut form = Arg::new(ID)
        .short('o')
        .value_name("FORM")
        .value_parser(["json", "table"])
        .help("How it is printed: `-o json` is the same as --json");
    // It stands where `--json` stands.
    for heading in ["Daemon", "Output"] {
        if json.is_some_and(|json| json.get_help_heading() == Some(heading)) {
            form = form.help_heading(heading);
        }
    }
    command.arg(form)
}

fn takes(command: &Command) -> bool {
    let prints = command.get_arguments().any(|arg| arg.get_id() == "json");
    prints && !command.get_arguments().any(|arg| arg.get_short() == Some('o') && arg.get_id() != ID)
}

/// The arguments with `--json` in the place of `-o json`; what follows `--` belongs to the command of a job.
pub fn plain(whole: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let own = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let mut command = whole;
    for argument in &arguments[arguments.len().min(1)..own] {
        if let Some(below) = argument.to_str().and_then(|name| command.find_subcommand(name)) {
            command = below;
        }
    }
    if !takes(command) {
        return arguments;
    }
    let mut said = arguments[..own].iter().any(|argument| argument == "--json");
    let mut plain = Vec::with_capacity(arguments.len());
    let mut index = 0;
    while index < arguments.len() {
        let inside = index < own;
        let width = match arguments[index].to_str() {
            Some("-o")
                if inside && arguments[..own].get(index + 1).is_some_and(|form| form == "json") =>
            {
                2
            }
            Some("-ojson" | "-o=json") if inside => 1,
            _ => 0,
        };
        if width == 0 {
            plain.push(arguments[index].clone());
        } else if !said {
            said = true;
            plain.push("--json".into());
        }
        index += width.max(1);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from).collect();
        let plain = plain(&crate::args::whole(), arguments);
        plain.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_form_of_kubectl_is_the_flag() {
        assert_eq!(read("trainyard policies -o json"), "trainyard policies --json");
        assert_eq!(read("trainyard cluster check x -ojson"), "trainyard cluster check x --json");
        assert_eq!(read("trainyard policies --json -o json"), "trainyard policies --json");
        assert_eq!(read("trainyard policies -o yaml"), "trainyard policies -o yaml");
    }

    #[cfg(feature = "live")]
    #[test]
    fn what_is_a_file_elsewhere_or_belongs_to_a_job_is_left_alone() {
        assert_eq!(read("trainyard capture -o json"), "trainyard capture -o json");
        assert_eq!(read("trainyard run -- cc -o json"), "trainyard run -- cc -o json");
    }
}
