//! The way of every request: screened, known, counted, read, answered, logged.

use super::options::{HttpOptions, Limits, ServeError};
use super::own::unix_time;
use super::peer::{Peer, Users};
use super::rate::{Buckets, Who};
use super::reply::{Beside, HttpAnswer, Refusal};
use super::route::{Asked, Call, Route, routes};
use super::{input, origin, page, secret};
use crate::access::Caller;
use crate::metrics::Metrics;
use crate::service::Service;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header, request};
use axum::routing::{MethodFilter, on};
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;
use trainyard_api::endpoint::Verb;
use trainyard_api::{Code, Problem};

/// Bodies up to this size need no room of their own: as many as there are connections fit in any case.
const SMALL_BODY_BYTES: usize = 64 << 10;
const DRAIN_BYTES_MAX: u64 = 32 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
const ROOM_UNIT: usize = 1 << 10;

/// Everything the rim has.
pub struct Rim {
    /// The service that answers.
    pub service: Arc<dyn Service>,
    /// How much is taken.
    pub limits: Limits,
    /// The Unix users of this machine.
    pub users: Arc<Users>,
    /// Where a browser finds the page, if it does.
    pub page: Option<String>,
    names: Vec<String>,
    metrics: Arc<Metrics>,
    requests: Buckets,
    refusals: Buckets,
    /// Room for large bodies, in units of [`ROOM_UNIT`].
    room: Semaphore,
    stopping: watch::Receiver<bool>,
}

impl Rim {
    /// By the options.
    pub fn new(
        service: Arc<dyn Service>,
        options: &HttpOptions,
        page: Option<String>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Rim, ServeError> {
        let limits = options.limits.clone();
        Ok(Rim {
            service,
            users: Arc::new(Users::new(options)?),
            page,
            stopping,
            names: options.names.clone(),
            metrics: Arc::clone(&options.metrics),
            requests: Buckets::new(limits.requests_per_second, limits.requests_burst),
            refusals: Buckets::new(limits.refusals_per_second, 4.0 * limits.refusals_per_second),
            room: Semaphore::new(limits.bodies_bytes_max.div_ceil(ROOM_UNIT)),
            limits,
        })
    }

    /// Ready when the end is asked for.
    pub async fn stopped(&self) {
        // A sender that is gone means the end, too.
        let _ = self.stopping.clone().wait_for(|stopping| *stopping).await;
    }
}

type Parts = Result<RawPathParams, RawPathParamsRejection>;

/// The router, made from the table of routes.
pub fn router(rim: &Arc<Rim>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let rim = Arc::clone(rim);
        let filter = match route.endpoint.verb {
            Verb::GET => MethodFilter::GET,
            Verb::POST => MethodFilter::POST,
            Verb::PUT => MethodFilter::PUT,
            Verb::DELETE => MethodFilter::DELETE,
        };
        let answer = move |parts: Parts, request: Request| {
            // A part that is no text has no meaning on any route, so it is as lost as an unknown address.
            let route = parts.is_ok().then_some(route);
            let first = parts.ok().and_then(|parts| Some(parts.iter().next()?.1.to_owned()));
            answer(Arc::clone(&rim), route, first.unwrap_or_default(), request)
        };
        router = router.route(route.endpoint.path, on(filter, answer));
    }
    for path in ["/", "/assets/{file}"] {
        let rim = Arc::clone(rim);
        let show = move |request: Request| std::future::ready(show_page(&rim, &request));
        router = router.route(path, on(MethodFilter::GET, show));
    }
    let (lost, wrong) = (Arc::clone(rim), Arc::clone(rim));
    router
        .fallback(move |request: Request| answer(Arc::clone(&lost), None, String::new(), request))
        .method_not_allowed_fallback(move |request: Request| {
            answer(Arc::clone(&wrong), None, String::new(), request)
        })
}

/// The files of the page hold no data, so clients without a token get them; a page of another site may link to them.
fn show_page(rim: &Rim, request: &Request) -> Response<Body> {
    let Some(peer) = request.extensions().get::<Arc<Peer>>() else {
        return Refusal::from(Problem::new(Code::Internal, "no peer is known")).into_response();
    };
    let allowed = origin::check_host(peer, request.headers(), &rim.names).map_err(Refusal::from);
    let shown = match allowed.and_then(|()| limit(&rim.requests, peer.who())) {
        Ok(()) => page::answer(request.uri().path(), request.headers()),
        Err(refusal) => Some(refusal.into_response()),
    };
    let response = shown.unwrap_or_else(|| stray_at(request.uri().path(), "GET").into_response());
    rim.metrics.http("GET", "/assets", response.status().as_u16(), 0.0);
    response
}

async fn answer(
    rim: Arc<Rim>,
    route: Option<&'static Route>,
    part: String,
    request: Request,
) -> Response<Body> {
    let began = Instant::now();
    let (head, mut body) = request.into_parts();
    let mut response = match screen_and_ask(&rim, route, part, &head, &mut body).await {
        Ok(answer) => answer.into_response(),
        Err(refusal) => {
            drain(&head, &mut body).await;
            refusal.into_response()
        }
    };
    if let Some(stale) = rim.service.stale() {
        // A client that reads only lists must know that they are old.
        let told = format!("since={:.3}, as-of={:.3}", stale.since, stale.as_of);
        if let Ok(told) = HeaderValue::from_str(&told) {
            response.headers_mut().insert(trainyard_api::STALE_HEADER, told);
        }
    }
    let status = response.status().as_u16();
    let (verb, path) =
        route.map_or(("OTHER", "other"), |route| (route.endpoint.verb.name(), route.endpoint.path));
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
    body: &mut Body,
) -> Result<HttpAnswer, Refusal> {
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
            return Ok(call(rim)?);
        }
        Call::Known(known) => known,
    };
    let (caller, who) = authenticate(rim, peer, head).await?;
    limit(&rim.requests, who)?;
    let query = head.uri.query().unwrap_or_default();
    input::check_query(query, &route.params, rim.limits.query_bytes_max)?;
    let key = input::idempotency_key(&head.headers)?;
    let (body, _room) = match route.endpoint.body {
        None => (Bytes::new(), None),
        Some(_) => {
            input::check_content_type(&head.headers)?;
            read(body, &head.headers, rim).await?
        }
    };
    // A wait that was asked for is bounded by its own limit and comes on top.
    let waits = route.params.iter().any(|param| param.name == "wait");
    let wait = if waits { rim.limits.wait_time_max } else { Duration::ZERO };
    let longest = rim.limits.answer_time_max + wait;
    let takes_gzip = input::takes_gzip(&head.headers);
    let takes_open_metrics = input::takes_open_metrics(&head.headers);
    let query = query.to_owned();
    let rim = Arc::clone(rim);
    let asked = Asked { rim, caller, part, query, body, key, takes_gzip, takes_open_metrics };
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

/// The caller: by token where one is shown, else as the kernel tells.
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
        true => rim.service.whose(digest).await?,
        false => None,
    };
    // The service gives none that is over; a clock read here costs nothing and makes sure.
    let good = info.filter(|info| info.expires.is_none_or(|end| unix_time() < end));
    let Some(info) = good else {
        let detail = "the token is not known here or has expired: ask an admin for a new one";
        return Err(unknown(Problem::field(Code::Unauthenticated, "Authorization", detail)));
    };
    Ok((rim.users.behind_token(&info).await, who))
}

/// Writes a refusal down, unless this peer is refused so often that the record itself would be the harm.
fn refuse(rim: &Rim, peer: &Peer, head: &request::Parts, user: &str, refusal: Refusal) -> Refusal {
    if let Err(wait) = rim.refusals.take(peer.who(), Instant::now()) {
        return Refusal::too_many(wait, "refused requests");
    }
    let action = format!("{} {}", head.method, input::cut(head.uri.path()));
    rim.service.refused(user.to_owned(), action, peer.label());
    refusal
}

fn limit(buckets: &Buckets, who: Who) -> Result<(), Refusal> {
    buckets.take(who, Instant::now()).map_err(|wait| Refusal::too_many(wait, "requests"))
}

/// No such address, or not with this method.
fn stray(head: &request::Parts) -> Refusal {
    stray_at(head.uri.path(), head.method.as_str())
}

fn stray_at(path: &str, method: &str) -> Refusal {
    let allowed: Vec<&str> = routes()
        .iter()
        .filter(|route| is_at(route.endpoint.path, path))
        .map(|route| route.endpoint.verb.name())
        .collect();
    if allowed.is_empty() || allowed.contains(&method) {
        let detail =
            format!("there is no `{}` here: /openapi.json lists all addresses", input::cut(path));
        return Problem::new(Code::NotFound, detail).into();
    }
    let allowed = allowed.join(", ");
    let detail = format!("`{}` is not possible here: expected {allowed}", input::cut(method));
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

/// The body, with the room it takes until the request is answered.
async fn read<'a>(
    body: &mut Body,
    headers: &HeaderMap,
    rim: &'a Rim,
) -> Result<(Bytes, Option<SemaphorePermit<'a>>), Refusal> {
    let (max, longest) = (rim.limits.body_bytes_max, rim.limits.body_time_max);
    let too_large = || {
        let detail = format!("the body has more than {max} bytes: send it in parts");
        Refusal::from(Problem::field(Code::TooLarge, "body", detail))
    };
    let told = headers.get(header::CONTENT_LENGTH).and_then(|told| told.to_str().ok());
    let bytes = told.map_or(Some(max), |told| told.parse().ok()).filter(|bytes| *bytes <= max);
    let bytes = bytes.ok_or_else(too_large)?;
    let room = match bytes <= SMALL_BODY_BYTES {
        true => None,
        false => Some(take_room(rim, bytes).await?),
    };
    match timeout(longest, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok((body.to_bytes(), room)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "the body ended too early: send as many bytes as the header says";
            Err(Problem::field(Code::BadInput, "body", detail).into())
        }
        Err(_) => {
            let detail = format!("the body took longer than {} s", longest.as_secs());
            let problem = Problem::field(Code::BadInput, "body", detail);
            Err(Refusal { status: Some(StatusCode::REQUEST_TIMEOUT), ..problem.into() })
        }
    }
}

/// Reads on for a while what is refused: a client that is cut off while it sends never sees why.
async fn drain(head: &request::Parts, body: &mut Body) {
    let waits_for_word = head.headers.contains_key(header::EXPECT);
    let told = hyper::body::Body::size_hint(body).lower();
    if hyper::body::Body::is_end_stream(body) || waits_for_word || told > DRAIN_BYTES_MAX {
        return;
    }
    let read_on = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    // A client that is slower than that is cut off after all.
    let _ = timeout(DRAIN_TIME_MAX, read_on).await;
}

/// Waits until large bodies under way leave room for one more.
async fn take_room(rim: &Rim, bytes: usize) -> Result<SemaphorePermit<'_>, Refusal> {
    let whole = rim.limits.bodies_bytes_max.div_ceil(ROOM_UNIT);
    let units = u32::try_from(bytes.div_ceil(ROOM_UNIT).min(whole)).unwrap_or(u32::MAX);
    let room = timeout(rim.limits.answer_time_max, rim.room.acquire_many(units)).await;
    let full = || Refusal::too_many(rim.limits.answer_time_max, "large bodies at once");
    room.map_err(|_| full())?.map_err(|_| full())
}
