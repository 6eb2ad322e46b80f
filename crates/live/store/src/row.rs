//! What can be read.

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Its id.
    pub job: u32,
    /// Who submitted it.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// The submission as JSON.
    pub spec: String,
    /// Its state as JSON.
    pub state: String,
    /// How it ended.
    pub end: Option<String>,
    /// When it was submitted, in microseconds of Unix time.
    pub wall: i64,
}

/// A launch.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    /// The job.
    pub job: u32,
    /// Its launch.
    pub attempt: u32,
    /// GPUs it held.
    pub gpus: u32,
    /// When it was launched, in microseconds of Unix time.
    pub launched: i64,
    /// When it was over.
    pub ended: Option<i64>,
    /// What its GPUs cost an hour, all together.
    pub price_per_hour: f64,
    /// All else as JSON.
    pub data: String,
}

/// A launch with who pays for it.
#[derive(Clone, Debug, PartialEq)]
pub struct UsageRow {
    /// Whose job it is.
    pub user: String,
    /// Who pays.
    pub tenant: String,
    /// The launch.
    pub attempt: AttemptRow,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Its number.
    pub seq: u64,
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// What sort.
    pub kind: String,
    /// The job.
    pub job: Option<u32>,
    /// Whose job it is.
    pub user: Option<String>,
    /// All else as JSON.
    pub data: String,
}

/// A token, hashed.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRow {
    /// What people call it.
    pub name: String,
    /// The digest of the secret.
    pub digest: String,
    /// Whose requests it makes.
    pub user: String,
    /// What it allows.
    pub role: String,
    /// When it was made, in microseconds of Unix time.
    pub created: i64,
    /// When it ends.
    pub expires: Option<i64>,
}

/// Who asked for what.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// When, in microseconds of Unix time.
    pub wall: i64,
    /// Who.
    pub user: String,
    /// What.
    pub action: String,
    /// On what.
    pub target: String,
    /// Whether it was allowed.
    pub allowed: bool,
}
