//! The forms of a job file, and the one way in.

use crate::moment::Context;
use crate::{batch, job, tree};
use trainyard_api::JobSpec;
use trainyard_diagnostic::InputError;

/// A text larger than this is no job file.
pub const TEXT_MAX: usize = 4 << 20;

/// In which notation jobs are written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// TOML: one job, or `[[job]]` tables with `[defaults]`.
    Toml,
    /// YAML: one job, or a list under `jobs`.
    Yaml,
    /// JSON, in the same shape.
    Json,
    /// A batch script with `#SBATCH` lines.
    Batch,
}

impl Form {
    /// The form of a text: a script by its first two bytes, anything else by the ending of its name.
    ///
    /// A name that tells nothing is TOML unless the text begins as JSON does.
    pub fn of(name: &str, text: &str) -> Form {
        let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            _ if text.starts_with("#!") => Form::Batch,
            Some("toml") => Form::Toml,
            Some("yaml" | "yml") => Form::Yaml,
            Some("json") => Form::Json,
            Some("sh" | "sbatch" | "slurm" | "batch" | "bash" | "sub") => Form::Batch,
            _ if text.trim_start().starts_with(['{', '[']) && !text.contains("[[job]]") => {
                Form::Json
            }
            _ if text.trim_start().starts_with("---") => Form::Yaml,
            _ => Form::Toml,
        }
    }
}

/// What a text said.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Its jobs, in the order of the text.
    pub jobs: Vec<JobSpec>,
    /// What was read and does nothing here.
    pub remarks: Vec<Remark>,
}

/// Something in a text that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its line, counted from 1.
    pub line: u64,
    /// What it is, and why it does nothing.
    pub text: String,
    /// Whether the name is not known to this program: perhaps a typing error.
    pub unknown: bool,
}

/// Reads jobs from a text. `name` is what the file is called.
pub fn read(form: Form, name: &str, text: &str, context: &Context) -> Result<JobFile, InputError> {
    if text.len() > TEXT_MAX {
        let expected = format!("at most {} MiB", TEXT_MAX >> 20);
        return Err(InputError::wrong(0, "", "its size", expected));
    }
    let root = match form {
        Form::Toml => tree::toml(text)?,
        Form::Yaml => tree::yaml(text)?,
        Form::Json => tree::json(text)?,
        Form::Batch => return batch::read(name, text, context),
    };
    Ok(JobFile { jobs: job::jobs(&root, context)?, remarks: Vec::new() })
}
