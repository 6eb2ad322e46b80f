//! What is sent back: an answer, or a refusal that is always a [`Problem`].

use super::options::Limits;
use super::parts::Parts;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::ser::SerializeMap;
use std::io::{self, Write};
use std::time::Duration;
use trainyard_api::{Code, Problem, SCHEMA_VERSION};

/// Smaller answers are not worth packing.
pub const PACKED_FROM: usize = 16 << 10;
const JSON: &str = "application/json";

/// What the service said, as bytes.
#[derive(Debug)]
pub struct HttpAnswer {
    bytes: Vec<u8>,
    kind: &'static str,
    packed: bool,
    /// What is sent instead of bytes of its own, and how long that may take.
    shared: Option<(Vec<Bytes>, Duration)>,
}

impl HttpAnswer {
    /// JSON of one value, unless it is larger than allowed.
    pub fn json<T: Serialize + ?Sized>(value: &T, limits: &Limits) -> Result<HttpAnswer, Problem> {
        let mut room = Room { bytes: Vec::with_capacity(256), max: limits.reply_bytes_max };
        match serde_json::to_writer(&mut room, value) {
            Ok(()) => Ok(HttpAnswer { bytes: room.bytes, kind: JSON, packed: false, shared: None }),
            Err(error) if error.is_io() => Err(too_large(limits.reply_bytes_max)),
            Err(error) => {
                Err(Problem::new(Code::Internal, format!("the answer cannot be written: {error}")))
            }
        }
    }

    /// JSON of a list under its name, with the version of its rows.
    pub fn list<T: Serialize>(
        name: &'static str,
        rows: &[T],
        limits: &Limits,
    ) -> Result<HttpAnswer, Problem> {
        HttpAnswer::json(&List { name, rows }, limits)
    }

    /// Bytes of another type, unless there are more than allowed.
    pub fn bytes(bytes: Vec<u8>, kind: &'static str, max: usize) -> Result<HttpAnswer, Problem> {
        match bytes.len() <= max {
            true => Ok(HttpAnswer { bytes, kind, packed: false, shared: None }),
            false => Err(too_large(max)),
        }
    }

    /// JSON in parts that others may share, packed or not, unless there are more bytes than allowed.
    pub fn parts(parts: Vec<Bytes>, packed: bool, limits: &Limits) -> Result<HttpAnswer, Problem> {
        if parts.iter().map(Bytes::len).sum::<usize>() > limits.reply_bytes_max {
            return Err(too_large(limits.reply_bytes_max));
        }
        let shared = Some((parts, limits.shared_time_max));
        Ok(HttpAnswer { bytes: Vec::new(), kind: JSON, packed, shared })
    }

    /// Nothing to say.
    pub fn nothing() -> HttpAnswer {
        HttpAnswer { bytes: Vec::new(), kind: "", packed: false, shared: None }
    }

    /// The same with fewer bytes, where that is worth the work.
    pub fn packed(self) -> HttpAnswer {
        if self.bytes.len() < PACKED_FROM {
            return self;
        }
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        match packer.write_all(&self.bytes).and_then(|()| packer.finish()) {
            Ok(bytes) => HttpAnswer { bytes, packed: true, ..self },
            Err(_) => self,
        }
    }

    /// As it is sent.
    pub fn into_response(self) -> Response<Body> {
        let status = if self.kind.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
        let mut response = response(status, self.kind, self.bytes);
        if let Some((parts, within)) = self.shared {
            *response.body_mut() = Body::new(Parts::new(parts, within));
        }
        if self.packed {
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        }
        response
    }
}

/// A problem with what HTTP wants beside it.
#[derive(Debug)]
pub struct Refusal {
    /// What went wrong.
    pub problem: Problem,
    /// A status that says more than the code's own.
    pub status: Option<StatusCode>,
    /// What else the client is told.
    pub beside: Beside,
}

/// What a client is told in a header of its own.
#[derive(Debug)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// When to come back, in seconds.
    RetryAfter(u64),
    /// That a token would help.
    Challenge,
    /// The methods that are possible.
    Allow(String),
}

impl Refusal {
    /// Too many requests: when to come back.
    pub fn too_many(wait: Duration, what: &str) -> Refusal {
        let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
        let detail = format!("more {what} than allowed: try again in {seconds} s");
        Refusal {
            problem: Problem::new(Code::TooMany, detail),
            status: None,
            beside: Beside::RetryAfter(seconds),
        }
    }

    /// The caller is not known.
    pub fn unknown(problem: Problem) -> Refusal {
        Refusal { problem, status: None, beside: Beside::Challenge }
    }

    /// As it is sent.
    pub fn into_response(self) -> Response<Body> {
        let own = StatusCode::from_u16(self.problem.code.status());
        let status = self.status.unwrap_or(own.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
        let bytes = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = response(status, JSON, bytes);
        let (name, value) = match self.beside {
            Beside::Nothing => return response,
            Beside::RetryAfter(seconds) => (header::RETRY_AFTER, seconds.into()),
            Beside::Challenge => {
                (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"trainyard\""))
            }
            Beside::Allow(verbs) => {
                let verbs = HeaderValue::from_str(&verbs);
                (header::ALLOW, verbs.expect("methods are plain ASCII"))
            }
        };
        response.headers_mut().insert(name, value);
        response
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal { problem, status: None, beside: Beside::Nothing }
    }
}

fn response(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(4);
    if !kind.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    headers.insert("trainyard-schema-version", HeaderValue::from(SCHEMA_VERSION));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn too_large(max: usize) -> Problem {
    let detail =
        format!("the answer has more than {max} bytes: ask for fewer rows, by `limit` or a filter");
    Problem::new(Code::TooLarge, detail)
}

/// Bytes up to a limit, so that a huge answer is given up early.
struct Room {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Room {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct List<'a, T> {
    name: &'static str,
    rows: &'a [T],
}

impl<T: Serialize> Serialize for List<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("schema_version", &SCHEMA_VERSION)?;
        map.serialize_entry(self.name, self.rows)?;
        map.end()
    }
}
