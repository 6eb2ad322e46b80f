//! `trainyard sweep`: a cross product of runs that can be interrupted and taken up again.

use crate::args::VERSION;
use crate::experiment;
use crate::failure::Failure;
use crate::files;
use crate::output::{Output, panic_text, reason};
use crate::sweep::{self, Cell, Ready, SweepArgs};
use crate::sweep_table::{self, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use trainyard_report::column::COLUMNS;
use trainyard_report::table::listing;
use trainyard_report::{Information, SCHEMA_VERSION, Summary};
use trainyard_sim::{Quiet, simulate};
use trainyard_workload::cluster;

/// Runs the command.
pub fn run(args: &SweepArgs, output: &Output) -> Result<(), Failure> {
    if args.parquet && !cfg!(feature = "parquet") {
        let what =
            "this build writes no Parquet: build it with `--features parquet`, or take results.csv";
        return Err(Failure::Usage(what.to_owned()));
    }
    let cells = sweep::cells(args)?;
    let rows = args.out.join("rows");
    let kept: Vec<Option<Value>> = cells.iter().map(|cell| kept(&rows, cell)).collect();
    if args.dry_run {
        return list(&cells, &kept, args.json, output);
    }
    let todo: Vec<&Cell> =
        cells.iter().zip(&kept).filter(|(_, row)| row.is_none()).map(|(cell, _)| cell).collect();
    refuse_early(&todo)?;
    std::fs::create_dir_all(&rows).map_err(|error| {
        Failure::Operation(format!("{}: cannot be made: {}", rows.display(), reason(&error)))
    })?;
    let fresh = run_all(&todo, &rows, args, output)?;
    let mut fresh = fresh.into_iter();
    let results: Vec<Value> = kept
        .into_iter()
        .map(|row| row.or_else(|| fresh.next()))
        .collect::<Option<_>>()
        .ok_or_else(|| Failure::Operation("a run of the sweep is missing its result".to_owned()))?;
    let mut files = vec![args.out.join("results.csv"), args.out.join("results.json")];
    let table = Table::new(&cells, &results);
    output.write_file(&files[0], |out| table.write_csv(out))?;
    let whole = whole(&cells, &results);
    output.write_file(&files[1], |out| writeln!(out, "{whole:#}"))?;
    #[cfg(feature = "parquet")]
    if args.parquet {
        files.push(args.out.join("results.parquet"));
        output.write_file(&files[2], |out| crate::parquet_file::write(&table, out))?;
    }
    if args.json {
        output.print_json(&whole)?;
    } else {
        let (all, now) = (cells.len(), todo.len());
        let last = files.pop().unwrap_or_default();
        let others: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        output.print(&format!(
            "{all} runs: {now} done now, {} kept from before\nResults: {} and {}\n",
            all - now,
            others.join(", "),
            last.display()
        ))?;
    }
    conclude(&cells, &results)
}

/// The result of a run that was done before; a file that is damaged or of another run does not count.
fn kept(rows: &Path, cell: &Cell) -> Option<Value> {
    let path = row_path(rows, cell);
    let text = path.is_file().then(|| files::read_text(&path).ok()).flatten()?;
    let row: Value = serde_json::from_str(&text).ok()?;
    let is_ours = row["schema_version"] == SCHEMA_VERSION
        && row["key"] == cell.key.as_str()
        && row["settings"] == settings(cell)
        && row["measures"].is_object();
    is_ours.then_some(row)
}

fn row_path(rows: &Path, cell: &Cell) -> PathBuf {
    rows.join(format!("{}.json", cell.key))
}

fn settings(cell: &Cell) -> Value {
    let pairs = cell.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<String, Value>>())
}

/// Finds bad files and laws before hours are spent: one run for each trace and cluster is made ready.
fn refuse_early(todo: &[&Cell]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for cell in todo {
        let files = cell.settings.iter().filter(|(key, _)| key == "trace" || key == "cluster");
        if seen.insert(files.collect::<Vec<_>>()) {
            cell.ready()?;
        }
    }
    Ok(())
}

/// Runs what is missing, each result going to its file at once.
fn run_all(
    todo: &[&Cell],
    rows: &Path,
    args: &SweepArgs,
    output: &Output,
) -> Result<Vec<Value>, Failure> {
    let pool = experiment::pool(args.threads.as_deref())?;
    let bar = progress_bar(todo.len());
    let results: Vec<Result<Value, Failure>> = pool.install(|| {
        let each = todo.par_iter().with_max_len(1).map(|cell| {
            let row = catch_unwind(AssertUnwindSafe(|| run_one(cell)));
            let row = row.unwrap_or_else(|panic| {
                let what = panic_text(panic.as_ref());
                Err(Failure::Operation(format!("the run `{}` broke down: {what}", cell.text())))
            })?;
            output.write_file(&row_path(rows, cell), |out| writeln!(out, "{row:#}"))?;
            bar.inc(1);
            Ok(row)
        });
        each.collect()
    });
    bar.finish_and_clear();
    // Finished runs are kept, so that a sweep whose fault was mended goes on where it was.
    results.into_iter().collect()
}

fn run_one(cell: &Cell) -> Result<Value, Failure> {
    let Ready { given, entrant, options } = cell.ready()?;
    let pipeline = entrant.selection.build().map_err(|error| Failure::config("", error))?;
    let information = Information::new(&pipeline.needs, options.estimate_error);
    let outcome = simulate(&given.workload, &given.cluster, pipeline, &options, &mut Quiet);
    let summary = Summary::new(&given.workload, &given.cluster, &outcome);
    let load = given.workload.offered_load(&given.cluster);
    let measures = COLUMNS.iter().map(|one| (one.key.to_owned(), json!((one.value)(&summary))));
    Ok(json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "sweep-row",
        "version": VERSION,
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

fn whole(cells: &[Cell], results: &[Value]) -> Value {
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "sweep",
        "version": VERSION,
        "axes": sweep_table::axes(cells),
        "runs": results,
    })
}

fn list(
    cells: &[Cell],
    kept: &[Option<Value>],
    as_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let both = || cells.iter().zip(kept);
    if as_json {
        let run = |(cell, row): (&Cell, &Option<Value>)| json!({ "key": cell.key, "done": row.is_some(), "settings": settings(cell) });
        let runs: Vec<Value> = both().map(run).collect();
        let version = SCHEMA_VERSION;
        return output
            .print_json(&json!({ "schema_version": version, "kind": "sweep-plan", "runs": runs }));
    }
    let state = |row: &Option<Value>| if row.is_some() { "done" } else { "to do" }.to_owned();
    let rows: Vec<Vec<String>> =
        both().map(|(cell, row)| vec![cell.key.clone(), state(row), cell.text()]).collect();
    output.print(&listing(&["key", "state", "settings"], &rows, output.ink, None))?;
    let done = kept.iter().filter(|row| row.is_some()).count();
    output.print(&format!("\n{} runs, {done} of them done\n", cells.len()))
}

/// Fails when a run left jobs unfinished or its policy did not work.
fn conclude(cells: &[Cell], results: &[Value]) -> Result<(), Failure> {
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

/// A bar on standard error with the time left; invisible where that is no terminal.
fn progress_bar(runs: usize) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
    let template = "sweeping {wide_bar} {pos}/{len} runs, {elapsed} gone, {eta} left";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    bar
}
