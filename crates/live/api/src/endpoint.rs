//! The one table of endpoints.
//!
//! A row says method, address, what comes in, what comes back and which role may ask. Everything else is made from it:
//! the routes, the calls and the service of the daemon, the requests of a client ([`crate::ask`]) and the document of
//! the API. [`endpoints!`](crate::endpoints) hands the rows to a macro of the crate that uses them.

use crate::access::Role;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;
#[allow(clippy::wildcard_imports, reason = "the rows of the table name all of them")]
use types::*;

/// All that the rows of [`endpoints!`](crate::endpoints) name.
pub mod types {
    pub use crate::answer::{
        AcctRow, EventRow, FairRow, GpuUsage, Health, JobDetail, JobRow, LogChunk, NodeRow,
        PlanAnswer, PolicyRow, Status, SubmitRequest, Submitted, WhyAnswer,
    };
    pub use crate::board::{BoardAnswer, PageAnswer, TimelineRow};
    pub use crate::forecast::{EtaAnswer, WhatIfAnswer, WhatIfRequest};
    pub use crate::pool::{PoolRequest, PoolRow};
    pub use crate::request::{
        AcctRequest, Act, BoardQuery, EtaQuery, EtasQuery, EventsQuery, JobFilter, LogRequest,
        NodeAct, PolicyRequest, TimelineQuery,
    };
    pub use crate::token::{TokenInfo, TokenMade, TokenRequest};
    pub use crate::trial::{TrialEnd, TrialRequest};
    pub use crate::window::{WindowRequest, WindowRow};
}

/// The type of the text of metrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of lines of JSON.
pub const JSON_LINES: &str = "application/x-ndjson";

/// Hands all rows to the macro that is named.
///
/// A row is `METHOD "address" name(what comes in) -> what comes back, the least role;`. What comes in is called `job`,
/// `window` or `name` where it is the part of the address in braces, `query` where it follows `?`, and `body`. What
/// comes back is `one(TYPE)`, `list("name", TYPE)`, `text(MEDIA TYPE)` or `nothing()`. A row that ends in `again`
/// may be asked twice without harm although its method does not say so. What is in `service` is answered by the
/// service as it is; what is in `rim` takes more than that.
#[macro_export]
macro_rules! endpoints {
    ($rows:ident) => {
        $rows! {
            service {
                /// Takes jobs on, all or none; they are on disk when it answers.
                /// The header Idempotency-Key is the same as the field `key`.
                POST "/v1/jobs" submit(body: SubmitRequest) -> one(Submitted), User, again;
                /// Lists jobs.
                GET "/v1/jobs" jobs(query: JobFilter) -> list("jobs", JobRow), Viewer;
                /// Tells all about one job; its environment to its owner and operators only.
                GET "/v1/jobs/{id}" job(job: u32) -> one(JobDetail), Viewer;
                /// Says why a job waits, and what would change that.
                GET "/v1/jobs/{id}/why" why(job: u32) -> one(WhyAnswer), Viewer;
                /// Says when a job is expected to start and to end.
                GET "/v1/jobs/{id}/eta" eta(job: u32, query: EtaQuery) -> one(EtaAnswer), Viewer;
                /// Says of all jobs that have not ended when they are expected to start and to end.
                GET "/v1/eta" etas(query: EtasQuery) -> list("jobs", EtaAnswer), Viewer;
                /// Simulates the current queue forward under several policies and compares them; nothing is changed.
                POST "/v1/whatif" whatif(body: WhatIfRequest) -> one(WhatIfAnswer), Viewer, again;
                /// Reads a log of a job; another user's with the role operator only.
                GET "/v1/jobs/{id}/logs" logs(job: u32, query: LogRequest) -> one(LogChunk), User;
                /// Cancels, holds, releases or requeues a job; another user's with the role operator only.
                POST "/v1/jobs/{id}/act" act(job: u32, body: Act) -> one(JobRow), User;
                /// Dry-runs a submission.
                POST "/v1/plan" plan(body: SubmitRequest) -> one(PlanAnswer), User, again;
                /// Lists nodes.
                GET "/v1/nodes" nodes() -> list("nodes", NodeRow), Viewer;
                /// How busy GPUs are and how much of their memory is used; empty where no driver tells.
                GET "/v1/gpus" gpus() -> list("gpus", GpuUsage), Viewer;
                /// Lists the policies that can be set.
                GET "/v1/policies" policies() -> list("policies", PolicyRow), Viewer;
                /// Drains a node or puts it back into service.
                POST "/v1/nodes/{name}/act" node(name: String, body: NodeAct) -> one(NodeRow), Operator, again;
                /// Lists maintenance windows and reservations that have not ended.
                GET "/v1/windows" windows() -> list("windows", WindowRow), Viewer;
                /// Declares a maintenance window, or a reservation; it is on disk when it answers.
                POST "/v1/windows" add_window(body: WindowRequest) -> one(WindowRow), Operator;
                /// Takes a window back.
                DELETE "/v1/windows/{id}" remove_window(window: u32) -> nothing(), Operator;
                /// Lists pools of nodes that their owners lend.
                GET "/v1/pools" pools() -> list("pools", PoolRow), Viewer;
                /// Says how many nodes of a pool its owner needs: jobs leave those, and the others are lent.
                PUT "/v1/pools/{name}" need_nodes(name: String, body: PoolRequest) -> one(PoolRow), Operator;
                /// Shares of tenants.
                GET "/v1/fair" fair() -> list("tenants", FairRow), Viewer;
                /// Use over a period, by user and tenant.
                GET "/v1/acct" acct(query: AcctRequest) -> list("usage", AcctRow), Viewer;
                /// The daemon as a whole, and the caller.
                GET "/v1/status" status() -> one(Status), Viewer;
                /// Changes the policy while everything goes on.
                PUT "/v1/policy" set_policy(body: PolicyRequest) -> one(Status), Admin;
                /// Changes the policy for a while; the one before comes back when that time ends, or sooner if a
                /// measure worsens.
                POST "/v1/policy/try" try_policy(body: TrialRequest) -> one(Status), Admin;
                /// Ends a trial before its time: its policy stays, or the one before comes back.
                POST "/v1/policy/end" end_trial(body: TrialEnd) -> one(Status), Admin;
                /// Lists tokens; never their secrets.
                GET "/v1/tokens" tokens() -> list("tokens", TokenInfo), Admin;
                /// Drops a token; it is refused from then on.
                DELETE "/v1/tokens/{name}" drop_token(name: String) -> nothing(), Admin;
            }
            rim {
                /// Events in their order; waits for the first if asked to.
                GET "/v1/events" events(query: EventsQuery) -> list("events", EventRow), Viewer;
                /// The cluster at once, then what changed; made for pages and terminals that stay open.
                GET "/v1/board" board(query: BoardQuery) -> one(BoardAnswer), Viewer;
                /// Launches that held GPUs in a period, the newest 20,000 at most.
                GET "/v1/timeline" timeline(query: TimelineQuery) -> list("launches", TimelineRow), Viewer;
                /// Where a browser finds the page of this daemon.
                GET "/v1/page" page() -> one(PageAnswer), Viewer;
                /// The flight record since its last base, for a replay elsewhere.
                GET "/v1/capture" capture() -> text(JSON_LINES), Admin;
                /// Makes a token; its secret is shown this once.
                POST "/v1/tokens" add_token(body: TokenRequest) -> one(TokenMade), Admin;
                /// All metrics, as OpenMetrics where `Accept` asks for it, else in the text format 0.0.4.
                GET "/metrics" metrics() -> text(OPEN_METRICS), Viewer;
                /// This document.
                GET "/openapi.json" openapi() -> one(Value), Anybody;
                /// Whether the daemon answers at all.
                GET "/healthz" healthz() -> one(Health), Anybody;
            }
        }
    };
}

/// The method of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[allow(clippy::upper_case_acronyms, reason = "methods are written so in rows and requests")]
pub enum Verb {
    /// Looks.
    GET,
    /// Makes or does.
    POST,
    /// Replaces.
    PUT,
    /// Drops.
    DELETE,
}

impl Verb {
    /// As it stands in a request.
    pub fn name(self) -> &'static str {
        match self {
            Verb::GET => "GET",
            Verb::POST => "POST",
            Verb::PUT => "PUT",
            Verb::DELETE => "DELETE",
        }
    }
}

/// The schema of a type.
pub type Shape = fn(&mut SchemaGenerator) -> Schema;

/// What an answer looks like.
#[derive(Copy, Clone)]
pub enum Gives {
    /// One value.
    One(Shape),
    /// Rows under a name.
    List(&'static str, Shape),
    /// Text of another type.
    Text(&'static str),
    /// Nothing.
    Nothing,
}

/// One endpoint.
pub struct Endpoint {
    /// The method.
    pub verb: Verb,
    /// The path; a part in braces varies.
    pub path: &'static str,
    /// The name of the operation.
    pub name: &'static str,
    about: &'static str,
    /// The least role that may use it; nothing where no token is needed.
    pub least: Option<Role>,
    query: Option<Shape>,
    /// What the body looks like, where there is one.
    pub body: Option<Shape>,
    /// What comes back.
    pub gives: Gives,
}

/// What a parameter behind `?` holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A whole number from 0.
    Count,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// `true` or `false`.
    Flag,
}

/// A parameter behind `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// What it does, in one sentence.
    pub about: String,
}

impl Endpoint {
    /// What it does, in a sentence or two.
    pub fn about(&self) -> &'static str {
        self.about.trim()
    }

    /// What may follow `?`: the fields of the row's `query`, with their comments.
    pub fn params(&self) -> Vec<Param> {
        let Some(shape) = self.query else { return Vec::new() };
        let mut generator = SchemaGenerator::default();
        shape(&mut generator);
        let definitions = generator.take_definitions(true);
        let fields =
            definitions.values().next().and_then(|schema| schema["properties"].as_object());
        let params = fields.into_iter().flatten().map(|(name, schema)| Param {
            name: name.clone(),
            kind: kind(schema),
            about: schema["description"].as_str().unwrap_or_default().to_owned(),
        });
        params.collect()
    }
}

fn kind(schema: &Value) -> Kind {
    let told = &schema["type"];
    let is = |name: &str| {
        told == name || told.as_array().is_some_and(|all| all.iter().any(|one| one == name))
    };
    match () {
        () if is("boolean") => Kind::Flag,
        () if is("integer") && schema.get("minimum").is_some() => Kind::Count,
        () if is("integer") => Kind::Whole,
        () if is("number") => Kind::Number,
        () => Kind::Text,
    }
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The type of what comes in under a name.
macro_rules! comes_in {
    ($wanted:ident;) => { None };
    (query; query: $type:ty $(, $($rest:tt)*)?) => { Some(shape::<$type>) };
    (body; body: $type:ty $(, $($rest:tt)*)?) => { Some(shape::<$type>) };
    ($wanted:ident; $other:ident: $type:ty $(, $($rest:tt)*)?) => {
        comes_in!($wanted; $($($rest)*)?)
    };
}

macro_rules! comes_back {
    (one($type:ty)) => {
        Gives::One(shape::<$type>)
    };
    (list($name:literal, $type:ty)) => {
        Gives::List($name, shape::<$type>)
    };
    (text($kind:ident)) => {
        Gives::Text($kind)
    };
    (nothing()) => {
        Gives::Nothing
    };
}

macro_rules! least {
    (Anybody) => {
        None
    };
    ($role:ident) => {
        Some(Role::$role)
    };
}

macro_rules! table {
    (service { $($service:tt)* } rim { $($rim:tt)* }) => { table! { $($service)* $($rim)* } };
    ($(
        $(#[doc = $about:literal])+
        $verb:ident $path:literal $name:ident($($arg:ident: $type:ty),*) -> $gives:ident($($what:tt)*),
            $least:ident $(, $again:ident)?;
    )*) => {
        /// All endpoints.
        pub const ENDPOINTS: &[Endpoint] = &[$(Endpoint {
            verb: Verb::$verb,
            path: $path,
            name: stringify!($name),
            about: concat!($($about),+),
            least: least!($least),
            query: comes_in!(query; $($arg: $type),*),
            body: comes_in!(body; $($arg: $type),*),
            gives: comes_back!($gives($($what)*)),
        }),*];
    };
}

endpoints!(table);
