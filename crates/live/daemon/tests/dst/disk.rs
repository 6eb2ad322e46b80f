//! A store in memory: what `trainyard_store` keeps, by the same rules, and nothing that was not committed.

use std::collections::{BTreeMap, BTreeSet};
use trainyard_daemon::core::Chart;
use trainyard_daemon::record::{PersistedRun, Submission};
use trainyard_store::{AttemptRow, JobRow, Loaded, TokenRow, Write};

#[derive(Default)]
pub struct Disk {
    pub jobs: BTreeMap<u32, Job>,
    pub attempts: BTreeMap<(u32, u32), AttemptRow>,
    keys: BTreeMap<(String, String), (String, String)>,
    meta: BTreeMap<String, String>,
    tokens: BTreeMap<String, TokenRow>,
    last_event: u64,
}

/// A row with what its texts mean.
pub struct Job {
    pub row: JobRow,
    pub submission: Submission,
    pub course: PersistedRun,
}

impl Disk {
    /// Keeps a list whole, or says why it cannot be kept.
    pub fn commit(&mut self, writes: &[Write]) -> Result<(), String> {
        self.check(writes)?;
        for write in writes {
            self.apply(write);
        }
        Ok(())
    }

    pub fn load(&self) -> Loaded {
        let open = self.jobs.values().filter(|job| job.row.end.is_none());
        let newest = |job: u32| self.attempts.range((job, 0)..=(job, u32::MAX)).next_back();
        Loaded {
            jobs: open.clone().map(|job| job.row.clone()).collect(),
            attempts: open
                .filter_map(|job| newest(job.row.job))
                .map(|(_, row)| row.clone())
                .collect(),
            meta: self.meta.clone(),
            next_job: self.jobs.last_key_value().map_or(0, |(job, _)| job + 1),
            last_event: self.last_event,
            tokens: self.tokens.values().cloned().collect(),
        }
    }

    pub fn key(&self, user: &str, key: &str) -> Option<(String, String)> {
        self.keys.get(&(user.to_owned(), key.to_owned())).cloned()
    }

    pub fn meta(&self, name: &str) -> Option<&str> {
        self.meta.get(name).map(String::as_str)
    }

    /// What is kept of GPUs that are ill.
    pub fn charts(&self) -> Vec<Chart> {
        self.meta("gpus")
            .map(|text| serde_json::from_str(text).expect("charts"))
            .unwrap_or_default()
    }

    /// Nothing for a job that is open or was never there.
    pub fn end_of(&self, job: u32) -> Option<&str> {
        self.jobs.get(&job)?.row.end.as_deref()
    }

    /// Jobs that are not over.
    pub fn open(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(|job| job.row.end.is_none())
    }

    /// What the tables would refuse, and what a core must never want though they would take it.
    fn check(&self, writes: &[Write]) -> Result<(), String> {
        let mut jobs = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut keys = BTreeSet::new();
        let mut tokens: BTreeSet<&str> = self.tokens.keys().map(String::as_str).collect();
        for write in writes {
            let fine = match write {
                Write::AddJob { job, .. } => !self.jobs.contains_key(job) && jobs.insert(*job),
                Write::SetState { job, end, .. } => {
                    let there = self.jobs.contains_key(job) || jobs.contains(job);
                    let over = self.end_of(*job).is_some() || ended.contains(job);
                    if end.is_some() {
                        ended.insert(*job);
                    }
                    there && !over
                }
                Write::SetAttempt { job, attempt, ended, price_per_hour, .. } => {
                    let before = self.attempts.get(&(*job, *attempt)).and_then(|row| row.ended);
                    price_per_hour.is_finite() && (before.is_none() || ended.is_some())
                }
                Write::AddKey { user, key, .. } => {
                    let own = (user.clone(), key.clone());
                    !self.keys.contains_key(&own) && keys.insert(own)
                }
                Write::AddToken { name, .. } => tokens.insert(name),
                Write::DropToken { name } => tokens.remove(name.as_str()),
                Write::AddEvent { .. } | Write::AddAudit { .. } | Write::SetMeta { .. } => true,
            };
            if !fine {
                return Err(format!("{write:?}"));
            }
        }
        Ok(())
    }

    fn apply(&mut self, write: &Write) {
        match write.clone() {
            Write::AddJob { job, user, tenant, spec, state, wall } => {
                let submission = read(&spec);
                let course = read(&state);
                let row = JobRow { job, user, tenant, spec, state, end: None, wall };
                self.jobs.insert(job, Job { row, submission, course });
            }
            Write::SetState { job, state, end } => {
                let job = self.jobs.get_mut(&job).expect("checked");
                job.course = read(&state);
                (job.row.state, job.row.end) = (state, end);
            }
            Write::SetAttempt { job, attempt, gpus, launched, ended, price_per_hour, data } => {
                let row = AttemptRow { job, attempt, gpus, launched, ended, price_per_hour, data };
                self.attempts.insert((job, attempt), row);
            }
            Write::AddKey { user, key, digest, answer, .. } => {
                self.keys.insert((user, key), (digest, answer));
            }
            Write::AddEvent { .. } => self.last_event += 1,
            Write::AddAudit { .. } => {}
            Write::SetMeta { name, value } => {
                self.meta.insert(name, value);
            }
            Write::AddToken { name, digest, user, role, created, expires } => {
                let row = TokenRow { name: name.clone(), digest, user, role, created, expires };
                self.tokens.insert(name, row);
            }
            Write::DropToken { name } => {
                self.tokens.remove(&name);
            }
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text)
        .unwrap_or_else(|fault| panic!("cannot be read back: {fault}: {text}"))
}
