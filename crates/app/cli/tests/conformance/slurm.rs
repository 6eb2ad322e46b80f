//! A real Slurm with fake GPUs; skipped, with a word about it, where there is none. The promises are kept on it in
//! `crates/live/slurm/tests/real/promises.rs`.

use crate::local::folder;
use crate::policies::{GPUS, POLICIES, Yard, agree, on_simulated, play, to};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use trainyard_backend::Backend;
use trainyard_slurm::{CallSettings, Calls, Inventory, Lookout, NodeFilter, Slurm, SlurmOptions};

#[test]
fn the_same_policies_decide_the_same_on_slurm() {
    let Some(cluster) = Cluster::up("policies", &format!("n1:v100:{GPUS}")) else { return };
    for policy in POLICIES {
        let inventory = cluster.inventory();
        let calls = Arc::clone(&cluster.calls);
        let nodes = inventory.cluster.clone();
        let make = move |run_dir: &Path, messages| -> Box<dyn Backend> {
            let options = SlurmOptions::new(run_dir, inventory);
            Box::new(Slurm::new(options, calls, to(messages)).expect("a run directory of its own"))
        };
        let on_slurm = play("slurm", policy, Yard { cluster: nodes, make: Box::new(make) });
        agree(policy, &on_simulated(policy), &on_slurm);
    }
}

/// A Slurm that ends with this value.
struct Cluster {
    dir: PathBuf,
    calls: Arc<Calls>,
}

impl Cluster {
    /// A Slurm of such nodes, or nothing where there cannot be one.
    fn up(name: &str, nodes: &str) -> Option<Cluster> {
        let has = |program: &&str| {
            let line = format!("PATH=$PATH:/usr/sbin command -v {program}");
            let found = Command::new("sh").arg("-c").arg(line).output();
            found.is_ok_and(|output| output.status.success())
        };
        let is_root = nix::unistd::geteuid().is_root();
        if !is_root || !["slurmctld", "slurmd", "munged"].iter().all(has) {
            trainyard_testkit::skip!(
                "slurm",
                "the conformance suite on Slurm ({name}) needs root and Slurm (Debian: apt-get install \
                 slurm-wlm munge)"
            );
            return None;
        }
        let dir = folder(&format!("slurm {name}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a folder");
        let settings =
            CallSettings { conf: Some(dir.join("slurm.conf")), ..CallSettings::default() };
        let cluster = Cluster { dir, calls: Arc::new(Calls::new(settings)) };
        cluster.script("up", nodes);
        Some(cluster)
    }

    fn script(&self, what: &str, nodes: &str) {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/slurm-cluster.sh");
        let mut command = Command::new("bash");
        command.arg(script).arg(what).arg(&self.dir).env("SLURM_NODES", nodes);
        let output = command.output().expect("a shell");
        assert!(output.status.success(), "{what}: {}", text(&output));
    }

    fn inventory(&self) -> Inventory {
        let seen = Lookout::new(&self.calls).look().expect("Slurm answers");
        Inventory::of(&seen, &NodeFilter::default())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script("down", "");
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}
