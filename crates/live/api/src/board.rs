//! What a page needs to stay up to date: what changed since it last asked, and who ran where.

use crate::answer::{FairRow, Holding, JobRow, NodeRow, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster, or what of it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardAnswer {
    /// The version of its rows.
    pub schema_version: u32,
    /// What to ask with the next time, as `since`.
    pub cursor: u64,
    /// Whether this is all there is: rows that are not here are no more.
    pub whole: bool,
    /// The moment, in seconds of Unix time.
    pub at: f64,
    /// The daemon, and the caller.
    pub status: Status,
    /// The number of the newest event.
    pub last_event: u64,
    /// Nodes that changed; in their order where this is whole.
    pub nodes: Vec<NodeRow>,
    /// Racks; empty where nothing changed about them, or where there is one at most.
    pub racks: Vec<Rack>,
    /// Jobs that changed. A time or a share of progress that merely goes on is no change.
    pub jobs: Vec<JobRow>,
    /// Jobs that are to be forgotten.
    pub dropped: Vec<u32>,
    /// Open jobs that are not shown because there are too many.
    pub jobs_left_out: u64,
    /// All tenants, where one changed.
    pub tenants: Vec<FairRow>,
    /// All jobs that hold less than whole GPUs, where that changed.
    pub shares: Option<Vec<PartOfGpu>>,
}

/// Nodes that stand together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rack {
    /// What it is called.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<String>,
}

/// A job that holds less than whole GPUs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartOfGpu {
    /// The job.
    pub job: u32,
    /// Thousandths of each of its GPUs.
    pub permille: u16,
}

/// A launch on the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineRow {
    /// The job.
    pub job: u32,
    /// Its launch.
    pub attempt: u32,
    /// Whose job it is.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// Where it ran.
    pub holds: Vec<Holding>,
    /// When it was launched, in seconds of Unix time.
    pub launched: f64,
    /// When its GPUs were free again; nothing while it holds them.
    pub ended: Option<f64>,
    /// What became of it, in one sentence.
    pub outcome: String,
}

/// Where the page is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageAnswer {
    /// Its address for a browser; nothing where the daemon listens on no TCP address.
    pub url: Option<String>,
}
