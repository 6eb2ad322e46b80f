//! A backend under test.

use std::time::Duration;
use trainyard_backend::{Backend, Report};
use trainyard_types::{Attempt, JobId};

/// No single step takes longer, on a busy machine and with Slurm behind it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A backend under test, and what can be seen of its jobs from outside.
pub trait Arm {
    /// A node of at least four GPUs, and the type of these.
    fn node(&self) -> (String, String);

    /// The backend.
    fn backend(&mut self) -> &mut dyn Backend;

    /// The next report; nothing after a while in which none came.
    fn next(&mut self) -> Option<Report>;

    /// The daemon is killed: reports that are on their way are lost, and what runs goes on.
    fn go_down(&mut self);

    /// It starts again, with what the backend has on disk.
    fn come_up(&mut self);

    /// How often an attempt was run.
    fn times_run(&self, id: (JobId, Attempt)) -> usize;

    /// Whether an attempt is where a request to stop meets it as its conduct says.
    fn is_ready(&self, id: (JobId, Attempt)) -> bool;

    /// Whether an attempt has left its work behind, whatever its backend knows of that by now.
    fn has_left(&self, id: (JobId, Attempt)) -> bool;

    /// Lets a job go on that waits.
    fn open_gate(&mut self, job: JobId);

    /// Where the evidence of scripts is kept; nothing where there are no scripts.
    fn evidence_folder(&self) -> Option<&std::path::Path>;

    /// What is still there of jobs after everything was forgotten and withdrawn, in words.
    fn leftovers(&mut self) -> Vec<String>;

    /// Lets a moment pass.
    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(20));
    }
}
