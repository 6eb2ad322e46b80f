//! What can be written.

/// One change. A list of them is committed whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A new job. Fails the whole list when the id is taken.
    AddJob {
        /// Its id.
        job: u32,
        /// Who submitted it.
        user: String,
        /// Who pays.
        tenant: String,
        /// The submission as JSON.
        spec: String,
        /// Its state as JSON.
        state: String,
        /// When, in microseconds of Unix time.
        wall: i64,
    },
    /// The new state of a job.
    SetState {
        /// The job.
        job: u32,
        /// Its state as JSON.
        state: String,
        /// How it ended, once it has: it leaves the open jobs then.
        end: Option<String>,
    },
    /// What is known of a launch; replaces what was known of it before.
    SetAttempt {
        /// The job.
        job: u32,
        /// Its launch.
        attempt: u32,
        /// GPUs it held.
        gpus: u32,
        /// When it was launched, in microseconds of Unix time.
        launched: i64,
        /// When it was over.
        ended: Option<i64>,
        /// What its GPUs cost an hour, all together.
        price_per_hour: f64,
        /// All else as JSON.
        data: String,
    },
    /// A client's key with the answer it was given, as JSON. Fails the whole list when the pair is taken.
    AddKey {
        /// Who used it.
        user: String,
        /// The key.
        key: String,
        /// A digest of the request, to tell a repetition from another request under the same key.
        digest: String,
        /// The answer as JSON.
        answer: String,
        /// When, in microseconds of Unix time.
        wall: i64,
    },
    /// Something that happened; gets the next number.
    AddEvent {
        /// When, in microseconds of Unix time.
        wall: i64,
        /// What sort.
        kind: String,
        /// The job.
        job: Option<u32>,
        /// Whose job it is.
        user: Option<String>,
        /// All else as JSON.
        data: String,
    },
    /// Who asked for what, and whether it was allowed.
    AddAudit {
        /// When, in microseconds of Unix time.
        wall: i64,
        /// Who.
        user: String,
        /// What.
        action: String,
        /// On what.
        target: String,
        /// Whether it was allowed.
        allowed: bool,
    },
    /// A named value as JSON; replaces the one before.
    SetMeta {
        /// Its name.
        name: String,
        /// The value.
        value: String,
    },
    /// A new token, hashed.
    AddToken {
        /// What people call it.
        name: String,
        /// The digest of the secret.
        digest: String,
        /// Whose requests it makes.
        user: String,
        /// What it allows.
        role: String,
        /// When it was made, in microseconds of Unix time.
        created: i64,
        /// When it ends.
        expires: Option<i64>,
    },
    /// A token is no longer good.
    DropToken {
        /// Its name.
        name: String,
    },
}
