//! What TOML, YAML and JSON have in common: values that know their line.

mod json;
mod toml;
mod yaml;

pub(crate) use json::read as json;
pub(crate) use toml::read as toml;
pub(crate) use yaml::read as yaml;

use trainyard_diagnostic::InputError;

/// Values nested deeper than this are no job.
pub(crate) const DEPTH_MAX: usize = 8;

/// A value and the line it begins on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub line: u64,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text.
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub line: u64,
    pub node: Node,
}

impl Node {
    /// The value as a message shows it.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".to_owned(),
            Value::Flag(flag) => flag.to_string(),
            Value::Whole(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::List(nodes) => {
                let parts: Vec<String> = nodes.iter().take(4).map(Node::shown).collect();
                format!("[{}{}]", parts.join(", "), if nodes.len() > 4 { ", ..." } else { "" })
            }
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// The fault that this value is not what was expected under `key`.
    pub fn wrong(&self, key: &str, expected: impl Into<String>) -> InputError {
        let shown = self.shown();
        // A message about nothing must still say that something stands there.
        let shown = if shown.is_empty() { "\"\"".to_owned() } else { shown };
        InputError::wrong(self.line, key, &shown, expected)
    }
}

/// The line of each byte of a text.
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    pub fn of(text: &str) -> Lines {
        Lines(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    pub fn at(&self, byte: usize) -> u64 {
        self.0.partition_point(|start| *start <= byte) as u64
    }
}

/// A fault of the notation itself.
pub(crate) fn malformed(text: &str, line: u64, notation: &str, what: &str) -> InputError {
    let around = text.lines().nth((line as usize).saturating_sub(1)).unwrap_or("").trim();
    let around = if around.is_empty() { "the text" } else { around };
    let what: Vec<&str> = what.lines().map(str::trim).filter(|part| !part.is_empty()).collect();
    InputError::wrong(line, "", around, format!("{notation} ({})", what.join(", ")))
}

/// The fault that values are nested too deep.
pub(crate) fn too_deep(line: u64) -> InputError {
    InputError::wrong(line, "", "a value", format!("values nested at most {DEPTH_MAX} deep"))
}
