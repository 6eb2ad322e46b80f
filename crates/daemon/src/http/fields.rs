//! How long the fields of a request may be. Meaning is checked behind the service.

use super::input::KEY_BYTES_MAX;
use crate::service::{Act, NodeAct, PolicyRequest};
use trainyard_api::answer::SubmitRequest;
use trainyard_api::window::{Reserved, WindowRequest};
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

/// The fields of a submission.
pub fn check_submission(request: &SubmitRequest, jobs_max: usize) -> Result<(), Problem> {
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

/// The fields of what is done to a job.
pub fn check_act(act: &Act) -> Result<(), Problem> {
    match act {
        Act::Cancel { reason } => optional("reason", reason, SENTENCE_BYTES_MAX),
        Act::Hold | Act::Release | Act::Requeue => Ok(()),
    }
}

/// The fields of what is done to a node.
pub fn check_node_act(act: &NodeAct) -> Result<(), Problem> {
    match act {
        NodeAct::Drain { reason } => optional("reason", reason, SENTENCE_BYTES_MAX),
        NodeAct::Resume => Ok(()),
    }
}

/// The fields of a window.
pub fn check_window(request: &WindowRequest) -> Result<(), Problem> {
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
pub fn check_policy(request: &PolicyRequest) -> Result<(), Problem> {
    length("policy", &request.policy, SETTINGS_BYTES_MAX)?;
    optional("place", &request.place, SETTINGS_BYTES_MAX)?;
    count("admit", request.admit.len(), CONTROLS_MAX)?;
    request.admit.iter().try_for_each(|control| length("admit", control, SETTINGS_BYTES_MAX))
}

/// A name that is used in addresses and lists: of a token, of its user.
pub fn check_name(field: &str, name: &str) -> Result<(), Problem> {
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
