//! The way of every request: screened, known, counted, read, answered, logged.

use super::call::{Asked, unix_time};
use super::options::{HttpOptions, Limits, ServeError};
use super::peer::{Peer, Users};
use super::rate::{Buckets, Who};
use super::reply::{Answer, Beside, Refusal};
use super::route::{Call, ROUTES, Route, Verb};
use super::{input, origin, secret};
use crate::access::Caller;
use crate::desk::Desk;
use crate::metrics::Metrics;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::{Response, StatusCode, header, request};
use axum::routing::{MethodFilter, on};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio::time::timeout;
use trainyard_api::{Code, Problem};

/// Everything the rim has.
pub struct Rim {
    /// Whoever answers.
    pub desk: Arc<dyn Desk>,
    /// How much is taken.
    pub limits: Limits,
    /// The Unix users of this machine.
    pub users: Arc<Users>,
    names: Vec<String>,
    metrics: Arc<Metrics>,
    requests: Buckets,
    refusals: Buckets,
    stopping: watch::Receiver<bool>,
}

impl Rim {
    /// By the options.
    pub fn new(
        desk: Arc<dyn Desk>,
        options: &HttpOptions,
        stopping: watch::Receiver<bool>,
    ) -> Result<Rim, ServeError> {
        let limits = options.limits.clone();
        Ok(Rim {
            desk,
            users: Arc::new(Users::new(options)?),
            stopping,
            names: options.names.clone(),
            metrics: Arc::clone(&options.metrics),
            requests: Buckets::new(limits.requests_per_second, limits.requests_burst),
            refusals: Buckets::new(limits.refusals_per_second, 4.0 * limits.refusals_per_second),
            limits,
        })
    }

    /// Ready when the end is asked for.
    pub async fn stopped(&self) {
        // Nobody left to ask for the end is as good as the end.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

/// The router, made from the table of routes.
pub fn router(rim: &Arc<Rim>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let rim = Arc::clone(rim);
        let filter = match route.verb {
            Verb::Get => MethodFilter::GET,
            Verb::Post => MethodFilter::POST,
            Verb::Put => MethodFilter::PUT,
            Verb::Delete => MethodFilter::DELETE,
        };
        let answer = move |parts: RawPathParams, request: Request| {
            let part = parts.iter().next().map(|(_, part)| part.to_owned()).unwrap_or_default();
            answer(Arc::clone(&rim), Some(route), part, request)
        };
        router = router.route(route.path, on(filter, answer));
    }
    let (lost, wrong) = (Arc::clone(rim), Arc::clone(rim));
    router
        .fallback(move |request: Request| answer(Arc::clone(&lost), None, String::new(), request))
        .method_not_allowed_fallback(move |request: Request| {
            answer(Arc::clone(&wrong), None, String::new(), request)
        })
}

async fn answer(
    rim: Arc<Rim>,
    route: Option<&'static Route>,
    part: String,
    request: Request,
) -> Response<Body> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let response = match screen_and_ask(&rim, route, part, &head, body).await {
        Ok(answer) => answer.into_response(),
        Err(refusal) => refusal.into_response(),
    };
    let status = response.status().as_u16();
    let (verb, path) = route.map_or(("OTHER", "other"), |route| (route.verb.name(), route.path));
    let seconds = began.elapsed().as_secs_f64();
    rim.metrics.http(verb, path, status, seconds);
    // The route stands for the address: what varies in it, and all that follows `?`, stays out of logs.
    match status {
        500.. => tracing::warn!(target: "trainyard::http", verb, path, status, seconds),
        400.. => tracing::info!(target: "trainyard::http", verb, path, status, seconds),
        _ => tracing::debug!(target: "trainyard::http", verb, path, status, seconds),
    }
    response
}

async fn screen_and_ask(
    rim: &Arc<Rim>,
    route: Option<&'static Route>,
    part: String,
    head: &request::Parts,
    body: Body,
) -> Result<Answer, Refusal> {
    let Some(peer) = head.extensions.get::<Arc<Peer>>() else {
        return Err(Problem::new(Code::Internal, "the peer of a connection is not known").into());
    };
    if let Err(problem) = origin::check(peer, &head.headers, &rim.names) {
        return Err(refuse(rim, peer, head, "unknown", problem.into()));
    }
    let Some(route) = route else {
        limit(&rim.requests, peer.who())?;
        return Err(stray(head));
    };
    let known = match route.call {
        Call::Open(call) => {
            limit(&rim.requests, peer.who())?;
            return Ok(call()?);
        }
        Call::Known(known) => known,
    };
    let (caller, who) = authenticate(rim, peer, head).await?;
    limit(&rim.requests, who)?;
    let query = head.uri.query().unwrap_or_default();
    input::check_query(query, route.query, rim.limits.query_bytes_max)?;
    let key = input::idempotency_key(&head.headers)?;
    let body = match route.body {
        None => Bytes::new(),
        Some(_) => read(body, &head.headers, &rim.limits).await?,
    };
    let (rim, query) = (Arc::clone(rim), query.to_owned());
    // A wait for events is bounded by its own limit and comes on top.
    let longest = rim.limits.answer_time_max + rim.limits.wait_time_max;
    let asked = Asked { rim, caller, part, query, body, key };
    match timeout(longest, AssertUnwindSafe(known(asked)).catch_unwind()).await {
        Ok(Ok(said)) => Ok(said?),
        Ok(Err(_)) => {
            let detail = "the daemon stumbled over this request; its log says where";
            Err(Problem::new(Code::Internal, detail).into())
        }
        Err(_) => {
            let detail = "the daemon did not answer in time; ask again, with the same key if it was a submission";
            Err(Problem::new(Code::Unreachable, detail).into())
        }
    }
}

/// Who asks: by token where one is shown, else by the kernel's word.
async fn authenticate(
    rim: &Rim,
    peer: &Peer,
    head: &request::Parts,
) -> Result<(Caller, Who), Refusal> {
    let unknown = |problem| refuse(rim, peer, head, "unknown", Refusal::unknown(problem));
    let shown = input::bearer(&head.headers).map_err(unknown)?;
    let Some(token) = shown else {
        return match peer {
            Peer::Local { uid, caller: Ok(caller) } => Ok((caller.clone(), Who::Uid(*uid))),
            Peer::Local { uid, caller: Err(problem) } => {
                Err(refuse(rim, peer, head, &uid.to_string(), problem.clone().into()))
            }
            Peer::Remote { .. } => Err(unknown(Problem::field(
                Code::Unauthenticated,
                "Authorization",
                "a token is needed: send `Authorization: Bearer ty_...`; `trainyard token` makes one",
            ))),
        };
    };
    let digest = secret::digest(token);
    let who = Who::token(&digest);
    let info = match secret::is_formed(token) {
        true => rim.desk.whose(digest).await?,
        false => None,
    };
    // The desk gives none that is over; a clock read here costs nothing and makes sure.
    let good = info.filter(|info| info.expires.is_none_or(|end| unix_time() < end));
    let Some(info) = good else {
        let detail = "the token is not known here or has expired: ask an admin for a new one";
        return Err(unknown(Problem::field(Code::Unauthenticated, "Authorization", detail)));
    };
    let uid = rim.users.uid(&info.user).await;
    Ok((Caller { user: info.user, uid, role: info.role }, who))
}

/// Writes a refusal down, unless this peer is refused so often that the record itself would be the harm.
fn refuse(rim: &Rim, peer: &Peer, head: &request::Parts, user: &str, refusal: Refusal) -> Refusal {
    if let Err(wait) = rim.refusals.take(peer.who(), Instant::now()) {
        return Refusal::too_many(wait, "refused requests");
    }
    let action = format!("{} {}", head.method, input::cut(head.uri.path()));
    rim.desk.refused(user.to_owned(), action, peer.label());
    refusal
}

fn limit(buckets: &Buckets, who: Who) -> Result<(), Refusal> {
    buckets.take(who, Instant::now()).map_err(|wait| Refusal::too_many(wait, "requests"))
}

/// No such address, or not with this method.
fn stray(head: &request::Parts) -> Refusal {
    let path = head.uri.path();
    let allowed: Vec<&str> = ROUTES
        .iter()
        .filter(|route| is_at(route.path, path))
        .map(|route| route.verb.name())
        .collect();
    if allowed.is_empty() {
        let detail =
            format!("there is no `{}` here: /openapi.json lists all addresses", input::cut(path));
        return Problem::new(Code::NotFound, detail).into();
    }
    let allowed = allowed.join(", ");
    let detail =
        format!("`{}` is not possible here: expected {allowed}", input::cut(head.method.as_str()));
    Refusal {
        problem: Problem::new(Code::BadInput, detail),
        status: Some(StatusCode::METHOD_NOT_ALLOWED),
        beside: Beside::Allow(allowed),
    }
}

fn is_at(pattern: &str, path: &str) -> bool {
    let (pattern, path) = (pattern.split('/'), path.split('/'));
    pattern.clone().count() == path.clone().count()
        && pattern.zip(path).all(|(one, other)| one.starts_with('{') || one == other)
}

async fn read(
    body: Body,
    headers: &axum::http::HeaderMap,
    limits: &Limits,
) -> Result<Bytes, Refusal> {
    let max = limits.body_bytes_max;
    let too_large = || {
        let detail = format!("the body has more than {max} bytes: send it in parts");
        Refusal::from(Problem::field(Code::TooLarge, "body", detail))
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|told| told.to_str().ok());
    if told.and_then(|told| told.parse::<u64>().ok()).is_some_and(|told| told > max as u64) {
        return Err(too_large());
    }
    match timeout(limits.body_time_max, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "the body ended too early: send as many bytes as the header says";
            Err(Problem::field(Code::BadInput, "body", detail).into())
        }
        Err(_) => {
            let detail = format!("the body took longer than {} s", limits.body_time_max.as_secs());
            let problem = Problem::field(Code::BadInput, "body", detail);
            Err(Refusal { status: Some(StatusCode::REQUEST_TIMEOUT), ..problem.into() })
        }
    }
}
