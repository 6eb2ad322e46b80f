//! `trainyard sweep`: a cross product of runs that can be interrupted and taken up again.

use crate::args::VERSION;
use crate::failure::Failure;
use crate::output::{Output, reason};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use trainyard_experiment::runs::{self, panic_text};
use trainyard_experiment::sweep::{self, Cell, SweepArgs};
use trainyard_experiment::sweep_row;
use trainyard_experiment::sweep_table::Table;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::{figures, listing};

/// Runs that the terminal shows; the files have all.
const ROWS_SHOWN: usize = 200;

/// Runs the command.
pub fn run(args: &SweepArgs, output: &Output) -> Result<(), Failure> {
    if args.parquet && !cfg!(feature = "parquet") {
        let what =
            "this build writes no Parquet: build it with `--features parquet`, or take results.csv";
        return Err(Failure::Usage(what.to_owned()));
    }
    let cells = sweep::cells(args, VERSION)?;
    let rows_folder = args.out.join("rows");
    let rows = &rows_folder;
    let kept: Vec<Option<Value>> = cells.iter().map(|cell| sweep_row::kept(rows, cell)).collect();
    if args.dry_run {
        return list(&cells, &kept, args.json, output);
    }
    let todo: Vec<&Cell> =
        cells.iter().zip(&kept).filter(|(_, row)| row.is_none()).map(|(cell, _)| cell).collect();
    sweep_row::refuse_early(&todo)?;
    std::fs::create_dir_all(rows).map_err(|error| {
        Failure::Operation(format!("{}: cannot be made: {}", rows.display(), reason(&error)))
    })?;
    output.on_interrupt(format!(
        "finished runs are kept in {}: the same command again goes on from there",
        rows.display()
    ));
    let fresh = run_all(&todo, rows, args, output)?;
    let mut fresh = fresh.into_iter();
    let results: Vec<Value> = kept
        .into_iter()
        .map(|row| row.or_else(|| fresh.next()))
        .collect::<Option<_>>()
        .ok_or_else(|| Failure::Operation("a run of the sweep is missing its result".to_owned()))?;
    let mut files = vec![args.out.join("results.csv"), args.out.join("results.json")];
    let table = Table::new(&cells, &results);
    output.write_file(&files[0], |out| table.write_csv(out))?;
    let whole = sweep_row::whole(&cells, &results, VERSION);
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
        let (heading, words, rows) = table.for_people(&cells);
        let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
        let more = rows.len().saturating_sub(ROWS_SHOWN);
        output.print(&figures(&heading, words, &rows[..rows.len() - more], output.ink))?;
        if more > 0 {
            output.print(&format!("... and {more} more runs, in the files below\n"))?;
        }
        output.print("\n")?;
        let last = files.pop().unwrap_or_default();
        let others: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        output.print(&format!(
            "{all} runs: {now} done now, {} kept from before\nResults: {} and {}\n\
             The same command again runs only what is missing; with more loads, seeds or policies it adds theirs. \
             Finished runs are kept in {}.\n",
            all - now,
            others.join(", "),
            last.display(),
            rows_folder.display()
        ))?;
    }
    Ok(sweep_row::conclude(&cells, &results)?)
}

/// Runs what is missing, each result going to its file at once.
fn run_all(
    todo: &[&Cell],
    rows: &Path,
    args: &SweepArgs,
    output: &Output,
) -> Result<Vec<Value>, Failure> {
    let pool = runs::pool(args.threads.as_deref())?;
    let bar = progress_bar(todo.len());
    let results: Vec<Result<Value, Failure>> = pool.install(|| {
        let each = todo.par_iter().with_max_len(1).map(|cell| {
            let row = catch_unwind(AssertUnwindSafe(|| Ok(sweep_row::run(cell, VERSION)?)));
            let row = row.unwrap_or_else(|panic| {
                let what = panic_text(panic.as_ref());
                Err(Failure::Operation(format!("the run `{}` broke down: {what}", cell.text())))
            })?;
            output.write_file(&sweep_row::row_path(rows, cell), |out| writeln!(out, "{row:#}"))?;
            bar.inc(1);
            Ok(row)
        });
        each.collect()
    });
    bar.finish_and_clear();
    // Finished runs are kept, so that a sweep whose fault was mended goes on where it was.
    results.into_iter().collect()
}

fn list(
    cells: &[Cell],
    kept: &[Option<Value>],
    as_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    let both = || cells.iter().zip(kept);
    if as_json {
        let run = |(cell, row): (&Cell, &Option<Value>)| json!({ "key": cell.key, "done": row.is_some(), "settings": sweep_row::settings(cell) });
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
