//! `trainyard profile`: the models there are, and published tables of others.

mod axes;
mod check;
mod complete;
mod interference;
mod show;
mod training;

pub use check::check;
pub use complete::complete;
pub use interference::interference;
pub use show::show;

use crate::args::{ImportArgs, ListArgs, ProfileFormat};
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::files;
use trainyard_experiment::given::load_catalog;
use trainyard_experiment::trainings::{self, Trainings};
use trainyard_profile::import::pollux::Authors;
use trainyard_profile::import::{chronus, elasticflow, gavel, muri, synergy};
use trainyard_profile::{ModelProfile, profile_file};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;

/// Reads a published table and writes it as profiles.
pub fn import(args: &ImportArgs, output: &Output) -> Result<(), Failure> {
    refuse_idle_flags(args)?;
    let models = read(args)?;
    let toml = profile_file::write(&models);
    let Some(path) = &args.out else {
        return if args.json { output.print_json(&all(&models)) } else { output.print(&toml) };
    };
    output.write_file(path, |file| file.write_all(toml.as_bytes()))?;
    let points: usize = models.iter().map(|model| model.points.len()).sum();
    let pairs: usize = models.iter().map(|model| model.pairs.len()).sum();
    let times = models.iter().filter_map(|model| model.training.as_ref());
    let times: usize = times.map(|training| training.times.points().len()).sum();
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "profile-import",
            "file": path.display().to_string(),
            "models": models.len(),
            "points": points,
            "pairs": pairs,
            "times": times,
        }));
    }
    let times = if times > 0 { format!(", {times} times of iterations") } else { String::new() };
    output.print(&format!(
        "{}: {} models, {points} points, {pairs} pairs{times}\n",
        path.display(),
        models.len()
    ))
}

fn read(args: &ImportArgs) -> Result<Vec<ModelProfile>, Failure> {
    let refused = |fault| Failure::input(args.file.display(), fault);
    let authors = match args.format {
        ProfileFormat::Gavel => return gavel::read(&text_of(args)?).map_err(refused),
        ProfileFormat::Elasticflow => {
            let (model, kind) = (model_of(args), kind_of(args)?);
            return elasticflow::read(&text_of(args)?, &model, &kind).map_err(refused);
        }
        ProfileFormat::Muri => return muri::read(&text_of(args)?).map_err(refused),
        ProfileFormat::Chronus => return chronus::read(&text_of(args)?).map_err(refused),
        ProfileFormat::Synergy => return synergy::read(&text_of(args)?).map_err(refused),
        ProfileFormat::Pollux => Authors::Pollux,
        ProfileFormat::Sia => Authors::Sia,
    };
    let Trainings { models, notes } =
        trainings::load(authors, &args.file, args.queries.as_deref())?;
    for note in notes {
        // A reader that closed the pipe is no failure.
        crate::output::note(&format!("note: {note}"));
    }
    Ok(models)
}

fn text_of(args: &ImportArgs) -> Result<String, Failure> {
    Ok(files::read_text(&args.file)?)
}

/// Lists the zoo and the user's own models.
pub fn list(args: &ListArgs, output: &Output) -> Result<(), Failure> {
    let catalog = load_catalog(&args.profiles)?;
    if args.json {
        return output.print_json(&all(catalog.iter().map(|(_, model)| model)));
    }
    let rows: Vec<Vec<String>> = catalog
        .iter()
        .map(|(_, model)| {
            let most = model.points.iter().map(|point| point.gpus).max().unwrap_or(0);
            vec![
                model.name.clone(),
                kinds(model).join(", "),
                most.to_string(),
                memory(model),
                short_source(&model.source),
            ]
        })
        .collect();
    let heading = ["model", "measured on", "up to GPUs", "memory", "source"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}

/// The types a model was measured on, in order of name.
fn kinds(model: &ModelProfile) -> Vec<&str> {
    let mut kinds: Vec<&str> = model.points.iter().map(|point| point.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn memory(model: &ModelProfile) -> String {
    match model.memory_mib {
        0 => "?".to_owned(),
        memory => format!("{:.1} GiB", f64::from(memory) / 1024.0),
    }
}

/// The beginning of a source, up to the first comma or colon.
fn short_source(source: &str) -> String {
    source.split([',', ':', ';']).next().unwrap_or("").to_owned()
}

fn all<'a>(models: impl IntoIterator<Item = &'a ModelProfile>) -> Value {
    let models: Vec<Value> = models.into_iter().map(show::json).collect();
    json!({ "schema_version": SCHEMA_VERSION, "kind": "profiles", "models": models })
}

/// Refuses flags that the format has no use for.
fn refuse_idle_flags(args: &ImportArgs) -> Result<(), Failure> {
    if let Some(queries) = &args.queries
        && args.format != ProfileFormat::Pollux
    {
        let expected = "no such flag: only trainings of pollux have recorded times";
        return Err(Failure::flag("--queries", &queries.display().to_string(), expected));
    }
    if args.format == ProfileFormat::Elasticflow {
        return Ok(());
    }
    for (flag, given) in [("--kind", &args.kind), ("--model", &args.model)] {
        if let Some(value) = given {
            let expected = "no such flag: only a table of elasticflow does not say it";
            return Err(Failure::flag(flag, value, expected));
        }
    }
    Ok(())
}

/// The model of an ElasticFlow table: as given, or the name of the file.
fn model_of(args: &ImportArgs) -> String {
    let name = args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".csv").to_owned();
    args.model.clone().unwrap_or(stem)
}

/// The type of an ElasticFlow table: as given, or from a folder `throughputs_TYPE`.
fn kind_of(args: &ImportArgs) -> Result<String, Failure> {
    if let Some(kind) = &args.kind {
        return Ok(kind.clone());
    }
    let folder = args.file.parent().and_then(Path::file_name);
    let folder = folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match folder.strip_prefix("throughputs_") {
        Some(kind) => Ok(kind.to_owned()),
        None => {
            let expected = "a type of GPU, such as a100: the table does not say it";
            let fault = InputError::missing(0, "--kind", expected);
            Err(Failure::input(args.file.display(), fault))
        }
    }
}
