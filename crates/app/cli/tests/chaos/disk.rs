//! A disk that is full, and a write that was torn.

use crate::yard::{Yard, within};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small disk of its own, in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a word about it, where file systems may not be mounted.
    fn mount(at: &Path) -> Option<SmallDisk> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m,mode=0711", "tmpfs"]).arg(at);
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(SmallDisk(at.to_owned()));
        }
        trainyard_testkit::skip!(
            "mount",
            "a full disk, because a small file system cannot be mounted here"
        );
        None
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).expect("a file");
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).expect("the filler is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_submissions_loses_nothing_and_is_got_over() {
    let mut yard = Yard::new("full", &["--gpus", "2"]);
    let Some(disk) = SmallDisk::mount(&yard.folder.join("s")) else { return };
    yard.start();
    let ends_meanwhile =
        yard.submit("echo up >> first; while [ ! -e go ]; do sleep 0.05; done; exit 4", |_| {});
    let ends_later = yard.submit("while [ ! -e later ]; do sleep 0.05; done; exit 5", |_| {});
    let waits = yard.submit("exit 0", |_| {});
    yard.until(ends_meanwhile, "running");
    yard.until(ends_later, "running");
    disk.fill();

    let request = yard.request("exit 0", |_| {});
    let mut refused = (0, serde_json::Value::Null);
    let mut accepted = Vec::new();
    within("a submission is refused", || {
        refused = yard.post("/v1/jobs", &request);
        accepted.extend(refused.1["jobs"][0].as_u64());
        refused.0 != 200
    });
    assert_eq!((refused.0, &refused.1["code"]), (507, &"store-failed".into()), "{}", refused.1);
    assert!(
        refused.1["detail"].as_str().is_some_and(|text| text.contains("nothing was accepted")),
        "{}",
        refused.1
    );
    let warnings = yard.get("/v1/status")["warnings"].to_string();
    assert!(warnings.contains("the store takes nothing"), "{warnings}");
    assert_eq!(yard.state(ends_later), "running", "jobs go on and can be looked at");
    fs::write(yard.folder.join("go"), "").expect("a file");
    let (status, _) =
        yard.post(&format!("/v1/jobs/{ends_later}/act"), &serde_json::json!({"action": "cancel"}));
    assert_eq!(status, 507, "what cannot be written is not done");

    disk.empty();
    within("submissions are accepted again", || {
        let (status, answer) = yard.post("/v1/jobs", &request);
        accepted.extend(answer["jobs"][0].as_u64());
        status == 200
    });
    yard.until(ends_meanwhile, "failed");
    let detail = yard.get(&format!("/v1/jobs/{ends_meanwhile}"));
    assert_eq!(detail["attempts"][0]["exit_code"], 4, "it ended while the disk was full: {detail}");
    fs::write(yard.folder.join("later"), "").expect("a file");
    yard.until(ends_later, "failed");
    for job in accepted.into_iter().chain([waits]) {
        yard.until(job, "finished");
    }
    let first = fs::read_to_string(yard.folder.join("first")).expect("it ran");
    assert_eq!(first, "up\n", "it was started once");
    yard.kill();
    drop(disk);
}

#[test]
fn a_full_disk_is_told_everywhere_and_no_job_is_lost_from_sight() {
    let mut yard = Yard::new("told", &["--gpus", "4"]);
    let Some(disk) = SmallDisk::mount(&yard.folder.join("s")) else { return };
    yard.start();
    assert_eq!(yard.get("/healthz")["status"], "ok");
    // One right after the other: no client has asked about the last ones when the disk is full.
    let jobs: Vec<u64> = (0..4).map(|_| yard.submit("exec sleep 60", |_| {})).collect();
    disk.fill();
    let request = yard.request("exit 0", |_| {});
    within("a submission is refused", || yard.post("/v1/jobs", &request).0 == 507);

    let health = yard.get("/healthz");
    assert!(health["status"] == "store-failed" && health["since"].is_f64(), "{health}");
    let program = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command
            .args(arguments)
            .env("TRAINYARD_SERVER", format!("unix:{}", yard.socket().display()));
        let ran = command.output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (text(ran.stdout), text(ran.stderr))
    };
    let rows = yard.get("/v1/jobs");
    let known: Vec<u64> = rows["jobs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["id"].as_u64())
        .collect();
    assert!(jobs.iter().all(|job| known.contains(job)), "{jobs:?} are acknowledged: {rows}");
    for arguments in [&["ps"][..], &["nodes"], &["why", "1"], &["ps", "--user", "nobody"]] {
        let (out, err) = program(arguments);
        assert!(err.contains("cannot write its store since") && err.contains("as of"), "{err}");
        assert_eq!(err.lines().count(), 1, "it is said once: {err}");
        assert_ne!(out, "no jobs\n", "{arguments:?}");
    }
    let (out, _) = program(&["status"]);
    assert!(out.contains("the store takes nothing") && out.contains("is shown is as of"), "{out}");
    let metrics = yard.text("/metrics");
    assert!(metrics.contains("trainyard_store_failing 1.0"), "{metrics}");

    disk.empty();
    within("it is over", || yard.get("/healthz")["status"] == "ok");
    let (out, err) = program(&["ps"]);
    assert!(err.is_empty() && out.lines().count() >= 2 + jobs.len(), "{out}{err}");
    for job in jobs {
        yard.post(&format!("/v1/jobs/{job}/act"), &serde_json::json!({"action": "cancel"}));
        yard.until(job, "cancelled");
    }
    yard.kill();
    drop(disk);
}

/// Half of a write after the last whole one is as if it had never been made.
#[test]
fn a_torn_last_write_costs_nothing_that_was_acknowledged() {
    let mut yard = Yard::new("torn", &["--gpus", "2"]);
    yard.start();
    let held = |spec: &mut serde_json::Value| spec["hold"] = true.into();
    let mut jobs = Vec::new();
    for round in 0..4u64 {
        let running = yard.submit("echo up >> started; exec sleep 60", |_| {});
        yard.until(running, "running");
        jobs.extend((0..3).map(|_| yard.submit("exit 0", held)));
        yard.kill();
        let log = yard.folder.join("s/store.db-wal");
        let whole = fs::read(&log).expect("a log beside the store");
        // A part of an older frame after the end is what a torn write looks like: right in form, wrong in sum.
        let part = &whole[32..whole.len().min(32 + 1500 + round as usize * 2000)];
        let mut file = OpenOptions::new().append(true).open(&log).expect("a log");
        file.write_all(part).expect("it can be written");
        drop(file);
        yard.start();
        for &job in &jobs {
            assert_eq!(yard.state(job), "blocked", "job {job} is there in round {round}");
        }
        assert_eq!(yard.state(running), "running");
        let cancel = serde_json::json!({ "action": "cancel" });
        assert_eq!(yard.post(&format!("/v1/jobs/{running}/act"), &cancel).0, 200);
        yard.until(running, "cancelled");
    }
    let started = fs::read_to_string(yard.folder.join("started")).expect("they ran");
    assert_eq!(started.lines().count(), 4, "each was started once");
}

/// A disk that lied about what it had written: the daemon starts, and what is left is whole.
#[test]
fn a_log_that_lost_its_tail_leaves_whole_jobs_and_no_stray_process() {
    let mut yard = Yard::new("tail", &["--gpus", "2"]);
    yard.start();
    let early = yard.submit("exit 0", |spec| spec["hold"] = true.into());
    let late = yard.submit("echo $$ > pid; exec sleep 60", |_| {});
    yard.until(late, "running");
    within("it has begun", || yard.folder.join("pid").exists());
    yard.kill();
    let log = yard.folder.join("s/store.db-wal");
    let length = fs::metadata(&log).expect("a log beside the store").len();
    // Whatever the job wrote is behind the first few frames.
    let file = OpenOptions::new().write(true).open(&log).expect("a log");
    file.set_len(length - 5000).expect("it can be cut");
    drop(file);
    yard.start();
    assert_eq!(yard.state(early), "blocked");
    let row = yard.get("/v1/jobs");
    let shown = row["jobs"].as_array().expect("rows").iter().any(|row| row["id"] == late);
    let pid = fs::read_to_string(yard.folder.join("pid")).expect("a number");
    let alive = || Path::new("/proc").join(pid.trim()).exists();
    if shown {
        assert!(alive() && yard.state(late) == "running", "{row}");
    } else {
        within("a process that the daemon does not know of is stopped", || !alive());
    }
}
