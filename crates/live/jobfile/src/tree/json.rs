//! JSON as a tree. Each value is kept as a part of the text first, so that it knows its line.

use super::{DEPTH_MAX, Entry, Lines, Node, Value, malformed, too_deep};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use trainyard_diagnostic::InputError;

pub(crate) fn read(text: &str) -> Result<Node, InputError> {
    let reader = Reader { text, lines: Lines::of(text) };
    let root = serde_json::from_str::<&RawValue>(text)
        .map_err(|error| malformed(text, error.line() as u64, "JSON", &plain(&error)))?;
    reader.node(root.get(), 0)
}

struct Reader<'t> {
    text: &'t str,
    lines: Lines,
}

impl<'t> Reader<'t> {
    fn node(&self, part: &'t str, depth: usize) -> Result<Node, InputError> {
        let line = self.line(part);
        if depth > DEPTH_MAX {
            return Err(too_deep(line));
        }
        let value = match part.as_bytes().first() {
            Some(b'{') => {
                let pairs: Pairs<'t> = self.part(part)?;
                let entries = pairs.0.into_iter().map(|(key, value)| {
                    let node = self.node(value.get(), depth + 1)?;
                    Ok(Entry { key, line: node.line, node })
                });
                Value::Table(entries.collect::<Result<_, _>>()?)
            }
            Some(b'[') => {
                let items: Vec<&'t RawValue> = self.part(part)?;
                let nodes = items.into_iter().map(|item| self.node(item.get(), depth + 1));
                Value::List(nodes.collect::<Result<_, _>>()?)
            }
            _ => scalar(self.part(part)?),
        };
        Ok(Node { line, value })
    }

    fn part<T: Deserialize<'t>>(&self, part: &'t str) -> Result<T, InputError> {
        serde_json::from_str(part)
            .map_err(|error| malformed(self.text, self.line(part), "JSON", &plain(&error)))
    }

    /// `part` is a part of the text, so the distance of their beginnings is its place.
    fn line(&self, part: &str) -> u64 {
        self.lines.at((part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize))
    }
}

fn scalar(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Flag(flag),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => Value::Whole(number),
            None => Value::Real(number.as_f64().unwrap_or(f64::INFINITY)),
        },
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            unreachable!("values that begin with a bracket are read above")
        }
    }
}

/// What the parser says, without the place, which is shown apart.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// The pairs of an object, in order; none twice.
struct Pairs<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}
