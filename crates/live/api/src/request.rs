//! What a client asks of the daemon, beside submissions: what follows `?`, and bodies of requests.
//!
//! The comment of a field behind `?` is what the document of the API says about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows of a list, where their number was not given.
pub const ROWS_DEFAULT: usize = 1000;

/// What a user can do to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Act {
    /// Ends it.
    Cancel {
        /// Why, for the record.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Sets it aside; a running one saves and stops.
    Hold,
    /// Lets it go on.
    Release,
    /// Stops it and puts it back into the queue.
    Requeue,
}

/// What an operator can do to a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum NodeAct {
    /// It takes no new work.
    Drain {
        /// Why, for the record.
        #[serde(default)]
        reason: Option<String>,
    },
    /// It is in service again.
    Resume,
}

/// Which jobs are listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JobFilter {
    /// Of this user only.
    pub user: Option<String>,
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// State there only.
    pub state: Option<String>,
    /// Ended jobs too, newest first.
    pub all: bool,
    /// At most so many rows; 1000 by default.
    pub limit: Option<usize>,
    /// Only ids below this one, to page on.
    pub before: Option<u32>,
}

/// Which part of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LogRequest {
    /// Which launch; the newest by default.
    pub attempt: Option<u32>,
    /// Which process; 0 by default.
    pub rank: u32,
    /// From which byte; negative from the end.
    pub from: i64,
    /// At most so many bytes; 65536 by default.
    pub max: usize,
}

/// A new policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyRequest {
    /// `name` or `name:key=value,key=value`, as in `compare --policies`.
    pub policy: String,
    /// Another placer than the policy's own.
    pub place: Option<String>,
    /// Admission controls in front of it.
    pub admit: Vec<String>,
}

/// Which period of use, summed by what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AcctRequest {
    /// From, in seconds of Unix time.
    pub since: Option<f64>,
    /// Until, in seconds of Unix time.
    pub until: Option<f64>,
    /// Of this user only.
    pub user: Option<String>,
}

/// How sure a forecast of one job shall be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EtaQuery {
    /// How much of the time intervals are right, from 0.01 to 0.99; 0.8 by default.
    pub confidence: Option<f64>,
}

/// Which forecasts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EtasQuery {
    /// At most so many rows; 1000 by default.
    pub limit: Option<usize>,
    /// How much of the time intervals are right, from 0.01 to 0.99; 0.8 by default.
    pub confidence: Option<f64>,
}

/// Which events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventsQuery {
    /// Only numbers above this one; 0 by default.
    pub after: u64,
    /// At most so many; 1000 by default.
    pub max: Option<usize>,
    /// Seconds to wait for the first, at most 60; 0 by default.
    pub wait: f64,
}

/// What changed since when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BoardQuery {
    /// The `cursor` of the answer before; everything by default.
    pub since: Option<u64>,
    /// Seconds to wait for a change, at most 60; 0 by default.
    pub wait: f64,
}

/// Which part of the timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TimelineQuery {
    /// From, in seconds of Unix time; an hour before the end by default.
    pub since: Option<f64>,
    /// Until, in seconds of Unix time; now by default.
    pub until: Option<f64>,
}
