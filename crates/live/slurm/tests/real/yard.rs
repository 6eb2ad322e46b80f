//! A backend on a Slurm, and what it reports.

use crate::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use trainyard_api::{Checkpoint, Processes};
use trainyard_backend::order::Limits;
use trainyard_backend::{Exit, LaunchOrder, NodeShare, Report, StopOrder, read_log};
use trainyard_slurm::{Slurm, SlurmOptions};
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

/// No single step of a test takes longer on a busy machine.
pub const WAIT: Duration = Duration::from_secs(90);

pub struct Yard {
    pub run_dir: PathBuf,
    pub slurm: Option<Slurm>,
    pub reports: Receiver<Report>,
    /// All reports so far, for messages.
    pub heard: std::cell::RefCell<Vec<Report>>,
}

impl Yard {
    pub fn new(cluster: &Cluster) -> Yard {
        Yard::with(cluster, |_| {})
    }

    pub fn with(cluster: &Cluster, change: impl FnOnce(&mut SlurmOptions)) -> Yard {
        let run_dir = cluster.dir.join("run");
        let mut options = SlurmOptions::new(&run_dir, cluster.inventory());
        change(&mut options);
        Yard::on(cluster, options)
    }

    pub fn on(cluster: &Cluster, options: SlurmOptions) -> Yard {
        let (sender, reports) = channel();
        let run_dir = options.run_dir.clone();
        let send = move |report| {
            let _ = sender.send(report);
        };
        let slurm = Slurm::new(options, cluster.calls.clone(), send).unwrap();
        Yard { run_dir, slurm: Some(slurm), reports, heard: Default::default() }
    }

    pub fn backend(&mut self) -> &mut Slurm {
        self.slurm.as_mut().unwrap()
    }

    pub fn stop(&mut self, job: u32, attempt: u32, grace_seconds: f64) {
        let order = StopOrder { grace_seconds, why: "a test".to_owned() };
        self.backend().stop(JobId(job), Attempt(attempt), order);
    }

    /// The next report that is wanted; others are passed over.
    pub fn until<T>(&self, what: &str, mut wanted: impl FnMut(&Report) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(report) = self.reports.recv_timeout(left) else {
                panic!("{what} did not come; there was {:#?}", self.heard.borrow());
            };
            self.heard.borrow_mut().push(report.clone());
            if let Some(found) = wanted(&report) {
                return found;
            }
        }
    }

    pub fn until_started(&self, key: (u32, u32)) {
        self.until("a start", |report| match report {
            Report::Started { job, attempt } if (job.0, attempt.0) == key => Some(()),
            Report::Ended { exit, .. } => panic!("it ended: {exit:?}"),
            _ => None,
        });
    }

    pub fn until_ended(&self, key: (u32, u32)) -> Exit {
        self.until("an end", |report| match report {
            Report::Ended { job, attempt, exit } if (job.0, attempt.0) == key => Some(exit.clone()),
            _ => None,
        })
    }

    pub fn log(&self, (job, attempt): (u32, u32), rank: u32) -> String {
        let part = read_log(&self.run_dir, (JobId(job), Attempt(attempt)), rank, 0, 1 << 20);
        String::from_utf8(part.unwrap_or_default().bytes).unwrap()
    }

    pub fn until_log(&self, key: (u32, u32), text: &str) {
        within(&format!("{text:?} in the output {:?}", self.log(key, 0)), || {
            self.log(key, 0).contains(text)
        });
    }
}

/// Waits for something that must become true.
pub fn within(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A job of a shell script, as it is announced.
pub fn waiting(_: &Yard, job: u32, gpus: u32, text: &str) -> LaunchOrder {
    LaunchOrder {
        job: JobId(job),
        name: format!("job-{job}"),
        argv: ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
        cwd: "/".to_owned(),
        gpus_wanted: gpus,
        processes: Processes::PerNode,
        checkpoint: Checkpoint::default(),
        user: "ada".to_owned(),
        limits: Limits { cpus: 1, memory_mib: 100, ..Limits::default() },
        ..LaunchOrder::default()
    }
}

pub fn checkpoints(run_dir: &Path, job: u32) -> PathBuf {
    // Where no user is named, jobs are the daemon's own user's.
    run_dir.join(format!("checkpoints/u{}/{job}", nix::unistd::geteuid()))
}

/// The same job with a place for an attempt.
pub fn placed(order: &LaunchOrder, attempt: u32, shares: &[(&str, u8)]) -> LaunchOrder {
    let nodes: Vec<NodeShare> = (shares.iter())
        .map(|(node, gpus)| NodeShare { node: (*node).to_owned(), gpus: (0..*gpus).collect() })
        .collect();
    let gpus: Vec<u8> = nodes.iter().flat_map(|share| share.gpus.clone()).collect();
    LaunchOrder {
        attempt: Attempt(attempt),
        devices: gpus.iter().map(u8::to_string).collect(),
        gpus,
        nodes,
        ..order.clone()
    }
}
