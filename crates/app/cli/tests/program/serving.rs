//! The real daemon, with real jobs on declared slots.

use super::daemon::{Daemon, PATIENCE, fresh_folder, program, ran};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn jobs_run_wait_are_explained_and_end() {
    let daemon = Daemon::start("jobs");
    let run = daemon.ask(&["run", "--", "echo", "hello"]);
    assert_eq!((run.code, run.out.as_str()), (0, "hello\n"), "{}", run.err);
    fs::write(
        daemon.folder.join("bad.toml"),
        "command = [\"sh\", \"-c\", \"exit 3\"]\nretries = 0\n",
    )
    .expect("a file");
    let failed = daemon.ask(&["submit", "--wait", "bad.toml"]);
    assert_eq!(failed.code, 3, "the code of the job: {}{}", failed.out, failed.err);

    let first = daemon.submit("first", "echo begun; exec sleep 60", 2);
    daemon.wait_until(&first, "running");
    let second = daemon.submit("second", "true", 2);
    daemon.wait_to_hear(&["why", &second], "needs 2 GPUs");
    let why = daemon.said(&["why", &second]);
    assert!(why.contains(&format!("job {first} (2 GPUs) ending")), "{why}");
    let plan = daemon.json(&["plan", "second.toml", "--json"]);
    assert_eq!(plan["jobs"][0]["starts_now"], false, "{plan}");
    assert!(daemon.said(&["nodes"]).contains(" 0 of 2 "));
    let ps = daemon.said(&["ps"]);
    let held = ps.lines().next().and_then(|heading| heading.find("held")).expect("a column");
    let of = |job: &str| ps.lines().find(|line| line.starts_with(job)).expect("a row").to_owned();
    assert_eq!(of(&first).get(held..=held), Some("2"), "GPUs that are held: {ps}");
    assert_eq!(of(&second).get(held..=held), Some(" "), "it holds none: {ps}");

    daemon.said(&["hold", &second]);
    assert!(daemon.said(&["why", &second]).contains("is held"));
    daemon.said(&["release", &second]);
    assert_eq!(daemon.said(&["policy", "las"]).trim(), "las");
    assert_eq!(daemon.ask(&["policy", "lass"]).code, 3, "a policy that is not there");
    assert_eq!(daemon.said(&["policy"]).trim(), "las", "what is refused changes nothing");

    let begun = Instant::now();
    while !daemon.said(&["logs", &first]).contains("begun") {
        assert!(begun.elapsed() < PATIENCE, "nothing in the log");
        sleep(Duration::from_millis(30));
    }
    daemon.said(&["cancel", &first]);
    daemon.wait_until(&first, "cancelled");
    daemon.wait_until(&second, "finished");
    assert_eq!(daemon.ask(&["cancel", &first]).code, 7, "it has ended already");
    assert_eq!(daemon.ask(&["why", "999"]).code, 6, "there is no such job");
    let status = daemon.json(&["status", "--json"]);
    assert_eq!((&status["gpus_used"], &status["epoch"]), (&0.into(), &1.into()), "{status}");
    let used = daemon.json(&["acct", "--json"]);
    assert_eq!(used["usage"][0]["launches"], 4, "{used}");
}

#[test]
fn retries_have_one_default() {
    let folder = fresh_folder("retries");
    let help = ran(program(&folder, &["run", "--help"])).out;
    let (_, retries) = help.split_once("--retries").expect("a flag");
    let retries = retries.split("--").next().unwrap_or_default();
    assert!(retries.contains("[default: 3]"), "{retries}");
    fs::write(folder.join("job.toml"), "command = [\"true\"]\n").expect("a file");
    let job = ran(program(&folder, &["job", "validate", "job.toml", "--json"])).out;
    let job: Value = serde_json::from_str(&job).expect("JSON");
    assert_eq!(job["jobs"][0]["retries"], 3, "{job}");
    assert_eq!(trainyard_types::RETRIES_DEFAULT, 3);
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_daemon_that_is_killed_finds_its_jobs_and_their_ends() {
    let mut daemon = Daemon::start("killed");
    let long = daemon.submit("long", "echo $$ >> pids; exec sleep 60", 1);
    let short = daemon.submit("short", "sleep 0.5; exit 7", 1);
    daemon.wait_until(&long, "running");
    daemon.wait_until(&short, "running");
    daemon.kill();
    sleep(Duration::from_millis(900));
    daemon.start_again();

    daemon.wait_until(&short, "failed");
    let events = daemon.said(&["events"]);
    assert!(events.contains("exit code 7"), "{events}");
    assert_eq!(daemon.state(&long), "running");
    let pids = fs::read_to_string(daemon.folder.join("pids")).expect("it ran");
    assert_eq!(pids.lines().count(), 1, "it was started once: {pids}");
    let alive = Path::new("/proc").join(pids.trim()).exists();
    assert!(alive, "the process of the first start still runs");
    assert_eq!(daemon.json(&["status", "--json"])["epoch"], 2);
    daemon.said(&["cancel", &long]);
    daemon.wait_until(&long, "cancelled");
    daemon.kill();
    daemon.start_again();
    let late = daemon.ask(&["cancel", &long]);
    assert_eq!(late.code, 7, "it had ended before this start: {}", late.err);
}

#[test]
fn a_keeper_whose_folder_is_gone_goes_too() {
    let mut daemon = Daemon::start("gone");
    let job = daemon.submit("job", "exec sleep 1", 1);
    daemon.wait_until(&job, "running");
    daemon.kill();
    let run = daemon.folder.join("s/run");
    assert!(is_kept(&run), "it runs on without the daemon");
    fs::remove_dir_all(&run).expect("a folder");
    let begun = Instant::now();
    while is_kept(&run) {
        assert!(begun.elapsed() < PATIENCE, "its keeper stays for ever");
        sleep(Duration::from_millis(100));
    }
}

/// Whether a keeper runs for an attempt in a folder.
fn is_kept(run: &Path) -> bool {
    let run = format!("keeper\0{}", run.display());
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|line| String::from_utf8_lossy(&line).contains(&run))
}

#[test]
fn a_store_or_a_log_that_was_deleted_is_missed_and_its_jobs_run_on() {
    let mut daemon = Daemon::start("deleted");
    let job = daemon.submit("job", "echo $$ > pid; exec sleep 60", 1);
    daemon.wait_until(&job, "running");
    daemon.kill();
    let state = daemon.folder.join("s");
    let aside = daemon.folder.join("aside");
    let take = |names: &[&str]| {
        let _ = fs::create_dir_all(&aside);
        for name in names {
            let _ = fs::rename(state.join(name), aside.join(name));
        }
    };
    let put_back = |names: &[&str]| {
        for name in names {
            let _ = fs::rename(aside.join(name), state.join(name));
        }
    };
    let all = ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"];
    for (deleted, part) in [
        (&all[..1], "the store is gone"),
        (&all[1..3], "the log"),
        (&all[..3], "the store is gone"),
        (&all[..], "the store is new and knows none of them"),
    ] {
        take(deleted);
        let start = ["serve", "--state", "s", "--gpus", "2"];
        let refused = ran(program(&daemon.folder, &start));
        assert_eq!(refused.code, 1, "{deleted:?}: {}{}", refused.out, refused.err);
        assert!(refused.err.contains(part), "{deleted:?}: {}", refused.err);
        assert!(refused.err.contains("store restore"), "it says what to do: {}", refused.err);
        for name in all.iter().filter(|name| deleted.contains(name)) {
            let _ = fs::remove_file(state.join(name));
        }
        put_back(deleted);
    }
    daemon.start_again();
    assert_eq!(daemon.state(&job), "running", "nothing was done to it");
    let pid = fs::read_to_string(daemon.folder.join("pid")).expect("it ran");
    assert!(Path::new("/proc").join(pid.trim()).exists(), "its process is the first one");
}

#[test]
fn a_folder_that_others_can_change_is_refused_with_what_mends_it() {
    let folder = fresh_folder("open");
    let state = folder.join("s");
    fs::create_dir(&state).expect("a folder");
    let mode = |mode: u32| fs::set_permissions(&state, fs::Permissions::from_mode(mode));
    // A policy that is not there ends each start right after the folder was looked at.
    let serve =
        || ran(program(&folder, &["serve", "--state", "s", "--gpus", "2", "--policy", "fiffo"]));
    mode(0o1777).expect("a mode");
    let refused = serve();
    assert!(refused.code == 1 && refused.err.contains("chmod go-w"), "{}", refused.err);
    mode(0o775).expect("a mode");
    let warned = serve();
    assert!(warned.code == 3 && warned.err.contains("chmod g-w"), "{}", warned.err);
    mode(0o711).expect("a mode");
    assert!(!serve().err.contains("chmod"));
    if std::os::unix::fs::chown(&state, Some(2), None).is_ok() {
        let refused = serve();
        assert!(refused.code == 1 && refused.err.contains("chown -R 0"), "{}", refused.err);
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_live_record_is_replayed_bit_for_bit_and_a_changed_one_is_not() {
    let daemon = Daemon::start("replay");
    for number in 0..6 {
        daemon.submit(&format!("job{number}"), "sleep 0.1", 1 + number % 2);
    }
    daemon.said(&["policy", "fair-share"]);
    let last = daemon.submit("last", "true", 2);
    daemon.wait_until(&last, "finished");
    daemon.said(&["capture", "-o", "record.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "record.jsonl", "--json"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert!(again["decisions"].as_u64().is_some_and(|count| count >= 4), "{again}");
    assert_eq!(again["different"], 0, "{again}");

    let record = fs::read_to_string(daemon.folder.join("record.jsonl")).expect("a record");
    let changed = record.replacen("\"quality\":\"proven\"", "\"quality\":\"feasible\"", 1);
    assert_ne!(record, changed, "a decision to be changed");
    fs::write(daemon.folder.join("changed.jsonl"), changed).expect("a file");
    let again = ran(program(&daemon.folder, &["replay", "changed.jsonl"]));
    assert_eq!(again.code, 1, "{}{}", again.out, again.err);
}

#[test]
fn preemptions_under_several_policies_are_replayed_bit_for_bit() {
    let options = ["--gpus", "2", "--policy", "priority:preempt=priority"];
    let daemon = Daemon::start_with("preempt", &options);
    let low = daemon.submit("low", "exec sleep 2", 2);
    daemon.wait_until(&low, "running");
    let above = ["run", "--priority", "5", "--", "sleep", "0.2"];
    daemon.said(&above);
    for policy in ["srtf", "las:quantum=1s,turn=0s", "tiresias", "easy"] {
        daemon.said(&["policy", policy]);
        for number in 0..3 {
            daemon.submit(&format!("job{number}"), "sleep 0.2", 1 + number % 2);
        }
        sleep(Duration::from_millis(300));
    }
    let last = daemon.submit("last", "true", 1);
    daemon.wait_until(&last, "finished");
    daemon.wait_until(&low, "finished");
    let stopped = daemon.json(&["job", "show", &low, "--json"])["preemptions"].as_u64();
    assert!(stopped >= Some(1), "the job above it stopped it");
    daemon.said(&["capture", "-o", "record.jsonl"]);
    let again = ran(program(&daemon.folder, &["replay", "record.jsonl", "--json"]));
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let again: Value = serde_json::from_str(&again.out).expect("JSON");
    assert!(again["decisions"].as_u64().is_some_and(|count| count >= 8), "{again}");
    assert_eq!(again["different"], 0, "{again}");
}

#[test]
fn what_cannot_be_served_is_said_and_the_doctor_looks_at_the_rest() {
    let daemon = Daemon::start("refused");
    let second = ran(program(&daemon.folder, &["serve", "--state", "s", "--gpus", "2"]));
    assert_eq!(second.code, 1);
    assert!(second.err.contains("in use by process"), "{}", second.err);
    for (arguments, part) in [
        (&["serve", "--state", "t", "--gpus", "0"][..], "--gpus"),
        (&["serve", "--state", "t", "--gpus", "2", "--policy", "fiffo"], "fifo"),
        (&["serve", "--state", "t", "--gpus", "2", "--listen", "here"], "--listen"),
    ] {
        let refused = ran(program(&daemon.folder, arguments));
        assert_eq!(refused.code, 3, "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(part), "{arguments:?}: {}", refused.err);
    }
    let open = ["serve", "--state", "t", "--gpus", "2", "--listen", "0.0.0.0:0"];
    let open = ran(program(&daemon.folder, &open));
    assert!(open.code == 1 && open.err.contains("without TLS"), "{}", open.err);
    let doctor = ran(program(&daemon.folder, &["doctor", "--state", "s", "--json"]));
    let checks: Value = serde_json::from_str(&doctor.out).expect("JSON");
    let check = |name: &str| {
        let all = checks["checks"].as_array().expect("checks");
        all.iter().find(|check| check["name"] == name).expect("a check")["verdict"].clone()
    };
    assert_eq!((check("store"), check("socket")), ("good".into(), "good".into()), "{checks}");
}

#[test]
fn an_address_to_listen_on_leaves_commands_their_socket() {
    let daemon = Daemon::start_with("address", &["--gpus", "2", "--listen", "127.0.0.1:0"]);
    assert!(daemon.said(&["status"]).contains("0 of 2 in use"));
    daemon.said(&["token", "create", "far", "--role", "viewer"]);
}
