//! Folders that go away, and writes to fill stores with.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use trainyard_store::{Store, Write};

/// A folder of its own for a test.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        Place::below(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub fn below(parent: &Path) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("store-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Place { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Where the store of the test is.
    pub fn store(&self) -> PathBuf {
        self.path("store.db")
    }

    pub fn open(&self) -> Store {
        Store::open(&self.store()).unwrap()
    }

    /// All names in the folder.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A job of about the size that the daemon writes.
pub fn add_job(job: u32) -> Write {
    let spec = format!(
        "{{\"name\":\"train-{job}\",\"argv\":[\"python3\",\"train.py\",\"--steps\",\"{job}\",\"--data\",\
         \"/data/imagenet\"],\"gpus\":{},\"environment\":{{\"OMP_NUM_THREADS\":\"4\",\"RUN\":\"{job}\"}},\
         \"directory\":\"/home/ada/runs/{job}\",\"time_limit\":\"4h\",\"model\":\"resnet50\"}}",
        job % 8 + 1
    );
    Write::AddJob {
        job,
        user: format!("user{}", job % 7),
        tenant: format!("team{}", job % 3),
        spec,
        state: "{\"phase\":\"waiting\",\"since\":0,\"attempt\":0,\"progress\":0.0}".to_owned(),
        wall: 1_000_000 * i64::from(job),
    }
}

pub fn end_job(job: u32) -> Write {
    Write::SetState {
        job,
        state: "{\"phase\":\"ended\"}".to_owned(),
        end: Some("{\"kind\":\"finished\"}".to_owned()),
    }
}

pub fn event(wall: i64) -> Write {
    Write::AddEvent {
        wall,
        kind: "submitted".to_owned(),
        job: Some(1),
        user: Some("ada".to_owned()),
        data: "{\"gpus\":4}".to_owned(),
    }
}

pub fn attempt(job: u32, attempt: u32, (launched, ended): (i64, Option<i64>)) -> Write {
    Write::SetAttempt {
        job,
        attempt,
        gpus: 4,
        launched,
        ended,
        price_per_hour: 2.5,
        data: "{\"nodes\":[0]}".to_owned(),
    }
}

pub fn audit(wall: i64) -> Write {
    Write::AddAudit {
        wall,
        user: "ada".to_owned(),
        action: "submit".to_owned(),
        target: "job 1".to_owned(),
        allowed: true,
    }
}

pub fn key(key: &str, wall: i64) -> Write {
    Write::AddKey {
        user: "ada".to_owned(),
        key: key.to_owned(),
        digest: "d".to_owned(),
        answer: "{\"job\":1}".to_owned(),
        wall,
    }
}
