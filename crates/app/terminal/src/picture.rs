//! What the daemon said at one moment, and what it said about one job.

use serde::Serialize;
use std::collections::BTreeMap;
use trainyard_api::answer::{EventRow, FairRow, JobDetail, JobRow, NodeRow, Status, WhyAnswer};
use trainyard_api::forecast::EtaAnswer;

/// The daemon as one look found it.
#[derive(Clone, Debug, Serialize)]
pub struct Picture {
    /// When it was looked at, in seconds of Unix time.
    pub at: f64,
    /// The daemon as a whole.
    pub status: Status,
    /// Jobs, newest first; those that have ended only if they were asked for.
    pub jobs: Vec<JobRow>,
    /// Whether there are more jobs than one look reads.
    pub more: bool,
    /// Nodes.
    pub nodes: Vec<NodeRow>,
    /// Shares of tenants.
    pub tenants: Vec<FairRow>,
    /// The newest events, oldest first.
    pub events: Vec<EventRow>,
    /// What is expected of jobs, by id; nothing where the daemon does not tell.
    pub etas: Option<BTreeMap<u32, EtaAnswer>>,
}

/// All about one job, as one look found it.
#[derive(Clone, Debug)]
pub struct Inside {
    /// Its launches, wishes and figures.
    pub detail: JobDetail,
    /// Why it waits, where it does.
    pub why: Option<WhyAnswer>,
    /// The end of its newest log, or why it cannot be read.
    pub log: Result<String, String>,
}
