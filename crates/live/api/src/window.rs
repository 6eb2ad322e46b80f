//! Maintenance windows and reservations: when nodes are for no job, or for a few.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A window to be declared. Jobs that can neither end nor save before it begins do not start on its nodes, and a job
/// that runs there is stopped in time to save.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowRequest {
    /// Names of nodes.
    pub nodes: Vec<String>,
    /// When it begins, in seconds of Unix time.
    pub from: f64,
    /// When it ends, in seconds of Unix time.
    pub until: f64,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
    /// Whom the nodes are reserved for; without it they are under maintenance, and run no job.
    #[serde(default)]
    pub reserved: Option<Reserved>,
}

/// Who may use reserved nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reserved {
    /// Jobs of these tenants.
    pub tenants: Vec<String>,
    /// Jobs of these users.
    pub users: Vec<String>,
    /// These jobs.
    pub jobs: Vec<u32>,
}

/// A window that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowRow {
    /// Its number.
    pub id: u32,
    /// What was declared.
    #[serde(flatten)]
    pub window: WindowRequest,
    /// Who declared it.
    pub by: String,
    /// `planned`, or `on` once it has begun.
    pub state: String,
    /// Jobs that hold GPUs there now and have to leave before it begins.
    #[serde(default)]
    pub leaving: Vec<u32>,
}
