//! Asks the daemon, and asks again where that can do no harm.

use super::args::ConnectionArgs;
use super::server::{self, Address};
use super::show::clock;
use super::socket::SocketConnector;
use crate::failure::Failure;
use crate::files::read_text;
use crate::output::{note, reason};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use trainyard_api::{API_PREFIX, Code, Problem, STALE_HEADER};
use trainyard_profile::InputError;
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

/// A connection to a daemon.
pub struct Client {
    agent: Agent,
    address: Address,
    base: String,
    token: Option<String>,
    tries: u32,
    /// Whether people read what is asked for: then no text in an answer can do anything to their terminal.
    for_people: bool,
    /// Since when the daemon can write nothing, and which moment it shows.
    stale: Mutex<Option<(f64, f64)>>,
    /// Whether that is said, once.
    tells: bool,
}

/// Whether a request may be made twice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Twice is as good as once: it looks, or it carries a key.
    Always,
    /// Only while it has certainly not arrived.
    Unsent,
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
    /// Finds the daemon; nothing is asked yet.
    pub fn open(connection: &ConnectionArgs) -> Result<Client, Failure> {
        let address = server::find(connection.server.as_deref())?;
        let token = token(connection.token_file.as_deref())?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(format!("trainyard/{}", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(5)))
            .timeout_recv_response(Some(Duration::from_secs(90)))
            .timeout_recv_body(Some(Duration::from_secs(120)));
        if let Some(path) = &connection.ca {
            let roots = RootCerts::new_with_certs(&certificates(path)?);
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
        let for_people = !connection.json;
        let stale = Mutex::default();
        Ok(Client { agent, address, base, token, tries: TRIES, for_people, stale, tells: true })
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

    /// From now on nothing is asked again: whoever calls looks again anyway.
    pub fn asking_once(mut self) -> Client {
        self.tries = 1;
        // Whoever looks again has a place of its own for warnings.
        self.tells = false;
        self
    }

    /// Since when the daemon can write nothing, and which moment it shows, by its last answer.
    pub fn stale(&self) -> Option<(f64, f64)> {
        *self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_stale(&self, answer: &Response<Body>) {
        let told = answer.headers().get(STALE_HEADER).and_then(|told| told.to_str().ok());
        let part = |name: &str| -> Option<f64> {
            let mut parts = told?.split(',');
            parts.find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let now = part("since").zip(part("as-of"));
        let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some((since, as_of)), None, true) = (now, *stale, self.tells) {
            note(&format!(
                "warning: the daemon cannot write its store since {}: nothing new is accepted, and what is shown is as \
                 of {}; `trainyard status` says why",
                clock(since),
                clock(as_of)
            ));
        }
        *stale = now;
    }

    /// Looks something up.
    pub fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, Failure> {
        self.understood(self.bytes(path, query)?)
    }

    /// Looks up what a job wrote, which is passed on as it is.
    pub fn get_raw<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<T, Failure> {
        self.read(&self.bytes(path, query)?)
    }

    /// Looks something up that is no JSON, or is passed on as it is.
    pub fn bytes(&self, path: &str, query: &[(&str, String)]) -> Result<Vec<u8>, Failure> {
        self.ask("GET", &with_query(path, query), &[], Repeat::Always)
    }

    /// Sends something and reads the answer.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
        repeat: Repeat,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body)
            .map_err(|error| Failure::Operation(format!("cannot write the request: {error}")))?;
        self.understood(self.ask(method, path, &body, repeat)?)
    }

    /// Drops something.
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        self.ask("DELETE", path, &[], Repeat::Unsent).map(drop)
    }

    /// Every text in an answer is of some user: what people read has all of it printable from here on.
    fn understood<T: DeserializeOwned>(&self, body: Vec<u8>) -> Result<T, Failure> {
        if !self.for_people || is_printable(&body) {
            return self.read(&body);
        }
        let mut value: Value = self.read(&body)?;
        make_printable(&mut value);
        T::deserialize(value).map_err(|error| self.not_understood(&error))
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(body).map_err(|error| self.not_understood(&error))
    }

    fn not_understood(&self, error: &serde_json::Error) -> Failure {
        let what = format!("the answer of {} is not understood ({error})", self.address);
        Failure::Operation(format!("{what}; is it a daemon of this version?"))
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        repeat: Repeat,
    ) -> Result<Vec<u8>, Failure> {
        let mut last = None;
        for attempt in 0..self.tries {
            if attempt > 0 {
                sleep(pause(attempt));
            }
            let missed = match self.once(method, path, body) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(problem)) => {
                    let busy = problem.code == Code::TooMany
                        || problem.code == Code::Unreachable && repeat == Repeat::Always;
                    last = Some(problem);
                    if busy { continue } else { break }
                }
                Err(missed) => missed,
            };
            let again = missed.unsent || repeat == Repeat::Always;
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
        Err(Failure::problem(last.unwrap_or_else(nothing)))
    }

    fn once(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<Result<Vec<u8>, Problem>, Missed> {
        let url = format!("{}{API_PREFIX}{path}", self.base);
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(&url)
            .header("accept", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let sent = match body {
            [] => request.body(()).map_err(Error::from).and_then(|request| self.agent.run(request)),
            body => request
                .header("content-type", "application/json")
                .body(body)
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

/// The token from the file or `TRAINYARD_TOKEN`; never from the command line, which others can read.
fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (source, text) = match file {
        Some(path) => {
            let open =
                std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o077 != 0);
            if open {
                let name = path.display();
                eprintln!(
                    "warning: {name}: others can read this token; `chmod 600 {name}` closes it"
                );
            }
            (path.display().to_string(), read_text(path)?)
        }
        None => match std::env::var("TRAINYARD_TOKEN") {
            Ok(text) if !text.is_empty() => ("TRAINYARD_TOKEN".to_owned(), text),
            _ => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || token.len() > 4096 || !token.bytes().all(|byte| byte.is_ascii_graphic())
    {
        // The token itself is not shown.
        let fault =
            InputError::wrong(0, "token", "its text", "one word, as `token create` shows it");
        return Err(Failure::input(source, fault));
    }
    Ok(Some(token.to_owned()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, Failure> {
    let text = read_text(path)?;
    let bad = || {
        let fault = InputError::wrong(0, "", "its text", "certificates as PEM");
        Failure::input(path.display(), fault)
    };
    let mut found = Vec::new();
    for item in parse_pem(text.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| bad())? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(bad()) } else { Ok(found) }
}

fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let pairs: Vec<String> =
        query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// A text as a part of an address.
pub fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let parts = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    parts.collect()
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
