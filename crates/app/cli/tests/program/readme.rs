//! Every command of the README runs as it is typed there.

use super::daemon::Daemon;
use super::place::Place;
use std::path::PathBuf;

/// What only runs where more is, and why.
const ELSEWHERE: &[(&str, &str)] = &[
    ("trainyard slurm ", "needs a Slurm of one's own"),
    ("trainyard serve --slurm", "needs a Slurm of one's own"),
    ("trainyard top", "needs a terminal"),
    ("trainyard reproduce ", "takes a minute unoptimised; `.ci/run` does it optimised"),
];

fn readme() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../README.md");
    std::fs::read_to_string(path).expect("the README")
}

/// The commands of all shell blocks, without their comments.
fn commands() -> Vec<String> {
    let text = readme();
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).map(|line| match line.split_once("  #") {
        Some((command, _)) => command.trim().to_owned(),
        None => line.trim().to_owned(),
    });
    lines.filter(|line| line.starts_with("trainyard ")).collect()
}

/// The words of a command, with what stands in single quotes as one.
fn typed(command: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        match index % 2 {
            0 => all.extend(part.split_whitespace().map(str::to_owned)),
            _ => all.push(part.to_owned()),
        }
    }
    all.into_iter().skip(1).collect()
}

#[test]
fn the_table_of_the_readme_is_what_the_first_command_prints() {
    let text = readme();
    let block = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let run = Place::new("readme table").run(&[]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(block.expect("a table").trim(), run.out.trim());
}

#[test]
fn every_command_of_the_readme_runs() {
    let place = Place::new("readme");
    place.make_folder("docs");
    place.make_folder("docs/samples");
    let samples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/samples");
    for file in ["sacct.txt", "cluster.toml"] {
        let text = std::fs::read(samples.join(file)).expect("a sample");
        place.write(&format!("docs/samples/{file}"), text);
    }
    let daemon = Daemon::start("readme");
    std::fs::write(daemon.folder.join("train.py"), "print('trained')\n").expect("a file");
    let (mut ran, mut live) = (0, 0);
    for command in commands() {
        if ELSEWHERE.iter().any(|(begins, _)| command.starts_with(begins)) {
            continue;
        }
        let arguments = typed(&command);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let asks = ["run", "ps", "why", "eta", "whatif"].contains(&arguments[0]);
        if arguments[0] == "serve" {
            // It is the daemon above, which has as many slots.
            assert_eq!(arguments, ["serve", "--gpus", "2"], "{command}");
            continue;
        }
        let outcome = match asks {
            true => daemon.ask(&arguments),
            false => place.run(&arguments),
        };
        // A job that has ended neither waits nor is foreseen, and says so.
        let ended = ["why", "eta"].contains(&arguments[0]) && outcome.code == 7;
        assert!(outcome.code == 0 || ended, "{command}\n{}{}", outcome.out, outcome.err);
        ran += 1;
        live += usize::from(asks);
    }
    assert!(ran >= 11 && live >= 5, "{ran} commands were run, {live} of them live");
}
