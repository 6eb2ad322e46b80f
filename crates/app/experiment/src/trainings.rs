//! Folders of measured trainings, read into profiles.

use crate::failure::Failure;
use crate::files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trainyard_diagnostic::InputError;
use trainyard_profile::ModelProfile;
use trainyard_profile::import::elasticflow;
use trainyard_profile::import::pollux::{self, Authors, Role, TableFault};
use trainyard_profile::training::TimePoint;

/// Entries of a folder beyond this are no measured trainings.
const ENTRIES_MAX: usize = 10_000;

/// What a folder holds.
pub struct Trainings {
    /// A model for each application, in order of name.
    pub models: Vec<ModelProfile>,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

/// Reads the folder of one application, or a folder of such folders; a table of queries adds recorded times.
pub fn load(authors: Authors, folder: &Path, queries: Option<&Path>) -> Result<Trainings, Failure> {
    let mut recorded = match queries {
        Some(path) => recorded(path)?,
        None => BTreeMap::new(),
    };
    let mut found = Trainings { models: Vec::new(), notes: Vec::new() };
    let inside = entries(folder)?;
    let is_table = |path: &PathBuf| Role::of(authors, &name_of(path)).is_some();
    let folders: Vec<PathBuf> = match inside.iter().any(is_table) {
        true => vec![folder.to_path_buf()],
        false => inside.into_iter().filter(|path| path.is_dir()).collect(),
    };
    for folder in folders {
        let application = name_of(&folder);
        if let Some(why) = pollux::left_out(authors, &application) {
            found.notes.push(format!("{}: left out, for it {why}", folder.display()));
            continue;
        }
        let points = recorded.remove(&application).unwrap_or_default();
        if let Some(model) = application_in(authors, &folder, points)? {
            found.models.push(model);
        }
    }
    if found.models.is_empty() {
        let expected = "folders with placements.csv and validation-BATCH.csv for each application";
        let fault = InputError::wrong(0, "", "no measured training in it", expected);
        let sentence = format!("has no measured training in it: expected {expected}");
        return Err(Failure::file(folder, sentence, fault));
    }
    for application in recorded.keys() {
        let note = format!("recorded times of `{application}` are not used: its tables are absent");
        found.notes.push(note);
    }
    Ok(found)
}

/// ElasticFlow's tables of throughputs in a folder, one file for each model, all for one type of GPU.
pub fn throughputs(folder: &Path, kind: &str) -> Result<Vec<ModelProfile>, Failure> {
    let mut models = Vec::new();
    for path in entries(folder)?.into_iter().filter(|path| path.extension() == Some("csv".as_ref()))
    {
        let model = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
        let tables = elasticflow::read(&files::read_text(&path)?, &model, kind);
        models.extend(tables.map_err(|fault| Failure::input(path.display(), fault))?);
    }
    Ok(models)
}

/// Recorded times by application.
pub fn recorded(path: &Path) -> Result<BTreeMap<String, Vec<TimePoint>>, Failure> {
    let text = files::read_text(path)?;
    pollux::queries(&text).map_err(|fault| Failure::input(path.display(), fault))
}

/// The training of one folder; `None` if it holds no table at all.
fn application_in(
    authors: Authors,
    folder: &Path,
    recorded: Vec<TimePoint>,
) -> Result<Option<ModelProfile>, Failure> {
    let mut tables = Vec::new();
    for path in entries(folder)? {
        let name = name_of(&path);
        if Role::of(authors, &name).is_some() {
            tables.push((name, files::read_text(&path)?));
        }
    }
    if tables.is_empty() {
        return Ok(None);
    }
    let texts = tables.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    let model = pollux::read(authors, &name_of(folder), texts, recorded);
    model.map(Some).map_err(|fault| {
        let TableFault { file, fault } = *fault;
        let path = if file.is_empty() { folder.to_path_buf() } else { folder.join(file) };
        Failure::input(path.display(), fault)
    })
}

/// What lies in a folder, in order of name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| match folder.is_file() {
        true => {
            let fault = InputError::wrong(0, "", "a file", "a folder of measured trainings");
            let sentence = "is a file: expected a folder of measured trainings".to_owned();
            Failure::file(folder, sentence, fault)
        }
        false => files::unreadable(folder, &error),
    })?;
    let mut paths = Vec::new();
    for entry in entries.take(ENTRIES_MAX) {
        paths.push(entry.map_err(|error| files::unreadable(folder, &error))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    whole.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
