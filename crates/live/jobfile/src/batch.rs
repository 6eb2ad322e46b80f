//! Batch scripts with `#SBATCH` lines.
//!
//! - `directive`: the lines as options with values.
//! - `option`: the one table of options, and what each means here.
//! - `wish`: what the options ask for, and the job that it becomes.
//!
//! The script is kept with the job, whole: what runs is what was submitted.

mod directive;
mod option;
mod wish;

use crate::form::{JobFile, Remark};
use crate::job::file_name;
use crate::moment::Context;
use directive::Given;
use trainyard_api::JobSpec;
use trainyard_diagnostic::InputError;

/// Reads a batch script called `name`.
pub(crate) fn read(name: &str, text: &str, context: &Context) -> Result<JobFile, InputError> {
    let first = text.lines().next().unwrap_or_default();
    if !first.starts_with("#!") {
        let first = if first.trim().is_empty() { "an empty line" } else { first };
        let expected = "the line of the interpreter first, such as #!/bin/bash";
        return Err(InputError::wrong(1, "", first, expected));
    }
    if let Some(at) = text.find("\r\n") {
        let line = text[..at].matches('\n').count() as u64 + 1;
        let expected = "lines that end as on Unix; `sed -i 's/\\r$//' FILE` repairs them";
        return Err(InputError::wrong(line, "", "a carriage return", expected));
    }
    if text.contains('\0') {
        return Err(InputError::wrong(0, "", "a NUL byte", "a script as text"));
    }
    let found = directive::directives(text)?;
    let mut remarks: Vec<Remark> = found.late.iter().map(|line| late(*line)).collect();
    let mut wish = wish::Wish::default();
    for given in &found.given {
        match option::OPTIONS.iter().find(|option| option.long == given.long) {
            Some(option) => {
                let said = wish.take(option.meaning, given, context)?;
                remarks.extend(said.map(|why| no_effect(given, &why)));
            }
            None => remarks.push(unknown(given)),
        }
    }
    let mut job = JobSpec { script: Some(text.to_owned()), ..JobSpec::default() };
    job.name = file_name(name).to_owned();
    job.argv = vec![job.name.clone()];
    remarks.extend(wish.fill(&mut job)?);
    remarks.sort_by_key(|remark| remark.line);
    Ok(JobFile { jobs: vec![job], remarks })
}

fn late(line: u64) -> Remark {
    let text = "stands after the first command, where #SBATCH lines are not read".to_owned();
    Remark { line, text, unknown: true }
}

fn no_effect(given: &Given, why: &str) -> Remark {
    Remark {
        line: given.line,
        text: format!("{} has no effect: {why}", given.shown),
        unknown: false,
    }
}

fn unknown(given: &Given) -> Remark {
    let names = option::OPTIONS.iter().map(|option| option.long);
    let bare = given.long.trim_start_matches('-');
    let hint = match trainyard_diagnostic::nearest(bare, names) {
        Some(name) if bare.len() > 1 => format!("; did you mean `--{name}`?"),
        _ => String::new(),
    };
    let text = format!("{} is not known here and has no effect{hint}", given.shown);
    Remark { line: given.line, text, unknown: true }
}
