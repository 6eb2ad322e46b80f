//! What every backend must do, on Slurm: the same body of tests as on the simulated machine and on real processes.

use crate::cluster::Cluster;
use crate::say::say;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use trainyard_backend::{Backend, Report};
use trainyard_slurm::{Slurm, SlurmOptions};
use trainyard_testkit::conformance::{Arm, Evidence, PROMISES};
use trainyard_types::{Attempt, JobId};

/// The promises with a number that is this modulo so many: each part has a Slurm of its own.
fn keep_promises(part: usize, parts: usize) {
    let Some(cluster) = Cluster::up("what every backend must do") else { return };
    for (name, promise) in PROMISES.iter().skip(part).step_by(parts) {
        let began = Instant::now();
        promise(&mut SlurmArm::new(&cluster, name));
        say(&format!("slurm keeps: {name} ({:.1} s)", began.elapsed().as_secs_f64()));
    }
}

#[test]
fn what_every_backend_must_do_first_half() {
    keep_promises(0, 2);
}

#[test]
fn what_every_backend_must_do_second_half() {
    keep_promises(1, 2);
}

struct SlurmArm<'a> {
    cluster: &'a Cluster,
    run_dir: PathBuf,
    slurm: Option<Slurm>,
    reports: Receiver<Report>,
    evidence: Evidence,
}

impl<'a> SlurmArm<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> SlurmArm<'a> {
        let run_dir = cluster.dir.join("promises").join(name);
        let evidence = Evidence::new(cluster.dir.join(format!("evidence-{name}")));
        let (slurm, reports) = start(cluster, &run_dir);
        SlurmArm { cluster, run_dir, slurm: Some(slurm), reports, evidence }
    }
}

fn start(cluster: &Cluster, run_dir: &Path) -> (Slurm, Receiver<Report>) {
    let (sender, reports) = channel();
    let options = SlurmOptions::new(run_dir, cluster.inventory());
    let slurm = Slurm::new(options, cluster.calls.clone(), move |report| drop(sender.send(report)));
    (slurm.unwrap(), reports)
}

impl Arm for SlurmArm<'_> {
    fn node(&self) -> (String, String) {
        ("n3".to_owned(), "a100".to_owned())
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

    fn has_left(&self, id: (JobId, Attempt)) -> bool {
        self.evidence.has_left(id)
    }

    fn open_gate(&mut self, job: JobId) {
        self.evidence.open_gate(job);
    }

    fn evidence_folder(&self) -> Option<&Path> {
        Some(self.evidence.folder())
    }

    /// Jobs in Slurm and entries in the ledger.
    fn leftovers(&mut self) -> Vec<String> {
        let entries = std::fs::read_dir(self.run_dir.join("slurm/jobs")).unwrap().flatten();
        let mut left: Vec<String> =
            entries.map(|entry| format!("entry {}", entry.file_name().to_string_lossy())).collect();
        let instance = std::fs::read_to_string(self.run_dir.join("slurm/instance")).unwrap();
        let mark = format!("trainyard:{}:", instance.trim());
        let seen = self.cluster.look();
        let ours = seen.jobs.iter().filter(|job| job.comment.starts_with(&mark));
        left.extend(
            ours.filter(|job| ["PENDING", "RUNNING"].contains(&job.state.as_str()))
                .map(|job| format!("job {} of Slurm: {}", job.id, job.state)),
        );
        left
    }
}
