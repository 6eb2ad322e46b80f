//! Machines that break: the real daemon with a stand-in for the library of the NVIDIA driver.

use super::daemon::{Daemon, PATIENCE};
use super::fake_nvml::FakeNvml;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A folder for the stand-in that goes with the test.
struct Libraries(PathBuf);

impl Libraries {
    fn new(name: &str) -> Libraries {
        Libraries(std::env::temp_dir().join(format!("ty-lib-{}-{name}", std::process::id())))
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux");
    name.trim().split('.').next().unwrap_or_default().to_owned()
}

#[test]
fn how_busy_gpus_are_and_their_memory_is_told() {
    let libraries = Libraries::new("busy");
    let Some(fake) = FakeNvml::new(&libraries.0, 2) else { return };
    fake.tell("1 busy 87 40960");
    let daemon = Daemon::start_on("busy", &[], Some(&libraries.0));
    let begun = Instant::now();
    loop {
        let told = daemon.got("/v1/gpus");
        if let Some(gpu) = told["gpus"].get(1) {
            assert_eq!((&gpu["busy"], &gpu["memory_used_mib"]), (&0.87.into(), &40960.into()));
            assert_eq!((&gpu["gpu"], &gpu["memory_mib"]), (&1.into(), &144_384.into()), "{gpu}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing is told: {told}");
        sleep(Duration::from_millis(50));
    }
    let policies = daemon.got("/v1/policies");
    let known = |row: &serde_json::Value| row["name"] == "tiresias" && row["objective"].is_string();
    assert!(policies["policies"].as_array().is_some_and(|rows| rows.iter().any(known)));
}

#[test]
fn an_ill_gpu_is_in_quarantine_alone_its_job_runs_elsewhere_and_an_operator_returns_it() {
    let libraries = Libraries::new("ill");
    let Some(fake) = FakeNvml::new(&libraries.0, 2) else { return };
    let mut daemon = Daemon::start_on("ill", &[], Some(&libraries.0));
    let job = daemon.submit("ill", "echo on $CUDA_VISIBLE_DEVICES; exec sleep 60", 1);
    daemon.wait_until(&job, "running");
    let row = &daemon.json(&["ps", "--json"])["jobs"][0];
    let held = row["holds"][0]["gpus"][0].as_u64().expect("a GPU");
    fake.tell(&format!("{held} xid 79"));
    daemon.wait_to_hear(&["nodes"], "fallen off the bus");
    let second = format!("job {job} attempt 2 runs");
    daemon.wait_to_hear(&["events"], &second);
    let row = daemon.json(&["ps", "--json"])["jobs"][0].clone();
    assert_eq!(row["holds"][0]["gpus"][0].as_u64(), Some(1 - held), "it runs on the other: {row}");
    let events = daemon.said(&["events"]);
    assert!(events.contains(&format!("job {job} goes back to the queue")), "{events}");
    let nodes = daemon.json(&["nodes", "--json"]);
    let node = &nodes["nodes"][0];
    assert_eq!(node["state"], "up", "one GPU is ill, not the node: {node}");
    let ill = &node["ill"][0];
    assert_eq!((ill["gpu"].as_u64(), ill["code"].as_str()), (Some(held), Some("xid-79")));

    let both = daemon.submit("both", "true", 2);
    daemon.wait_to_hear(&["why", &both], "in quarantine");
    let why = daemon.said(&["why", &both]);
    assert!(why.contains("Xid 79"), "{why}");

    daemon.kill();
    daemon.start_again();
    assert_eq!(daemon.json(&["nodes", "--json"])["nodes"][0]["ill"][0]["code"], "xid-79");

    daemon.said(&["cancel", &job]);
    daemon.wait_until(&job, "cancelled");
    assert_eq!(daemon.state(&both), "waiting", "a restart does not heal");
    let said = daemon.said(&["resume", &format!("{}:{held}", host())]);
    assert!(said.contains("is up"), "{said}");
    daemon.wait_until(&both, "finished");
    let again = daemon.ask(&["resume", &format!("{}:{held}", host())]);
    assert_eq!(again.code, 7, "it is not in quarantine: {}", again.err);
}

#[test]
fn a_job_that_fails_with_its_gpu_is_not_to_blame_and_one_that_errs_by_itself_is() {
    let libraries = Libraries::new("blame");
    let Some(fake) = FakeNvml::new(&libraries.0, 2) else { return };
    let daemon = Daemon::start_on("blame", &[], Some(&libraries.0));
    // Without retries: a failure of its own would be its end.
    let facts = libraries.0.join("nvml.txt");
    let script = format!(
        "[ $TRAINYARD_ATTEMPT = 2 ] && exit 0; \
         n=${{CUDA_VISIBLE_DEVICES##*-}}; echo $n xid 79 >> {}; exit 1",
        facts.display()
    );
    let lost = daemon.submit("lost", &script, 1);
    daemon.wait_until(&lost, "finished");
    let events = daemon.said(&["events"]);
    assert!(events.contains("lost with GPU"), "{events}");

    let own = daemon.submit("own", "sleep 0.3; exit 1", 1);
    daemon.wait_until(&own, "failed");
    fake.tell("0 xid 31");
    fake.tell("1 xid 31");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let nodes = daemon.json(&["nodes", "--json"]);
        let ill = nodes["nodes"][0]["ill"].as_array().map_or(0, Vec::len);
        assert_eq!(ill, 1, "Xid 31 is of the application: {nodes}");
        sleep(Duration::from_millis(100));
    }
    assert!(begun.elapsed() < PATIENCE);
}

/// A program of two ranks that tells of ten steps of each, of which rank 1 misses the last, and then stands still.
const STANDS_STILL: &str = r#"
import json, os, socket, time
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["TRAINYARD_SOCKET"])
def say(**m):
    s.sendall((json.dumps(m) + "\n").encode())
for step in range(1, 11):
    say(type="progress", done=step, rank=0)
    say(type="progress", done=min(step, 9), rank=1)
    time.sleep(0.15)
if os.environ["TRAINYARD_ATTEMPT"] == "2":
    say(type="finished")
else:
    time.sleep(600)
"#;

fn submit_still(daemon: &Daemon, then: &str) -> String {
    fs::write(daemon.folder.join("still.py"), STANDS_STILL).expect("a file");
    let file = format!("{then}.toml");
    let text = format!(
        "name = \"{then}\"\ncommand = [\"python3\", \"still.py\"]\non_hang = \"{then}\"\n\
         hang_min = \"1s\"\nhang_times = 3\nretries = 1\n[checkpoint]\ngrace = \"1s\"\n"
    );
    fs::write(daemon.folder.join(&file), text).expect("a file");
    let submitted = daemon.json(&["submit", &file, "--json"]);
    submitted["jobs"][0].as_u64().expect("an id").to_string()
}

#[test]
fn a_program_that_stops_telling_is_called_hung_with_its_rank_and_its_user_decides() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        trainyard_testkit::skip!("python", "there is no python3");
        return;
    }
    let daemon = Daemon::start_with("hangs", &["--gpus", "3"]);
    let silent = daemon.submit("silent", "exec sleep 600", 1);
    let told = submit_still(&daemon, "tell");
    daemon.wait_to_hear(&["why", &told], "hangs: no step for");
    let why = daemon.said(&["why", &told]);
    assert!(why.contains("rank 1 is behind the others"), "{why}");
    assert!(daemon.said(&["ps"]).contains("hangs: no step"));
    let row = daemon.json(&["job", "show", &told, "--json"]);
    assert_eq!(row["hung"]["rank"], 1, "{row}");
    let events = daemon.said(&["events"]);
    assert!(events.contains(&format!("job {told} attempt 1 hangs")), "{events}");

    let failed = submit_still(&daemon, "fail");
    daemon.wait_until(&failed, "failed");
    let events = daemon.said(&["events"]);
    assert!(events.contains(&format!("job {failed} ended: failed (hung: ")), "{events}");

    let again = submit_still(&daemon, "restart");
    daemon.wait_to_hear(&["events"], &format!("job {again} attempt 1: hung, no step"));
    assert_eq!(daemon.state(&told), "running", "it was told, and nothing else");
    let quiet = daemon.json(&["job", "show", &silent, "--json"]);
    assert_eq!(quiet["hung"], serde_json::Value::Null, "a silent job is not hung: {quiet}");
}
