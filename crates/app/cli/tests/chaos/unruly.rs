//! Jobs that do not behave.

use crate::yard::{Yard, within};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The user `nobody`, who owns nothing here.
const NOBODY: u32 = 65_534;

#[test]
fn a_job_that_ignores_every_signal_is_killed_after_its_grace_also_across_a_crash() {
    let mut yard = Yard::new("deaf", &["--gpus", "2"]);
    yard.start();
    let deaf =
        "trap '' TERM INT HUP QUIT USR1 USR2 PIPE ALRM; echo $$ > pid; while :; do sleep 0.1; done";
    for crash in [false, true] {
        let _ = fs::remove_file(yard.folder.join("pid"));
        let job = yard.submit(deaf, |spec| spec["checkpoint"] = json!({ "grace_seconds": 0.4 }));
        within("it has begun", || pid(&yard).is_some());
        let process = pid(&yard).expect("a number");
        let (status, answer) =
            yard.post(&format!("/v1/jobs/{job}/act"), &json!({ "action": "cancel" }));
        assert_eq!(status, 200, "{answer}");
        if crash {
            yard.kill();
            yard.start();
        }
        yard.until(job, "cancelled");
        assert!(!Path::new("/proc").join(&process).exists(), "nothing of it is left");
        let detail = yard.get(&format!("/v1/jobs/{job}"));
        let outcome = detail["attempts"][0]["outcome"].as_str().unwrap_or_default().to_owned();
        assert!(outcome.contains("killed after its grace"), "{outcome}");
    }
}

fn pid(yard: &Yard) -> Option<String> {
    let text = fs::read_to_string(yard.folder.join("pid")).ok()?;
    text.ends_with('\n').then(|| text.trim().to_owned())
}

/// The loop is bounded by itself too, in case the limit should fail: 400 processes are too many and harmless.
#[test]
fn a_fork_loop_of_another_user_is_stopped_by_its_limit() {
    let program = env!("CARGO_BIN_EXE_trainyard");
    let as_nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command
    };
    let root = fs::metadata("/proc/self")
        .is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0);
    if !root || !as_nobody().arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        trainyard_testkit::skip!(
            "root",
            "a fork loop of another user, which needs root, setpriv and a program that user `nobody` may run"
        );
        return;
    }
    let mut yard = Yard::new("forks", &["--gpus", "2", "--processes-max", "60"]);
    fs::set_permissions(&yard.folder, Permissions::from_mode(0o755)).expect("it is ours");
    yard.start();
    let script =
        "trap '' TERM; n=0; while [ $n -lt 400 ]; do sleep 50 & n=$((n+1)); done 2>/dev/null; wait";
    let mut submit = as_nobody();
    submit.current_dir("/").args(["run", "--detach", "--", "bash", "-c", script]);
    submit.env("TRAINYARD_SERVER", format!("unix:{}", yard.socket().display()));
    let ran = submit.output().expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let rows = yard.get("/v1/jobs");
    let (job, user) = (rows["jobs"][0]["id"].as_u64().expect("a job"), &rows["jobs"][0]["user"]);
    assert_eq!(user, "nobody", "{rows}");
    within("the loop fills its limit", || tasks_of(NOBODY) >= 40);
    let most = (0..20).map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        tasks_of(NOBODY)
    });
    let most = most.max().unwrap_or_default();
    assert!(most <= 100, "{most} processes, and 60 are allowed");
    let other = yard.submit("exit 0", |_| {});
    yard.until(other, "finished");
    assert_eq!(yard.post(&format!("/v1/jobs/{job}/act"), &json!({ "action": "cancel" })).0, 200);
    within("nothing of it is left", || tasks_of(NOBODY) == 0);
    yard.until(job, "cancelled");
}

/// Processes of a user.
fn tasks_of(user: u32) -> usize {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let own = processes.filter(|entry| {
        let number = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        number
            && entry.metadata().is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == user)
    });
    own.count()
}
