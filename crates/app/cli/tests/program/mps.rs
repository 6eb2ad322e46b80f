//! Jobs that share a GPU as clients of MPS, through the real daemon and a control program of our own.

use super::daemon::{Daemon, fresh_folder, program, ran};
use super::fake_mps::{CONNECTS, FakeMps};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program with the library for shared GPUs beside it, which here is a file that the loader passes over.
struct Beside(PathBuf);

impl Beside {
    fn new(name: &str) -> Beside {
        let folder = format!("mps-{}-{name}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        let library = folder.join("libtrainyard_preload.so");
        fs::write(&library, "").expect("a file");
        for (path, mode) in [(&folder, 0o755), (&library, 0o644)] {
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
        }
        fs::hard_link(env!("CARGO_BIN_EXE_trainyard"), folder.join("trainyard")).expect("a link");
        Beside(folder)
    }

    fn start(&self, name: &str, control: &Path) -> Daemon {
        let before = format!("exec {}/trainyard \"$@\"; ", self.0.display());
        let control = control.display().to_string();
        let options = ["--gpus", "1", "--policy", "fifo", "--mps", "--mps-control", &control];
        Daemon::start_in(fresh_folder(name), &before, &options)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A job that has half of the GPU and may fail once too often: not at all.
fn submit(daemon: &Daemon, name: &str, script: &str) -> String {
    let file = format!("{name}.toml");
    let command = format!("command = ['sh', '-c', '''{script}''']");
    let text = format!("name = '{name}'\n{command}\ngpus = 1\nshare = 0.5\nretries = 0\n");
    fs::write(daemon.folder.join(&file), text).expect("a file");
    let submitted = daemon.json(&["submit", &file, "--json"]);
    submitted["jobs"][0].as_u64().expect("an id").to_string()
}

#[test]
fn a_fault_of_a_client_of_mps_costs_no_job_an_attempt_and_a_daemon_that_is_killed_finds_mps_again()
{
    let beside = Beside::new("fault");
    let fake = FakeMps::new(&beside.0.join("control"));
    let mut daemon = beside.start("mps", &fake.program());
    let flag = daemon.folder.join("flag");
    let script = format!(
        "{CONNECTS}; [ $TRAINYARD_ATTEMPT = 2 ] && exit 0; echo with $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; \
         while ! [ -e {} ]; do sleep 0.05; done; exit 1",
        flag.display()
    );
    let jobs = ["one", "two"].map(|name| submit(&daemon, name, &script));
    for job in &jobs {
        daemon.wait_to_hear(&["logs", job], "with 50");
    }
    assert_eq!(fake.calls(), ["start 0"]);
    daemon.kill();
    daemon.start_again();
    daemon.wait_to_hear(&["ps"], "running");
    fake.tell("status", "FAULT");
    fs::write(&flag, "").expect("a file");
    for job in &jobs {
        daemon.wait_until(job, "finished");
    }
    let events = daemon.said(&["events"]);
    for job in &jobs {
        let lost = format!("job {job} attempt 1: lost with MPS on GPU 0");
        assert!(events.contains(&lost), "{events}");
        let apart = format!("job {job}: it is no client of MPS on GPU 0 and takes turns instead");
        assert!(events.contains(&apart), "{events}");
    }
    assert_eq!(fake.calls(), ["start 0", "quit"], "ended after the last, and not started again");
}

#[test]
fn a_machine_without_mps_runs_the_job_by_turns_and_an_event_says_so() {
    let beside = Beside::new("none");
    let daemon = beside.start("nomps", Path::new("/nowhere/nvidia-cuda-mps-control"));
    let job = submit(&daemon, "alone", "exit 0");
    daemon.wait_until(&job, "finished");
    let events = daemon.said(&["events"]);
    assert!(events.contains("takes turns instead"), "{events}");
    let folder = fresh_folder("mps-refused");
    let words = ["serve", "--gpus", "1", "--mps-control", "x"];
    let refused = ran(program(&folder, &words));
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("--mps"), "{}", refused.err);
    let _ = fs::remove_dir_all(&folder);
}
