//! Texts in, jobs or one message out.

mod bad_input;
mod batch;
mod documented;
mod job_files;
mod random;
mod schema;

use jiff::tz::TimeZone;
use trainyard_api::JobSpec;
use trainyard_diagnostic::InputError;
use trainyard_jobfile::{Context, Form, JobFile};

/// Noon of 1 May 2026, in UTC.
const NOW: f64 = 1_777_636_800.0;

fn context() -> Context {
    Context { now: "2026-05-01T12:00:00Z".parse().expect("a moment"), zone: TimeZone::UTC }
}

fn read(form: Form, text: &str) -> Result<JobFile, InputError> {
    trainyard_jobfile::read(form, "jobs/train.sh", text, &context())
}

fn jobs(form: Form, text: &str) -> Vec<JobSpec> {
    read(form, text).unwrap_or_else(|fault| panic!("{fault}\n{text}")).jobs
}

fn fault(form: Form, text: &str) -> InputError {
    match read(form, text) {
        Ok(file) => panic!("understood as {:?}\n{text}", file.jobs),
        Err(fault) => fault,
    }
}
