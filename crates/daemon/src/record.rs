//! What the daemon keeps of a job beside what the engine keeps.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trainyard_api::JobSpec;
use trainyard_api::answer::{Holding, Measured};
use trainyard_backend::{Exit, Identity};
use trainyard_engine::Kept;
use trainyard_types::{Attempt, Job, JobId};

/// What was submitted and what follows from it. Never changes; written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The job as the engine knows it.
    pub job: Arc<Job>,
    /// As its user described it.
    pub spec: JobSpec,
    /// Who submitted it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// Who it runs as; nothing for whoever the daemon runs as.
    #[serde(default)]
    pub identity: Option<Identity>,
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// Its place in an array.
    #[serde(default)]
    pub array: Option<Element>,
    /// In what its work is counted.
    #[serde(default)]
    pub unit: Unit,
}

/// An element of an array.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// The first job of the array.
    pub first: JobId,
    /// The index of this one.
    pub index: u32,
    /// How many may run at once; 0 means all.
    pub at_once: u32,
}

/// In what the work of a job is counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Steps, as the job itself counts them.
    #[default]
    Steps,
    /// Seconds on what was asked for, as its user expects them.
    Seconds,
}

/// What changes over a job's life; written whenever it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// The engine's part.
    pub kept: Kept,
    /// Work its newest checkpoint holds.
    #[serde(default)]
    pub saved: f64,
    /// Measured costs.
    #[serde(default)]
    pub measured: Measured,
    /// Its newest launch.
    #[serde(default)]
    pub launch: Option<Box<Launch>>,
    /// Why its user or an operator ended it.
    #[serde(default)]
    pub said: Option<String>,
}

/// A launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Its number.
    pub attempt: Attempt,
    /// Where.
    pub holds: Vec<Holding>,
    /// When it was ordered, in microseconds of Unix time.
    pub wall: i64,
    /// The start of the machine it was ordered in: after another start no process of it can be left.
    pub boot: String,
    /// When its processes ran, in microseconds of Unix time.
    #[serde(default)]
    pub started: Option<i64>,
    /// When it was over, in microseconds of Unix time.
    #[serde(default)]
    pub ended: Option<i64>,
    /// How it ended.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// What became of it, in one sentence.
    #[serde(default)]
    pub outcome: String,
}

/// A job that is not over.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was submitted.
    pub submission: Arc<Submission>,
    /// Work its newest checkpoint holds.
    pub saved: f64,
    /// Measured costs.
    pub measured: Measured,
    /// Its newest launch; most jobs of a long queue have none.
    pub launch: Option<Box<Launch>>,
    /// Why its user or an operator ended it.
    pub said: Option<String>,
    /// What it last said about itself. Not kept: the next report brings it again.
    pub report: Option<serde_json::Value>,
    /// Steps it is in all, as it said. Not kept.
    pub total: Option<f64>,
}

impl Record {
    /// A job that was just submitted.
    pub fn new(submission: Arc<Submission>) -> Record {
        Record {
            submission,
            saved: 0.0,
            measured: Measured::default(),
            launch: None,
            said: None,
            report: None,
            total: None,
        }
    }

    /// A job as it was kept.
    pub fn from_course(submission: Arc<Submission>, course: Course) -> Record {
        Record {
            saved: course.saved,
            measured: course.measured,
            launch: course.launch,
            said: course.said,
            ..Record::new(submission)
        }
    }

    /// What is to be kept of it.
    pub fn course(&self, kept: Kept) -> Course {
        Course {
            kept,
            saved: self.saved,
            measured: self.measured,
            launch: self.launch.clone(),
            said: self.said.clone(),
        }
    }
}
