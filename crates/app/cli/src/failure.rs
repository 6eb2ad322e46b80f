//! What can go wrong, and the one place where it becomes an exit code.

use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_experiment::failure::BadInput;
use trainyard_framework::ConfigError;
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
    /// The reader of the output closed it.
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
  7    it contradicts what is: the job has ended, the key stands for other jobs
  8    the daemon cannot be reached, or has too much to do
  130  interrupted
`run` and `submit --wait` end with the code of the job: 128 and the number of the signal that killed it.";

impl Failure {
    /// A fault in a file or a flag.
    pub fn input(source: impl ToString, fault: InputError) -> Failure {
        trainyard_experiment::Failure::input(source, fault).into()
    }

    /// A file that cannot be read, in words of our own.
    pub fn file(path: &std::path::Path, sentence: String, fault: InputError) -> Failure {
        trainyard_experiment::Failure::file(path, sentence, fault).into()
    }

    /// A value of a flag that is not what was expected.
    pub fn flag(flag: &str, value: &str, expected: impl Into<String>) -> Failure {
        trainyard_experiment::Failure::flag(flag, value, expected).into()
    }

    /// A setting or a name that was refused.
    pub fn config(source: impl ToString, error: ConfigError) -> Failure {
        trainyard_experiment::Failure::config(source, error).into()
    }

    /// What the daemon answered instead of what was asked for.
    #[cfg(feature = "live")]
    pub fn problem(problem: trainyard_api::Problem) -> Failure {
        Failure::Problem(Box::new(problem))
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

impl From<trainyard_experiment::Failure> for Failure {
    fn from(failure: trainyard_experiment::Failure) -> Failure {
        match failure {
            trainyard_experiment::Failure::Operation(what) => Failure::Operation(what),
            trainyard_experiment::Failure::Input(bad) => Failure::Input(bad),
        }
    }
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
}
