//! The elements of a JSON list, one after the other, without the whole document in memory.

use super::bounded::{PIECE_MAX, too_long};
use crate::ReadError;
use std::io::BufRead;
use trainyard_diagnostic::InputError;

/// Walks over the elements of a list: the document itself, or the value of a key of the outermost object.
pub(crate) struct Elements<'a> {
    bytes: Bytes<'a>,
    piece: Vec<u8>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Begin,
    Within,
    Done,
}

struct Bytes<'a> {
    reader: &'a mut dyn BufRead,
    line: u64,
}

impl Bytes<'_> {
    fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        Ok(self.reader.fill_buf()?.first().copied())
    }

    fn skip(&mut self, byte: u8) {
        self.line += u64::from(byte == b'\n');
        self.reader.consume(1);
    }

    /// The next byte that is not white space, not yet taken.
    fn mark(&mut self) -> Result<Option<u8>, ReadError> {
        while let Some(byte) = self.peek()? {
            if !byte.is_ascii_whitespace() && byte != 0xef && byte != 0xbb && byte != 0xbf {
                return Ok(Some(byte));
            }
            self.skip(byte);
        }
        Ok(None)
    }

    fn wrong(&self, byte: Option<u8>, expected: &str) -> ReadError {
        match byte {
            None => InputError::wrong(
                self.line,
                "",
                "the end",
                format!("{expected}; is the file cut off?"),
            ),
            Some(byte) => InputError::wrong(self.line, "", &char::from(byte).to_string(), expected),
        }
        .into()
    }

    /// Takes one value into `piece`: brackets balance outside of strings.
    fn value(&mut self, piece: &mut Vec<u8>) -> Result<(), ReadError> {
        piece.clear();
        let begun = self.line;
        let (mut depth, mut in_string, mut escaped) = (0u32, false, false);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                return match depth == 0 && !in_string && !piece.is_empty() {
                    true => Ok(()),
                    false => Err(self.wrong(None, "the rest of a JSON value")),
                };
            }
            let (mut used, mut is_over) = (0, false);
            for byte in buffer {
                if in_string {
                    (in_string, escaped) = match byte {
                        _ if escaped => (true, false),
                        b'\\' => (true, true),
                        b'"' => (false, false),
                        _ => (true, false),
                    };
                    is_over = !in_string && depth == 0;
                    used += 1;
                } else {
                    match byte {
                        b',' | b']' | b'}' if depth == 0 => {
                            is_over = true;
                            break;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        b'"' => in_string = true,
                        _ => {}
                    }
                    used += 1;
                    is_over = depth == 0 && matches!(byte, b'}' | b']');
                }
                if is_over {
                    break;
                }
            }
            self.line += buffer[..used].iter().filter(|byte| **byte == b'\n').count() as u64;
            piece.extend_from_slice(&buffer[..used]);
            self.reader.consume(used);
            if piece.len() > PIECE_MAX {
                return Err(too_long(begun, "an element").into());
            }
            if is_over {
                return Ok(());
            }
        }
    }
}

impl<'a> Elements<'a> {
    /// The elements of the outermost list.
    pub fn of_list(reader: &'a mut dyn BufRead) -> Result<Elements<'a>, ReadError> {
        let mut bytes = Bytes { reader, line: 1 };
        match bytes.mark()? {
            Some(b'[') => bytes.skip(b'['),
            other => return Err(bytes.wrong(other, "a JSON list, which begins with `[`")),
        }
        Ok(Elements { bytes, piece: Vec::new(), state: State::Begin })
    }

    /// The elements of the list under a key of the outermost object.
    pub fn of_key(reader: &'a mut dyn BufRead, key: &str) -> Result<Elements<'a>, ReadError> {
        let mut bytes = Bytes { reader, line: 1 };
        let mut piece = Vec::new();
        match bytes.mark()? {
            Some(b'{') => bytes.skip(b'{'),
            other => return Err(bytes.wrong(other, "a JSON object, which begins with `{`")),
        }
        loop {
            match bytes.mark()? {
                Some(b'"') => {}
                Some(b',') => {
                    bytes.skip(b',');
                    continue;
                }
                Some(b'}') | None => {
                    return Err(
                        InputError::missing(bytes.line, key, "a list under that key").into()
                    );
                }
                other => return Err(bytes.wrong(other, "a key in double quotes")),
            }
            bytes.value(&mut piece)?;
            let is_it = serde_json::from_slice::<String>(&piece).is_ok_and(|name| name == key);
            match bytes.mark()? {
                Some(b':') => bytes.skip(b':'),
                other => return Err(bytes.wrong(other, "`:` after a key")),
            }
            match bytes.mark()? {
                Some(b'[') if is_it => {
                    bytes.skip(b'[');
                    return Ok(Elements { bytes, piece, state: State::Begin });
                }
                None => return Err(bytes.wrong(None, "a value")),
                _ => bytes.value(&mut piece)?,
            }
        }
    }

    /// The next element and the line where it begins.
    pub fn next(&mut self) -> Result<Option<(u64, &[u8])>, ReadError> {
        if self.state == State::Done {
            return Ok(None);
        }
        match (self.bytes.mark()?, &self.state) {
            (Some(b']'), _) => {
                self.bytes.skip(b']');
                self.state = State::Done;
                return Ok(None);
            }
            (Some(b','), State::Within) => {
                self.bytes.skip(b',');
                self.bytes.mark()?;
            }
            (Some(_), State::Begin) => {}
            (other, _) => return Err(self.bytes.wrong(other, "`,` or `]` after an element")),
        }
        self.state = State::Within;
        let line = self.bytes.line;
        self.bytes.value(&mut self.piece)?;
        Ok(Some((line, &self.piece)))
    }
}

/// An element as a value of a type; `expected` says what it should have been.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(
    (line, piece): (u64, &[u8]),
    expected: &str,
) -> Result<T, InputError> {
    serde_json::from_slice(piece).map_err(|error| json_fault((line, piece), &error, expected))
}

/// The fault of a JSON text that begins in a line: where it is wrong, what stands there, and why.
pub(crate) fn json_fault(
    (line, text): (u64, &[u8]),
    error: &serde_json::Error,
    expected: &str,
) -> InputError {
    let (row, column) = (error.line().max(1), error.column());
    let here = text.split(|byte| *byte == b'\n').nth(row - 1).unwrap_or(text);
    // What leads to the place names the key; a value that is wrong as a whole shows its beginning.
    let end = if column == 0 { AROUND } else { column }.min(here.len());
    let begin = end.saturating_sub(AROUND);
    let shown = String::from_utf8_lossy(&here[begin..end]);
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or_default();
    let expected = format!("{expected}, but JSON fails in column {column} ({reason})");
    InputError::wrong(line + row as u64 - 1, "", shown.trim(), expected)
}

/// How much of a JSON text is shown before its fault; what is longer is cut by the code that shows it.
const AROUND: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, key: Option<&str>) -> Result<Vec<String>, ReadError> {
        let mut reader = text.as_bytes();
        let mut elements = match key {
            Some(key) => Elements::of_key(&mut reader, key)?,
            None => Elements::of_list(&mut reader)?,
        };
        let mut found = Vec::new();
        while let Some((line, piece)) = elements.next()? {
            found.push(format!("{line}:{}", String::from_utf8_lossy(piece).trim()));
        }
        Ok(found)
    }

    #[test]
    fn elements_are_found_with_their_lines() {
        let found = all("[ {\"a\":\"]}\\\"\"},\n\n[1,2] , 3, \"x\"]", None).unwrap();
        assert_eq!(found, ["1:{\"a\":\"]}\\\"\"}", "3:[1,2]", "3:3", "3:\"x\""]);
        let found = all("{\"meta\":{\"jobs\":[9]},\"jobs\":[{},1]}", Some("jobs")).unwrap();
        assert_eq!(found, ["1:{}", "1:1"]);
    }

    #[test]
    fn a_fault_shows_what_leads_to_it() {
        let text = b"{\"a\":1,\n\"count\": nan}";
        let fault = decode::<serde_json::Value>((7, text), "a job").unwrap_err().to_string();
        assert!(
            fault.starts_with("line 8: `\"count\": na` is not valid: expected a job"),
            "{fault}"
        );
        assert!(fault.contains("column") && !fault.contains("line 2"), "{fault}");
    }

    #[test]
    fn a_cut_document_is_refused() {
        for text in ["[", "[{", "[{}", "[1,", "{", "[\"a", ""] {
            assert!(all(text, None).is_err(), "{text}");
        }
        assert!(
            all("{\"a\":1}", Some("jobs")).unwrap_err().to_string().contains("`jobs` is missing")
        );
    }
}
