//! The commands in groups, as `trainyard --help` lists them.

use clap::Command;

/// The longest line of the list.
const WIDTH: usize = 100;

/// What belongs together, in the order in which users come upon it.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Compare and simulate", &["compare", "sim", "sweep", "reproduce", "split", "serving"]),
    (
        "What simulations are made of",
        &["policies", "planners", "cluster", "collective", "trace", "profile"],
    ),
    (
        "Submit and follow jobs",
        &[
            "submit", "run", "plan", "ps", "describe", "job", "why", "eta", "logs", "cancel",
            "hold", "release", "requeue",
        ],
    ),
    (
        "Look at the cluster and steer it",
        &[
            "status", "top", "web", "nodes", "drain", "resume", "window", "pool", "fair", "acct",
            "events", "policy", "whatif",
        ],
    ),
    (
        "Run a daemon",
        &["serve", "doctor", "token", "store", "capture", "replay", "upgrade-check", "slurm"],
    ),
    ("This program", &["completions", "man", "version", "help"]),
];

/// The command line with its commands in groups.
pub fn grouped(whole: Command) -> Command {
    let list = list(&whole);
    whole.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{list}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn list(whole: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let rows: Vec<(String, String)> =
            names.iter().filter_map(|name| row(whole, name)).collect();
        if rows.is_empty() {
            continue;
        }
        text.push_str(&format!("  {heading}:\n"));
        for (name, about) in rows {
            entry(&mut text, &name, &about);
        }
        text.push('\n');
    }
    text
}

/// A command that this build has, with what it does.
fn row(whole: &Command, name: &str) -> Option<(String, String)> {
    if name == "help" {
        return Some((name.to_owned(), "Print this list, or the help of a command".to_owned()));
    }
    let command = whole.get_subcommands().find(|command| command.get_name() == name)?;
    let mut about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        about.push_str(&format!(" [also: {}]", aliases.join(", ")));
    }
    Some((name.to_owned(), about))
}

/// One entry, in as many lines as its text needs.
fn entry(text: &mut String, name: &str, about: &str) {
    let indent = " ".repeat(19);
    let mut line = format!("    {name:<13}  ");
    let mut fresh = true;
    for word in about.split(' ') {
        if !fresh && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line.clone_from(&indent);
            fresh = true;
        }
        if !fresh {
            line.push(' ');
        }
        line.push_str(word);
        fresh = false;
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let whole = crate::args::whole();
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.retain(|name| *name != "help");
        for command in whole.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let times = listed.iter().filter(|listed| **listed == name).count();
            assert_eq!(times, 1, "{name} stands in {times} groups");
        }
        if cfg!(feature = "live") {
            assert_eq!(listed.len(), whole.get_subcommands().count(), "a group names no command");
        }
    }
}
