//! The one table of routes: the router and the document of the API are made from it.

use super::call::{self, Asked, Said};
use super::reply::{JSON_LINES, OPEN_METRICS};
use super::router::Rim;
use crate::access::Role;
use crate::service::{Act, LogChunk, NodeAct, PolicyRequest, TokenInfo};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::future::Future;
use std::pin::Pin;
use trainyard_api::answer::{
    AcctRow, EventRow, FairRow, JobDetail, JobRow, NodeRow, PlanAnswer, Status, SubmitRequest,
    Submitted, WhyAnswer,
};
use trainyard_api::board::{BoardAnswer, PageAnswer, TimelineRow};
use trainyard_api::forecast::{EtaAnswer, WhatIfAnswer, WhatIfRequest};
use trainyard_api::trial::{TrialEnd, TrialRequest};
use trainyard_api::window::{WindowRequest, WindowRow};

/// The method of a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Looks.
    Get,
    /// Makes or does.
    Post,
    /// Replaces.
    Put,
    /// Drops.
    Delete,
}

impl Verb {
    /// As it stands in a request.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
        }
    }
}

/// What a parameter holds.
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
#[derive(Copy, Clone, Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it does, in one sentence.
    pub about: &'static str,
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

/// An answer that comes later.
pub type Saying = Pin<Box<dyn Future<Output = Said> + Send>>;

/// Whoever answers.
#[derive(Copy, Clone)]
pub enum Call {
    /// For anybody, without a look at the service.
    Open(fn(&Rim) -> Said),
    /// For callers who are known; the service checks whether they may.
    Known(fn(Asked) -> Saying),
}

/// One route.
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path; a part in braces varies.
    pub path: &'static str,
    /// The name of the operation in the document.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The least role that gets anywhere with it; nothing where anybody does.
    pub least: Option<Role>,
    /// What may follow `?`.
    pub query: &'static [Param],
    /// What the body looks like, where there is one.
    pub body: Option<Shape>,
    /// What comes back.
    pub gives: Gives,
    /// Whoever answers.
    pub call: Call,
}

impl Route {
    const fn get(path: &'static str, name: &'static str, gives: Gives, call: Call) -> Route {
        Route {
            verb: Verb::Get,
            path,
            name,
            about: "",
            least: Some(Role::Viewer),
            query: &[],
            body: None,
            gives,
            call,
        }
    }

    const fn with_body(self, verb: Verb, body: Shape) -> Route {
        Route { verb, body: Some(body), ..self }
    }

    const fn about(self, least: Option<Role>, about: &'static str) -> Route {
        Route { least, about, ..self }
    }

    const fn query(self, query: &'static [Param]) -> Route {
        Route { query, ..self }
    }
}

const fn param(name: &'static str, kind: Kind, about: &'static str) -> Param {
    Param { name, kind, about }
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

macro_rules! known {
    ($call:path) => {
        Call::Known(|asked| Box::pin($call(asked)))
    };
}

const CONFIDENCE_ABOUT: &str =
    "How much of the time intervals are right, from 0.01 to 0.99; 0.8 by default.";

/// All routes.
pub const ROUTES: &[Route] = &[
    Route::get("/v1/jobs", "submit", Gives::One(shape::<Submitted>), known!(call::submit))
        .with_body(Verb::Post, shape::<SubmitRequest>)
        .about(
            Some(Role::User),
            "Takes jobs on, all or none; they are on disk when it answers. The header Idempotency-Key is the same as \
             the field `key`.",
        ),
    Route::get("/v1/jobs", "jobs", Gives::List("jobs", shape::<JobRow>), known!(call::jobs))
        .about(Some(Role::Viewer), "Lists jobs.")
        .query(&[
            param("user", Kind::Text, "Of this user only."),
            param("tenant", Kind::Text, "Of this tenant only."),
            param("state", Kind::Text, "State there only."),
            param("all", Kind::Flag, "Ended jobs too, newest first."),
            param("limit", Kind::Count, "At most so many rows; 1000 by default."),
            param("before", Kind::Count, "Only ids below this one, to page on."),
        ]),
    Route::get("/v1/jobs/{id}", "job", Gives::One(shape::<JobDetail>), known!(call::job))
        .about(Some(Role::Viewer), "Tells all about one job; its environment to its owner and operators only."),
    Route::get("/v1/jobs/{id}/why", "why", Gives::One(shape::<WhyAnswer>), known!(call::why))
        .about(Some(Role::Viewer), "Says why a job waits, and what would change that."),
    Route::get("/v1/jobs/{id}/eta", "eta", Gives::One(shape::<EtaAnswer>), known!(call::eta))
        .about(Some(Role::Viewer), "Says when a job is expected to start and to end.")
        .query(&[param("confidence", Kind::Number, CONFIDENCE_ABOUT)]),
    Route::get("/v1/eta", "etas", Gives::List("jobs", shape::<EtaAnswer>), known!(call::etas))
        .about(Some(Role::Viewer), "Says of all jobs that are not over when they are expected to start and to end.")
        .query(&[
            param("limit", Kind::Count, "At most so many rows; 1000 by default."),
            param("confidence", Kind::Number, CONFIDENCE_ABOUT),
        ]),
    Route::get("/v1/whatif", "whatif", Gives::One(shape::<WhatIfAnswer>), known!(call::whatif))
        .with_body(Verb::Post, shape::<WhatIfRequest>)
        .about(
            Some(Role::Viewer),
            "Leads this moment on under several policies and compares what would come of it; nothing is changed.",
        ),
    Route::get("/v1/jobs/{id}/logs", "logs", Gives::One(shape::<LogChunk>), known!(call::logs))
        .about(Some(Role::User), "Reads a log of a job; another user's with the role operator only.")
        .query(&[
            param("attempt", Kind::Count, "Which launch; the newest by default."),
            param("rank", Kind::Count, "Which process; 0 by default."),
            param("from", Kind::Whole, "From which byte; negative from the end."),
            param("max", Kind::Count, "At most so many bytes; 65536 by default."),
        ]),
    Route::get("/v1/jobs/{id}/act", "act", Gives::One(shape::<JobRow>), known!(call::act))
        .with_body(Verb::Post, shape::<Act>)
        .about(
            Some(Role::User),
            "Cancels, holds, releases or requeues a job; another user's with the role operator only.",
        ),
    Route::get("/v1/plan", "plan", Gives::One(shape::<PlanAnswer>), known!(call::plan))
        .with_body(Verb::Post, shape::<SubmitRequest>)
        .about(Some(Role::User), "Dry-runs a submission."),
    Route::get("/v1/nodes", "nodes", Gives::List("nodes", shape::<NodeRow>), known!(call::nodes))
        .about(Some(Role::Viewer), "Lists nodes."),
    Route::get("/v1/nodes/{name}/act", "node", Gives::One(shape::<NodeRow>), known!(call::node))
        .with_body(Verb::Post, shape::<NodeAct>)
        .about(Some(Role::Operator), "Drains a node or puts it back into service."),
    Route::get("/v1/windows", "windows", Gives::List("windows", shape::<WindowRow>), known!(call::windows))
        .about(Some(Role::Viewer), "Lists maintenance windows and reservations that are not over."),
    Route::get("/v1/windows", "add_window", Gives::One(shape::<WindowRow>), known!(call::add_window))
        .with_body(Verb::Post, shape::<WindowRequest>)
        .about(Some(Role::Operator), "Declares a maintenance window, or a reservation; it is on disk when it answers."),
    Route {
        verb: Verb::Delete,
        ..Route::get("/v1/windows/{id}", "remove_window", Gives::Nothing, known!(call::remove_window))
            .about(Some(Role::Operator), "Takes a window back.")
    },
    Route::get("/v1/fair", "fair", Gives::List("tenants", shape::<FairRow>), known!(call::fair))
        .about(Some(Role::Viewer), "Shares of tenants."),
    Route::get("/v1/acct", "acct", Gives::List("usage", shape::<AcctRow>), known!(call::acct))
        .about(Some(Role::Viewer), "Use over a period, by user and tenant.")
        .query(&[
            param("since", Kind::Number, "From, in seconds of Unix time."),
            param("until", Kind::Number, "Until, in seconds of Unix time."),
            param("user", Kind::Text, "Of this user only."),
        ]),
    Route::get("/v1/events", "events", Gives::List("events", shape::<EventRow>), known!(call::events))
        .about(Some(Role::Viewer), "Events in their order; waits for the first if asked to.")
        .query(&[
            param("after", Kind::Count, "Only numbers above this one; 0 by default."),
            param("max", Kind::Count, "At most so many; 1000 by default."),
            param("wait", Kind::Number, "Seconds to wait for the first, at most 60; 0 by default."),
        ]),
    Route::get("/v1/board", "board", Gives::One(shape::<BoardAnswer>), known!(call::board))
        .about(Some(Role::Viewer), "The cluster at once, then what changed; made for pages and terminals that stay open.")
        .query(&[
            param("since", Kind::Count, "The `cursor` of the answer before; everything by default."),
            param("wait", Kind::Number, "Seconds to wait for a change, at most 60; 0 by default."),
        ]),
    Route::get("/v1/timeline", "timeline", Gives::List("launches", shape::<TimelineRow>), known!(call::timeline))
        .about(Some(Role::Viewer), "Launches that held GPUs in a period, the newest 20,000 at most.")
        .query(&[
            param("since", Kind::Number, "From, in seconds of Unix time; an hour before the end by default."),
            param("until", Kind::Number, "Until, in seconds of Unix time; now by default."),
        ]),
    Route::get("/v1/page", "page", Gives::One(shape::<PageAnswer>), known!(call::page))
        .about(Some(Role::Viewer), "Where a browser finds the page of this daemon."),
    Route::get("/v1/status", "status", Gives::One(shape::<Status>), known!(call::status))
        .about(Some(Role::Viewer), "The daemon as a whole, and who asks."),
    Route::get("/v1/policy", "set_policy", Gives::One(shape::<Status>), known!(call::set_policy))
        .with_body(Verb::Put, shape::<PolicyRequest>)
        .about(Some(Role::Admin), "Changes the policy while everything goes on."),
    Route::get("/v1/policy/try", "try_policy", Gives::One(shape::<Status>), known!(call::try_policy))
        .with_body(Verb::Post, shape::<TrialRequest>)
        .about(
            Some(Role::Admin),
            "Changes the policy for a while; the one before comes back when that is over, or sooner if a measure worsens.",
        ),
    Route::get("/v1/policy/end", "end_trial", Gives::One(shape::<Status>), known!(call::end_trial))
        .with_body(Verb::Post, shape::<TrialEnd>)
        .about(Some(Role::Admin), "Ends a trial before its time: its policy stays, or the one before comes back."),
    Route::get("/v1/capture", "capture", Gives::Text(JSON_LINES), known!(call::capture))
        .about(Some(Role::Admin), "The flight record since its last base, for a replay elsewhere."),
    Route::get("/v1/tokens", "tokens", Gives::List("tokens", shape::<TokenInfo>), known!(call::tokens))
        .about(Some(Role::Admin), "Lists tokens; never their secrets."),
    Route::get("/v1/tokens", "add_token", Gives::One(shape::<call::TokenMade>), known!(call::add_token))
        .with_body(Verb::Post, shape::<call::TokenRequest>)
        .about(Some(Role::Admin), "Makes a token; its secret is shown this once."),
    Route {
        verb: Verb::Delete,
        ..Route::get("/v1/tokens/{name}", "drop_token", Gives::Nothing, known!(call::drop_token))
            .about(Some(Role::Admin), "Drops a token; it is refused from then on.")
    },
    Route::get("/metrics", "metrics", Gives::Text(OPEN_METRICS), known!(call::metrics))
        .about(Some(Role::Viewer), "All metrics, in OpenMetrics form."),
    Route::get("/openapi.json", "openapi", Gives::One(shape::<serde_json::Value>), Call::Open(call::openapi))
        .about(None, "This document."),
    Route::get("/healthz", "healthz", Gives::One(shape::<call::Health>), Call::Open(call::healthz))
        .about(None, "Whether the daemon answers at all."),
];
