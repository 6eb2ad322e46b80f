//! A real Slurm of several slurmd with fake GPUs; skipped, with a word about it, where there is none.

use crate::local::folder;
use crate::policies::{GPUS, POLICIES, Yard, agree, on_simulated, play, to};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trainyard_backend::{Backend, Report};
use trainyard_slurm::{CallSettings, Calls, Inventory, Lookout, NodeFilter, Slurm, SlurmOptions};
use trainyard_testkit::conformance::{Arm, Evidence, PROMISES};
use trainyard_testkit::say;
use trainyard_types::{Attempt, JobId};

/// Nodes for the promises: each is played on one of them, so that as many are played at once.
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

#[test]
fn slurm_keeps_every_promise() {
    let shape: Vec<String> = NODES.iter().map(|node| format!("{node}:v100:4")).collect();
    let Some(cluster) = Cluster::up("promises", &shape.join(" ")) else { return };
    // One by its name, for whoever looks into it.
    let only = std::env::var("PROMISE").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let promises: Vec<_> = PROMISES.iter().filter(|(name, _)| wanted(name)).collect();
    let (next, broken) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for node in NODES {
            let (cluster, promises, next, broken) = (&cluster, &promises, &next, &broken);
            scope.spawn(move || {
                while let Some((name, promise)) = promises.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let begun = Instant::now();
                    let kept = catch_unwind(AssertUnwindSafe(|| {
                        promise(&mut SlurmArm::new(cluster, node, name));
                    }));
                    println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
                    if kept.is_err() {
                        broken.lock().expect("no panic here").push(*name);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("no panic here");
    assert!(broken.is_empty(), "broken on Slurm: {broken:?}");
}

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
            say!(
                "skipped: the conformance suite on Slurm ({name}) needs root and Slurm (Debian: apt-get install \
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
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slurm-cluster.sh");
        let mut command = Command::new("bash");
        command.arg(script).arg(what).arg(&self.dir).env("SLURM_NODES", nodes);
        let output = command.output().expect("a shell");
        assert!(output.status.success(), "{what}: {}", text(&output));
    }

    fn inventory(&self) -> Inventory {
        let seen = Lookout::new(&self.calls).look().expect("Slurm answers");
        Inventory::of(&seen, &NodeFilter::default())
    }

    /// Jobs in Slurm's queue, with their comments.
    fn queue(&self) -> String {
        let mut command = Command::new("squeue");
        command.args(["-h", "-o", "%i %T %k"]).env("SLURM_CONF", self.dir.join("slurm.conf"));
        let output = command.output().expect("squeue");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
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

struct SlurmArm<'a> {
    cluster: &'a Cluster,
    node: &'static str,
    run_dir: PathBuf,
    slurm: Option<Slurm>,
    reports: Receiver<Report>,
    evidence: Evidence,
}

impl<'a> SlurmArm<'a> {
    fn new(cluster: &'a Cluster, node: &'static str, name: &str) -> SlurmArm<'a> {
        let run_dir = cluster.dir.join(format!("run.{name}"));
        let evidence = Evidence::new(cluster.dir.join(format!("evidence.{name}")));
        let (slurm, reports) = start(cluster, &run_dir);
        SlurmArm { cluster, node, run_dir, slurm: Some(slurm), reports, evidence }
    }
}

fn start(cluster: &Cluster, run_dir: &Path) -> (Slurm, Receiver<Report>) {
    let (sender, reports) = channel();
    let options = SlurmOptions::new(run_dir, cluster.inventory());
    let send = move |report| drop(sender.send(report));
    let slurm = Slurm::new(options, Arc::clone(&cluster.calls), send);
    (slurm.expect("a run directory of its own"), reports)
}

impl Arm for SlurmArm<'_> {
    fn node(&self) -> (String, String) {
        (self.node.to_owned(), "v100".to_owned())
    }

    fn backend(&mut self) -> &mut dyn Backend {
        self.slurm.as_mut().expect("it is up")
    }

    fn next(&mut self) -> Option<Report> {
        self.reports.recv_timeout(Duration::from_millis(200)).ok()
    }

    fn go_down(&mut self) {
        self.slurm = None;
    }

    fn come_up(&mut self) {
        let (slurm, reports) = start(self.cluster, &self.run_dir);
        (self.slurm, self.reports) = (Some(slurm), reports);
    }

    fn times_run(&self, id: (JobId, Attempt)) -> usize {
        self.evidence.times_run(id)
    }

    fn is_ready(&self, id: (JobId, Attempt)) -> bool {
        self.evidence.is_ready(id)
    }

    fn open_gate(&mut self, job: JobId) {
        self.evidence.open_gate(job);
    }

    fn desk(&self) -> Option<&Path> {
        Some(self.evidence.folder())
    }

    /// Jobs of this run directory in Slurm's queue: their comments carry its name.
    fn leftovers(&mut self) -> Vec<String> {
        let name = std::fs::read_to_string(self.run_dir.join("slurm/instance")).expect("a name");
        let queue = self.cluster.queue();
        queue.lines().filter(|line| line.contains(name.trim())).map(str::to_owned).collect()
    }
}
