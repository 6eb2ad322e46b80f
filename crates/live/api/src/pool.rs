//! Pools of nodes that their owners lend: how many nodes an owner needs, and what it has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the owner of a pool says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolRequest {
    /// How many nodes of the pool its owner needs; the others are lent to jobs.
    pub needed: u32,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// How many of them its owner needs.
    pub needed: u32,
    /// Those that its owner has; no job starts there.
    pub reclaimed: Vec<String>,
    /// How many more it is owed: jobs still have to leave.
    pub owed: u32,
}
