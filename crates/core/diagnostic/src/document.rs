//! A TOML text read key by key, so that every fault has a line.

use crate::InputError;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use trainyard_types::Span;

/// A whole TOML text.
pub struct Document<'a> {
    text: &'a str,
    starts: Vec<usize>,
    root: Spanned<DeTable<'a>>,
}

impl<'a> Document<'a> {
    /// Reads the text; what it means is the caller's to say.
    pub fn parse(text: &'a str) -> Result<Document<'a>, InputError> {
        let starts = line_starts(text);
        match DeTable::parse(text) {
            Ok(root) => Ok(Document { text, starts, root }),
            Err(error) => {
                let span = error.span().unwrap_or(0..0);
                let line = line_at(&starts, span.start);
                let around = text.lines().nth(line as usize - 1).unwrap_or("").trim();
                let what = error.message().lines().collect::<Vec<_>>().join(", ");
                Err(InputError::wrong(line, "", around, format!("TOML ({what})")))
            }
        }
    }

    /// The table of the whole text.
    pub fn root(&self) -> Section<'_, 'a> {
        Section { document: self, table: self.root.get_ref(), name: "", line: 1 }
    }
}

/// One table of a TOML text.
#[derive(Clone, Copy)]
pub struct Section<'d, 'a> {
    document: &'d Document<'a>,
    table: &'d DeTable<'a>,
    name: &'d str,
    line: u64,
}

impl<'d, 'a> Section<'d, 'a> {
    /// Where it begins.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Refuses every key but these.
    pub fn allow(&self, keys: &[&str]) -> Result<(), InputError> {
        let mut found: Option<InputError> = None;
        for key in self.table.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                let line = self.document.line(key.span().start);
                let field = if self.name.is_empty() { "key" } else { self.name };
                let error = InputError::unknown(line, field, key.get_ref(), keys.iter().copied());
                // Keys are kept in order of name; the fault that comes first in the text is shown.
                if found.as_ref().is_none_or(|earlier| line < earlier.line) {
                    found = Some(error);
                }
            }
        }
        found.map_or(Ok(()), Err)
    }

    /// The line of a key, or of the table when the key is not there.
    pub fn line_of(&self, key: &str) -> u64 {
        self.value(key).map_or(self.line, |value| self.document.line(value.span().start))
    }

    /// The fault that the value of `key` is not what was expected.
    pub fn wrong(&self, key: &str, expected: impl Into<String>) -> InputError {
        match self.value(key) {
            Some(value) => {
                let shown = &self.document.text[value.span()];
                InputError::wrong(self.line_of(key), key, shown.trim_matches('"'), expected)
            }
            None => InputError::missing(self.line, key, expected),
        }
    }

    /// The fault that the name under `key` is none of `valid`.
    pub fn unknown<'v>(&self, key: &str, valid: impl IntoIterator<Item = &'v str>) -> InputError {
        let value = self.value(key).and_then(|value| value.get_ref().as_str()).unwrap_or("");
        InputError::unknown(self.line_of(key), key, value, valid)
    }

    /// A text, if given.
    pub fn text(&self, key: &str) -> Result<Option<&'d str>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref().as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(key, "a text in quotes")),
        }
    }

    /// A text that must be given and not be empty.
    pub fn needed_text(&self, key: &str) -> Result<&'d str, InputError> {
        match self.text(key)? {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => Err(self.wrong(key, "a text in quotes")),
        }
    }

    /// A list of texts that are not empty, if given.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&'d str>>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let list = value.get_ref().as_array();
        let texts = list.and_then(|list| list.iter().map(|one| one.get_ref().as_str()).collect());
        let texts = texts.filter(|texts: &Vec<&str>| texts.iter().all(|text| !text.is_empty()));
        texts.map(Some).ok_or_else(|| self.wrong(key, "a list of texts in quotes"))
    }

    /// A whole number within a range, if given.
    pub fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|digits| u64::from_str_radix(digits.as_str(), digits.radix()).ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, whole_in(&range))),
        }
    }

    /// A whole number within a range that must be given.
    pub fn needed_whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<u64, InputError> {
        self.whole(key, range.clone())?.ok_or_else(|| self.wrong(key, whole_in(&range)))
    }

    /// A finite number within a range, if given.
    pub fn real(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f64>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match real_of(value.get_ref(), &range) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(key, real_in(&range))),
        }
    }

    /// A list of finite numbers within a range that must be given.
    pub fn reals(&self, key: &str, range: RangeInclusive<f64>) -> Result<Vec<f64>, InputError> {
        let list = self.value(key).and_then(|value| value.get_ref().as_array());
        let numbers = list.and_then(|list| reals_of(list, &range));
        numbers.ok_or_else(|| self.wrong(key, format!("a list; each entry {}", real_in(&range))))
    }

    /// A list of lists of finite numbers within a range that must be given.
    pub fn rows_of_reals(
        &self,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Vec<Vec<f64>>, InputError> {
        let list = self.value(key).and_then(|value| value.get_ref().as_array());
        let row = |row: &Spanned<DeValue<'a>>| reals_of(row.get_ref().as_array()?, &range);
        let rows = list.and_then(|list| list.iter().map(row).collect());
        let expected = || format!("a list of lists; each entry {}", real_in(&range));
        rows.ok_or_else(|| self.wrong(key, expected()))
    }

    /// True or false, if given.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref().as_bool() {
            Some(flag) => Ok(Some(flag)),
            None => Err(self.wrong(key, "`true` or `false`")),
        }
    }

    /// A length of time, as text with a unit or a number of seconds, if given.
    pub fn span(&self, key: &str) -> Result<Option<Span>, InputError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.get_ref().as_str() {
            Some(text) => match text.parse() {
                Ok(span) => Ok(Some(span)),
                Err(error) => Err(self.wrong(key, format!("a length of time ({error})"))),
            },
            None => Ok(self.real(key, 0.0..=1e12)?.map(Span::from_secs_f64)),
        }
    }

    /// A table inside this one, if given.
    pub fn section(&self, key: &str) -> Result<Option<Section<'d, 'a>>, InputError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(None) };
        match value.get_ref().as_table() {
            Some(table) => {
                let line = self.document.line(name.span().start);
                Ok(Some(Section { document: self.document, table, name: name.get_ref(), line }))
            }
            None => Err(self.wrong(key, format!("a table `[{key}]`"))),
        }
    }

    /// A list of tables inside this one; empty if not given.
    pub fn sections(&self, key: &str) -> Result<Vec<Section<'d, 'a>>, InputError> {
        let Some((name, value)) = self.table.get_key_value(key) else { return Ok(Vec::new()) };
        let Some(list) = value.get_ref().as_array() else {
            return Err(self.wrong(key, format!("tables headed `[[{key}]]`")));
        };
        let mut sections = Vec::with_capacity(list.len());
        for item in list.iter() {
            let Some(table) = item.get_ref().as_table() else {
                return Err(self.wrong(key, format!("tables headed `[[{key}]]`")));
            };
            let line = self.document.line(item.span().start);
            sections.push(Section { document: self.document, table, name: name.get_ref(), line });
        }
        Ok(sections)
    }

    fn value(&self, key: &str) -> Option<&'d Spanned<DeValue<'a>>> {
        self.table.get(key)
    }
}

impl Document<'_> {
    fn line(&self, at: usize) -> u64 {
        line_at(&self.starts, at)
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn line_at(starts: &[usize], at: usize) -> u64 {
    starts.partition_point(|start| *start <= at) as u64
}

fn real_of(value: &DeValue<'_>, range: &RangeInclusive<f64>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().parse().ok(),
        DeValue::Float(digits) => digits.as_str().parse::<f64>().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite() && range.contains(number))
}

fn reals_of(list: &DeArray<'_>, range: &RangeInclusive<f64>) -> Option<Vec<f64>> {
    list.iter().map(|item| real_of(item.get_ref(), range)).collect()
}

fn whole_in(range: &RangeInclusive<u64>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

fn real_in(range: &RangeInclusive<f64>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[[node]]\ncount = 0\n[[node]]\ncuont = 3\nwait = \"5 parsecs\"\n";

    #[test]
    fn faults_carry_their_line() {
        let document = Document::parse(TEXT).unwrap();
        let nodes = document.root().sections("node").unwrap();
        let error = nodes[0].needed_whole("count", 1..=9).unwrap_err();
        assert_eq!((error.line, error.value.as_str()), (3, "0"));
        let error = nodes[1].allow(&["count", "wait"]).unwrap_err();
        assert_eq!((error.line, error.nearest.as_deref()), (5, Some("count")));
        assert_eq!(nodes[1].span("wait").unwrap_err().line, 6);
    }

    #[test]
    fn broken_toml_is_refused_with_its_line() {
        let error = Document::parse("a = 1\nb = = 2\n").err().unwrap();
        assert_eq!(error.line, 2);
    }

    #[test]
    fn numbers_out_of_range_or_of_another_type_are_refused() {
        let document =
            Document::parse("n = 99999999999999999999\nf = inf\nt = 3\nw = 1.5\n").unwrap();
        let root = document.root();
        assert!(root.whole("n", 0..=u64::MAX).is_err());
        assert!(root.real("f", 0.0..=1e9).is_err());
        assert!(root.text("t").is_err());
        assert!(root.whole("w", 0..=9).is_err());
        assert_eq!(root.real("t", 0.0..=9.0), Ok(Some(3.0)));
    }
}
