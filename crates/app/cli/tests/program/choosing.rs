//! Which jobs a command means, how it is asked for JSON, and where daemon and commands meet.

use super::daemon::{Daemon, PATIENCE, fresh_folder, program, ran};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn ranges_names_and_all_choose_jobs_and_states_list_them() {
    let daemon = Daemon::start("choosing");
    let jobs: Vec<String> = (0..6)
        .map(|at| daemon.submit(if at < 4 { "few" } else { "rest" }, "exec sleep 60", 2))
        .collect();
    daemon.wait_until(&jobs[0], "running");
    let (second, fourth) = (&jobs[1], &jobs[3]);
    daemon.said(&["cancel", second]);
    let range = format!("{second}-{fourth}");
    let held = daemon.said(&["hold", &range]);
    assert_eq!(held.matches(" held: ").count(), 2, "one of the range has ended: {held}");
    assert!(held.contains("1 id of the range has no job that could be held"), "{held}");
    let pending = daemon.json(&["queue", "--state", "pending", "-o", "json"]);
    assert_eq!(pending["jobs"].as_array().map(Vec::len), Some(4), "{pending}");
    let both = daemon.json(&["ps", "--state", "running,cancelled", "--json"]);
    let ids: Vec<String> =
        both["jobs"].as_array().expect("rows").iter().map(|row| row["id"].to_string()).collect();
    assert_eq!(ids, [second.clone(), jobs[0].clone()], "the newest first: {both}");
    assert_eq!(daemon.ask(&["ps", "--state", "wating"]).code, 3);

    let named = daemon.said(&["cancel", "--name", "rest", "--reason", "not needed"]);
    assert_eq!(named.matches(" cancelled: ").count(), 2, "{named}");
    let events = daemon.said(&["events"]);
    assert!(events.contains(": not needed"), "{events}");
    assert_eq!(daemon.said(&["cancel", "--user", "nobody-here"]), "no such jobs\n");
    daemon.said(&["cancel", "--all"]);
    daemon.wait_to_hear(&["ps"], "no jobs");
    for wrong in [["cancel", "7-3"], ["cancel", "x"], ["cancel", "--json"]] {
        assert_eq!(daemon.ask(&wrong).code, 2, "{wrong:?}");
    }
    let shown = daemon.said(&["describe", second]);
    assert_eq!(shown, daemon.said(&["job", "show", second]), "one command under two names");
}

#[test]
fn the_log_tells_what_was_scheduled_and_events_why_a_node_was_drained() {
    let daemon = Daemon::start("telling");
    let job = daemon.submit("told", "true", 1);
    daemon.wait_until(&job, "finished");
    let nodes = daemon.json(&["nodes", "-o", "json"]);
    let node = nodes["nodes"][0]["name"].as_str().expect("a node");
    daemon.said(&["drain", node, "--reason", "a new driver"]);
    let events = daemon.said(&["events"]);
    assert!(events.contains(&format!("drain {node}: a new driver")), "{events}");
    let log = fs::read_to_string(daemon.folder.join("serve.log")).expect("a log");
    for part in ["submitted job", &format!("job {job} attempt 1 on "), "ended", "a new driver"] {
        let told = |line: &&str| line.contains("trainyard::schedule") && line.contains(part);
        assert!(log.lines().any(|line| told(&line)), "`{part}` is not told: {log}");
    }
}

/// A daemon that finds everything by itself, as the documents start it.
struct Bare(Child);

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn daemon_and_commands_agree_on_their_place_and_the_page_is_served() {
    let folder = fresh_folder("agree");
    for variables in [&["HOME"][..], &["HOME", "XDG_RUNTIME_DIR"], &["HOME", "TRAINYARD_STATE"]] {
        let place = folder.join(variables.len().to_string() + variables.last().unwrap_or(&""));
        fs::create_dir_all(&place).expect("a folder");
        let with = |arguments: &[&str]| {
            let mut command = program(&place, arguments);
            command.env_remove("XDG_RUNTIME_DIR").env_remove("STATE_DIRECTORY");
            // Root has places of its own, and a daemon of this machine may use them.
            command.envs(variables.iter().map(|name| (*name, &place)));
            command
        };
        let root = nix::unistd::geteuid().is_root();
        if root && !variables.contains(&"TRAINYARD_STATE") {
            continue;
        }
        let log = fs::File::create(place.join("log")).expect("a log");
        let mut serve: Command = with(&["serve", "--gpus", "1"]);
        serve.stdout(Stdio::null()).stderr(log);
        let _daemon = Bare(serve.spawn().expect("it starts"));
        let begun = Instant::now();
        let web = loop {
            let web = ran(with(&["web", "--json"]));
            if web.code == 0 {
                break web.out;
            }
            assert!(begun.elapsed() < PATIENCE, "{variables:?}: {}", web.err);
            sleep(Duration::from_millis(50));
        };
        assert!(web.contains("http://127.0.0.1:"), "{web}");
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_pool_takes_its_node_back_keeps_it_over_a_restart_and_lends_it_again() {
    let gpus = ["--gpus", "1xa100,1xv100", "--policy", "fifo"];
    let names = |daemon: &Daemon| -> Vec<String> {
        let nodes = daemon.json(&["nodes", "--json"]);
        let nodes = nodes["nodes"].as_array().expect("rows").iter();
        nodes.map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
    };
    let node = names(&Daemon::start_with("pool-names", &gpus))[1].clone();
    let pool = format!("inference={node}");
    let mut daemon = Daemon::start_with("pool", &[&gpus[..], &["--pool", &pool]].concat());
    // Both GPUs are used; the job on the node that is lent has to leave it.
    let jobs: Vec<String> = (0..2).map(|_| daemon.submit("long", "exec sleep 60", 1)).collect();
    for job in &jobs {
        daemon.wait_until(job, "running");
    }
    let told = daemon.said(&["pool", "need", "inference", "1"]);
    assert!(told.starts_with("pool inference needs 1 of 1 nodes"), "{told}");
    let reclaimed = format!("\"reclaimed\":[\"{node}\"]");
    let json = |daemon: &Daemon| daemon.json(&["pool", "list", "--json"]).to_string();
    daemon.wait_to_hear(&["pool", "list"], &node);
    assert!(json(&daemon).contains(&reclaimed), "{}", json(&daemon));
    let evicted = |daemon: &Daemon| {
        let states = jobs.iter().map(|job| daemon.state(job));
        states.filter(|state| state == "running").count()
    };
    let until = Instant::now() + PATIENCE;
    while evicted(&daemon) != 1 && Instant::now() < until {
        sleep(Duration::from_millis(50));
    }
    let waiting = jobs.iter().find(|job| daemon.state(job) != "running").expect("one had to leave");
    daemon.wait_to_hear(
        &["why", waiting],
        &format!("node {node} is reclaimed by its pool inference"),
    );
    daemon.wait_to_hear(&["nodes"], "reclaimed");
    daemon.wait_to_hear(&["events"], &format!("node {node} goes to its pool"));
    daemon.kill();
    daemon.start_again();
    assert!(json(&daemon).contains(&reclaimed), "{}", json(&daemon));
    daemon.said(&["pool", "need", "inference", "0"]);
    daemon.wait_until(waiting, "running");
    for wrong in [["need", "training", "1"], ["need", "inference", "2"]] {
        assert_ne!(daemon.ask(&["pool", wrong[0], wrong[1], wrong[2]]).code, 0, "{wrong:?}");
    }
}

#[test]
fn a_gang_across_types_is_told_how_to_cut_its_batch_by_speed() {
    // Each type holds one gang of four, and two GPUs of each are left for the third.
    let options = ["--gpus", "6xv100,6xk80", "--policy", "gavel:mixed=true,round=6m"];
    let daemon = Daemon::start_with("parts", &options);
    let text = "name = \"wide\"\nmodel = \"gavel-resnet18-b128\"\ngpus = 4\nsteps = 100000\nretries = 0\nprocesses = \"per-gpu\"\n\
                command = [\"sh\", \"-c\", \"echo parts $RANK $TRAINYARD_BATCH_PARTS; exec sleep 5\"]\n";
    fs::write(daemon.folder.join("wide.toml"), text).expect("a file");
    let files = ["submit", "wide.toml", "wide.toml", "wide.toml", "--json"];
    let submitted = daemon.json(&files);
    let jobs: Vec<String> =
        submitted["jobs"].as_array().expect("ids").iter().map(ToString::to_string).collect();
    for job in &jobs {
        daemon.wait_until(job, "finished");
    }
    let parts: Vec<Vec<f64>> = (jobs.iter())
        .filter_map(|job| {
            let log = daemon.said(&["logs", job]);
            let line = log.lines().find_map(|line| line.strip_prefix("parts 0"));
            let parts = line.unwrap_or_else(|| panic!("no line in {log}")).trim();
            let parts = parts.split(',').filter(|part| !part.is_empty());
            let parts: Vec<f64> = parts.map(|part| part.parse().expect("a number")).collect();
            (!parts.is_empty()).then_some(parts)
        })
        .collect();
    let [mixed] = parts.as_slice() else { panic!("one gang is across both types: {parts:?}") };
    assert!((mixed.iter().sum::<f64>() - 1.0).abs() < 1e-5, "{mixed:?}");
    assert!(mixed.len() == 4 && mixed[0] != mixed[3], "V100s get more: {mixed:?}");
}

#[test]
fn jobs_that_are_held_together_do_not_start_in_each_others_place() {
    let daemon = Daemon::start("together");
    let first = daemon.submit("same", "exec sleep 600", 2);
    daemon.wait_until(&first, "running");
    let rest: Vec<String> = (0..5).map(|_| daemon.submit("same", "exec sleep 600", 2)).collect();
    daemon.said(&["hold", "--name", "same"]);
    daemon.wait_until(&first, "blocked");
    for job in &rest {
        let attempts = daemon.json(&["job", "show", job, "--json"])["attempts"].clone();
        assert_eq!(attempts.as_array().map(Vec::len), Some(0), "job {job} was started: {attempts}");
    }
    assert!(daemon.said(&["ps", "--state", "held"]).contains("is held"));
}
