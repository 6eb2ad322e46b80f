//! Jobs that are put aside by a driver that is not there, through the real daemon.

use super::daemon::{Daemon, PATIENCE, fresh_folder, program, ran};
use super::fake_driver::FakeDriver;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A job that knows nothing and cannot save: it uses the GPU, counts to a number and ends.
fn submit(daemon: &Daemon, fake: &FakeDriver, name: &str, steps: u32) -> String {
    submit_with(daemon, fake, (name, steps), "")
}

fn submit_with(
    daemon: &Daemon,
    fake: &FakeDriver,
    (name, steps): (&str, u32),
    more: &str,
) -> String {
    let folder = fake.library().parent().expect("a folder").display().to_string();
    let script = format!(
        "echo 0 > {folder}/$$; n=0; while [ $n -lt {steps} ]; do n=$((n+1)); echo {name} $n; sleep 0.05; done; rm {folder}/$$"
    );
    let file = format!("{name}.toml");
    let text = format!(
        "name = \"{name}\"\ncommand = [\"sh\", \"-c\", \"{script}\"]\ngpus = 1\ngpu_memory = \"1GiB\"\n\
         saves = false\nretries = 0\nexpected = \"1h\"\n{more}\n"
    );
    fs::write(daemon.folder.join(&file), text).expect("a file");
    let submitted = daemon.json(&["submit", &file, "--json"]);
    submitted["jobs"][0].as_u64().expect("an id").to_string()
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn unmodified_jobs_take_turns_in_host_memory_and_a_daemon_that_is_killed_finds_them_there() {
    let Some(fake) = FakeDriver::new(&fresh_folder("aside-driver")) else { return };
    let library = fake.library().display().to_string();
    let options = [
        "--gpus",
        "1",
        "--policy",
        "tiresias:thresholds=[1s]",
        "--suspend-memory",
        "4GiB,away=1h",
        "--driver-library",
        &library,
    ];
    let mut daemon = Daemon::start_with("aside", &options);
    let first = submit(&daemon, &fake, "first", 100);
    let second = submit(&daemon, &fake, "second", 100);
    wait_for("one of them is put aside", || {
        [&first, &second].iter().any(|job| daemon.state(job) == "suspended")
    });
    daemon.kill();
    sleep(Duration::from_millis(500));
    daemon.start_again();
    for (job, name) in [(&first, "first"), (&second, "second")] {
        wait_for("it ends", || {
            !["running", "starting", "saving", "suspended", "waiting"]
                .contains(&daemon.state(job).as_str())
        });
        assert_eq!(daemon.state(job), "finished", "{}", daemon.said(&["events"]));
        let log = daemon.said(&["logs", job]);
        let steps = log.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(steps, 100, "each step is done once: {log}");
        assert!(daemon.said(&["job", "show", job]).contains("finished"), "it is shown");
    }
    let events = daemon.said(&["events"]);
    for text in ["is put aside in host memory", "is put aside: ", "goes on where it was put aside"]
    {
        assert!(events.contains(text), "{text}: {events}");
    }
    assert_eq!(daemon.json(&["acct", "--json"])["usage"][0]["launches"], 2, "the same attempts");
    // Both had the GPU one after the other: what was away is not charged.
    let hours = daemon.json(&["acct", "--json"])["usage"][0]["gpu_hours"].as_f64().expect("hours");
    let wall = events.lines().count();
    assert!(hours < 40.0 / 3600.0 && wall > 0, "{hours} GPU-hours for two jobs of 5 s");
}

#[test]
fn a_job_that_is_put_aside_is_shown_with_its_own_gpu_and_the_doctor_says_what_there_is() {
    let Some(fake) = FakeDriver::new(&fresh_folder("aside-shown-driver")) else { return };
    let library = fake.library().display().to_string();
    let policy = "priority:preempt=priority";
    let memory = ["--suspend-memory", "4GiB,away=1h", "--driver-library", &library];
    let options = [&["--gpus", "1", "--policy", policy], &memory[..]].concat();
    let daemon = Daemon::start_with("aside-shown", &options);
    let low = submit(&daemon, &fake, "low", 2000);
    wait_for("it uses the GPU", || daemon.said(&["logs", &low]).contains("low 3"));
    let high = submit_with(&daemon, &fake, ("high", 2000), "priority = 9");
    wait_for("it is put aside", || daemon.state(&low) == "suspended");
    wait_for("the other one runs", || daemon.state(&high) == "running");
    let own = "goes on where it was: on GPU 0 of".to_owned();
    let held = format!("which job {high} holds; from ");
    let why = daemon.said(&["why", &low]);
    assert!(why.contains(&own) && why.contains(&held) && why.contains("elsewhere"), "{why}");
    assert!(why.contains(&format!("job {high} giving its GPU up")), "{why}");
    let rows = daemon.json(&["ps", "--json"]);
    let rows = rows["jobs"].as_array().expect("jobs").clone();
    let row = rows.iter().find(|row| row["id"].as_u64() == low.parse().ok()).expect("its row");
    assert!(row["why"].as_str().is_some_and(|why| why.contains(&own)), "{row}");
    for command in ["ps", "queue"] {
        assert!(daemon.said(&[command]).contains("suspended"), "{command} shows where it is");
    }
    let status = daemon.json(&["status", "--json"]);
    assert_eq!(status["aside"]["memory_mib"], 4096, "{status}");
    assert_eq!(status["aside"]["jobs"], 1, "{status}");
    assert!(daemon.said(&["status"]).contains("1 jobs in "), "people are told");
    let doctor = |library: &str| {
        let words = ["doctor", "--state", "s", "--driver-library", library];
        ran(program(&daemon.folder, &words)).out
    };
    let said = doctor(&library);
    assert!(
        said.contains("the driver can put jobs aside; the daemon gives them 4096 MiB"),
        "{said}"
    );
    let said = doctor("/nowhere/libcuda.so.1");
    assert!(said.contains("no job can be put aside: "), "{said}");
    assert!(said.contains("/nowhere/libcuda.so.1"), "{said}");
    for job in [&high, &low] {
        daemon.said(&["cancel", job]);
    }
}

#[test]
fn memory_that_makes_no_sense_is_refused_and_a_driver_that_cannot_is_told() {
    let folder = fresh_folder("aside-refused");
    for (text, expected) in [
        ("64", "an amount of memory such as 64GiB"),
        ("64GiB,for=1s", "an amount of memory such as 64GiB"),
        ("900TiB", "at most the RAM of this machine"),
    ] {
        let state = folder.join("s").display().to_string();
        let words =
            ["serve", "--state", &state, "--gpus", "1", "--no-page", "--suspend-memory", text];
        let refused = ran(program(&folder, &words));
        assert_eq!(refused.code, 3, "{text}: {}", refused.err);
        assert!(refused.err.contains(expected), "{text}: {}", refused.err);
    }
    let _ = fs::remove_dir_all(&folder);
}
