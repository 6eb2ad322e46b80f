//! `#SBATCH` lines as options with values.

use super::option::{OPTIONS, Takes};
use trainyard_diagnostic::InputError;

/// One option of a directive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub line: u64,
    /// Its long name without dashes; as it was written where it is not known.
    pub long: String,
    /// As it was written.
    pub shown: String,
    pub value: Option<String>,
}

/// All directives of a script.
pub(super) struct Found {
    pub given: Vec<Given>,
    /// Lines of directives after the first command.
    pub late: Vec<u64>,
}

pub(super) fn directives(text: &str) -> Result<Found, InputError> {
    let mut found = Found { given: Vec::new(), late: Vec::new() };
    let mut in_head = true;
    for (index, line) in text.lines().enumerate() {
        let number = index as u64 + 1;
        match line.strip_prefix("#SBATCH").filter(|rest| rest.starts_with([' ', '\t'])) {
            Some(rest) if in_head => options(&words(number, rest)?, number, &mut found.given)?,
            Some(_) => found.late.push(number),
            None => in_head &= line.trim().is_empty() || line.trim_start().starts_with('#'),
        }
    }
    Ok(found)
}

/// Words apart; quotes keep blanks, a word that begins with `#` begins a comment.
fn words(line: u64, text: &str) -> Result<Vec<String>, InputError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, '#') if word.is_none() => break,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(InputError::wrong(line, "#SBATCH", text.trim(), "a quote that is closed"));
    }
    words.extend(word);
    Ok(words)
}

fn options(words: &[String], line: u64, given: &mut Vec<Given>) -> Result<(), InputError> {
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let (long, mut value, takes, shown) = match word.strip_prefix("--") {
            Some(body) => {
                let (name, value) = match body.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (body, None),
                };
                let takes = OPTIONS.iter().find(|option| option.long == name).map(|o| o.takes);
                (name.to_owned(), value, takes, format!("--{name}"))
            }
            None => short(word).ok_or_else(|| {
                let expected = "an option such as --gpus=4 or -N 2";
                InputError::wrong(line, "#SBATCH", word, expected)
            })?,
        };
        let next_is_value = rest.peek().is_some_and(|next| !next.starts_with('-'));
        match takes {
            Some(Takes::Value) if value.is_none() => value = rest.next().cloned(),
            // An unknown option may take a value or not; a following word that is no option counts as its value.
            None if value.is_none() && next_is_value => value = rest.next().cloned(),
            _ => {}
        }
        if takes == Some(Takes::Value) && value.as_deref().is_none_or(str::is_empty) {
            return Err(InputError::missing(line, &shown, "a value"));
        }
        if takes == Some(Takes::Nothing) && value.is_some() {
            let value = value.unwrap_or_default();
            return Err(InputError::wrong(line, &shown, &value, "no value"));
        }
        given.push(Given { line, long, shown, value });
    }
    Ok(())
}

/// `-N2`, `-N 2` and `-N=2`.
fn short(word: &str) -> Option<(String, Option<String>, Option<Takes>, String)> {
    let body = word.strip_prefix('-')?;
    let letter = body.chars().next()?;
    let value = body[letter.len_utf8()..].trim_start_matches('=');
    let value = (!value.is_empty()).then(|| value.to_owned());
    let option = OPTIONS.iter().find(|option| option.short == Some(letter));
    let long = option.map_or_else(|| letter.to_string(), |option| option.long.to_owned());
    Some((long, value, option.map(|option| option.takes), format!("-{letter}")))
}
