//! What stands under a key, and what it becomes.

use crate::field::{Field, Kind};
use crate::moment::{Context, MOMENT, is_clock, moment};
use crate::size::{SIZE, mebibytes};
use crate::tree::{Entry, Node, Value};
use serde_json::{Map, json};
use trainyard_api::parse_array;
use trainyard_diagnostic::InputError;
use trainyard_types::{Labels, Span};

/// A value of a job's field, as the field takes it.
pub(crate) fn read(
    field: &Field,
    node: &Node,
    context: &Context,
) -> Result<serde_json::Value, InputError> {
    let wrong = |expected: String| node.wrong(field.name, expected);
    match field.kind {
        Kind::Text => text(field.name, node).map(Into::into),
        Kind::Texts => match &node.value {
            Value::List(_) => texts(field.name, node).map(Into::into),
            _ => Ok(json!([text(field.name, node)?])),
        },
        Kind::Argv => argv(field.name, node).map(Into::into),
        Kind::Env => env(field.name, node),
        Kind::Whole(least, most) => match node.value {
            Value::Whole(number) if (least..=most).contains(&number) => Ok(number.into()),
            _ => Err(wrong(format!("a whole number from {least} to {most}"))),
        },
        Kind::Real(least, most) => match number(node).filter(|n| (least..=most).contains(n)) {
            Some(number) => Ok(number.into()),
            None => Err(wrong(format!("a number from {least} to {most}"))),
        },
        Kind::Flag => match node.value {
            Value::Flag(flag) => Ok(flag.into()),
            _ => Err(wrong("`true` or `false`".to_owned())),
        },
        Kind::Span => span(field.name, node).map(Into::into),
        Kind::Size => match &node.value {
            Value::Text(text) => mebibytes(text, None).map(Into::into),
            _ => None,
        }
        .ok_or_else(|| wrong(SIZE.to_owned())),
        Kind::Share => match number(node).filter(|share| *share > 0.0 && *share <= 1.0) {
            Some(share) => Ok(((share * 1000.0).ceil() as u16).into()),
            None => Err(wrong("a share of one GPU above 0 and up to 1, such as 0.5".to_owned())),
        },
        Kind::Label => {
            let name = text(field.name, node)?;
            if Labels::is_name(&name) {
                Ok(name.into())
            } else {
                Err(wrong(Labels::NAME.to_owned()))
            }
        }
        Kind::Moment => begin(field.name, node, context).map(Into::into),
        Kind::Until => until(field.name, node, context).map(Into::into),
        Kind::Ids => ids(field.name, node),
        Kind::Array => array(field.name, node).map(Into::into),
        Kind::Choice(names) => choice(field.name, node, names).map(Into::into),
        Kind::Table(fields) => table(field.name, fields, node, context),
    }
}

/// The fault that a key is none of `fields`; under `owner` where the table has a name.
pub(crate) fn unknown_key(owner: &str, fields: &[Field], entry: &Entry) -> InputError {
    let names = fields.iter().map(|field| field.name);
    InputError::unknown(entry.line, owner, &entry.key, names)
}

fn table(
    owner: &str,
    fields: &[Field],
    node: &Node,
    context: &Context,
) -> Result<serde_json::Value, InputError> {
    let Value::Table(entries) = &node.value else {
        let keys: Vec<&str> = fields.iter().map(|field| field.name).collect();
        return Err(node.wrong(owner, format!("a table with keys {}", keys.join(", "))));
    };
    let mut map = Map::new();
    for entry in entries {
        let field = fields
            .iter()
            .find(|field| field.name == entry.key)
            .ok_or_else(|| unknown_key(owner, fields, entry))?;
        let value = read(field, &entry.node, context)?;
        if map.insert(field.target.to_owned(), value).is_some() {
            return Err(said_twice(entry.line, field));
        }
    }
    Ok(map.into())
}

/// The fault that a field is set by two keys.
pub(crate) fn said_twice(line: u64, field: &Field) -> InputError {
    let expected = format!("`{}` to be set once, under one of its names", field.target);
    InputError::wrong(line, field.name, "a second value", expected)
}

fn text(key: &str, node: &Node) -> Result<String, InputError> {
    match &node.value {
        Value::Text(text) if text.contains('\0') => Err(node.wrong(key, "a text without NUL")),
        Value::Text(text) if !text.trim().is_empty() => Ok(text.clone()),
        _ => Err(node.wrong(key, "a text in quotes")),
    }
}

fn texts(key: &str, node: &Node) -> Result<Vec<String>, InputError> {
    match &node.value {
        Value::List(nodes) => nodes.iter().map(|node| text(key, node)).collect(),
        _ => Err(node.wrong(key, "a list of texts in quotes")),
    }
}

/// Arguments may be empty, the command itself may not.
fn argv(key: &str, node: &Node) -> Result<Vec<String>, InputError> {
    let nodes = match &node.value {
        Value::List(nodes) if !nodes.is_empty() => nodes,
        Value::Text(line) => {
            let words: Vec<&str> = line.split_whitespace().collect();
            let list = json!(words).to_string();
            let why = "no shell reads it";
            return Err(node.wrong(key, format!("a list, as {why}; write {list}")));
        }
        _ => return Err(node.wrong(key, "a list such as [\"python\", \"train.py\"]")),
    };
    let mut argv = vec![text(key, &nodes[0])?];
    for node in &nodes[1..] {
        argv.push(match &node.value {
            Value::Text(text) if text.is_empty() => String::new(),
            Value::Whole(number) => number.to_string(),
            _ => match text(key, node) {
                Ok(text) => text,
                // An argument of blanks is one too.
                Err(_) if matches!(&node.value, Value::Text(text) if !text.contains('\0')) => {
                    node.shown()
                }
                Err(fault) => return Err(fault),
            },
        });
    }
    Ok(argv)
}

fn env(key: &str, node: &Node) -> Result<serde_json::Value, InputError> {
    let expected = "a table of names with texts in quotes";
    let Value::Table(entries) = &node.value else { return Err(node.wrong(key, expected)) };
    let mut map = Map::new();
    for Entry { key: name, line, node } in entries {
        if !is_variable(name) {
            let expected = "the name of a variable: letters, digits and _, no digit first";
            return Err(InputError::wrong(*line, key, name, expected));
        }
        let value = match &node.value {
            Value::Text(text) if !text.contains('\0') => text.clone(),
            Value::Whole(number) => number.to_string(),
            _ => return Err(node.wrong(&format!("{key}.{name}"), "a text in quotes")),
        };
        if map.insert(name.clone(), value.into()).is_some() {
            return Err(InputError::wrong(*line, key, name, "each name once"));
        }
    }
    Ok(map.into())
}

/// Whether a variable can have this name.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn number(node: &Node) -> Option<f64> {
    match node.value {
        Value::Whole(number) => Some(number as f64),
        Value::Real(number) if number.is_finite() => Some(number),
        _ => None,
    }
}

fn span(key: &str, node: &Node) -> Result<f64, InputError> {
    let span = match &node.value {
        Value::Text(text) => text.parse::<Span>().ok().map(Span::as_secs_f64),
        _ => number(node),
    };
    let span = span.filter(|seconds| (0.0..=1e9).contains(seconds));
    span.ok_or_else(|| node.wrong(key, "a length of time such as 90s, 5m, 1h30m or 1:30:00"))
}

fn begin(key: &str, node: &Node, context: &Context) -> Result<f64, InputError> {
    let found = match &node.value {
        Value::Text(text) => moment(text, context),
        _ => number(node).filter(|seconds| (0.0..=1e11).contains(seconds)),
    };
    found.ok_or_else(|| node.wrong(key, MOMENT))
}

fn until(key: &str, node: &Node, context: &Context) -> Result<f64, InputError> {
    // `18:00` is a time of the day here, and a length elsewhere.
    let time_of_day = matches!(&node.value, Value::Text(text) if is_clock(text));
    if !time_of_day && let Ok(seconds) = span(key, node) {
        return Ok(seconds);
    }
    let expected = "a length of time such as 6h, or a time to come such as 2026-05-01T12:00";
    let Value::Text(text) = &node.value else { return Err(node.wrong(key, expected)) };
    let left = moment(text, context).map(|at| at - context.now.as_microsecond() as f64 / 1e6);
    left.filter(|left| (0.0..=1e9).contains(left)).ok_or_else(|| node.wrong(key, expected))
}

fn ids(key: &str, node: &Node) -> Result<serde_json::Value, InputError> {
    let one = |node: &Node| match node.value {
        Value::Whole(id) => u32::try_from(id).ok(),
        _ => None,
    };
    let ids: Option<Vec<u32>> = match &node.value {
        Value::List(nodes) => nodes.iter().map(one).collect(),
        _ => one(node).map(|id| vec![id]),
    };
    ids.map(Into::into).ok_or_else(|| node.wrong(key, "ids of jobs such as [12, 13]"))
}

fn array(key: &str, node: &Node) -> Result<String, InputError> {
    let text = match &node.value {
        Value::Text(text) => text.clone(),
        Value::Whole(index) => index.to_string(),
        _ => return Err(node.wrong(key, trainyard_api::array::ARRAY_FORM)),
    };
    match parse_array(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(node.wrong(key, format!("an array ({error})"))),
    }
}

fn choice(key: &str, node: &Node, names: &[&str]) -> Result<String, InputError> {
    let Value::Text(text) = &node.value else {
        return Err(InputError::unknown(node.line, key, &node.shown(), names.iter().copied()));
    };
    match names.iter().find(|name| *name == text) {
        Some(name) => Ok((*name).to_owned()),
        None => Err(InputError::unknown(node.line, key, text, names.iter().copied())),
    }
}
