//! TOML as a tree.

use super::{DEPTH_MAX, Entry, Lines, Node, Value, malformed, too_deep};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trainyard_diagnostic::InputError;

pub(crate) fn read(text: &str) -> Result<Node, InputError> {
    let lines = Lines::of(text);
    match DeTable::parse(text) {
        Ok(root) => Ok(Node { line: 1, value: table(root.get_ref(), &lines, 0)? }),
        Err(error) => {
            let line = lines.at(error.span().map_or(0, |span| span.start));
            Err(malformed(text, line, "TOML", error.message()))
        }
    }
}

fn table(table: &DeTable<'_>, lines: &Lines, depth: usize) -> Result<Value, InputError> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table.iter() {
        let line = lines.at(key.span().start);
        let node = node(value, lines, depth + 1)?;
        entries.push(Entry { key: key.get_ref().to_string(), line, node });
    }
    // The parser keeps keys by name.
    entries.sort_by_key(|entry| entry.line);
    Ok(Value::Table(entries))
}

fn node(value: &Spanned<DeValue<'_>>, lines: &Lines, depth: usize) -> Result<Node, InputError> {
    let line = lines.at(value.span().start);
    if depth > DEPTH_MAX {
        return Err(too_deep(line));
    }
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(moment) => Value::Text(moment.to_string()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Value::Whole(number),
            // Too large for any key: it is shown as it stands.
            Err(_) => Value::Real(digits.as_str().parse().unwrap_or(f64::INFINITY)),
        },
        DeValue::Float(digits) => Value::Real(digits.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Array(list) => {
            let nodes = list.iter().map(|item| node(item, lines, depth + 1));
            Value::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(inner) => table(inner, lines, depth)?,
    };
    Ok(Node { line, value })
}
