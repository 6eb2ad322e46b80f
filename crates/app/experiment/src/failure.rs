//! What can go wrong before and during an experiment.

use trainyard_diagnostic::{InputError, nearest};
use trainyard_framework::ConfigError;

/// What can go wrong.
#[derive(Debug)]
pub enum Failure {
    /// It was understood and did not work out.
    Operation(String),
    /// What the user gave cannot be used.
    Input(Box<BadInput>),
}

impl Failure {
    /// A fault in a file or a flag.
    pub fn input(source: impl ToString, fault: InputError) -> Failure {
        Failure::Input(Box::new(BadInput { source: source.to_string(), fault, sentence: None }))
    }

    /// A file that cannot be read, in words of our own.
    pub fn file(path: &std::path::Path, sentence: String, fault: InputError) -> Failure {
        let source = path.display().to_string();
        Failure::Input(Box::new(BadInput { source, fault, sentence: Some(sentence) }))
    }

    /// A value of a flag that is not what was expected.
    pub fn flag(flag: &str, value: &str, expected: impl Into<String>) -> Failure {
        let fault = InputError::wrong(0, "", value, expected);
        let sentence = format!("cannot be `{}`: expected {}", fault.value, fault.expected);
        let source = flag.to_owned();
        Failure::Input(Box::new(BadInput { source, fault, sentence: Some(sentence) }))
    }

    /// A setting or a name that was refused.
    pub fn config(source: impl ToString, error: ConfigError) -> Failure {
        let mut sentence = in_plain_words(&error.to_string());
        let fault = match error {
            ConfigError::UnknownKey { owner, key, nearest, known } => InputError {
                nearest,
                ..InputError::wrong(0, &format!("{owner}.{key}"), &key, format!("one of {known}"))
            },
            ConfigError::BadValue { owner, key, value, problem, .. } => {
                let nearest = nearest_variant(&problem);
                if let Some(name) = &nearest {
                    sentence.push_str(&format!("; did you mean `{name}`?"));
                }
                let expected = in_plain_words(&problem);
                let fault = InputError::wrong(0, &format!("{owner}.{key}"), &value, expected);
                InputError { nearest, ..fault }
            }
            ConfigError::Syntax { text, .. } => InputError::wrong(0, "", &text, "key=value"),
            ConfigError::UnknownName { kind, name, nearest } => InputError {
                nearest,
                ..InputError::wrong(0, kind, &name, format!("the name of a {kind}"))
            },
        };
        let sentence = Some(sentence);
        Failure::Input(Box::new(BadInput { source: source.to_string(), fault, sentence }))
    }

    /// The message, in one line.
    pub fn message(&self) -> String {
        match self {
            Failure::Operation(message) => message.clone(),
            Failure::Input(bad) => bad.message(),
        }
    }
}

/// Input that cannot be used: where it stands, what stands there, what was expected.
#[derive(Debug)]
pub struct BadInput {
    /// The file or the flag.
    pub source: String,
    /// The fault in it.
    pub fault: InputError,
    /// A sentence that says it better than the parts do.
    pub sentence: Option<String>,
}

impl BadInput {
    /// The message, in one line.
    pub fn message(&self) -> String {
        let sentence = self.sentence.clone().unwrap_or_else(|| self.fault.to_string());
        let flat = sentence.replace(['\n', '\r'], " ");
        if self.source.is_empty() { flat } else { format!("{}: {flat}", self.source) }
    }
}

/// A message of the reader of settings without names of Rust types.
fn in_plain_words(text: &str) -> String {
    let types = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected u64", "expected a whole number from 0"),
        ("expected i32", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
    ];
    types.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The valid variant that is nearest to the one that a message refuses.
fn nearest_variant(problem: &str) -> Option<String> {
    let mut names = problem.strip_prefix("unknown variant `")?.split('`').step_by(2);
    let wrong = names.next()?;
    nearest(wrong, names.filter(|name| !name.is_empty())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_variant_is_answered_with_the_nearest() {
        let problem = "unknown variant `stritc`, expected `strict` or `backfill`";
        assert_eq!(nearest_variant(problem).as_deref(), Some("strict"));
        assert_eq!(nearest_variant("missing field `sigma`"), None);
    }
}
