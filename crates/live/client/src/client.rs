//! Asks the daemon, and asks again where that can do no harm.

use crate::address::Address;
use crate::socket::SocketConnector;
use serde_json::Value;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use trainyard_api::ask::Request;
use trainyard_api::{Code, Problem, STALE_HEADER};
use trainyard_diagnostic::reason;
use trainyard_types::{is_unprintable, printable};
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::{Agent, Body, Error, Timeout};

/// A larger answer is not read.
const ANSWER_MAX: u64 = 1 << 30;

/// How often a request is made before the daemon counts as gone.
const TRIES: u32 = 4;

/// The same while a job is followed: about a minute, in which a daemon starts again.
const TRIES_FOLLOWING: u32 = 33;

/// How a daemon is reached.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where it is.
    pub address: Address,
    /// The token that is shown to it; on a Unix socket the kernel names the user.
    pub token: Option<String>,
    /// Certificates to trust, as PEM, instead of the public ones.
    pub roots: Option<String>,
    /// Whether people read what is asked for: then no text in an answer can do anything to their terminal.
    pub for_people: bool,
    /// Told once when the daemon begins to show old things because it cannot write.
    pub warn: fn(Stale),
}

/// A daemon that can write nothing.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Stale {
    /// Since when, in seconds of Unix time.
    pub since: f64,
    /// The moment that is shown, in seconds of Unix time.
    pub as_of: f64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The daemon refused, or cannot be reached.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// It said something that cannot be read.
    #[error("{0}")]
    NotUnderstood(String),
}

/// No certificates in a text that should hold some.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected certificates as PEM")]
pub struct NoCertificates;

/// A connection to a daemon.
pub struct Client {
    agent: Agent,
    address: Address,
    base: String,
    token: Option<String>,
    tries: u32,
    /// Whether people read what is asked for: then no text in an answer can do anything to their terminal.
    for_people: bool,
    stale: Mutex<Option<Stale>>,
    warn: fn(Stale),
}

/// Why a request was not answered.
struct Missed {
    what: String,
    /// Whether it has certainly not arrived.
    unsent: bool,
    /// Whether another try is of no use, and what to do instead.
    hopeless: Option<&'static str>,
}

impl Client {
    /// Nothing is asked yet.
    pub fn new(connection: Connection) -> Result<Client, NoCertificates> {
        let Connection { address, token, roots, for_people, warn } = connection;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(format!("trainyard/{}", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_recv_response(Some(Duration::from_secs(90)))
            .timeout_recv_body(Some(Duration::from_secs(120)));
        if let Some(text) = &roots {
            let roots = RootCerts::new_with_certs(&certificates(text)?);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let config = config.build();
        let (agent, base) = match &address {
            Address::Web(base) => (config.new_agent(), base.clone()),
            // The host is never looked up; it only stands in the header.
            Address::Socket(path) => {
                let connector = SocketConnector(path.clone());
                let agent = Agent::with_parts(config, connector, DefaultResolver::default());
                (agent, "http://127.0.0.1".to_owned())
            }
        };
        Ok(Client {
            agent,
            address,
            base,
            token,
            tries: TRIES,
            for_people,
            stale: Mutex::default(),
            warn,
        })
    }

    /// Where the daemon is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// From now on a daemon that starts again is waited for.
    pub fn following(mut self) -> Client {
        self.tries = TRIES_FOLLOWING;
        self
    }

    /// From now on nothing is asked again: the caller looks again anyway.
    pub fn asking_once(mut self) -> Client {
        self.tries = 1;
        // A caller that looks again has a place of its own for warnings.
        self.warn = |_| ();
        self
    }

    /// Whether the daemon shows old things, by its last answer.
    pub fn stale(&self) -> Option<Stale> {
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_stale(&self, answer: &Response<Body>) {
        let told = answer.headers().get(STALE_HEADER).and_then(|told| told.to_str().ok());
        let part = |name: &str| -> Option<f64> {
            let mut parts = told?.split(',');
            parts.find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let now = part("since").zip(part("as-of")).map(|(since, as_of)| Stale { since, as_of });
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(now), None) = (now, *stale) {
            (self.warn)(now);
        }
        *stale = now;
    }

    /// What the daemon answers.
    pub fn send<A>(&self, request: &Request<A>) -> Result<A, ClientError> {
        let body = self.ask(request)?;
        let body = if self.for_people { self.made_printable(body)? } else { body };
        request.read(&body).map_err(|error| self.not_understood(&error))
    }

    /// What the daemon answers, as it is: what a job wrote, or what is no JSON.
    pub fn send_raw<A>(&self, request: &Request<A>) -> Result<A, ClientError> {
        request.read(&self.ask(request)?).map_err(|error| self.not_understood(&error))
    }

    /// What the daemon answers, with fields that this program does not know.
    pub fn value<A>(&self, request: &Request<A>) -> Result<Value, ClientError> {
        self.read(&self.ask(request)?)
    }

    /// Every text in an answer is of some user: what people read has all of it printable from here on.
    fn made_printable(&self, body: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        if is_printable(&body) {
            return Ok(body);
        }
        let mut value: Value = self.read(&body)?;
        make_printable(&mut value);
        Ok(value.to_string().into_bytes())
    }

    fn read(&self, body: &[u8]) -> Result<Value, ClientError> {
        serde_json::from_slice(body).map_err(|error| self.not_understood(&error))
    }

    fn not_understood(&self, error: &serde_json::Error) -> ClientError {
        let what = format!("the answer of {} is not understood ({error})", self.address);
        ClientError::NotUnderstood(format!("{what}; is it a daemon of this version?"))
    }

    fn ask<A>(&self, request: &Request<A>) -> Result<Vec<u8>, ClientError> {
        let mut last = None;
        for attempt in 0..self.tries {
            if attempt > 0 {
                sleep(pause(attempt));
            }
            let missed = match self.once(request) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(problem)) => {
                    let busy = problem.code == Code::TooMany
                        || problem.code == Code::Unreachable && request.again;
                    last = Some(problem);
                    if busy { continue } else { break }
                }
                Err(missed) => missed,
            };
            let again = missed.unsent || request.again;
            let hint = match missed.hopeless {
                Some(hint) => hint,
                None if missed.unsent => "is it running? `trainyard serve` starts one",
                None if again => "it did not answer",
                None => "whether it was done is not known; look before you repeat it",
            };
            let detail = format!("{}: {}; {hint}", self.address, missed.what);
            last = Some(Problem::new(Code::Unreachable, detail));
            if missed.hopeless.is_some() || !again {
                break;
            }
        }
        let nothing = || Problem::new(Code::Unreachable, format!("{} was not asked", self.address));
        Err(ClientError::Problem(Box::new(last.unwrap_or_else(nothing))))
    }

    fn once<A>(&self, asked: &Request<A>) -> Result<Result<Vec<u8>, Problem>, Missed> {
        let url = format!("{}{}", self.base, asked.path);
        let mut request = ureq::http::Request::builder()
            .method(asked.verb.name())
            .uri(&url)
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let sent = match &asked.body {
            None => {
                request.body(()).map_err(Error::from).and_then(|request| self.agent.run(request))
            }
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.as_str())
                .map_err(Error::from)
                .and_then(|request| self.agent.run(request)),
        };
        let mut answer = sent.map_err(missed)?;
        self.note_stale(&answer);
        let body =
            answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().map_err(|error| {
                // It arrived, for it was answered.
                Missed { unsent: false, ..missed(error) }
            })?;
        Ok(if answer.status().is_success() { Ok(body) } else { Err(problem(&answer, &body)) })
    }
}

/// Whether no text of an answer needs a change: nothing in it is written as an escape, except quotes and slashes.
fn is_printable(body: &[u8]) -> bool {
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'\\' && !matches!(bytes.next(), Some(b'"' | b'\\' | b'/')) {
            return false;
        }
    }
    std::str::from_utf8(body).is_ok_and(|text| !text.contains(is_unprintable))
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(safe) = printable(text) {
                *text = safe;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            let safe = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                make_printable(&mut value);
                (printable(&name).into_owned(), value)
            });
            *fields = safe.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What the daemon said; what is not its own form comes from something else in between.
fn problem(answer: &Response<Body>, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let status = answer.status();
        let code =
            trainyard_api::problem::CODES.iter().find(|(_, number, _)| *number == status.as_u16());
        let code = code.map_or(Code::Internal, |(code, _, _)| *code);
        Problem::new(code, format!("the answer was HTTP status {status}, without a reason"))
    })
}

fn missed(error: Error) -> Missed {
    let what = match &error {
        Error::Io(error) => reason(error),
        error => error.to_string(),
    };
    let (unsent, hopeless) = match &error {
        Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => (true, None),
            ErrorKind::PermissionDenied => (true, Some("your user may not use this socket")),
            // What is wrong with a certificate comes as such.
            ErrorKind::InvalidData => (false, Some("--ca names certificates to trust")),
            _ => (false, None),
        },
        Error::Timeout(Timeout::Connect | Timeout::Resolve) => (true, None),
        Error::HostNotFound | Error::ConnectionFailed => (true, None),
        Error::Tls(_) | Error::Rustls(_) => (true, Some("--ca names certificates to trust")),
        Error::BadUri(_) | Error::Http(_) => (true, Some("check the address")),
        _ => (false, None),
    };
    Missed { what, unsent, hopeless }
}

/// 100 ms, 300 ms, 900 ms, then every two seconds.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(100 * 3u64.pow(attempt.min(4) - 1)).min(Duration::from_secs(2))
}

fn certificates(text: &str) -> Result<Vec<Certificate<'static>>, NoCertificates> {
    let mut found = Vec::new();
    for item in parse_pem(text.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| NoCertificates)? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(NoCertificates) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_names_of_fields_in_an_answer_become_printable() {
        assert!(is_printable(br#"{"name":"a \"quoted\" \\ name"}"#));
        for body in ["{\"a\":\"\\u001b[2J\"}", "{\"a\":\"\\n\"}", "{\"a\":\"\u{9b}\"}"] {
            assert!(!is_printable(body.as_bytes()), "{body}");
        }
        let mut value = serde_json::json!({ "a\u{7}": ["\u{1b}c", { "b": "\n" }], "n": 1 });
        make_printable(&mut value);
        assert_eq!(value, serde_json::json!({ "a\\x07": ["\\x1bc", { "b": "\\n" }], "n": 1 }));
    }
}
