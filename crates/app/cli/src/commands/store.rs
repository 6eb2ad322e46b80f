//! `trainyard store`: care for the file that a daemon keeps.

use crate::args::store::{CompactArgs, StoreCommand};
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use trainyard_diagnostic::InputError;
use trainyard_experiment::options;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;
use trainyard_store::{
    Compacted, Copied, Existing, Keep, Reader, RepairReport, Retention, Salvaged, Store,
    StoreError, repair, restore,
};

/// Gaps that the table of a repair lists for each table of the store; JSON has them all.
const GAPS_SHOWN: usize = 5;

/// Does one of the commands.
pub fn run(command: &StoreCommand, output: &Output) -> Result<(), Failure> {
    match command {
        StoreCommand::Backup { store, to, json } => {
            let copied =
                Reader::open(store).and_then(|reader| reader.backup(to)).map_err(failed)?;
            print_copy("store-backup", &copied, *json, output)
        }
        StoreCommand::Restore { backup, store, replace, json } => {
            let existing = if *replace { Existing::SetAside } else { Existing::Refuse };
            let copied = restore(backup, store, existing).map_err(|error| match error {
                StoreError::Exists { .. } => existing_store(store),
                other => failed(other),
            })?;
            print_copy("store-restore", &copied, *json, output)
        }
        StoreCommand::Check { store, json } => check(store, *json, output),
        StoreCommand::Repair { store, dry_run, json } => {
            let report = repair(store, *dry_run).map_err(failed)?;
            print_repair(&report, *dry_run, *json, output)
        }
        StoreCommand::Compact(args) => compact(args, output),
    }
}

fn check(path: &Path, as_json: bool, output: &Output) -> Result<(), Failure> {
    let faults = Reader::open(path).and_then(|reader| reader.check()).map_err(failed)?;
    if let Some(first) = faults.first() {
        let more = faults.len() - 1;
        let reason = if more > 0 { format!("{first} (and {more} more)") } else { first.clone() };
        return Err(failed(StoreError::Damaged { path: path.to_owned(), reason }));
    }
    if as_json {
        let value =
            json!({ "schema_version": SCHEMA_VERSION, "kind": "store-check", "sound": true });
        return output.print_json(&value);
    }
    output.print(&format!("{}: sound\n", path.display()))
}

fn print_copy(kind: &str, copied: &Copied, as_json: bool, output: &Output) -> Result<(), Failure> {
    if as_json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "path": copied.path,
            "version": copied.version,
            "jobs": copied.jobs,
            "bytes": copied.bytes,
            "set_aside": copied.set_aside,
        }));
    }
    let Copied { path, version, jobs, bytes, set_aside } = copied;
    output.print(&format!(
        "{}: {jobs} jobs, {bytes} bytes, version {version}, checked\n",
        path.display()
    ))?;
    match set_aside {
        Some(old) => output.print(&format!("the old store is {}\n", old.display())),
        None => Ok(()),
    }
}

fn print_repair(
    report: &RepairReport,
    dry_run: bool,
    as_json: bool,
    output: &Output,
) -> Result<(), Failure> {
    if as_json {
        return output.print_json(&repair_json(report, dry_run));
    }
    let path = report.path.display();
    if report.is_sound() {
        return output
            .print(&format!("{path}: sound, {} rows; nothing to repair\n", report.kept()));
    }
    for fault in &report.faults {
        output.print(&format!("fault: {}\n", fault.replace('\n', " ")))?;
    }
    if report.header_replaced {
        output.print("the header cannot be read; the usual one is taken instead\n")?;
    }
    let rows: Vec<Vec<String>> = report.tables.iter().map(table_row).collect();
    let heading = ["table", "saved", "lost"];
    output.print(&format!("\n{}", listing(&heading, &rows, output.ink, output.width)))?;
    match &report.set_aside {
        Some(damaged) => {
            output.print(&format!("{path}: repaired; the damaged file is {}\n", damaged.display()))
        }
        None if dry_run => output.print("dry run: nothing was changed\n"),
        None => Ok(()),
    }
}

fn table_row((name, table): &(&'static str, Salvaged)) -> Vec<String> {
    let mut lost = Vec::new();
    if let Some(reason) = &table.unreadable {
        lost.push(format!("all: {reason}"));
    }
    for gap in table.gaps.iter().take(GAPS_SHOWN) {
        lost.push(match gap.last {
            i64::MAX => format!("{} and all after it", gap.first),
            last if last == gap.first => last.to_string(),
            last => format!("{} to {last}", gap.first),
        });
    }
    if table.gaps.len() > GAPS_SHOWN {
        lost.push(format!("{} more stretches", table.gaps.len() - GAPS_SHOWN));
    }
    if table.refused > 0 {
        lost.push(format!("{} rows that do not fit", table.refused));
    }
    let lost = if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") };
    vec![(*name).to_owned(), table.kept.to_string(), lost]
}

fn repair_json(report: &RepairReport, dry_run: bool) -> Value {
    let tables: Vec<Value> = report
        .tables
        .iter()
        .map(|(name, table)| {
            let gaps: Vec<[i64; 2]> = table.gaps.iter().map(|gap| [gap.first, gap.last]).collect();
            json!({
                "name": name,
                "saved": table.kept,
                "refused": table.refused,
                "gaps": gaps,
                "unreadable": table.unreadable,
            })
        })
        .collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "store-repair",
        "path": report.path,
        "dry_run": dry_run,
        "sound": report.is_sound(),
        "faults": report.faults,
        "header_replaced": report.header_replaced,
        "tables": tables,
        "set_aside": report.set_aside,
    })
}

fn compact(args: &CompactArgs, output: &Output) -> Result<(), Failure> {
    let keep = retention(args)?;
    if !args.store.exists() {
        return Err(failed(StoreError::Io {
            path: args.store.clone(),
            reason: "there is no such file".to_owned(),
        }));
    }
    let mut store = Store::open(&args.store).map_err(failed)?;
    let mut whole = Compacted::default();
    loop {
        let done = store.compact(&keep).map_err(failed)?;
        whole.events += done.events;
        whole.audit += done.audit;
        whole.jobs += done.jobs;
        whole.attempts += done.attempts;
        whole.keys += done.keys;
        whole.bytes += done.bytes;
        if !done.more {
            break;
        }
    }
    store.close().map_err(failed)?;
    let Compacted { events, audit, jobs, attempts, keys, bytes, .. } = whole;
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "store-compact",
            "dropped": {
                "events": events, "audit": audit, "jobs": jobs, "attempts": attempts, "keys": keys,
            },
            "bytes_given_back": bytes,
        }));
    }
    output.print(&format!(
        "dropped {events} events, {audit} audit lines, {jobs} ended jobs with {attempts} launches, {keys} keys; \
         {bytes} bytes given back\n"
    ))
}

fn retention(args: &CompactArgs) -> Result<Retention, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut keep = Retention::usual(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let given: [(&str, &Option<String>, &mut Keep); 4] = [
        ("--events", &args.events, &mut keep.events),
        ("--audit", &args.audit, &mut keep.audit),
        ("--ended-jobs", &args.ended_jobs, &mut keep.ended_jobs),
        ("--keys", &args.keys, &mut keep.keys),
    ];
    for (flag, text, kind) in given {
        if let Some(text) = text {
            let span = options::span(flag, text)?;
            kind.age = Some(i64::try_from(span.0).unwrap_or(i64::MAX));
        }
    }
    Ok(keep)
}

fn existing_store(path: &Path) -> Failure {
    let sentence =
        "there is a store already; --replace takes its place and keeps it under another name";
    Failure::file(path, sentence.to_owned(), InputError::wrong(0, "", "", "a name that is free"))
}

/// A file that cannot be used is bad input; what the system or another process refuses is a failed operation.
fn failed(error: StoreError) -> Failure {
    let text = error.to_string();
    let (path, expected) = match &error {
        StoreError::Damaged { path, .. } => (path, "a sound store"),
        StoreError::Newer { path, .. } | StoreError::Older { path, .. } => {
            (path, "a known version")
        }
        StoreError::Foreign { path } => (path, "a store of trainyard"),
        StoreError::Exists { path } => (path, "a name that is free"),
        StoreError::Io { path, .. } if !path.exists() => (path, "a file that exists"),
        _ => return Failure::Operation(text),
    };
    let prefix = format!("{}: ", path.display());
    let sentence = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
    Failure::file(path, sentence, InputError::wrong(0, "", "", expected))
}
