//! What the daemon must remember about its jobs in Slurm: one small file for each, written before what it speaks of is
//! done.

use crate::ownership::{Claim, PREFIX};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use trainyard_backend::attempt_dir::{self, make_dir};
use trainyard_backend::{LaunchOrder, StopOrder};
use trainyard_types::{Attempt, JobId};

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in Slurm.
    pub slurm: Option<u32>,
    /// How often it was submitted there.
    pub submissions: u32,
    /// By what it is recognised there.
    #[serde(default)]
    pub claim: Claim,
    /// How many of its submissions in a row were not recognised when they were first seen.
    #[serde(default)]
    pub unrecognised: u32,
    /// Submissions whose numbers were forgotten because they named another job: what carries their marks is not touched.
    #[serde(default)]
    pub disowned: Vec<u32>,
    /// The number under which we cancelled it ourselves: no user or operator cancelled it.
    #[serde(default)]
    pub cancelled: Option<u32>,
    /// A submission was begun whose answer is not known: it is looked for before another is made.
    pub submitting: bool,
    /// It was in Slurm before it was ours: its script is its user's own.
    pub adopted: bool,
    /// That it is ours is written in its comment; an operator who takes that off hands it back.
    #[serde(default)]
    pub marked: bool,
    /// What was announced: all but where it runs.
    pub order: LaunchOrder,
    /// The attempt that runs, is to run, or ended and is not forgotten.
    pub attempt: Option<PersistedRun>,
    /// It is over: nothing of it may stay in Slurm.
    pub withdrawn: bool,
}

/// How far an attempt is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PersistedRun {
    /// Which.
    pub attempt: Attempt,
    /// What it is about to do.
    pub stage: Stage,
    /// How often Slurm ended it before it ran.
    pub tries: u32,
    /// The newest request to stop.
    pub stop: Option<StopOrder>,
    /// Its start was reported.
    pub started: bool,
    /// How often Slurm forgot its job before it ran.
    #[serde(default)]
    pub forgotten: u32,
    /// When it was released first, in seconds of Unix time: how long it waits in Slurm does not begin anew with a
    /// daemon.
    #[serde(default)]
    pub released: Option<u64>,
}

/// What an attempt is about to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It waits for a held Slurm job to be put in its place.
    Wanted,
    /// It is authorised: Slurm may start it at any moment, or has.
    Released,
    /// It is over and its end is on disk.
    Over,
}

/// All jobs, in memory and on disk.
#[derive(Debug)]
pub struct Ledger {
    dir: PathBuf,
    /// Jobs by id.
    pub entries: BTreeMap<JobId, Entry>,
}

impl Ledger {
    /// The ledger of a directory. What cannot be read is named, because to go on without it could run a job twice.
    pub fn open(dir: &Path) -> io::Result<Ledger> {
        let mut ledger = Ledger { dir: dir.to_path_buf(), entries: BTreeMap::new() };
        for entry in std::fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(job) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let job = JobId(job);
            if let Some(entry) = attempt_dir::read(&ledger.file(job))? {
                ledger.entries.insert(job, entry);
            }
        }
        Ok(ledger)
    }

    /// Writes an entry; when this returns, it is on disk.
    pub fn keep(&self, job: JobId) -> io::Result<()> {
        let Some(entry) = self.entries.get(&job) else { return Ok(()) };
        match make_dir(&self.folder(job), 0o711) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        attempt_dir::write_durably(&self.file(job), entry)
    }

    /// Drops a job that nothing is left of.
    pub fn drop_entry(&mut self, job: JobId) {
        self.entries.remove(&job);
        let _ = std::fs::remove_dir_all(self.folder(job));
    }

    /// Authorises one Slurm job to run one attempt, and with it no other.
    pub fn authorise(&self, job: JobId, attempt: Attempt, slurm: u32) -> io::Result<()> {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let partial = self.folder(job).join("go.partial");
        let mut file = std::fs::File::create(&partial)?;
        writeln!(file, "{} {slurm}", attempt.0)?;
        file.set_permissions(PermissionsExt::from_mode(0o644))?;
        file.sync_all()?;
        std::fs::rename(&partial, self.folder(job).join("go"))
    }

    /// Takes the authorisation back.
    pub fn forbid(&self, job: JobId) {
        let _ = std::fs::remove_file(self.folder(job).join("go"));
    }

    fn folder(&self, job: JobId) -> PathBuf {
        self.dir.join(job.0.to_string())
    }

    fn file(&self, job: JobId) -> PathBuf {
        self.folder(job).join("entry.json")
    }
}

impl Entry {
    /// Fills in how a job is recognised that was submitted by a version that made no digests: by its plain comment, its
    /// user, and the time of submission that is seen first.
    pub fn complete_claim(&mut self, instance: &str, job: JobId) {
        if self.claim.mark.is_empty() && (self.slurm.is_some() || self.submitting) {
            self.claim.mark = format!("{PREFIX}{instance}:{}:{}", job.0, self.submissions);
            self.claim.uid = match self.adopted {
                false => Some(uid_of(&self.order)),
                true => nix::unistd::User::from_name(&self.order.user)
                    .ok()
                    .flatten()
                    .map(|user| user.uid.as_raw()),
            };
        }
    }
}

/// The user as whom Slurm runs a job of this order.
pub fn uid_of(order: &LaunchOrder) -> u32 {
    let daemon = nix::unistd::geteuid();
    let identity = order.identity.as_ref().filter(|_| daemon.is_root());
    identity.map_or(daemon.as_raw(), |who| who.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_older_version_is_read_and_claims_what_it_submitted() {
        let text = r#"{"slurm":12,"submissions":2,"submitting":false,"adopted":false,"order":ORDER,"attempt":
            {"attempt":3,"stage":"Released","tries":1,"stop":null,"started":true},"withdrawn":false}"#;
        let order = serde_json::to_string(&LaunchOrder::default()).unwrap();
        let mut entry: Entry = serde_json::from_str(&text.replace("ORDER", &order)).unwrap();
        assert!(entry.claim == Claim::default() && entry.attempt.as_ref().unwrap().forgotten == 0);
        entry.complete_claim("ab12", JobId(7));
        assert_eq!(entry.claim.mark, "trainyard:ab12:7:2");
        assert_eq!(entry.claim.uid, Some(nix::unistd::geteuid().as_raw()));
    }
}
