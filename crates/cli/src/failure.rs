//! What can go wrong, and the one place where it becomes an exit code.

use serde_json::{Value, json};
use trainyard_framework::ConfigError;
use trainyard_profile::InputError;
use trainyard_report::SCHEMA_VERSION;

/// What can go wrong.
#[derive(Debug)]
pub enum Failure {
    /// It was understood and did not work out.
    Operation(String),
    /// The command line itself is malformed.
    Usage(String),
    /// What the user gave cannot be used.
    Input(Box<BadInput>),
    /// The daemon refused it, or could not be reached.
    #[cfg(feature = "live")]
    Problem(Box<trainyard_api::Problem>),
    /// A job that was waited for ended with this code; everything is said.
    #[cfg(feature = "live")]
    Ended(u8),
    /// Nobody reads the output any more.
    ClosedPipe,
}

/// The exit code of an interrupted program.
pub const INTERRUPTED: i32 = 130;

/// The exit codes, as the help shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    ok
  1    the operation failed: jobs left unfinished, a policy broke, a file could not be written
  2    malformed command line
  3    bad input: an unknown name or key, a bad value, a malformed or missing file
  4    understood, and can never be done here: more GPUs than there are, refused by the policy
  5    not allowed: no token, a wrong or expired one, or a role that does not reach
  6    no such job, node or token
  7    it contradicts what is: the job is over, the key stands for other jobs
  8    the daemon cannot be reached, or has too much to do
  130  interrupted
`run` and `submit --wait` end with the code of the job: 128 and the number of the signal that killed it.";

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

    /// What the daemon answered instead of what was asked for.
    #[cfg(feature = "live")]
    pub fn problem(problem: trainyard_api::Problem) -> Failure {
        Failure::Problem(Box::new(problem))
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

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::ClosedPipe => 0,
            Failure::Operation(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Input(_) => 3,
            #[cfg(feature = "live")]
            Failure::Problem(problem) => problem.code.exit_code(),
            #[cfg(feature = "live")]
            Failure::Ended(code) => *code,
        }
    }

    /// The message, in one line; empty when there is nothing to say.
    pub fn message(&self) -> String {
        match self {
            Failure::ClosedPipe => String::new(),
            Failure::Operation(message) | Failure::Usage(message) => message.clone(),
            Failure::Input(bad) => bad.message(),
            #[cfg(feature = "live")]
            Failure::Problem(problem) => {
                let detail = problem.detail.replace(['\n', '\r'], " ");
                match problem.field.as_deref().filter(|field| !detail.contains(*field)) {
                    Some(field) => format!("`{field}`: {detail}"),
                    None => detail,
                }
            }
            #[cfg(feature = "live")]
            Failure::Ended(_) => String::new(),
        }
    }

    /// The message for programs.
    pub fn json(&self) -> Value {
        let kind = match self {
            Failure::ClosedPipe => "closed-pipe".to_owned(),
            Failure::Operation(_) => "operation-failed".to_owned(),
            Failure::Usage(_) => "usage".to_owned(),
            Failure::Input(_) => "bad-input".to_owned(),
            // The name of the code, as the daemon sends it.
            #[cfg(feature = "live")]
            Failure::Problem(problem) => {
                json!(problem.code).as_str().unwrap_or_default().to_owned()
            }
            #[cfg(feature = "live")]
            Failure::Ended(_) => "job-ended".to_owned(),
        };
        let mut error =
            json!({ "kind": kind, "exit_code": self.exit_code(), "message": self.message() });
        if let (Failure::Input(bad), Some(error)) = (self, error.as_object_mut()) {
            error.insert("source".to_owned(), bad.source.as_str().into());
            if bad.fault.line > 0 {
                error.insert("line".to_owned(), bad.fault.line.into());
            }
            error.insert("field".to_owned(), bad.fault.field.as_str().into());
            error.insert("value".to_owned(), bad.fault.value.as_str().into());
            error.insert("expected".to_owned(), bad.fault.expected.as_str().into());
            error.insert("nearest".to_owned(), bad.fault.nearest.as_deref().into());
        }
        #[cfg(feature = "live")]
        if let (Failure::Problem(problem), Some(error)) = (self, error.as_object_mut()) {
            error.insert("field".to_owned(), problem.field.as_deref().into());
        }
        json!({ "schema_version": SCHEMA_VERSION, "error": error })
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
    fn message(&self) -> String {
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
    trainyard_framework::nearest(wrong, names.filter(|name| !name.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_names_its_source_and_what_was_expected() {
        let fault = InputError::wrong(7, "gpus", "0", "a whole number from 1");
        let failure = Failure::input("jobs.csv", fault);
        assert_eq!(failure.exit_code(), 3);
        assert_eq!(
            failure.message(),
            "jobs.csv: line 7: `gpus` cannot be `0`: expected a whole number from 1"
        );
        assert_eq!(failure.json()["error"]["line"], 7);
    }

    #[test]
    fn a_wrong_variant_is_answered_with_the_nearest() {
        let problem = "unknown variant `stritc`, expected `strict` or `backfill`";
        assert_eq!(nearest_variant(problem).as_deref(), Some("strict"));
        assert_eq!(nearest_variant("missing field `sigma`"), None);
    }
}
