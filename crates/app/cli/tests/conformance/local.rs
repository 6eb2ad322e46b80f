//! Real processes on this machine.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use trainyard_backend::{Backend, Local, LocalOptions, Report};
use trainyard_testkit::conformance::{Arm, Evidence, promise};
use trainyard_testkit::each_promise;
use trainyard_types::{Attempt, JobId};

macro_rules! tests {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            promise(stringify!($name))(&mut LocalArm::new(stringify!($name)));
        }
    )* };
}

each_promise!(tests);

/// The program itself has the hidden commands of keepers.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

struct LocalArm {
    run_dir: PathBuf,
    local: Option<Local>,
    reports: Receiver<Report>,
    evidence: Evidence,
}

impl LocalArm {
    fn new(name: &str) -> LocalArm {
        let folder = folder(name);
        let run_dir = folder.with_extension("run");
        let _ = std::fs::remove_dir_all(&run_dir);
        let evidence = Evidence::new(folder);
        let (local, reports) = start(&run_dir);
        LocalArm { run_dir, local: Some(local), reports, evidence }
    }
}

/// A folder of a test's own, short enough for the names of sockets.
pub fn folder(name: &str) -> PathBuf {
    let mark = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    std::env::temp_dir().join(format!("ty-arm-{}-{mark:08x}", std::process::id()))
}

fn start(run_dir: &Path) -> (Local, Receiver<Report>) {
    let (sender, reports) = channel();
    let options = LocalOptions::new(run_dir, PROGRAM);
    let local = Local::new(options, move |report| drop(sender.send(report)));
    (local.expect("a run directory of its own"), reports)
}

impl Arm for LocalArm {
    fn node(&self) -> (String, String) {
        ("here".to_owned(), "gpu".to_owned())
    }

    fn backend(&mut self) -> &mut dyn Backend {
        self.local.as_mut().expect("it is up")
    }

    fn next(&mut self) -> Option<Report> {
        self.reports.recv_timeout(Duration::from_millis(200)).ok()
    }

    fn go_down(&mut self) {
        self.local = None;
    }

    fn come_up(&mut self) {
        let (local, reports) = start(&self.run_dir);
        (self.local, self.reports) = (Some(local), reports);
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

    /// Directories of attempts; those of output are kept for a while.
    fn leftovers(&mut self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.run_dir).expect("a run directory").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.split('.').all(|part| part.parse::<u32>().is_ok())).collect()
    }
}

impl Drop for LocalArm {
    fn drop(&mut self) {
        self.local = None;
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.run_dir);
        }
    }
}
