//! What is wrong with a text that a user wrote, and where.

/// One fault in a text: where it is, what stands there, what was expected.
///
/// The name of the file is not known here; the caller that opened it puts it in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct InputError {
    /// The line, counted from 1; 0 when the text has no lines.
    pub line: u64,
    /// The key or column; empty when the fault belongs to none.
    pub field: String,
    /// What stands there; empty when something is missing.
    pub value: String,
    /// What should stand there instead.
    pub expected: String,
    /// The valid name that is nearest to a wrong one.
    pub nearest: Option<String>,
}

impl InputError {
    /// A value that is not what was expected.
    pub fn wrong(line: u64, field: &str, value: &str, expected: impl Into<String>) -> InputError {
        InputError {
            line,
            field: field.to_owned(),
            value: shortened(value),
            expected: expected.into(),
            nearest: None,
        }
    }

    /// Something that is needed and not there.
    pub fn missing(line: u64, field: &str, expected: impl Into<String>) -> InputError {
        InputError::wrong(line, field, "", expected)
    }

    /// A name that is none of `valid`, with the nearest of them.
    pub fn unknown<'a>(
        line: u64,
        field: &str,
        value: &str,
        valid: impl IntoIterator<Item = &'a str>,
    ) -> InputError {
        let valid: Vec<&str> = valid.into_iter().collect();
        let mut error = InputError::wrong(line, field, value, one_of(&valid));
        error.nearest = nearest(value, valid).map(str::to_owned);
        error
    }

    /// The same fault in a text that is a part of another, whose line before it is `line`.
    pub fn below(self, line: u64) -> InputError {
        let line = if self.line == 0 { line } else { self.line + line - 1 };
        InputError { line, ..self }
    }

    fn sentence(&self) -> String {
        let place = match self.line {
            0 => String::new(),
            line => format!("line {line}: "),
        };
        let fault = match (self.field.as_str(), self.value.as_str()) {
            ("", "") => "something is missing".to_owned(),
            ("", value) => format!("`{value}` is not valid"),
            (field, "") => format!("`{field}` is missing"),
            (field, value) => format!("`{field}` cannot be `{value}`"),
        };
        let hint = match &self.nearest {
            Some(name) => format!("; did you mean `{name}`?"),
            None => String::new(),
        };
        format!("{place}{fault}: expected {}{hint}", self.expected)
    }
}

/// The valid name most like a wrong one, if any is like it at all; ties go to the earlier one.
pub fn nearest<'a>(wrong: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer names than this are no typing errors, and the comparison is quadratic.
    if wrong.len() > 200 {
        return None;
    }
    let wrong = wrong.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for name in valid {
        let likeness = likeness(&wrong, &name.to_lowercase());
        if best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, name));
        }
    }
    best.filter(|(likeness, _)| *likeness >= 0.7).map(|(_, name)| name)
}

/// Between 0 and 1; a name that contains the other whole counts as fairly like it.
fn likeness(wrong: &str, name: &str) -> f64 {
    let spelling =
        strsim::jaro_winkler(wrong, name).max(strsim::normalized_damerau_levenshtein(wrong, name));
    let contained = wrong.len() >= 3 && (name.contains(wrong) || wrong.contains(name));
    if contained && !name.is_empty() { spelling.max(0.8) } else { spelling }
}

/// At most this many valid names are listed in a message.
const LISTED_MAX: usize = 24;

fn one_of(valid: &[&str]) -> String {
    if valid.is_empty() {
        return "nothing here".to_owned();
    }
    let shown: Vec<String> =
        valid.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    match valid.len() - shown.len() {
        0 => format!("one of {}", shown.join(", ")),
        more => format!("one of {} and {more} more", shown.join(", ")),
    }
}

/// Long values are cut, so that a message stays one line.
fn shortened(value: &str) -> String {
    let flat: String =
        value.chars().map(|c| if c.is_control() { ' ' } else { c }).take(60).collect();
    if value.chars().count() > 60 { format!("{flat}...") } else { flat }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_line_field_value_expectation_and_the_nearest_name() {
        let error = InputError::unknown(3, "kind", "v10", ["a100", "v100"]);
        assert_eq!(
            error.to_string(),
            "line 3: `kind` cannot be `v10`: expected one of `a100`, `v100`; did you mean `v100`?"
        );
        let error = InputError::missing(1, "gpus", "a column of that name");
        assert_eq!(error.to_string(), "line 1: `gpus` is missing: expected a column of that name");
    }

    #[test]
    fn nothing_is_suggested_for_a_name_like_no_other() {
        assert_eq!(nearest("zzzz", ["gpus", "kind"]), None);
        assert_eq!(
            nearest("resnet50", ["generic", "gavel-resnet50-b64"]),
            Some("gavel-resnet50-b64")
        );
    }

    #[test]
    fn a_long_value_is_cut_to_one_line() {
        let error = InputError::wrong(1, "name", &"x\n".repeat(200), "a name");
        assert!(error.value.len() < 70 && !error.value.contains('\n'));
    }
}
