//! Bytes to typed requests; a fault names its field.

use super::reply::Refusal;
use axum::http::{HeaderMap, Request, StatusCode, header};
use serde::de::DeserializeOwned;
use trainyard_api::endpoint::{Kind, Param};
use trainyard_api::{Code, Problem};

/// The most bytes of a client's own key.
pub const KEY_BYTES_MAX: usize = 256;

/// A body of JSON.
pub fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // The path to a fault costs time to keep, so it is looked for only when there is a fault.
    serde_json::from_slice(body).map_err(|_| {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let fault = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(error) => (error.path().to_string(), error.inner().to_string()),
            Ok(_) => (String::new(), "something follows the JSON value".to_owned()),
        };
        located("body", fault)
    })
}

/// The part of an address behind `?`.
pub fn query<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(reader)
        .map_err(|error| located("query", (error.path().to_string(), error.inner().to_string())))
}

/// Every name behind `?` is one the route knows, and each comes once.
pub fn check_query(text: &str, known: &[Param], bytes_max: usize) -> Result<(), Problem> {
    if text.len() > bytes_max {
        let detail = format!("the query has {} bytes, and {bytes_max} are allowed", text.len());
        return Err(Problem::field(Code::BadInput, "query", detail));
    }
    let mut seen = 0_u64;
    for (name, _) in form_urlencoded::parse(text.as_bytes()) {
        let Some(index) = known.iter().position(|param| param.name == name) else {
            return Err(unknown_param(&name, known));
        };
        if seen & 1 << index != 0 {
            let detail = format!("`{name}` is given twice: give it once");
            return Err(Problem::field(Code::BadInput, &name, detail));
        }
        seen |= 1 << index;
    }
    Ok(())
}

/// The line and the headers of a request are not larger than allowed. The buffer that they are read with is no limit: it
/// grows in steps, and takes what comes with the last one.
pub fn check_head<B>(request: &Request<B>, bytes_max: usize) -> Result<(), Refusal> {
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let line = request.uri().to_string().len() + request.method().as_str().len();
    let bytes = line + " HTTP/1.1\r\n".len() + headers.sum::<usize>();
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("line and headers have {bytes} bytes, and {bytes_max} are allowed");
    let problem = Problem::field(Code::TooLarge, "headers", detail);
    let status = Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    Err(Refusal { status, ..problem.into() })
}

/// A body is read as JSON if it says so, or says nothing.
pub fn check_content_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(told) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = told.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    let is_json = kind == "application/json"
        || kind.strip_prefix("application/").is_some_and(|name| name.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let detail = format!("`Content-Type` is `{}`: expected application/json", cut(&kind));
    let problem = Problem::field(Code::BadInput, "Content-Type", detail);
    Err(Refusal { status: Some(StatusCode::UNSUPPORTED_MEDIA_TYPE), ..problem.into() })
}

/// The key under which a client may send the same submission again.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().ok().map(str::trim).filter(|text| !text.is_empty());
    match text {
        Some(text) if text.len() <= KEY_BYTES_MAX => Ok(Some(text.to_owned())),
        _ => {
            let detail = format!("expected 1 to {KEY_BYTES_MAX} visible ASCII characters");
            Err(Problem::field(Code::BadInput, "Idempotency-Key", detail))
        }
    }
}

/// Whether the client accepts an answer that is compressed.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let told = headers.get(header::ACCEPT_ENCODING).and_then(|told| told.to_str().ok());
    let mut codings = told.unwrap_or_default().split(',').map(|coding| coding.split(';'));
    codings.any(|mut coding| {
        let name = coding.next().unwrap_or_default().trim();
        let refused = coding.any(|weight| weight.trim().trim_start_matches("q=") == "0");
        name.eq_ignore_ascii_case("gzip") && !refused
    })
}

/// Whether a client asks for metrics as OpenMetrics; one that does not may know only what came before it.
pub fn takes_open_metrics(headers: &HeaderMap) -> bool {
    let told = headers.get_all(header::ACCEPT).iter().filter_map(|told| told.to_str().ok());
    told.flat_map(|told| told.split(',')).any(|kind| {
        kind.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case("application/openmetrics-text")
    })
}

/// The token of a request: nothing if there is no such header, an error if it has another form.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(Problem::field(
            Code::Unauthenticated,
            "Authorization",
            "expected `Bearer` and a token that begins with `ty_`",
        )),
    }
}

/// The number of something in an address.
pub fn number(what: &str, part: &str) -> Result<u32, Problem> {
    part.parse().map_err(|_| {
        let detail = format!("`{}` is no {what}: expected a whole number", cut(part));
        Problem::field(Code::BadInput, "id", detail)
    })
}

/// A text cut to what a message can hold.
pub fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

fn unknown_param(name: &str, known: &[Param]) -> Problem {
    let names: Vec<&str> = known.iter().map(|param| param.name.as_str()).collect();
    let expected = match names.is_empty() {
        true => "this address takes none".to_owned(),
        false => format!("expected one of {}", names.join(", ")),
    };
    let detail = format!("there is no parameter `{}`: {expected}", cut(name));
    Problem::field(Code::BadInput, &cut(name), detail)
}

fn located(whole: &str, (path, message): (String, String)) -> Problem {
    // A path that is not known ends in a question mark.
    let path = cut(path.trim_end_matches('?').trim_end_matches('.'));
    let field = if path.is_empty() { whole.to_owned() } else { path };
    let detail = format!("`{field}`: {}", message.chars().take(500).collect::<String>());
    Problem::field(Code::BadInput, &field, detail)
}

/// What is said of a value of that kind in the document of the API.
pub fn kind_schema(kind: Kind) -> serde_json::Value {
    match kind {
        Kind::Text => serde_json::json!({ "type": "string" }),
        Kind::Count => serde_json::json!({ "type": "integer", "minimum": 0 }),
        Kind::Whole => serde_json::json!({ "type": "integer" }),
        Kind::Number => serde_json::json!({ "type": "number" }),
        Kind::Flag => serde_json::json!({ "type": "boolean" }),
    }
}
