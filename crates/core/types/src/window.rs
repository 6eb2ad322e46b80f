//! Windows: spans of time in which nodes are closed to all jobs, or open to a few.

use crate::{Job, JobId, NodeId, TenantId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of a window; never used again.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct WindowId(pub u32);

/// Which jobs may use nodes that are reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowed {
    /// All jobs of these tenants.
    pub tenants: BTreeSet<TenantId>,
    /// These jobs.
    pub jobs: BTreeSet<JobId>,
}

/// Nodes that are under maintenance, or reserved, from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its number.
    pub id: WindowId,
    /// The nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// When it begins: from then on no job is there that is not allowed.
    pub from: Time,
    /// When it is over.
    pub until: Time,
    /// The tenants and jobs that the nodes are reserved for; nothing for maintenance, which allows no job.
    pub reserved: Option<Allowed>,
}

impl Window {
    /// Whether a job may be there while it lasts.
    pub fn allows(&self, job: &Job) -> bool {
        self.reserved.as_ref().is_some_and(|allowed| {
            allowed.tenants.contains(&job.tenant) || allowed.jobs.contains(&job.id)
        })
    }

    /// Whether it has begun and is not over.
    pub fn is_on(&self, now: Time) -> bool {
        self.from <= now && now < self.until
    }
}
