//! A Slurm of our own for one test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use trainyard_slurm::{CallSettings, Calls, Inventory, Lookout, NodeFilter, SlurmSeen};

/// A Slurm that ends with this value.
pub struct Cluster {
    /// Where it lives, and all that the test makes.
    pub dir: PathBuf,
    pub calls: Arc<Calls>,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Cluster {
    /// A Slurm that is up, or nothing where there cannot be one.
    pub fn up(name: &str) -> Option<Cluster> {
        let has = |program: &str| {
            let found = Command::new("sh")
                .arg("-c")
                .arg(format!("PATH=$PATH:/usr/sbin command -v {program}"))
                .output();
            found.is_ok_and(|output| output.status.success())
        };
        if !nix::unistd::geteuid().is_root()
            || !["slurmctld", "slurmd", "munged"].iter().all(|one| has(one))
        {
            trainyard_testkit::skip!(
                "slurm",
                "{name} needs a real Slurm; to enable it, run the tests as root with Slurm installed (Debian: \
                 apt-get install slurm-wlm munge)"
            );
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ty-slurm-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let conf = dir.join("slurm.conf");
        let settings = CallSettings { conf: Some(conf), ..CallSettings::default() };
        let cluster = Cluster { dir, calls: Arc::new(Calls::new(settings)) };
        cluster.script(&["up"]);
        Some(cluster)
    }

    /// Runs the script that starts and ends its parts.
    pub fn script(&self, arguments: &[&str]) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/slurm-cluster.sh");
        let (what, rest) = arguments.split_first().unwrap();
        let output =
            Command::new("bash").arg(script).arg(what).arg(&self.dir).args(rest).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    }

    /// Runs a program of Slurm's, as a user of Slurm does.
    pub fn slurm(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.dir.join("slurm.conf"))
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Slurm as it is.
    pub fn look(&self) -> SlurmSeen {
        Lookout::new(&self.calls).look().unwrap()
    }

    /// Its nodes as ours.
    pub fn inventory(&self) -> Inventory {
        Inventory::of(&self.look(), &NodeFilter::default())
    }

    /// Jobs that wait or run, with their states.
    pub fn queue(&self) -> Vec<String> {
        self.slurm("squeue", &["-h", "-o", "%i %T %r"]).lines().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what is left of Slurm is in {}", self.dir.display());
        }
        self.script(&["down"]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
