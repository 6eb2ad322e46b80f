//! A JSON text read object by object, so that every fault has a line and a path.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::rc::Rc;
use trainyard_diagnostic::InputError;

/// One value of a text, and where it stands.
pub(super) struct Node<'a> {
    text: &'a str,
    raw: &'a str,
    /// Where each line begins; a large table has thousands of values, and each asks for its line.
    starts: Rc<[usize]>,
    /// The keys that lead to it, joined by dots.
    pub path: String,
}

/// Reads the text; what it means is the caller's to say.
pub(super) fn root(text: &str) -> Result<Node<'_>, InputError> {
    let text = text.trim_start_matches('\u{feff}');
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => {
            let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
            let starts = std::iter::once(0).chain(breaks).collect();
            Ok(Node { text, raw: raw.get(), starts, path: String::new() })
        }
        Err(error) => {
            let line = error.line().max(1);
            let around = text.lines().nth(line - 1).unwrap_or("");
            let begin: String = around.chars().skip(error.column().saturating_sub(20)).collect();
            Err(InputError::wrong(line as u64, "", begin.trim(), format!("JSON ({error})")))
        }
    }
}

impl<'a> Node<'a> {
    /// The line of its first character.
    pub fn line(&self) -> u64 {
        let at = (self.raw.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.starts.partition_point(|start| *start <= at) as u64
    }

    /// As it is written.
    pub fn shown(&self) -> &'a str {
        self.raw
    }

    /// The fault that it is not what was expected.
    pub fn wrong(&self, expected: impl Into<String>) -> InputError {
        InputError::wrong(self.line(), &self.path, self.raw, expected)
    }

    /// What an object holds, in its order; a key that comes twice is refused.
    pub fn entries(&self, expected: &str) -> Result<Vec<(String, Node<'a>)>, InputError> {
        let Entries(found) =
            serde_json::from_str::<Entries<'a>>(self.raw).map_err(|_| self.wrong(expected))?;
        let mut entries: Vec<(String, Node<'a>)> = Vec::with_capacity(found.len());
        for (key, raw) in found {
            let path = match self.path.as_str() {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            entries.push((
                key,
                Node { text: self.text, raw: raw.get(), starts: Rc::clone(&self.starts), path },
            ));
        }
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by_key(|index| &entries[*index].0);
        for two in order.windows(2) {
            if entries[two[0]].0 == entries[two[1]].0 {
                return Err(entries[two[1]].1.wrong("each key once"));
            }
        }
        Ok(entries)
    }

    /// A number.
    pub fn number(&self, expected: &str) -> Result<f64, InputError> {
        serde_json::from_str(self.raw).map_err(|_| self.wrong(expected))
    }

    /// Numbers in a list.
    pub fn numbers(&self, expected: &str) -> Result<Vec<f64>, InputError> {
        serde_json::from_str(self.raw).map_err(|_| self.wrong(expected))
    }

    /// Lists of numbers in a list.
    pub fn rows_of_numbers(&self, expected: &str) -> Result<Vec<Vec<f64>>, InputError> {
        serde_json::from_str(self.raw).map_err(|_| self.wrong(expected))
    }

    /// Two numbers in a list.
    pub fn two_numbers(&self, expected: &str) -> Result<[f64; 2], InputError> {
        serde_json::from_str(self.raw).map_err(|_| self.wrong(expected))
    }
}

struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Collect).map(Entries)
    }
}
