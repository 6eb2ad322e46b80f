//! Job files as submissions; `job validate` and `job schema`. `job show` is in `detail`.

use super::args::{JobCommand, JobFiles};
use crate::failure::Failure;
use crate::output::{Output, note, reason};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use trainyard_api::JobSpec;
use trainyard_client::show::{asked, versioned};
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::read_text;
use trainyard_jobfile::Context;
use trainyard_jobfile::{Form, Remark};
use trainyard_report::table::listing;

/// `job ...`.
pub fn run(command: &JobCommand, output: &Output) -> Result<(), Failure> {
    match command {
        JobCommand::Show(args) => super::detail::show(args, output),
        JobCommand::Schema => output.print_json(&trainyard_jobfile::schema()),
        JobCommand::Validate { files, json } => {
            let jobs = read(files)?;
            if *json {
                return output.print_json(&versioned(json!({ "jobs": jobs })));
            }
            let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
            let heading = ["name", "GPUs", "asks for", "command"];
            output.print(&listing(&heading, &rows, output.ink, output.width))
        }
    }
}

fn row(job: &JobSpec) -> Vec<String> {
    let command = match &job.script {
        Some(script) => format!("{} (a script of {} lines)", job.argv[0], script.lines().count()),
        None => job.argv.join(" "),
    };
    vec![job.name.clone(), job.gpus.to_string(), asked(job), command]
}

/// The jobs of all files, in order. What has no effect is said on standard error.
pub fn read(files: &JobFiles) -> Result<Vec<JobSpec>, Failure> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::Operation(format!("the present directory cannot be told: {}", reason(&error)))
    })?;
    let mut jobs = Vec::new();
    for path in &files.files {
        let (name, text) = text(path)?;
        let form = Form::of(&name, &text);
        let file = trainyard_jobfile::read(form, &name, &text, &context())
            .map_err(|fault| Failure::input(&name, fault))?;
        if let Some(remark) = file.remarks.iter().find(|remark| files.strict && remark.unknown) {
            return Err(strict(&name, remark));
        }
        for Remark { line, text, .. } in &file.remarks {
            note(&format!("note: {name}: line {line}: {text}"));
        }
        jobs.extend(file.jobs.into_iter().map(|job| placed(job, &here)));
    }
    Ok(jobs)
}

/// A job runs where it was submitted, unless it says otherwise; a relative directory begins there.
pub fn placed(job: JobSpec, here: &Path) -> JobSpec {
    let cwd = here.join(job.cwd.as_deref().unwrap_or_default());
    // Without a part of its own the path would end in a slash.
    let cwd: PathBuf = cwd.components().collect();
    JobSpec { cwd: Some(cwd.to_string_lossy().into_owned()), ..job }
}

fn text(path: &Path) -> Result<(String, String), Failure> {
    if path != Path::new("-") {
        return Ok((path.display().to_string(), read_text(path)?));
    }
    let name = "standard input".to_owned();
    let mut text = String::new();
    let limit = trainyard_jobfile::form::TEXT_MAX as u64 + 1;
    match std::io::stdin().lock().take(limit).read_to_string(&mut text) {
        Ok(_) => Ok((name, text)),
        Err(error) => {
            let expected = format!("text in UTF-8 ({})", reason(&error));
            Err(Failure::input(name, InputError::wrong(0, "", "what came", expected)))
        }
    }
}

fn strict(name: &str, remark: &Remark) -> Failure {
    let fault = InputError::wrong(remark.line, "", "the line", "a known directive");
    let sentence = format!("line {}: {}", remark.line, remark.text);
    Failure::file(Path::new(name), sentence, fault)
}

/// Now and here.
pub fn context() -> Context {
    Context { now: Timestamp::now(), zone: TimeZone::system() }
}
