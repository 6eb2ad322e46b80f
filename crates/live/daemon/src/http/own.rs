//! Endpoints of which the rim makes more than a call of the service: they wait, are packed, or know what only it knows.

use super::reply::{HttpAnswer, PACKED_FROM};
use super::route::{Asked, Said};
use super::router::Rim;
use super::{exposition, openapi, secret};
use crate::access::{self, Right};
use crate::service::NewToken;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trainyard_api::endpoint::types::{
    BoardQuery, EventRow, EventsQuery, Health, PageAnswer, TimelineQuery, TokenInfo, TokenMade,
    TokenRequest,
};
use trainyard_api::endpoint::{JSON_LINES, OPEN_METRICS};
use trainyard_api::{Code, Problem};

const HOUR: f64 = 3600.0;
/// A token that is made without a time to live expires after this long.
const TOKEN_SECONDS_DEFAULT: f64 = 90.0 * 24.0 * HOUR;

/// `GET /v1/events`. The end of the daemon ends the wait, too.
pub async fn events(asked: Asked, query: EventsQuery) -> Said {
    let said: Vec<EventRow> = tokio::select! {
        said = asked.rim.service.events(asked.caller, query) => said?,
        () = asked.rim.stopped() => Vec::new(),
    };
    HttpAnswer::list("events", &said, &asked.rim.limits)
}

/// `GET /v1/board`. The end of the daemon ends the wait, too.
pub async fn board(asked: Asked, query: BoardQuery) -> Said {
    let said = tokio::select! {
        said = asked.rim.service.board(asked.caller, query) => said?,
        () = asked.rim.stopped() => {
            return Err(Problem::new(Code::Unreachable, "the daemon is ending; try again when it is back"));
        }
    };
    let limits = asked.rim.limits.clone();
    if !asked.takes_gzip || said.frame.len() < PACKED_FROM {
        return HttpAnswer::parts(said.text()?, false, &limits);
    }
    // Ten thousand rows are megabytes: other requests must not wait for them.
    let made = tokio::task::spawn_blocking(move || HttpAnswer::parts(said.gzip()?, true, &limits));
    made.await.map_err(|_| Problem::new(Code::Internal, "a thread was lost; try again"))?
}

/// `GET /v1/timeline`.
pub async fn timeline(asked: Asked, query: TimelineQuery) -> Said {
    let until = query.until.unwrap_or_else(unix_time);
    let since = query.since.unwrap_or(until - HOUR);
    let said = asked.rim.service.timeline(asked.caller, since, until).await?;
    let limits = asked.rim.limits.clone();
    let answer = HttpAnswer::list("launches", &said, &limits)?;
    Ok(if asked.takes_gzip { answer.packed() } else { answer })
}

/// `GET /v1/page`.
pub async fn page(asked: Asked) -> Said {
    HttpAnswer::json(&PageAnswer { url: asked.rim.page.clone() }, &asked.rim.limits)
}

/// `GET /v1/capture`.
pub async fn capture(asked: Asked) -> Said {
    let said = asked.rim.service.capture(asked.caller).await?;
    HttpAnswer::bytes(said, JSON_LINES, asked.rim.limits.capture_bytes_max)
}

/// `POST /v1/tokens`.
pub async fn add_token(asked: Asked, request: TokenRequest) -> Said {
    let seconds = request.expires_seconds.unwrap_or(TOKEN_SECONDS_DEFAULT);
    let created = unix_time();
    let (name, role) = (request.name, request.role);
    // A caller that may not make tokens is told so by the service, whatever the rest is.
    let user = match access::check(&asked.caller, Right::RuleStore, None) {
        Ok(()) => asked.rim.users.stands_for(&asked.caller, request.user, (&name, role)).await?,
        Err(_) => request.user.unwrap_or_else(|| asked.caller.user.clone()),
    };
    let info = TokenInfo { name, user, role, created, expires: Some(created + seconds) };
    let token = secret::draw()?;
    let new = NewToken { info, digest: secret::digest(&token) };
    let info = asked.rim.service.add_token(asked.caller, new).await?;
    HttpAnswer::json(&TokenMade { token, info }, &asked.rim.limits)
}

/// `GET /metrics`.
pub async fn metrics(asked: Asked) -> Said {
    let said = asked.rim.service.metrics().await?;
    let (said, kind) = match asked.takes_open_metrics {
        true => (said, OPEN_METRICS),
        false => (exposition::text_format(&said), exposition::TEXT_FORMAT),
    };
    HttpAnswer::bytes(said.into_bytes(), kind, asked.rim.limits.reply_bytes_max)
}

/// `GET /openapi.json`.
pub fn openapi(_: &Rim) -> Said {
    HttpAnswer::bytes(openapi::document().as_bytes().to_vec(), "application/json", usize::MAX)
}

/// `GET /healthz`. The daemon lives as long as it answers, so the status is 200 whatever it says.
pub fn healthz(rim: &Rim) -> Said {
    let since = rim.service.stale().map(|stale| stale.since);
    let status = if since.is_some() { "store-failed" } else { "ok" };
    HttpAnswer::json(&Health { status: status.to_owned(), since }, &rim.limits)
}

/// Seconds of Unix time.
pub(crate) fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}
