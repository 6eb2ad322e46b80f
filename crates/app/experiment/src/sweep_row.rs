//! The result of each run of a sweep: a row that is kept, read back, and joined with the others.

use crate::Failure;
use crate::files;
use crate::sweep::{Cell, Ready};
use crate::sweep_table;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trainyard_report::column::COLUMNS;
use trainyard_report::{Information, SCHEMA_VERSION, Summary};
use trainyard_sim::{Quiet, simulate};
use trainyard_workload::cluster;

/// The result of a run that was done before; a file that is damaged or of another run does not count.
pub fn kept(rows: &Path, cell: &Cell) -> Option<Value> {
    let path = row_path(rows, cell);
    let text = path.is_file().then(|| files::read_text(&path).ok()).flatten()?;
    let row: Value = serde_json::from_str(&text).ok()?;
    let is_ours = row["schema_version"] == SCHEMA_VERSION
        && row["key"] == cell.key.as_str()
        && row["settings"] == settings(cell)
        && row["measures"].is_object();
    is_ours.then_some(row)
}

/// The file of a run.
pub fn row_path(rows: &Path, cell: &Cell) -> PathBuf {
    rows.join(format!("{}.json", cell.key))
}

/// The settings of a run by name.
pub fn settings(cell: &Cell) -> Value {
    let pairs = cell.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<String, Value>>())
}

/// Finds bad files and settings before hours are spent: one run for each trace and cluster is made ready.
pub fn refuse_early(todo: &[&Cell]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for cell in todo {
        let files = cell.settings.iter().filter(|(key, _)| key == "trace" || key == "cluster");
        if seen.insert(files.collect::<Vec<_>>()) {
            cell.ready()?;
        }
    }
    Ok(())
}

/// Makes a run, with a version of the program.
pub fn run(cell: &Cell, version: &str) -> Result<Value, Failure> {
    let Ready { given, entrant, options } = cell.ready()?;
    let pipeline = entrant.selection.build().map_err(|error| Failure::config("", error))?;
    let information =
        Information::new(&pipeline.needs, (options.estimate_error, options.speed_error));
    let outcome = simulate(&given.workload, &given.cluster, pipeline, &options, &mut Quiet);
    let summary = Summary::new(&given.workload, &given.cluster, &outcome);
    let load = given.workload.offered_load(&given.cluster);
    let measures = COLUMNS.iter().map(|one| (one.key.to_owned(), json!((one.value)(&summary))));
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "sweep-row",
        "version": version,
        "key": cell.key,
        "settings": settings(cell),
        "workload": given.workload.name,
        "offered_load": load.is_finite().then_some(load),
        "cluster": cluster::line_of(&given.cluster),
        "seed": options.seed,
        "information": information.text(),
        "measures": measures.collect::<Map<String, Value>>(),
        "trouble": summary.trouble,
    }))
}

/// All results in one document.
pub fn whole(cells: &[Cell], results: &[Value], version: &str) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "sweep",
        "version": version,
        "axes": sweep_table::axes(cells),
        "runs": results,
    })
}

/// Fails when a run left jobs unfinished or its policy did not work.
pub fn conclude(cells: &[Cell], results: &[Value]) -> Result<(), Failure> {
    let is_bad = |row: &Value| {
        let trouble = row["trouble"].as_object();
        row["measures"]["unfinished"].as_f64() > Some(0.0)
            || trouble.is_some_and(|all| all.values().any(|count| count.as_u64() > Some(0)))
    };
    let bad: Vec<&Cell> =
        cells.iter().zip(results).filter(|(_, row)| is_bad(row)).map(|(cell, _)| cell).collect();
    match bad.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Operation(format!(
            "{} of {} runs left jobs UNFINISHED or had a policy that did not work properly, such as `{}`",
            bad.len(),
            cells.len(),
            first.text()
        ))),
    }
}
