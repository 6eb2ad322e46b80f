//! What can go wrong between a client and the daemon: one table of codes, statuses and exit codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every way in which a request can fail.
#[derive(
    Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// A field or a file that cannot be used.
    BadInput,
    /// It is understood and can never be done here: more GPUs than exist, a policy that refuses.
    Infeasible,
    /// No token, a wrong one, or one that has expired.
    Unauthenticated,
    /// The role of the caller does not allow it.
    Denied,
    /// No such job, node or tenant.
    NotFound,
    /// It contradicts the present state: the job has ended, the key was used for another job.
    Conflict,
    /// The body is larger than allowed.
    TooLarge,
    /// More requests than allowed.
    TooMany,
    /// The daemon cannot be reached or did not answer in time.
    Unreachable,
    /// The store cannot take it now, for want of space or a fault of the disk; nothing was accepted.
    StoreFailed,
    /// The daemon is at fault.
    Internal,
}

/// All codes with the HTTP status and the exit code of each.
pub const CODES: &[(Code, u16, u8)] = &[
    (Code::BadInput, 422, 3),
    (Code::Infeasible, 422, 4),
    (Code::Unauthenticated, 401, 5),
    (Code::Denied, 403, 5),
    (Code::NotFound, 404, 6),
    (Code::Conflict, 409, 7),
    (Code::TooLarge, 413, 3),
    (Code::TooMany, 429, 8),
    (Code::Unreachable, 503, 8),
    (Code::StoreFailed, 507, 1),
    (Code::Internal, 500, 1),
];

impl Code {
    /// The HTTP status it is sent with.
    pub fn status(self) -> u16 {
        self.row().1
    }

    /// The exit code of a command that meets it.
    pub fn exit_code(self) -> u8 {
        self.row().2
    }

    fn row(self) -> &'static (Code, u16, u8) {
        CODES.iter().find(|(code, _, _)| *code == self).expect("every code has a row")
    }
}

/// What went wrong, where, and what to do: the body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// Which way.
    pub code: Code,
    /// One sentence that names the value, what was expected, and what to do.
    pub detail: String,
    /// The field at fault, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Problem {
    /// A problem without a field.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem { code, detail: detail.into(), field: None }
    }

    /// A problem with a field.
    pub fn field(code: Code, field: &str, detail: impl Into<String>) -> Problem {
        Problem { code, detail: detail.into(), field: Some(field.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_row() {
        for (index, (code, status, exit)) in CODES.iter().enumerate() {
            assert_eq!((code.status(), code.exit_code()), (*status, *exit));
            assert!(CODES[..index].iter().all(|(other, _, _)| other != code));
        }
    }
}
