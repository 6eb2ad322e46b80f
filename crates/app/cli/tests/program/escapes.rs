//! Text of users is shown to others as text: no terminal obeys it.

use super::daemon::Daemon;
use serde_json::json;
use std::fs;
use trainyard_types::is_unprintable;

/// Colours, a cleared screen, a link, the clipboard, bells, a return, new lines, C1 controls, turned text.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}[31m\u{1b}]8;;http://evil\u{1b}\\\u{1b}]52;c;eA==\u{7}\r\nforged\t\u{8}\u{7f}\u{9b}2K\u{90}\u{202e}\u{2066}\u{200f}\u{2028}y";

fn check(what: &str, text: &str) {
    let found: Vec<char> =
        text.chars().filter(|letter| is_unprintable(*letter) && *letter != '\n').collect();
    assert!(found.is_empty(), "{what} prints {found:?}: {text:?}");
    assert!(!text.contains("\nforged"), "{what} lets a text begin a line of its own: {text:?}");
}

/// Commands that look, on a daemon with jobs 1 to 4.
const LOOKS: [&str; 26] = [
    "ps",
    "ps --json",
    "ps -a --json",
    "job show 1",
    "job show 2",
    "job show 3",
    "job show 3 --json",
    "why 3",
    "why 4",
    "why 4 --json",
    "eta 4",
    "whatif --policy fifo",
    "fair",
    "fair --json",
    "acct",
    "acct --json",
    "status",
    "status --json",
    "top --once",
    "plan long.json",
    "plan long.json --json",
    "job validate long.json",
    "job validate long.json --json",
    "job validate lost.json",
    "events",
    "events --json",
];

/// Jobs whose every text is hostile: one fails, one cannot be started, one runs and one waits.
fn submit_hostile(daemon: &Daemon) {
    let job = |name: &str, command: serde_json::Value| {
        let job = json!({
            "name": HOSTILE, "command": command, "gpus": 2, "retries": 0, "tenant": HOSTILE, "cwd": "/",
        });
        fs::write(daemon.folder.join(name), job.to_string()).expect("a file");
    };
    job("ends.json", json!(["sh", "-c", "exit 3", HOSTILE]));
    job("lost.json", json!([format!("/{HOSTILE}")]));
    job("long.json", json!(["sh", "-c", "exec sleep 60", HOSTILE]));
    for name in ["ends.json", "lost.json"] {
        let failed = daemon.ask(&["submit", "--wait", "--json", name]);
        assert_ne!(failed.code, 0, "{}{}", failed.out, failed.err);
        check(name, &(failed.out + &failed.err));
    }
    for _ in 0..2 {
        daemon.said(&["submit", "long.json"]);
    }
    daemon.wait_until("3", "running");
}

#[test]
fn no_command_prints_a_control_character_of_a_name_a_reason_or_a_message() {
    let daemon = Daemon::start("escapes");
    submit_hostile(&daemon);
    let said = |arguments: &[&str]| {
        let ran = daemon.ask(arguments);
        check(&format!("{arguments:?}"), &ran.out);
        check(&format!("{arguments:?}"), &ran.err);
        ran
    };
    let ps = said(&["ps", "-a"]);
    assert!(ps.out.contains("x\\x1b[2J"), "it is shown as text: {}", ps.out);
    for line in LOOKS {
        let ran = said(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.out, ran.err);
    }
    let nodes = daemon.json(&["nodes", "--json"]);
    let node = nodes["nodes"][0]["name"].as_str().expect("a node").to_owned();
    for arguments in [
        &["drain", &node, "--reason", HOSTILE][..],
        &["nodes"],
        &["nodes", "--json"],
        &["top", "--once"],
        &["why", "4"],
        &["cancel", "3", "--reason", HOSTILE],
        &["cancel", "4", "--reason", HOSTILE],
        &["job", "show", "4"],
        &["events"],
        // What is refused is told with what was said.
        &["drain", HOSTILE, "--reason", HOSTILE],
        &["policy", HOSTILE],
        &["policy", HOSTILE, "--json"],
        &["ps", "--state", HOSTILE],
        &["ps", "--tenant", HOSTILE],
        &["submit", HOSTILE],
        &["run", "--detach", "--tenant", HOSTILE, "--env", HOSTILE, "--", "true"],
        &["token", "create", HOSTILE, "--user", HOSTILE],
        &["token", "list"],
    ] {
        said(arguments);
    }
    check("the daemon's log", &fs::read_to_string(daemon.folder.join("serve.log")).expect("a log"));
}

#[test]
fn logs_are_the_jobs_own_bytes() {
    let daemon = Daemon::start("rawlog");
    let run = daemon.ask(&["run", "--", "printf", "\\033[1mbold\\033[0m\\n"]);
    assert_eq!((run.code, run.out.as_str()), (0, "\u{1b}[1mbold\u{1b}[0m\n"), "{}", run.err);
}

#[test]
fn files_of_others_print_no_control_character() {
    let place = super::place::Place::new("escapes-files");
    let name = format!("\"{}\"", HOSTILE.replace(['\r', '\n'], "").replace('"', ""));
    let trace =
        format!("id,submit_s,gpus,duration_s,tenant\n{name},0,1,60,{name}\nb,1,1,60,{name}\n");
    place.write("t.csv", &trace);
    for line in [
        "sim --policy fifo --trace t.csv --jobs-out j.csv",
        "compare --policies fifo,srtf --trace t.csv --by tenant --report r.html",
        "compare --policies fifo,srtf --trace t.csv --by tenant --json",
        "trace stats t.csv",
        "trace check t.csv",
    ] {
        let run = place.run(&super::place::words(line));
        assert_eq!(run.code, 0, "{line}: {}{}", run.out, run.err);
        check(line, &(run.out + &run.err));
    }
    check("the table of jobs", &place.read("j.csv"));
    check("the report", &place.read("r.html"));
}
