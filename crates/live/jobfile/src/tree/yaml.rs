//! YAML as a tree.

use super::{DEPTH_MAX, Entry, Node, Value, malformed, too_deep};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use trainyard_diagnostic::InputError;

pub(crate) fn read(text: &str) -> Result<Node, InputError> {
    let parsed = serde_saphyr::from_str::<Spanned<Raw>>(text);
    let root = parsed.map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        malformed(text, line, "YAML", &plain(&error))
    })?;
    tree(root, 0)
}

/// The first line of what the parser says; a picture of the place follows it.
fn plain(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    if first.contains("multiple YAML documents") {
        return "one document; several jobs stand in a list under `jobs`".to_owned();
    }
    first.trim_start_matches("error: ").split(" at line ").next().unwrap_or_default().to_owned()
}

fn tree(raw: Spanned<Raw>, depth: usize) -> Result<Node, InputError> {
    let line = raw.referenced.line();
    if depth > DEPTH_MAX {
        return Err(too_deep(line));
    }
    let value = match raw.value {
        Raw::Scalar(value) => value,
        Raw::List(items) => {
            let nodes = items.into_iter().map(|item| tree(item, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        Raw::Table(pairs) => {
            let entries = pairs.into_iter().map(|(key, value)| {
                let (line, node) = (key.referenced.line(), tree(value, depth + 1)?);
                Ok(Entry { key: key.value, line, node })
            });
            Value::Table(entries.collect::<Result<_, _>>()?)
        }
    };
    Ok(Node { line, value })
}

/// A value as the parser gives it; the wrapper around each part carries its place.
enum Raw {
    Scalar(Value),
    List(Vec<Spanned<Raw>>),
    Table(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Flag(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Whole(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        let whole = i64::try_from(number).map(Value::Whole);
        Ok(Raw::Scalar(whole.unwrap_or(Value::Real(number as f64))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Real(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Text(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Raw::Table(pairs))
    }
}
