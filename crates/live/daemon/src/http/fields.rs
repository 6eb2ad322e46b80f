//! How long the fields of a request may be, and what those are that were not given. Meaning is checked behind the
//! service.

use super::input::KEY_BYTES_MAX;
use super::route::Asked;
use trainyard_api::endpoint::types::{
    AcctRequest, Act, BoardQuery, EtaQuery, EtasQuery, EventsQuery, JobFilter, LogRequest, NodeAct,
    PolicyRequest, PoolRequest, SubmitRequest, TimelineQuery, TokenRequest, TrialEnd, TrialRequest,
    WhatIfRequest, WindowRequest,
};
use trainyard_api::request::ROWS_DEFAULT;
use trainyard_api::window::Reserved;
use trainyard_api::{Code, JobSpec, Problem};

const NAME_BYTES_MAX: usize = 256;
const PATH_BYTES_MAX: usize = 4096;
/// The longest argument or variable that Linux hands to a program (`MAX_ARG_STRLEN`, 32 pages).
const ARGUMENT_BYTES_MAX: usize = 128 << 10;
const ARGUMENTS_MAX: usize = 4096;
const VARIABLES_MAX: usize = 1024;
const TYPES_MAX: usize = 64;
const NODES_MAX: usize = 10_000;
const AFTER_MAX: usize = 1024;
const CONTROLS_MAX: usize = 16;
const ARRAY_BYTES_MAX: usize = 1024;
const SENTENCE_BYTES_MAX: usize = 1024;
const SETTINGS_BYTES_MAX: usize = 8 << 10;

const LOG_BYTES_DEFAULT: usize = 64 << 10;
const TOKEN_SECONDS_MAX: f64 = 3660.0 * 86_400.0;

/// What comes in, within the limits of this rim.
pub trait Checked: Sized {
    /// The same, with what was not given; or what is wrong with it.
    fn checked(self, asked: &Asked) -> Result<Self, Problem>;
}

impl Checked for SubmitRequest {
    fn checked(mut self, asked: &Asked) -> Result<SubmitRequest, Problem> {
        match (&self.key, &asked.key) {
            (Some(field), Some(header)) if field != header => {
                let detail =
                    "the field `key` and the header Idempotency-Key differ: give one of them";
                return Err(Problem::field(Code::BadInput, "key", detail));
            }
            (None, Some(header)) => self.key = Some(header.clone()),
            (Some(_) | None, _) => {}
        }
        check_submission(&self, asked.rim.limits.jobs_max)?;
        Ok(self)
    }
}

impl Checked for JobFilter {
    fn checked(self, asked: &Asked) -> Result<JobFilter, Problem> {
        let limit = Some(rows("limit", self.limit, asked)?);
        Ok(JobFilter { limit, ..self })
    }
}

impl Checked for EtaQuery {
    fn checked(self, _: &Asked) -> Result<EtaQuery, Problem> {
        Ok(self)
    }
}

impl Checked for EtasQuery {
    fn checked(self, asked: &Asked) -> Result<EtasQuery, Problem> {
        let limit = Some(rows("limit", self.limit, asked)?);
        Ok(EtasQuery { limit, ..self })
    }
}

impl Checked for WhatIfRequest {
    fn checked(self, _: &Asked) -> Result<WhatIfRequest, Problem> {
        Ok(self)
    }
}

impl Checked for LogRequest {
    fn checked(self, asked: &Asked) -> Result<LogRequest, Problem> {
        let most = asked.rim.limits.log_bytes_max;
        match self.max {
            0 => Ok(LogRequest { max: LOG_BYTES_DEFAULT.min(most), ..self }),
            max if max > most => Err(beyond("max", max, most)),
            _ => Ok(self),
        }
    }
}

impl Checked for AcctRequest {
    fn checked(self, _: &Asked) -> Result<AcctRequest, Problem> {
        check_moments(&[("since", self.since), ("until", self.until)])?;
        Ok(self)
    }
}

impl Checked for EventsQuery {
    fn checked(self, asked: &Asked) -> Result<EventsQuery, Problem> {
        let max = Some(rows("max", self.max, asked)?);
        check_wait(self.wait, asked)?;
        Ok(EventsQuery { max, ..self })
    }
}

impl Checked for BoardQuery {
    fn checked(self, asked: &Asked) -> Result<BoardQuery, Problem> {
        check_wait(self.wait, asked)?;
        Ok(self)
    }
}

impl Checked for TimelineQuery {
    fn checked(self, _: &Asked) -> Result<TimelineQuery, Problem> {
        check_moments(&[("since", self.since), ("until", self.until)])?;
        Ok(self)
    }
}

impl Checked for Act {
    fn checked(self, _: &Asked) -> Result<Act, Problem> {
        match &self {
            Act::Cancel { reason } => optional("reason", reason, SENTENCE_BYTES_MAX)?,
            Act::Hold | Act::Release | Act::Requeue => {}
        }
        Ok(self)
    }
}

impl Checked for NodeAct {
    fn checked(self, _: &Asked) -> Result<NodeAct, Problem> {
        match &self {
            NodeAct::Drain { reason } => optional("reason", reason, SENTENCE_BYTES_MAX)?,
            NodeAct::Resume => {}
        }
        Ok(self)
    }
}

impl Checked for WindowRequest {
    fn checked(self, _: &Asked) -> Result<WindowRequest, Problem> {
        check_window(&self)?;
        Ok(self)
    }
}

impl Checked for PoolRequest {
    fn checked(self, _: &Asked) -> Result<PoolRequest, Problem> {
        Ok(self)
    }
}

impl Checked for PolicyRequest {
    fn checked(self, _: &Asked) -> Result<PolicyRequest, Problem> {
        check_policy(&self.policy, &self.place, &self.admit)?;
        Ok(self)
    }
}

impl Checked for TrialRequest {
    fn checked(self, _: &Asked) -> Result<TrialRequest, Problem> {
        check_policy(&self.policy, &self.place, &self.admit)?;
        Ok(self)
    }
}

impl Checked for TrialEnd {
    fn checked(self, _: &Asked) -> Result<TrialEnd, Problem> {
        Ok(self)
    }
}

impl Checked for TokenRequest {
    fn checked(self, _: &Asked) -> Result<TokenRequest, Problem> {
        check_name("name", &self.name)?;
        if let Some(user) = &self.user {
            check_name("user", user)?;
        }
        if self
            .expires_seconds
            .is_some_and(|seconds| !(seconds > 0.0 && seconds <= TOKEN_SECONDS_MAX))
        {
            let detail =
                format!("`expires_seconds`: expected more than 0 and at most {TOKEN_SECONDS_MAX}");
            return Err(Problem::field(Code::BadInput, "expires_seconds", detail));
        }
        Ok(self)
    }
}

/// The fields of a submission.
fn check_submission(request: &SubmitRequest, jobs_max: usize) -> Result<(), Problem> {
    if request.jobs.is_empty() {
        return Err(Problem::field(
            Code::BadInput,
            "jobs",
            "`jobs` is empty: expected at least one job",
        ));
    }
    count("jobs", request.jobs.len(), jobs_max)?;
    optional("key", &request.key, KEY_BYTES_MAX)?;
    for (index, job) in request.jobs.iter().enumerate() {
        // The place of a job is only written out when something is wrong with it.
        check_job(job).map_err(|problem| {
            let field = format!("jobs[{index}].{}", problem.field.unwrap_or_default());
            Problem {
                detail: format!("jobs[{index}].{}", problem.detail),
                field: Some(field),
                ..problem
            }
        })?;
    }
    Ok(())
}

/// The fields of a window.
fn check_window(request: &WindowRequest) -> Result<(), Problem> {
    count("nodes", request.nodes.len(), NODES_MAX)?;
    for name in &request.nodes {
        length("nodes", name, NAME_BYTES_MAX)?;
    }
    length("reason", &request.reason, SENTENCE_BYTES_MAX)?;
    let Some(Reserved { tenants, users, jobs }) = &request.reserved else { return Ok(()) };
    count("reserved.jobs", jobs.len(), NODES_MAX)?;
    for (field, names) in [("reserved.tenants", tenants), ("reserved.users", users)] {
        count(field, names.len(), AFTER_MAX)?;
        for name in names {
            length(field, name, NAME_BYTES_MAX)?;
        }
    }
    Ok(())
}

/// The fields of a new policy.
fn check_policy(policy: &str, place: &Option<String>, admit: &[String]) -> Result<(), Problem> {
    length("policy", policy, SETTINGS_BYTES_MAX)?;
    optional("place", place, SETTINGS_BYTES_MAX)?;
    count("admit", admit.len(), CONTROLS_MAX)?;
    admit.iter().try_for_each(|control| length("admit", control, SETTINGS_BYTES_MAX))
}

/// A name that is used in addresses and lists: of a token, of its user.
fn check_name(field: &str, name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        true => Ok(()),
        false => {
            let detail = format!("`{field}`: expected 1 to 64 letters, digits or `._-@`");
            Err(Problem::field(Code::BadInput, field, detail))
        }
    }
}

fn check_job(job: &JobSpec) -> Result<(), Problem> {
    length("name", &job.name, NAME_BYTES_MAX)?;
    optional("tenant", &job.tenant, NAME_BYTES_MAX)?;
    optional("model", &job.model, NAME_BYTES_MAX)?;
    optional("cwd", &job.cwd, PATH_BYTES_MAX)?;
    optional("array", &job.array, ARRAY_BYTES_MAX)?;
    length("checkpoint.signal", &job.checkpoint.signal, 16)?;
    optional("checkpoint.dir", &job.checkpoint.dir, PATH_BYTES_MAX)?;
    count("after", job.after.len(), AFTER_MAX)?;
    count("gpu_types", job.gpu_types.len(), TYPES_MAX)?;
    count("argv", job.argv.len(), ARGUMENTS_MAX)?;
    count("env", job.env.len(), VARIABLES_MAX)?;
    for name in &job.gpu_types {
        length("gpu_types", name, NAME_BYTES_MAX)?;
    }
    for argument in &job.argv {
        length("argv", argument, ARGUMENT_BYTES_MAX)?;
    }
    for (name, value) in &job.env {
        length("env", name, NAME_BYTES_MAX)?;
        length("env", value, ARGUMENT_BYTES_MAX)?;
        if name.is_empty() || name.contains('=') {
            let detail =
                format!("`env`: `{name}` cannot name a variable: expected no `=` and not nothing");
            return Err(Problem::field(Code::BadInput, "env", detail));
        }
    }
    Ok(())
}

fn rows(field: &str, wanted: Option<usize>, asked: &Asked) -> Result<usize, Problem> {
    let max = asked.rim.limits.rows_max;
    match wanted.unwrap_or(ROWS_DEFAULT.min(max)) {
        0 => Err(Problem::field(Code::BadInput, field, format!("`{field}`: expected at least 1"))),
        wanted if wanted > max => Err(beyond(field, wanted, max)),
        wanted => Ok(wanted),
    }
}

fn check_wait(wait: f64, asked: &Asked) -> Result<(), Problem> {
    let longest = asked.rim.limits.wait_time_max.as_secs_f64();
    match (0.0..=longest).contains(&wait) {
        true => Ok(()),
        false => {
            let detail = format!("`wait`: expected 0 to {longest} seconds");
            Err(Problem::field(Code::BadInput, "wait", detail))
        }
    }
}

fn check_moments(moments: &[(&str, Option<f64>)]) -> Result<(), Problem> {
    for (field, value) in moments {
        if value.is_some_and(|value| !value.is_finite()) {
            let detail = format!("`{field}`: expected seconds of Unix time");
            return Err(Problem::field(Code::BadInput, field, detail));
        }
    }
    Ok(())
}

fn beyond(field: &str, wanted: usize, max: usize) -> Problem {
    let detail = format!("`{field}` is {wanted}, and {max} is allowed at most: ask in parts");
    Problem::field(Code::BadInput, field, detail)
}

fn optional(field: &str, text: &Option<String>, bytes_max: usize) -> Result<(), Problem> {
    text.as_ref().map_or(Ok(()), |text| length(field, text, bytes_max))
}

fn length(field: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    if text.len() > bytes_max {
        let detail = format!("`{field}` has {} bytes, and {bytes_max} are allowed", text.len());
        return Err(Problem::field(Code::BadInput, field, detail));
    }
    // No program can be given it, and it would cut names short in logs.
    match text.as_bytes().contains(&0) {
        false => Ok(()),
        true => Err(Problem::field(Code::BadInput, field, format!("`{field}` holds a NUL byte"))),
    }
}

fn count(field: &str, found: usize, max: usize) -> Result<(), Problem> {
    match found <= max {
        true => Ok(()),
        false => {
            let detail = format!("`{field}` has {found} entries, and {max} are allowed");
            Err(Problem::field(Code::BadInput, field, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_field_is_named_with_its_job() {
        let job = JobSpec { argv: vec!["a".repeat(ARGUMENT_BYTES_MAX + 1)], ..JobSpec::default() };
        let request = SubmitRequest { jobs: vec![JobSpec::default(), job], key: None };
        let problem = check_submission(&request, 10).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("jobs[1].argv"));
        assert!(problem.detail.contains("131073 bytes, and 131072 are allowed"), "{problem}");
        let problem = check_submission(&request, 1).unwrap_err();
        assert_eq!(problem.detail, "`jobs` has 2 entries, and 1 are allowed");
    }
}
