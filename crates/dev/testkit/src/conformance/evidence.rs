//! What scripts leave behind, in a folder that no backend knows.

use std::path::{Path, PathBuf};
use trainyard_types::{Attempt, JobId};

/// A folder of evidence; removed at the end unless a test failed.
#[derive(Debug)]
pub struct Evidence {
    folder: PathBuf,
}

impl Evidence {
    /// A new folder.
    pub fn new(folder: impl Into<PathBuf>) -> Evidence {
        let folder = folder.into();
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder for evidence");
        Evidence { folder }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How often the first rank of an attempt was run.
    pub fn times_run(&self, (job, attempt): (JobId, Attempt)) -> usize {
        let file = self.folder.join(format!("ran.{}.{}", job.0, attempt.0));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().filter(|rank| *rank == "0").count()
    }

    /// Whether its traps are set.
    pub fn is_ready(&self, (job, attempt): (JobId, Attempt)) -> bool {
        self.folder.join(format!("ready.{}.{}", job.0, attempt.0)).exists()
    }

    /// Whether it, or its rank that fails, is about to exit or has.
    pub fn has_left(&self, (job, attempt): (JobId, Attempt)) -> bool {
        self.folder.join(format!("left.{}.{}", job.0, attempt.0)).exists()
    }

    /// Lets a job go on.
    pub fn open_gate(&self, job: JobId) {
        std::fs::write(self.folder.join(format!("gate.{}", job.0)), "").expect("a file");
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
