//! A run directory for one test, a backend on it, and what it reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use trainyard_api::{Checkpoint, Processes};
use trainyard_backend::order::Limits;
use trainyard_backend::{
    Backend, Exit, Found, LaunchOrder, Local, LocalOptions, Report, StopOrder, read_log,
};
use trainyard_testkit::orders::Orders;
use trainyard_types::{Attempt, JobId};

/// No single step of a test takes longer on a busy machine.
pub const WAIT: Duration = Duration::from_secs(30);

/// The program with the hidden commands.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard-keeper");

pub struct Yard {
    pub run_dir: PathBuf,
    pub local: Option<Local>,
    pub reports: Receiver<Report>,
}

impl Yard {
    pub fn new(name: &str) -> Yard {
        Yard::with(Yard::options(name))
    }

    /// What a yard of that name is made with, on a run directory that is not there.
    pub fn options(name: &str) -> LocalOptions {
        let run_dir = std::env::temp_dir().join(format!("ty-local-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&run_dir);
        LocalOptions::new(run_dir, PROGRAM)
    }

    pub fn without_cgroups(name: &str) -> Yard {
        Yard::with(LocalOptions { cgroups: false, ..Yard::options(name) })
    }

    pub fn on(run_dir: &Path) -> Yard {
        Yard::with(LocalOptions::new(run_dir, PROGRAM))
    }

    pub fn with(options: LocalOptions) -> Yard {
        let (sender, reports) = channel();
        let run_dir = options.run_dir.clone();
        let local = Local::new(options, move |report| {
            let _ = sender.send(report);
        })
        .unwrap();
        Yard { run_dir, local: Some(local), reports }
    }

    /// The same run directory with a new backend, as after a restart of the daemon.
    pub fn restart(mut self) -> Yard {
        self.local = None;
        let run_dir = std::mem::take(&mut self.run_dir);
        Yard::on(&run_dir)
    }

    /// Ends the backend and leaves its directory to the test that made it.
    pub fn leave(mut self) {
        self.local = None;
        self.run_dir = PathBuf::new();
    }

    pub fn backend(&mut self) -> &mut Local {
        self.local.as_mut().unwrap()
    }

    pub fn launch(&mut self, order: LaunchOrder) {
        self.backend().launch(order);
    }

    pub fn stop(&mut self, job: u32, grace_seconds: f64) {
        let order = StopOrder { grace_seconds, why: "a test".to_owned() };
        self.backend().stop(JobId(job), Attempt(1), order);
    }

    pub fn next(&self) -> Report {
        self.reports.recv_timeout(WAIT).expect("a report within the time limit")
    }

    pub fn until_started(&self) {
        while !matches!(self.next(), Report::Started { .. }) {}
    }

    pub fn until_ended(&self) -> Exit {
        loop {
            if let Report::Ended { exit, .. } = self.next() {
                return exit;
            }
        }
    }

    /// Launches and waits for the end.
    pub fn run(&mut self, order: LaunchOrder) -> Exit {
        self.launch(order);
        self.until_ended()
    }

    pub fn log(&self, job: u32, rank: u32) -> String {
        let part = read_log(&self.run_dir, (JobId(job), Attempt(1)), rank, 0, 1 << 20);
        String::from_utf8(part.unwrap_or_default().bytes).unwrap()
    }

    /// Waits until the output of rank 0 holds a text.
    pub fn until_log(&self, job: u32, text: &str) {
        within(WAIT, &format!("{text:?} in the output"), || self.log(job, 0).contains(text));
    }

    pub fn dir(&self, job: u32) -> PathBuf {
        self.run_dir.join(format!("{job}.1"))
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        if self.run_dir.as_os_str().is_empty() {
            return;
        }
        if let Some(local) = &mut self.local
            && !std::thread::panicking()
        {
            for found in local.list_attempts() {
                if let Found::Ended { job, attempt, .. } = found {
                    local.forget(job, attempt);
                }
            }
        }
        self.local = None;
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.run_dir);
        }
    }
}

/// Waits for something that must become true.
pub fn within(limit: Duration, what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An order for a shell script on two GPUs that are not there.
pub fn script(job: u32, text: &str) -> LaunchOrder {
    LaunchOrder {
        job: JobId(job),
        attempt: Attempt(1),
        name: "script".to_owned(),
        argv: ["/bin/bash", "-c", text].map(str::to_owned).to_vec(),
        script: None,
        cwd: "/".to_owned(),
        env: BTreeMap::new(),
        identity: None,
        gpus: vec![0, 1],
        devices: vec!["0".to_owned(), "1".to_owned()],
        processes: Processes::PerNode,
        checkpoint: Checkpoint::default(),
        checkpoint_dir: String::new(),
        resumes_from: 0.0,
        batch: None,
        array_index: None,
        array_job: None,
        user: "ada".to_owned(),
        limits: Limits { log_bytes_max: 1 << 20, ..Limits::default() },
        ..LaunchOrder::default()
    }
}

/// The same with a rank for each GPU.
pub fn gang(job: u32, text: &str) -> LaunchOrder {
    LaunchOrder { processes: Processes::PerGpu, ..script(job, text) }
}

/// Whether a process lives.
pub fn lives(pid: i32) -> bool {
    trainyard_backend::processes::one(pid).is_some_and(|process| !process.is_zombie)
}

/// The keeper of an attempt.
pub fn keeper_of(dir: &Path) -> i32 {
    let text = std::fs::read_to_string(dir.join("keeper.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["pid"].as_i64().unwrap() as i32
}

pub fn kill_9(pid: i32) {
    trainyard_backend::processes::send(pid, nix::sys::signal::Signal::SIGKILL);
}
