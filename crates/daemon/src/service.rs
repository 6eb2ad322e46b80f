//! What the rim may ask of the daemon. Rights are checked behind the service; whoever stands before it says who asks.

use crate::access::{Caller, Role};
use crate::frame::BoardView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use trainyard_api::Problem;
use trainyard_api::answer::{
    AcctRow, EventRow, FairRow, JobDetail, JobRow, NodeRow, PlanAnswer, Status, SubmitRequest,
    Submitted, WhyAnswer,
};
use trainyard_api::board::TimelineRow;
use trainyard_api::forecast::{EtaAnswer, WhatIfAnswer, WhatIfRequest};
use trainyard_api::trial::{TrialEnd, TrialRequest};
use trainyard_api::window::{WindowRequest, WindowRow};

/// An answer that comes later.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send + 'a>>;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// Of this user only.
    pub user: Option<String>,
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// State there only, by name.
    pub state: Option<String>,
    /// Jobs that are over too, newest first.
    pub all: bool,
    /// At most so many.
    pub limit: Option<usize>,
    /// Only ids below this one, to page on.
    pub before: Option<u32>,
}

/// Which part of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogRequest {
    /// Which launch; the newest by default.
    pub attempt: Option<u32>,
    /// Which process; 0 by default.
    pub rank: u32,
    /// From which byte; counted from the first byte ever written. Negative from the end.
    pub from: i64,
    /// At most so many bytes.
    pub max: usize,
}

/// Part of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogChunk {
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Where the next part begins.
    pub next: i64,
    /// The launch.
    pub attempt: u32,
    /// Whether nothing more will come.
    pub over: bool,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcctRequest {
    /// From, in seconds of Unix time.
    pub since: Option<f64>,
    /// Until, in seconds of Unix time.
    pub until: Option<f64>,
    /// Of this user only.
    pub user: Option<String>,
}

/// A token as it is listed; the secret itself is shown once, when it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenInfo {
    /// What people call it.
    pub name: String,
    /// Whose requests it makes.
    pub user: String,
    /// What it allows.
    pub role: Role,
    /// When it was made, in seconds of Unix time.
    pub created: f64,
    /// When it ends.
    pub expires: Option<f64>,
}

/// A token to be made. The rim draws the secret and hands over its digest only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewToken {
    /// What is listed.
    pub info: TokenInfo,
    /// The digest of the secret.
    pub digest: String,
}

/// While nothing can be written: what is shown is not what is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stale {
    /// Since when nothing can be written, in seconds of Unix time.
    pub since: f64,
    /// The moment that is shown, in seconds of Unix time.
    pub as_of: f64,
}

/// The daemon as the rim sees it.
pub trait Service: Send + Sync + 'static {
    /// Takes jobs on; they are on disk when it answers.
    fn submit(&self, caller: Caller, request: SubmitRequest) -> Reply<'_, Submitted>;
    /// Dry-runs a submission.
    fn plan(&self, caller: Caller, request: SubmitRequest) -> Reply<'_, PlanAnswer>;
    /// Does something to a job; on disk when it answers.
    fn act(&self, caller: Caller, job: u32, act: Act) -> Reply<'_, JobRow>;
    /// Lists jobs.
    fn jobs(&self, caller: Caller, filter: JobFilter) -> Reply<'_, Vec<JobRow>>;
    /// Tells all about one job.
    fn job(&self, caller: Caller, job: u32) -> Reply<'_, JobDetail>;
    /// Says why a job waits.
    fn why(&self, caller: Caller, job: u32) -> Reply<'_, WhyAnswer>;
    /// Says when a job is expected to start and to end, in intervals that are right so much of the time.
    fn eta(&self, caller: Caller, job: u32, confidence: Option<f64>) -> Reply<'_, EtaAnswer>;
    /// The same of all jobs that are not over, by id, at most `limit`.
    fn etas(
        &self,
        caller: Caller,
        limit: usize,
        confidence: Option<f64>,
    ) -> Reply<'_, Vec<EtaAnswer>>;
    /// Says what other policies would make of this moment.
    fn whatif(&self, caller: Caller, request: WhatIfRequest) -> Reply<'_, WhatIfAnswer>;
    /// Reads a log.
    fn logs(&self, caller: Caller, job: u32, request: LogRequest) -> Reply<'_, LogChunk>;
    /// Lists nodes.
    fn nodes(&self, caller: Caller) -> Reply<'_, Vec<NodeRow>>;
    /// Does something to a node.
    fn node(&self, caller: Caller, node: String, act: NodeAct) -> Reply<'_, NodeRow>;
    /// Lists maintenance windows and reservations.
    fn windows(&self, caller: Caller) -> Reply<'_, Vec<WindowRow>>;
    /// Declares one.
    fn add_window(&self, caller: Caller, request: WindowRequest) -> Reply<'_, WindowRow>;
    /// Takes one back.
    fn remove_window(&self, caller: Caller, window: u32) -> Reply<'_, ()>;
    /// Shares of tenants.
    fn fair(&self, caller: Caller) -> Reply<'_, Vec<FairRow>>;
    /// Use over a period.
    fn acct(&self, caller: Caller, request: AcctRequest) -> Reply<'_, Vec<AcctRow>>;
    /// Events with numbers above `after`, at most `max`; waits up to `wait_seconds` for the first.
    fn events(
        &self,
        caller: Caller,
        after: u64,
        max: usize,
        wait_seconds: f64,
    ) -> Reply<'_, Vec<EventRow>>;
    /// The daemon as a whole.
    fn status(&self, caller: Caller) -> Reply<'_, Status>;
    /// Changes the policy while everything goes on.
    fn set_policy(&self, caller: Caller, request: PolicyRequest) -> Reply<'_, Status>;
    /// Changes it for a while; the one before comes back by itself.
    fn try_policy(&self, caller: Caller, request: TrialRequest) -> Reply<'_, Status>;
    /// Ends a trial before its time.
    fn end_trial(&self, caller: Caller, end: TrialEnd) -> Reply<'_, Status>;
    /// The flight record since its last base, as lines of JSON.
    fn capture(&self, caller: Caller) -> Reply<'_, Vec<u8>>;
    /// Tokens that are good.
    fn tokens(&self, caller: Caller) -> Reply<'_, Vec<TokenInfo>>;
    /// Takes a new token on.
    fn add_token(&self, caller: Caller, token: NewToken) -> Reply<'_, TokenInfo>;
    /// Drops a token.
    fn drop_token(&self, caller: Caller, name: String) -> Reply<'_, ()>;
    /// Whose requests a token makes, by the digest of its secret; nothing for one that is unknown or over.
    fn whose(&self, digest: String) -> Reply<'_, Option<TokenInfo>>;
    /// Writes down that something was refused before it came to the service.
    fn refused(&self, user: String, action: String, target: String);
    /// What changed since `since`, everything where that is not known; waits up to `wait_seconds` for a change.
    fn board(&self, caller: Caller, since: Option<u64>, wait_seconds: f64) -> Reply<'_, BoardView>;
    /// Launches that held GPUs from `since` to `until`, in seconds of Unix time, the newest if there are too many.
    fn timeline(&self, caller: Caller, since: f64, until: f64) -> Reply<'_, Vec<TimelineRow>>;
    /// Whether nothing can be written, so that what is shown may be old.
    fn stale(&self) -> Option<Stale> {
        None
    }
    /// The text of all metrics, in OpenMetrics form.
    fn metrics(&self) -> Reply<'_, String>;
}
