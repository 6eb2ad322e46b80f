//! `trainyard reproduce`: published results beside ours.

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use trainyard_experiment::published::{self, PublishedRun, Redone, Table};
use trainyard_experiment::runs;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::{figures, listing};

/// Examples, as the help shows them.
pub const HELP: &str = "\
Examples:
  trainyard reproduce                            what can be redone
  trainyard reproduce muri-fig9 --data ../shared paper, ours and the ratio for every row
  trainyard reproduce all --data ../shared --json
  trainyard reproduce gavel-fig8-quick           jobs are drawn, so that no data is needed

The column `control` is what a wrong policy gets on the same jobs, `fifo` if no other is named.
Exit code 1 when a value is outside the stated tolerance, or when the control meets all values of a run.";

/// `reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// What is to be redone: names of the list, or `all` that does not take hours; without any, the list.
    pub names: Vec<String>,
    /// The folder with the authors' traces and results.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Threads to use; results do not depend on it [default: all cores].
    #[arg(long, value_name = "NUMBER", env = "TRAINYARD_THREADS", hide_env_values = true)]
    pub threads: Option<String>,
}

/// Runs the command.
pub fn run(args: &ReproduceArgs, output: &Output) -> Result<(), Failure> {
    if args.names.is_empty() {
        return list(args.json, output);
    }
    let mut tables = Vec::new();
    for name in &args.names {
        match name.as_str() {
            "all" => {
                tables.extend(published::tables()?.into_iter().filter(|table| !table.slow));
            }
            name => tables.push(published::find(name)?),
        }
    }
    let data = folder(args.data.as_deref(), &tables)?;
    let mut results = Vec::new();
    for table in &tables {
        results.push(redo(table, &data, args)?);
    }
    if args.json {
        output.print_json(&as_json(&tables, &results))?;
    } else {
        for (table, redone) in tables.iter().zip(&results) {
            print(table, redone, output)?;
        }
    }
    let all = || {
        tables.iter().zip(&results).flat_map(|(table, all)| all.iter().map(move |one| (table, one)))
    };
    let is_outside = |(table, one): &(&Table, &Redone)| table.compares(one) && !one.within;
    let outside: Vec<&Redone> = all().filter(is_outside).map(|(_, one)| one).collect();
    if let Some(first) = outside.first() {
        return Err(Failure::Operation(format!(
            "{} of {} values are outside the tolerance, such as {} of {}",
            outside.len(),
            all().count(),
            first.measure,
            first.name
        )));
    }
    let powerless = || tables.iter().zip(&results).flat_map(|(one, all)| one.powerless(all));
    match powerless().next() {
        None => Ok(()),
        Some(first) => Err(Failure::Operation(format!(
            "{} runs are met by a wrong policy too, such as {} by `{}`: they show nothing",
            powerless().count(),
            first.name,
            first.control.policy
        ))),
    }
}

/// The folder of the data; any one where no table reads from it.
fn folder(given: Option<&Path>, tables: &[Table]) -> Result<PathBuf, Failure> {
    match given {
        Some(data) if data.is_dir() => Ok(data.to_path_buf()),
        Some(data) => {
            let text = data.display().to_string();
            Err(Failure::flag("--data", &text, "an existing folder"))
        }
        None if tables.iter().any(Table::needs_data) => {
            let expected = "the folder with the authors' traces and results";
            Err(Failure::flag("--data", "", expected))
        }
        None => Ok(PathBuf::new()),
    }
}

fn redo(table: &Table, data: &Path, args: &ReproduceArgs) -> Result<Vec<Redone>, Failure> {
    let pool = runs::pool(args.threads.as_deref())?;
    let rows: Result<Vec<Vec<Redone>>, Failure> = pool.install(|| {
        let each = table.run.par_iter().with_max_len(1);
        each.map(|row: &PublishedRun| Ok(table.redo(row, data)?)).collect()
    });
    let mut redone: Vec<Redone> = rows?.into_iter().flatten().collect();
    redone.extend(table.ratios(&redone));
    Ok(redone)
}

fn list(as_json: bool, output: &Output) -> Result<(), Failure> {
    let tables = published::tables()?;
    if as_json {
        let tables: Vec<Value> = tables.iter().map(about).collect();
        let version = SCHEMA_VERSION;
        return output.print_json(
            &json!({ "schema_version": version, "kind": "published", "tables": tables }),
        );
    }
    let row = |table: &Table| {
        let (runs, values) = (table.run.len().to_string(), table.compared().to_string());
        let slow = if table.slow { "slow" } else { "" };
        let (id, title) = (table.id.clone(), table.title.clone());
        vec![id, runs, values, table.tolerance(), slow.into(), title]
    };
    let rows: Vec<Vec<String>> = tables.iter().map(row).collect();
    let heading = ["name", "runs", "values", "tolerance", "", "what"];
    output.print(&listing(&heading, &rows, output.ink, output.width))?;
    output.print("\nTo redo one: trainyard reproduce NAME --data DIR\n")
}

fn print(table: &Table, redone: &[Redone], output: &Output) -> Result<(), Failure> {
    let (id, title, source) = (&table.id, &table.title, &table.source);
    let tolerance = table.tolerance();
    output.print(&format!("{id}: {title}\nexpected: {source}; tolerance {tolerance}\n\n"))?;
    let row = |one: &Redone| {
        let native = one.native.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let ratio = match table.compares(one) || table.shows(one) {
            true => format!("{:.6}", one.ours / one.paper),
            false => "-".to_owned(),
        };
        vec![
            one.name.clone(),
            one.measure.to_owned(),
            format!("{:.3}", one.paper),
            format!("{:.3}", one.ours),
            ratio,
            verdict(table, one).to_owned(),
            native,
            format!("{:.3}", one.control.value),
            one.control.policy.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = redone.iter().map(row).collect();
    let heading = ["run", "measure", "paper", "ours", "ratio", "", "ours, native", "control", ""];
    output.print(&format!("{}\n", figures(&heading, 2, &rows, output.ink)))
}

/// Where a value stands; of one that is not compared, that and where it would stand.
fn verdict(table: &Table, one: &Redone) -> &'static str {
    match (one.within, one.control.within) {
        _ if !table.compares(one) && !table.shows(one) => "not compared",
        (true, true) if table.shows(one) => "not compared, control too",
        (true, false) if table.shows(one) => "not compared, ok",
        (false, _) if table.shows(one) => "not compared, OUTSIDE",
        (true, true) => "ok, control too",
        (true, false) => "ok",
        (false, _) => "OUTSIDE",
    }
}

fn about(table: &Table) -> Value {
    let runs: Vec<&str> = table.run.iter().map(|row| row.name.as_str()).collect();
    json!({
        "id": table.id,
        "title": table.title,
        "source": table.source,
        "tolerance": table.tolerance(),
        "slow": table.slow,
        "paper": table.paper(),
        "compared": table.compared(),
        "needs_data": table.needs_data(),
        "runs": runs,
    })
}

fn as_json(tables: &[Table], results: &[Vec<Redone>]) -> Value {
    let policy_of = |table: &Table, one: &Redone| {
        let row = table.run.iter().find(|row| row.name == one.name);
        row.map(|row| row.policy.clone())
    };
    let row = |table: &Table, one: &Redone| {
        json!({
            "run": one.name,
            "policy": policy_of(table, one),
            "measure": one.measure,
            "paper": one.paper,
            "ours": one.ours,
            "ratio": one.ours / one.paper,
            "within": one.within,
            "compared": table.compares(one),
            "native": one.native,
            "control": {
                "policy": one.control.policy,
                "value": one.control.value,
                "within": one.control.within,
            },
        })
    };
    let table = |(table, redone): (&Table, &Vec<Redone>)| {
        let mut value = about(table);
        value["values"] = redone.iter().map(|one| row(table, one)).collect();
        value
    };
    let tables: Vec<Value> = tables.iter().zip(results).map(table).collect();
    json!({ "schema_version": SCHEMA_VERSION, "kind": "reproduction", "tables": tables })
}
