//! Nothing lost, nothing run twice: kills of the daemon and of keepers.

use crate::yard::{PROGRAM, WAIT, Yard, gang, keeper_of, kill_9, lives, script, within};
use std::os::unix::fs::DirBuilderExt;
use trainyard_backend::{Backend, Found, Report};
use trainyard_testkit::orders::Orders;

/// A script that counts how often it is run, in a file that is never removed.
fn counting(yard: &Yard, job: u32, rest: &str) -> trainyard_backend::LaunchOrder {
    script(job, &format!("echo ran >> {}/count.{job}; {rest}", yard.run_dir.display()))
}

fn count(yard: &Yard, job: u32) -> usize {
    let file = yard.run_dir.join(format!("count.{job}"));
    std::fs::read_to_string(file).unwrap_or_default().lines().count()
}

#[test]
fn a_job_outlives_the_backend_and_its_exit_code_is_found_by_the_next() {
    let mut yard = Yard::new("reattach");
    let gate = yard.run_dir.join("gate");
    let wait = format!("echo ready; until [ -e {} ]; do sleep 0.02; done; exit 7", gate.display());
    let order = counting(&yard, 1, &wait);
    yard.launch(order.clone());
    yard.until_log(1, "ready");
    let mut yard = yard.restart();
    let found = yard.backend().list_attempts();
    assert!(matches!(found[..], [Found::Running { started: true, .. }]), "{found:?}");
    // It ends while no backend runs.
    yard.local = None;
    let keeper = keeper_of(&yard.dir(1));
    std::fs::write(&gate, "").unwrap();
    within(WAIT, "the keeper ends", || !lives(keeper));
    let mut yard = yard.restart();
    let found = yard.backend().list_attempts();
    let [Found::Ended { exit, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((exit.code, exit.lost), (Some(7), false), "{exit:?}");
    // It is kept until it is forgotten, and an order for it is answered with it, before and after.
    for forgotten in [false, true] {
        if forgotten {
            let Found::Ended { job, attempt, .. } = found[0] else { unreachable!() };
            yard.backend().forget(job, attempt);
            assert!(yard.backend().list_attempts().is_empty());
        }
        let exit = yard.run(order.clone());
        assert_eq!(exit.code, Some(7));
    }
    assert_eq!(count(&yard, 1), 1);
}

#[test]
fn an_attempt_runs_once_however_often_it_is_ordered() {
    let mut yard = Yard::new("repeated");
    let order = counting(&yard, 1, "sleep 0.3; exit 4");
    for _ in 0..20 {
        yard.launch(order.clone());
    }
    assert_eq!(yard.until_ended().code, Some(4));
    for _ in 0..5 {
        assert_eq!(yard.run(order.clone()).code, Some(4));
    }
    assert_eq!(count(&yard, 1), 1);
}

#[test]
fn a_second_backend_on_the_same_directory_is_refused() {
    let yard = Yard::new("second");
    let options = trainyard_backend::LocalOptions::new(&yard.run_dir, PROGRAM);
    let error = trainyard_backend::Local::new(options, |_| {}).unwrap_err();
    assert!(error.to_string().contains("another daemon works in"), "{error}");
}

#[test]
fn a_keeper_that_is_killed_takes_its_processes_along_and_the_attempt_is_lost() {
    takes_its_processes_along(Yard::new("lost"));
}

#[test]
fn without_cgroups_they_are_found_by_session_and_environment() {
    takes_its_processes_along(Yard::without_cgroups("lost-plain"));
}

fn takes_its_processes_along(mut yard: Yard) {
    // A child in the group, one in another session, and one that forgot its environment.
    let text = "trap '' TERM; echo $$; sleep 300 & echo $!; setsid sleep 301 & echo $!; \
                env -i sleep 302 & echo $!; echo ready; while :; do sleep 0.1; done";
    yard.launch(gang(1, text));
    yard.until_started();
    for rank in [0, 1] {
        within(WAIT, "a rank is ready", || yard.log(1, rank).contains("ready"));
    }
    let logs = yard.log(1, 0) + &yard.log(1, 1);
    let pids: Vec<i32> = logs.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(pids.len(), 8, "{logs}");
    kill_9(keeper_of(&yard.dir(1)));
    let exit = yard.until_ended();
    assert!(exit.lost && exit.code.is_none() && exit.launch_error.is_none(), "{exit:?}");
    for pid in pids {
        assert!(!lives(pid), "{pid} lives");
    }
    // Its end is on disk like any other.
    let mut yard = yard.restart();
    let found = yard.backend().list_attempts();
    assert!(matches!(&found[..], [Found::Ended { exit, .. }] if exit.lost), "{found:?}");
}

#[test]
fn a_checkpoint_that_was_told_of_outlives_its_keeper() {
    if !crate::running::python_is_here() {
        return;
    }
    let mut yard = Yard::new("told");
    let text = r#"exec python3 -u - <<'END'
import os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
s.sendall(b'{"type":"saved","done":77}\n')
time.sleep(300)
END"#;
    yard.launch(script(1, text));
    while !matches!(yard.next(), Report::Said { .. }) {}
    kill_9(keeper_of(&yard.dir(1)));
    let exit = yard.until_ended();
    assert!(exit.lost && exit.saved == Some(77.0), "{exit:?}");
}

/// Every stage at which a daemon can die between the mkdir and the keeper's own mark: the attempt is lost, and an order
/// for it starts nothing.
#[test]
fn a_half_made_directory_never_runs() {
    for stage in 0..4 {
        let yard = Yard::new(&format!("half-{stage}"));
        let order = counting(&yard, 1, "exit 0");
        let mut yard = {
            let mut yard = yard;
            yard.local = None;
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o711).create(yard.dir(1)).unwrap();
            if stage >= 1 {
                std::fs::create_dir(yard.dir(1).join("orders")).unwrap();
            }
            if stage >= 2 {
                std::fs::write(yard.dir(1).join("lock"), "").unwrap();
            }
            if stage >= 3 {
                let launch = serde_json::json!({ "order": order, "cgroup": null });
                std::fs::write(yard.dir(1).join("orders/launch.json"), launch.to_string()).unwrap();
            }
            yard.restart()
        };
        let found = yard.backend().list_attempts();
        assert!(matches!(&found[..], [Found::Ended { exit, .. }] if exit.lost), "{found:?}");
        assert!(yard.run(order).lost);
        assert_eq!(count(&yard, 1), 0);
    }
}

/// The backend in a process of its own, killed at a random moment while it launches: whatever was begun is found, and
/// nothing runs twice.
#[test]
fn a_starter_killed_at_any_moment_leaves_jobs_that_run_once() {
    let me = std::env::current_exe().unwrap();
    let yard = Yard::new("starter");
    let (jobs, rounds) = (6, 12);
    let mut yard = {
        let mut yard = yard;
        yard.local = None;
        yard
    };
    for round in 0..rounds {
        let mut starter = std::process::Command::new(&me)
            .args(["--exact", "survival::starter", "--nocapture", "--test-threads=1"])
            .env("TRAINYARD_TEST_RUN_DIR", &yard.run_dir)
            .env("TRAINYARD_TEST_JOBS", jobs.to_string())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From before the first directory is made until after the last is.
        std::thread::sleep(std::time::Duration::from_millis(4 * round));
        starter.kill().unwrap();
        starter.wait().unwrap();
    }
    yard = yard.restart();
    for job in 1..=jobs {
        let order = counting(&yard, job, "sleep 0.1; exit 3");
        let exit = yard.run(order);
        let runs = count(&yard, job);
        assert!(
            exit.code == Some(3) && runs == 1 || exit.lost && runs <= 1,
            "{exit:?}, {runs} runs"
        );
    }
}

/// A small disk of its own, if this process may mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(name: &str) -> Option<SmallDisk> {
        let path = std::env::temp_dir().join(format!("ty-local-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs"]).arg(&path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            trainyard_testkit::skip!("mount", "a small disk needs the right to mount one");
        }
        mounted.then(|| SmallDisk(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn on_a_full_disk_a_job_can_be_stopped_and_its_end_is_told_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("full") else { return };
    let mut yard = Yard::on(&disk.0.join("run"));
    yard.launch(script(1, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"));
    yard.until_log(1, "ready");
    let filling = disk.0.join("filling");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let keeper = keeper_of(&yard.dir(1));
    let second = counting(&yard, 2, "exit 0");
    std::thread::scope(|scope| {
        // Whatever room there is goes at once, also what the backend itself lets go.
        scope.spawn(|| {
            let mut file = std::fs::File::create(&filling).unwrap();
            while !is_over.load(relaxed) {
                while std::io::Write::write(&mut file, &[1; 4096]).is_ok() {}
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        });
        within(WAIT, "the disk is full", || {
            std::fs::write(disk.0.join("more"), [1; 4096]).is_err()
        });
        yard.stop(1, 60.0);
        yard.launch(second);
        let ranks = || trainyard_backend::processes::descendants(keeper);
        within(WAIT, "the job is stopped", || ranks().is_empty());
        is_over.store(true, relaxed);
    });
    std::fs::remove_file(&filling).unwrap();
    let (mut first, mut second) = (None, None);
    while first.is_none() || second.is_none() {
        if let Report::Ended { job, exit, .. } = yard.next() {
            if job.0 == 1 { first = Some(exit) } else { second = Some(exit) }
        }
    }
    let exit = first.unwrap();
    assert_eq!((exit.code, exit.asked_to_stop), (Some(9), true), "{exit:?}");
    // What could not be begun is refused, and begins at no time later.
    let exit = second.unwrap();
    assert!(exit.lost || exit.launch_error.is_some(), "{exit:?}");
    assert_eq!(count(&yard, 2), 0);
    drop(yard);
}

/// Keepers killed at moments from their first breath until after their end.
#[test]
fn a_keeper_killed_at_any_moment_leaves_an_attempt_that_ran_at_most_once_and_no_process() {
    let mut yard = Yard::new("moments");
    let mut lost = 0;
    for job in 1..=16 {
        let order = counting(&yard, job, "sleep 0.05; exit 3");
        let dir = yard.dir(job).display().to_string();
        yard.launch(order.clone());
        let keeper = || processes_naming(&dir).into_iter().next();
        within(WAIT, "a keeper", || keeper().is_some() || yard.dir(job).join("exit.json").exists());
        std::thread::sleep(std::time::Duration::from_millis(u64::from(job - 1) * 5));
        if let Some(keeper) = keeper() {
            kill_9(keeper);
        }
        let exit = yard.until_ended();
        assert!(exit.lost || exit.code == Some(3), "{exit:?}");
        lost += u32::from(exit.lost);
        // The same answer for ever, and never another run.
        assert_eq!(yard.run(order), exit);
        assert!(count(&yard, job) <= 1);
        let left = processes_naming(&format!("{}/count.{job};", yard.run_dir.display()));
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(lost > 0, "no keeper was killed in time");
}

fn processes_naming(text: &str) -> Vec<i32> {
    let named = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    let all = trainyard_backend::processes::all().into_iter();
    all.filter(|process| !process.is_zombie).map(|process| process.pid).filter(named).collect()
}

/// No test of its own: what the test above starts and kills.
#[test]
fn starter() {
    let Ok(run_dir) = std::env::var("TRAINYARD_TEST_RUN_DIR") else { return };
    let jobs: u32 = std::env::var("TRAINYARD_TEST_JOBS").unwrap().parse().unwrap();
    let mut yard = Yard::on(std::path::Path::new(&run_dir));
    for job in 1..=jobs {
        let order = counting(&yard, job, "sleep 0.1; exit 3");
        yard.launch(order);
    }
    std::thread::sleep(WAIT);
}
