//! A request to each endpoint, ready to be sent.
//!
//! ```
//! use trainyard_api::ask;
//! let request = ask::why(7);
//! assert_eq!((request.verb.name(), request.path.as_str()), ("GET", "/v1/jobs/7/why"));
//! ```

use crate::endpoint::Verb;
#[allow(clippy::wildcard_imports, reason = "the rows of the table name all of them")]
use crate::endpoint::types::*;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// A request that is answered with `A`.
#[derive(Clone, Debug)]
pub struct Request<A> {
    /// The method.
    pub verb: Verb,
    /// The address, with what follows `?`.
    pub path: String,
    /// The body as JSON, where there is one.
    pub body: Option<String>,
    /// Whether it may be made twice without harm.
    pub again: bool,
    read: fn(&[u8]) -> Result<A, serde_json::Error>,
}

impl<A> Request<A> {
    fn new(
        verb: Verb,
        path: &str,
        again: bool,
        read: fn(&[u8]) -> Result<A, serde_json::Error>,
    ) -> Request<A> {
        let again = again || matches!(verb, Verb::GET | Verb::PUT);
        Request { verb, path: path.to_owned(), body: None, again, read }
    }

    /// What the answer says.
    pub fn read(&self, answer: &[u8]) -> Result<A, serde_json::Error> {
        (self.read)(answer)
    }

    fn part(mut self, part: &str) -> Request<A> {
        let varies = self.path.find('{').zip(self.path.find('}'));
        let (from, until) = varies.expect("a row with such a part has braces in its address");
        self.path.replace_range(from..=until, &encoded(part));
        self
    }

    fn job(self, job: u32) -> Request<A> {
        self.part(&job.to_string())
    }

    fn window(self, window: u32) -> Request<A> {
        self.part(&window.to_string())
    }

    fn name(self, name: String) -> Request<A> {
        self.part(&name)
    }

    fn query(mut self, query: impl Serialize) -> Request<A> {
        let text = serde_urlencoded::to_string(query).expect("a query is flat");
        if !text.is_empty() {
            self.path = format!("{}?{text}", self.path);
        }
        self
    }

    fn body(mut self, body: impl Serialize) -> Request<A> {
        self.body = Some(serde_json::to_string(&body).expect("names of fields are text"));
        self
    }
}

/// A text as a part of an address.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let parts = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    parts.collect()
}

/// The rows under a name; other fields are for others.
fn rows<T: DeserializeOwned>(
    name: &'static str,
    answer: &[u8],
) -> Result<Vec<T>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(answer);
    let rows = reader.deserialize_map(Rows { name, row: PhantomData })?;
    reader.end()?;
    Ok(rows)
}

struct Rows<T> {
    name: &'static str,
    row: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Rows<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows under `{}`", self.name)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Vec<T>, M::Error> {
        let mut rows = None;
        while let Some(field) = fields.next_key::<String>()? {
            if field == self.name {
                rows = Some(fields.next_value()?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        rows.ok_or_else(|| serde::de::Error::missing_field(self.name))
    }
}

macro_rules! answer {
    (one($type:ty)) => { $type };
    (list($name:literal, $type:ty)) => { Vec<$type> };
    (text($kind:ident)) => { Vec<u8> };
    (nothing()) => { () };
}

macro_rules! read {
    (one($type:ty)) => {
        |answer| serde_json::from_slice(answer)
    };
    (list($name:literal, $type:ty)) => {
        |answer| rows($name, answer)
    };
    (text($kind:ident)) => {
        |answer| Ok(answer.to_vec())
    };
    (nothing()) => {
        |_| Ok(())
    };
}

macro_rules! requests {
    (service { $($service:tt)* } rim { $($rim:tt)* }) => { requests! { $($service)* $($rim)* } };
    ($(
        $(#[doc = $about:literal])+
        $verb:ident $path:literal $name:ident($($arg:ident: $type:ty),*) -> $gives:ident($($what:tt)*),
            $least:ident $(, $again:ident)?;
    )*) => {$(
        $(#[doc = $about])+
        pub fn $name($($arg: $type),*) -> Request<answer!($gives($($what)*))> {
            let again = [$(stringify!($again)),*].contains(&"again");
            Request::new(Verb::$verb, $path, again, read!($gives($($what)*)))$(.$arg($arg))*
        }
    )*};
}

crate::endpoints!(requests);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_parts_where_they_belong() {
        let filter =
            JobFilter { user: Some("a b".to_owned()), limit: Some(7), ..JobFilter::default() };
        assert_eq!(jobs(filter).path, "/v1/jobs?user=a+b&all=false&limit=7");
        let request = node("n/0".to_owned(), NodeAct::Resume);
        assert_eq!(request.path, "/v1/nodes/n%2F0/act");
        assert_eq!(request.body.as_deref(), Some(r#"{"action":"resume"}"#));
        assert!(request.again && status().again && !act(1, Act::Hold).again);
    }

    #[test]
    fn rows_are_found_among_other_fields() {
        let request = fair();
        assert!(
            request.read(br#"{"schema_version":1,"tenants":[],"more":{}}"#).unwrap().is_empty()
        );
        let missing = request.read(br#"{"schema_version":1}"#).unwrap_err();
        assert!(missing.to_string().contains("`tenants`"), "{missing}");
    }
}
