//! The batch script and directories of checkpoints that are not its user's. It runs as it does under Slurm, without one;
//! this needs root, which makes what others own, and says so where it is not.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use trainyard_backend::LaunchOrder;
use trainyard_backend::attempt_dir::Told;
use trainyard_slurm::folder::{self, Folder};
use trainyard_slurm::script::{self, Paths};
use trainyard_types::{Attempt, JobId};

/// The job's user and another: numbers that no user of the system has.
const ADA: u32 = 61_001;
const MALLORY: u32 = 61_007;

/// The directory of a run, gone with the test.
struct Yard {
    run: PathBuf,
    root: PathBuf,
    named: bool,
    /// `CUDA_VISIBLE_DEVICES`, where Slurm sets it.
    devices: Option<&'static str>,
}

impl Yard {
    fn new(name: &str) -> Option<Yard> {
        let setpriv = Command::new("setpriv").arg("--version").output();
        if !nix::unistd::geteuid().is_root() || setpriv.is_err() {
            trainyard_testkit::skip!("root", "needs root and setpriv");
            return None;
        }
        let run = std::env::temp_dir().join(format!("ty-fence-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run);
        let root = run.join(format!("checkpoints/u{ADA}/1"));
        make(&run.join("checkpoints"), 0, 0o711);
        make(root.parent().unwrap(), ADA, 0o700);
        std::fs::set_permissions(&run, PermissionsExt::from_mode(0o711)).unwrap();
        std::fs::write(run.join("run.sh"), script::RUN).unwrap();
        Some(Yard { run, root, named: false, devices: None })
    }

    /// Runs the second attempt of job 1 as its user: what it said and why it could not begin.
    fn go(&self) -> (String, String) {
        let [own, log] = ["1.2/job", "1.2/logs/0/00000000000000000000"].map(|at| self.run.join(at));
        let _ = std::fs::remove_dir_all(self.run.join("1.2"));
        make(&own, ADA, 0o700);
        make(log.parent().unwrap(), 0, 0o711);
        std::fs::write(&log, "").unwrap();
        chown(&log, Some(ADA), Some(ADA)).unwrap();
        let text = "cat $TRAINYARD_CHECKPOINT_DIR/state; echo ran $TRAINYARD_CHECKPOINT_DIR";
        let mut order = LaunchOrder {
            job: JobId(1),
            attempt: Attempt(2),
            argv: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
            cwd: "/".to_owned(),
            gpus: vec![0, 1],
            checkpoint_dir: self.root.display().to_string(),
            ..LaunchOrder::default()
        };
        order.checkpoint.dir = self.named.then(|| order.checkpoint_dir.clone());
        let [run, said, told, saved, own_script] =
            ["run.sh", "1.2/job/said", "1.2/told", "1.2/job/saved", "1.2/job/script"]
                .map(|at| self.run.join(at));
        let paths = Paths {
            script: &run,
            said: &said,
            told: &told,
            saved: &saved,
            own_script: &own_script,
        };
        let launch = script::launch_file(&order, &["n1".to_owned()], &paths);
        std::fs::write(own.join("launch.sh"), launch).unwrap();
        std::fs::write(own.join("env.sh"), script::environment_file(&order, 1, &paths)).unwrap();
        std::fs::create_dir_all(self.run.join("slurm/jobs/1")).unwrap();
        std::fs::write(self.run.join("slurm/jobs/1/go"), "2 77\n").unwrap();
        let status = Command::new("setpriv")
            .args([format!("--reuid={ADA}"), format!("--regid={ADA}")])
            .args(["--clear-groups", "sh"])
            .args([&run, &self.run])
            .arg("1")
            .env_clear()
            .env("PATH", script::PATH)
            .env("SLURM_JOB_ID", "77")
            .env("SLURM_JOB_NUM_NODES", "1")
            .env("SLURM_NODEID", "0")
            .env("SLURMD_NODENAME", "n1")
            .envs(self.devices.map(|devices| ("CUDA_VISIBLE_DEVICES", devices)))
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(own.join("exit").exists(), "{status:?}");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        (read(&log), read(&own.join("trouble")))
    }

    fn refused(&self, what: &str, expected: &str) {
        let (log, trouble) = self.go();
        assert!(log.is_empty() && trouble.contains(expected), "{what}: {log:?} {trouble:?}");
        let _ = std::fs::remove_file(&self.root);
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.run);
    }
}

fn make(dir: &Path, uid: u32, mode: u32) {
    std::fs::create_dir_all(dir).unwrap();
    chown(dir, Some(uid), Some(uid)).unwrap();
    std::fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
}

fn put(file: &Path, text: &str, uid: u32) {
    std::fs::write(file, text).unwrap();
    chown(file, Some(uid), Some(uid)).unwrap();
}

#[test]
fn the_script_goes_on_with_its_users_own_checkpoints() {
    let Some(yard) = Yard::new("own") else { return };
    make(&yard.root, ADA, 0o700);
    let (log, trouble) = yard.go();
    assert_eq!(
        (log.lines().last().unwrap_or_default().starts_with("ran "), trouble),
        (true, String::new())
    );
    std::fs::remove_dir_all(&yard.root).unwrap();
    make(&yard.root.join("at-1"), ADA, 0o700);
    make(&yard.root, ADA, 0o700);
    put(&yard.root.join("at-1/state"), "mine\n", ADA);
    let (log, _) = yard.go();
    assert_eq!(log, format!("mine\nran {}/at-2\n", yard.root.display()));
}

#[test]
fn nothing_is_run_without_the_gpus_that_were_promised_and_the_place_is_to_blame() {
    let Some(mut yard) = Yard::new("gpus") else { return };
    make(&yard.root, ADA, 0o700);
    for (devices, given) in [("", Some(0)), ("NoDevFiles", Some(0)), ("3", Some(1))] {
        yard.devices = Some(devices);
        let (log, trouble) = yard.go();
        let given = given.map(|given| format!("gave it {given} of 2 GPUs on n1")).unwrap();
        assert!(log.is_empty() && trouble.contains(&given), "{devices:?}: {log:?} {trouble:?}");
        let folder = Folder::new(&yard.run, JobId(1), Attempt(2));
        let exit = folder::exit_of(&folder, &Told::default()).unwrap();
        assert!(exit.lost && exit.launch_error.is_some(), "{exit:?}");
    }
    for devices in ["0,3", "GPU-1,GPU-2", "0,1,2", "all"] {
        yard.devices = Some(devices);
        let (log, trouble) = yard.go();
        assert!(log.contains("ran ") && trouble.is_empty(), "{devices:?}: {log:?} {trouble:?}");
        std::fs::remove_dir_all(&yard.root).unwrap();
        make(&yard.root, ADA, 0o700);
    }
}

#[test]
fn the_script_refuses_checkpoints_that_another_user_made_or_linked() {
    let Some(yard) = Yard::new("foreign") else { return };
    let root = &yard.root;
    yard.refused("it was never made", "is not there");
    make(root, MALLORY, 0o777);
    yard.refused("another's", &format!("belongs to {MALLORY}"));
    let trap = yard.run.join("trap");
    make(&trap.join("at-1"), ADA, 0o755);
    make(&trap, ADA, 0o755);
    symlink(&trap, root).unwrap();
    yard.refused("a link", "is a link");
    make(&root.join("at-1"), MALLORY, 0o777);
    make(root, ADA, 0o777);
    yard.refused("another's attempt", &format!("at-1 belongs to {MALLORY}"));
    make(root, ADA, 0o777);
    symlink(trap.join("at-1"), root.join("at-1")).unwrap();
    yard.refused("a link for an attempt", "at-1 is a link");
    make(&root.join("at-1"), ADA, 0o777);
    make(root, ADA, 0o777);
    put(&root.join("at-1/state"), "evil", MALLORY);
    yard.refused("another's file", &format!("belongs to {MALLORY}"));
    // The way to it may be another's as well.
    let parent = root.parent().unwrap();
    std::fs::remove_dir(parent).unwrap();
    make(root, ADA, 0o700);
    make(parent, MALLORY, 0o777);
    yard.refused("another's parent", &format!("u{ADA} belongs to {MALLORY}"));
}

#[test]
fn a_directory_that_the_user_named_is_made_shared_with_a_group_or_refused() {
    let Some(mut yard) = Yard::new("named") else { return };
    yard.named = true;
    let places = yard.run.join("places");
    make(&places, 0, 0o1777);
    let run = |yard: &mut Yard, name: &str| {
        yard.root = places.join(name);
        yard.go()
    };
    assert_eq!(run(&mut yard, "made/below").1, "");
    make(&places.join("closed"), MALLORY, 0o755);
    make(&places.join("open"), MALLORY, 0o777);
    make(&places.join("strange"), MALLORY, 0o770);
    make(&places.join("roots"), 0, 0o1777);
    for name in ["closed", "open", "strange", "roots"] {
        let (log, trouble) = run(&mut yard, name);
        assert!(log.is_empty() && trouble.starts_with("checkpoint directory"), "{name}: {trouble}");
    }
    make(&places.join("group"), MALLORY, 0o2770);
    chown(places.join("group"), None, Some(ADA)).unwrap();
    std::fs::set_permissions(places.join("group"), PermissionsExt::from_mode(0o2770)).unwrap();
    assert_eq!(run(&mut yard, "group").1, "");
}
