//! What each route asks the service.

use super::reply::{Answer, JSON_LINES, OPEN_METRICS, PACKED_FROM};
use super::router::Rim;
use super::{fields, input, openapi, secret};
use crate::access::{self, Caller, Right, Role};
use crate::service::{
    AcctRequest, Act, JobFilter, LogRequest, NewToken, NodeAct, PolicyRequest, TokenInfo,
};
use axum::body::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trainyard_api::answer::{EventRow, SubmitRequest};
use trainyard_api::board::PageAnswer;
use trainyard_api::forecast::WhatIfRequest;
use trainyard_api::trial::{TrialEnd, TrialRequest};
use trainyard_api::window::WindowRequest;
use trainyard_api::{Code, Problem};

const ROWS_DEFAULT: usize = 1000;
const LOG_BYTES_DEFAULT: usize = 64 << 10;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
/// A token nobody thought about ends by itself.
const TOKEN_SECONDS_DEFAULT: f64 = 90.0 * DAY;
const TOKEN_SECONDS_MAX: f64 = 3660.0 * DAY;

/// What came of it.
pub type Said = Result<Answer, Problem>;

/// A request of someone who is known.
pub struct Asked {
    /// Everything the rim has.
    pub rim: Arc<Rim>,
    /// Who asks.
    pub caller: Caller,
    /// The part of the path that varies, decoded.
    pub part: String,
    /// What follows `?`.
    pub query: String,
    /// The body.
    pub body: Bytes,
    /// The client's own key.
    pub key: Option<String>,
    /// Whether it understands an answer that is packed.
    pub takes_gzip: bool,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// What people call it.
    pub name: String,
    /// Whose requests it makes; by default whoever makes it, unless that is root.
    #[serde(default)]
    pub user: Option<String>,
    /// What it allows.
    pub role: Role,
    /// How long it is good; 90 days by default, ten years at most.
    #[serde(default)]
    pub expires_seconds: Option<f64>,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// The secret, shown this once.
    pub token: String,
    /// What is listed of it.
    pub info: TokenInfo,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `ok`, or `store-failed` while nothing can be written.
    pub status: String,
    /// Since when nothing can be written, in seconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
}

/// `POST /v1/jobs`.
pub async fn submit(asked: Asked) -> Said {
    let request = submission(&asked)?;
    let said = asked.rim.service.submit(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `POST /v1/plan`.
pub async fn plan(asked: Asked) -> Said {
    let request = submission(&asked)?;
    let said = asked.rim.service.plan(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

fn submission(asked: &Asked) -> Result<SubmitRequest, Problem> {
    let mut request: SubmitRequest = input::json(&asked.body)?;
    match (&request.key, &asked.key) {
        (Some(field), Some(header)) if field != header => {
            let detail = "the field `key` and the header Idempotency-Key differ: give one of them";
            return Err(Problem::field(Code::BadInput, "key", detail));
        }
        (None, Some(header)) => request.key = Some(header.clone()),
        (Some(_) | None, _) => {}
    }
    fields::check_submission(&request, asked.rim.limits.jobs_max)?;
    Ok(request)
}

/// `GET /v1/jobs`.
pub async fn jobs(asked: Asked) -> Said {
    let mut filter: JobFilter = input::query(&asked.query)?;
    filter.limit = Some(rows("limit", filter.limit, &asked)?);
    let said = asked.rim.service.jobs(asked.caller, filter).await?;
    Answer::list("jobs", &said, &asked.rim.limits)
}

/// `GET /v1/jobs/{id}`.
pub async fn job(asked: Asked) -> Said {
    let said = asked.rim.service.job(asked.caller, input::job_id(&asked.part)?).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/jobs/{id}/why`.
pub async fn why(asked: Asked) -> Said {
    let said = asked.rim.service.why(asked.caller, input::job_id(&asked.part)?).await?;
    Answer::json(&said, &asked.rim.limits)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EtaQuery {
    limit: Option<usize>,
    confidence: Option<f64>,
}

/// `GET /v1/jobs/{id}/eta`.
pub async fn eta(asked: Asked) -> Said {
    let job = input::job_id(&asked.part)?;
    let EtaQuery { confidence, .. } = input::query(&asked.query)?;
    let said = asked.rim.service.eta(asked.caller, job, confidence).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/eta`.
pub async fn etas(asked: Asked) -> Said {
    let EtaQuery { limit, confidence } = input::query(&asked.query)?;
    let limit = rows("limit", limit, &asked)?;
    let said = asked.rim.service.etas(asked.caller, limit, confidence).await?;
    Answer::list("jobs", &said, &asked.rim.limits)
}

/// `POST /v1/whatif`.
pub async fn whatif(asked: Asked) -> Said {
    let request: WhatIfRequest = input::json(&asked.body)?;
    let said = asked.rim.service.whatif(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/jobs/{id}/logs`.
pub async fn logs(asked: Asked) -> Said {
    let job = input::job_id(&asked.part)?;
    let mut request: LogRequest = input::query(&asked.query)?;
    let max = asked.rim.limits.log_bytes_max;
    if request.max > max {
        return Err(beyond("max", request.max, max));
    }
    if request.max == 0 {
        request.max = LOG_BYTES_DEFAULT.min(max);
    }
    let said = asked.rim.service.logs(asked.caller, job, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `POST /v1/jobs/{id}/act`.
pub async fn act(asked: Asked) -> Said {
    let job = input::job_id(&asked.part)?;
    let act: Act = input::json(&asked.body)?;
    fields::check_act(&act)?;
    let said = asked.rim.service.act(asked.caller, job, act).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/nodes`.
pub async fn nodes(asked: Asked) -> Said {
    let said = asked.rim.service.nodes(asked.caller).await?;
    Answer::list("nodes", &said, &asked.rim.limits)
}

/// `POST /v1/nodes/{name}/act`.
pub async fn node(asked: Asked) -> Said {
    let act: NodeAct = input::json(&asked.body)?;
    fields::check_node_act(&act)?;
    let said = asked.rim.service.node(asked.caller, asked.part, act).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/windows`.
pub async fn windows(asked: Asked) -> Said {
    let said = asked.rim.service.windows(asked.caller).await?;
    Answer::list("windows", &said, &asked.rim.limits)
}

/// `POST /v1/windows`.
pub async fn add_window(asked: Asked) -> Said {
    let request: WindowRequest = input::json(&asked.body)?;
    fields::check_window(&request)?;
    let said = asked.rim.service.add_window(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `DELETE /v1/windows/{id}`.
pub async fn remove_window(asked: Asked) -> Said {
    let window = input::window_id(&asked.part)?;
    asked.rim.service.remove_window(asked.caller, window).await?;
    Ok(Answer::nothing())
}

/// `GET /v1/fair`.
pub async fn fair(asked: Asked) -> Said {
    let said = asked.rim.service.fair(asked.caller).await?;
    Answer::list("tenants", &said, &asked.rim.limits)
}

/// `GET /v1/acct`.
pub async fn acct(asked: Asked) -> Said {
    let request: AcctRequest = input::query(&asked.query)?;
    check_moments(&[("since", request.since), ("until", request.until)])?;
    let said = asked.rim.service.acct(asked.caller, request).await?;
    Answer::list("usage", &said, &asked.rim.limits)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventsQuery {
    after: u64,
    max: Option<usize>,
    wait: f64,
}

/// `GET /v1/events`. The end of the daemon ends the wait, too.
pub async fn events(asked: Asked) -> Said {
    let query: EventsQuery = input::query(&asked.query)?;
    let max = rows("max", query.max, &asked)?;
    check_wait(query.wait, &asked)?;
    let said: Vec<EventRow> = tokio::select! {
        said = asked.rim.service.events(asked.caller, query.after, max, query.wait) => said?,
        () = asked.rim.stopped() => Vec::new(),
    };
    Answer::list("events", &said, &asked.rim.limits)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BoardQuery {
    since: Option<u64>,
    wait: f64,
}

/// `GET /v1/board`. The end of the daemon ends the wait, too.
pub async fn board(asked: Asked) -> Said {
    let query: BoardQuery = input::query(&asked.query)?;
    check_wait(query.wait, &asked)?;
    let said = tokio::select! {
        said = asked.rim.service.board(asked.caller, query.since, query.wait) => said?,
        () = asked.rim.stopped() => {
            return Err(Problem::new(Code::Unreachable, "the daemon is ending; try again when it is back"));
        }
    };
    let limits = asked.rim.limits.clone();
    if !asked.takes_gzip || said.frame.len() < PACKED_FROM {
        return Answer::parts(said.text()?, false, &limits);
    }
    // Ten thousand rows are megabytes: whoever else is served must not wait for them.
    let made = tokio::task::spawn_blocking(move || Answer::parts(said.gzip()?, true, &limits));
    made.await.map_err(|_| Problem::new(Code::Internal, "a thread was lost; try again"))?
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TimelineQuery {
    since: Option<f64>,
    until: Option<f64>,
}

/// `GET /v1/timeline`.
pub async fn timeline(asked: Asked) -> Said {
    let query: TimelineQuery = input::query(&asked.query)?;
    check_moments(&[("since", query.since), ("until", query.until)])?;
    let until = query.until.unwrap_or_else(unix_time);
    let since = query.since.unwrap_or(until - HOUR);
    let said = asked.rim.service.timeline(asked.caller, since, until).await?;
    let limits = asked.rim.limits.clone();
    let answer = Answer::list("launches", &said, &limits)?;
    Ok(if asked.takes_gzip { answer.packed() } else { answer })
}

/// `GET /v1/page`.
pub async fn page(asked: Asked) -> Said {
    Answer::json(&PageAnswer { url: asked.rim.page.clone() }, &asked.rim.limits)
}

/// `GET /v1/status`.
pub async fn status(asked: Asked) -> Said {
    let said = asked.rim.service.status(asked.caller).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `PUT /v1/policy`.
pub async fn set_policy(asked: Asked) -> Said {
    let request: PolicyRequest = input::json(&asked.body)?;
    fields::check_policy(&request)?;
    let said = asked.rim.service.set_policy(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `POST /v1/policy/try`.
pub async fn try_policy(asked: Asked) -> Said {
    let request: TrialRequest = input::json(&asked.body)?;
    fields::check_policy(&PolicyRequest {
        policy: request.policy.clone(),
        place: request.place.clone(),
        admit: request.admit.clone(),
    })?;
    let said = asked.rim.service.try_policy(asked.caller, request).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `POST /v1/policy/end`.
pub async fn end_trial(asked: Asked) -> Said {
    let end: TrialEnd = input::json(&asked.body)?;
    let said = asked.rim.service.end_trial(asked.caller, end).await?;
    Answer::json(&said, &asked.rim.limits)
}

/// `GET /v1/capture`.
pub async fn capture(asked: Asked) -> Said {
    let said = asked.rim.service.capture(asked.caller).await?;
    Answer::bytes(said, JSON_LINES, asked.rim.limits.capture_bytes_max)
}

/// `GET /v1/tokens`.
pub async fn tokens(asked: Asked) -> Said {
    let said = asked.rim.service.tokens(asked.caller).await?;
    Answer::list("tokens", &said, &asked.rim.limits)
}

/// `POST /v1/tokens`.
pub async fn add_token(asked: Asked) -> Said {
    let request: TokenRequest = input::json(&asked.body)?;
    fields::check_name("name", &request.name)?;
    if let Some(user) = &request.user {
        fields::check_name("user", user)?;
    }
    let seconds = request.expires_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT);
    if !(seconds > 0.0 && seconds <= TOKEN_SECONDS_MAX) {
        let detail =
            format!("`expires_seconds`: expected more than 0 and at most {TOKEN_SECONDS_MAX}");
        return Err(Problem::field(Code::BadInput, "expires_seconds", detail));
    }
    let created = unix_time();
    let (name, role) = (request.name, request.role);
    // Who may not make tokens is told so by the service, whatever the rest is.
    let user = match access::check(&asked.caller, Right::RuleStore, None) {
        Ok(()) => asked.rim.users.stands_for(&asked.caller, request.user, (&name, role)).await?,
        Err(_) => request.user.unwrap_or_else(|| asked.caller.user.clone()),
    };
    let info = TokenInfo { name, user, role, created, expires: Some(created + seconds) };
    let token = secret::draw()?;
    let new = NewToken { info, digest: secret::digest(&token) };
    let info = asked.rim.service.add_token(asked.caller, new).await?;
    Answer::json(&TokenMade { token, info }, &asked.rim.limits)
}

/// `DELETE /v1/tokens/{name}`.
pub async fn drop_token(asked: Asked) -> Said {
    asked.rim.service.drop_token(asked.caller, asked.part).await?;
    Ok(Answer::nothing())
}

/// `GET /metrics`.
pub async fn metrics(asked: Asked) -> Said {
    let said = asked.rim.service.metrics().await?;
    Answer::bytes(said.into_bytes(), OPEN_METRICS, asked.rim.limits.reply_bytes_max)
}

/// `GET /openapi.json`.
pub fn openapi(_: &Rim) -> Said {
    Answer::bytes(openapi::document().as_bytes().to_vec(), "application/json", usize::MAX)
}

/// `GET /healthz`. The daemon lives as long as it answers, so the status is 200 whatever it says.
pub fn healthz(rim: &Rim) -> Said {
    let since = rim.service.stale().map(|stale| stale.since);
    let status = if since.is_some() { "store-failed" } else { "ok" };
    Answer::json(&Health { status: status.to_owned(), since }, &rim.limits)
}

/// Seconds of Unix time.
pub(crate) fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

fn rows(field: &str, wanted: Option<usize>, asked: &Asked) -> Result<usize, Problem> {
    let max = asked.rim.limits.rows_max;
    match wanted.unwrap_or(ROWS_DEFAULT.min(max)) {
        0 => Err(Problem::field(Code::BadInput, field, format!("`{field}`: expected at least 1"))),
        wanted if wanted > max => Err(beyond(field, wanted, max)),
        wanted => Ok(wanted),
    }
}

fn check_wait(wait: f64, asked: &Asked) -> Result<(), Problem> {
    let longest = asked.rim.limits.wait_time_max.as_secs_f64();
    match (0.0..=longest).contains(&wait) {
        true => Ok(()),
        false => {
            let detail = format!("`wait`: expected 0 to {longest} seconds");
            Err(Problem::field(Code::BadInput, "wait", detail))
        }
    }
}

fn check_moments(moments: &[(&str, Option<f64>)]) -> Result<(), Problem> {
    for (field, value) in moments {
        if value.is_some_and(|value| !value.is_finite()) {
            let detail = format!("`{field}`: expected seconds of Unix time");
            return Err(Problem::field(Code::BadInput, field, detail));
        }
    }
    Ok(())
}

fn beyond(field: &str, wanted: usize, max: usize) -> Problem {
    let detail = format!("`{field}` is {wanted}, and {max} is allowed at most: ask in parts");
    Problem::field(Code::BadInput, field, detail)
}
