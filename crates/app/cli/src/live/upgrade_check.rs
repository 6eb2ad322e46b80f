//! `upgrade-check`: whether this program can go on where another version of it left off.

use super::doctor::{self, Check, Verdict, check};
use super::host_args::{StateArgs, UpgradeCheckArgs};
use super::places::Places;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::path::Path;
use trainyard_backend::readable::{AttemptSeen, attempts};
use trainyard_client::show::versioned;
use trainyard_daemon::readable::{Readable, Unreadable, read_all};
use trainyard_diagnostic::InputError;
use trainyard_slurm::ledger::Ledger;
use trainyard_store::schema::{VERSION, steps_from};
use trainyard_store::{InUse, Rehearsal, StoreError};

/// Faults that are shown of each sort; JSON has more.
const SHOWN_MAX: usize = 5;

/// `upgrade-check`.
pub fn run(args: &UpgradeCheckArgs, output: &Output) -> Result<(), Failure> {
    let state = args.folder.clone().or_else(|| args.state.state.clone());
    let places = Places::find(&StateArgs { state })?;
    expect_store(&places)?;
    let (mut checks, mut facts) = (Vec::new(), json!({ "kind": "upgrade-check" }));
    let scratch = output.scratch_folder("upgrade-check")?;
    match Rehearsal::begin(&places.store, &scratch.path) {
        Ok(rehearsal) => examine(&places, &rehearsal, &mut checks, &mut facts)?,
        // What keeps the copy from being made says nothing about the store.
        Err(
            error @ (StoreError::Full { .. } | StoreError::Io { .. } | StoreError::Busy { .. }),
        ) => {
            return Err(Failure::Operation(error.to_string()));
        }
        Err(error) => checks.push(check("store", Verdict::Bad, error.to_string())),
    }
    drop(scratch);
    running_attempts(&places, &mut checks, &mut facts);
    checks.extend(slurm_ledger(&places.run));
    let bad = checks.iter().filter(|check| check.verdict == Verdict::Bad).count();
    if args.json {
        facts["ready"] = json!(bad == 0);
        facts["folder"] = json!(places.state);
        facts["checks"] = json!(checks);
        output.print_json(&versioned(facts))?;
    } else {
        doctor::print(&checks, output)?;
    }
    if bad == 0 {
        return Ok(());
    }
    let shown = places.state.display();
    Err(Failure::Operation(format!("this program cannot take over {shown}: see what is BAD")))
}

/// A folder that never was a daemon's is a mistake of the user who named it.
fn expect_store(places: &Places) -> Result<(), Failure> {
    let lock = places.store.with_file_name("store.db.lock");
    if places.store.exists() || lock.exists() {
        return Ok(());
    }
    let (path, sentence) = match places.state.is_dir() {
        true => (&places.store, "there is no store in this folder, so nothing to upgrade"),
        false => (&places.state, "there is no such folder"),
    };
    let expected = "the state folder of a daemon";
    Err(Failure::file(path, sentence.to_owned(), InputError::wrong(0, "", "", expected)))
}

fn examine(
    places: &Places,
    rehearsal: &Rehearsal,
    checks: &mut Vec<Check>,
    facts: &mut Value,
) -> Result<(), Failure> {
    let Rehearsal { version, bytes, in_use, .. } = *rehearsal;
    let steps: Vec<(u32, &str)> = steps_from(version).collect();
    facts["store"] = json!({ "version": version, "this_program": VERSION, "bytes": bytes });
    facts["migrations"] =
        steps.iter().map(|(to, what)| json!({ "to": to, "what": what })).collect();
    checks.push(store(places, version, &steps));
    let readable = read_all(rehearsal).map_err(|error| Failure::Operation(error.to_string()))?;
    facts["records"] = json!(readable.records);
    facts["unreadable"] = json!(readable.faults);
    facts["unreadable_in_all"] = json!(readable.unreadable);
    checks.extend(records(&readable));
    checks.push(room(places, bytes, !steps.is_empty(), facts));
    facts["in_use"] = json!(in_use.is_some());
    checks.push(daemon(in_use));
    Ok(())
}

fn store(places: &Places, version: u32, steps: &[(u32, &str)]) -> Check {
    let path = places.store.display();
    if steps.is_empty() {
        let detail = format!("{path}: version {version}, as this program writes it");
        return check("store", Verdict::Good, detail);
    }
    let steps: Vec<String> =
        steps.iter().map(|(to, what)| format!("to version {to}: {what}")).collect();
    let detail = format!(
        "{path}: version {version} will be migrated at the first start ({}); older programs cannot open it after that",
        steps.join("; ")
    );
    check("store", Verdict::Good, detail)
}

fn records(readable: &Readable) -> Vec<Check> {
    let Readable { records, faults, unreadable } = readable;
    if faults.is_empty() {
        return vec![check("records", Verdict::Good, format!("{records}, all of them readable"))];
    }
    let one = |fault: &Unreadable| {
        let Unreadable { table, row, field, problem } = fault;
        check(
            "records",
            Verdict::Bad,
            format!("table {table}, row {row}, field {field}: {problem}"),
        )
    };
    let mut checks: Vec<Check> = faults.iter().take(SHOWN_MAX).map(one).collect();
    if let more @ 1.. = unreadable.saturating_sub(SHOWN_MAX as u64) {
        checks.push(check("records", Verdict::Bad, format!("{more} more; --json lists them")));
    }
    checks
}

/// A migration writes the changed pages to the log before they reach the file, and a backup before it is one more copy.
fn room(places: &Places, bytes: u64, migrates: bool, facts: &mut Value) -> Check {
    let needed = if migrates { bytes.saturating_mul(2) } else { bytes };
    let what = if migrates { "a backup and the migration" } else { "a backup" };
    let free = match nix::sys::statvfs::statvfs(&places.state) {
        Ok(found) => found.blocks_available().saturating_mul(found.fragment_size()),
        Err(error) => {
            let detail = format!("{}: {error}", places.state.display());
            return check("room", Verdict::Warning, detail);
        }
    };
    facts["room"] = json!({ "bytes_free": free, "bytes_needed": needed });
    let detail = format!("{free} bytes are free, {what} may take {needed}");
    match free >= needed {
        true => check("room", Verdict::Good, detail),
        false => check("room", Verdict::Bad, detail),
    }
}

fn daemon(in_use: Option<InUse>) -> Check {
    match in_use {
        None => check("daemon", Verdict::Good, "no daemon has the store open"),
        Some(InUse { process }) => {
            let who = process.map_or("a daemon".to_owned(), |process| format!("process {process}"));
            let detail =
                format!("{who} has the store open: stop it before the new one starts; jobs go on");
            check("daemon", Verdict::Warning, detail)
        }
    }
}

fn running_attempts(places: &Places, checks: &mut Vec<Check>, facts: &mut Value) {
    let seen = match attempts(&places.run) {
        Ok(seen) => seen,
        Err(error) => {
            let detail = format!("{}: {error}", places.run.display());
            return checks.push(check("attempts", Verdict::Bad, detail));
        }
    };
    let running = seen.iter().filter(|attempt| attempt.runs).count();
    let faults: Vec<&String> = seen.iter().flat_map(|AttemptSeen { faults, .. }| faults).collect();
    facts["attempts"] = json!({ "running": running, "known": seen.len(), "unreadable": faults });
    if faults.is_empty() {
        let known = seen.len();
        let detail =
            format!("{running} run, {known} are known; what their keepers wrote is readable");
        return checks.push(check("attempts", Verdict::Good, detail));
    }
    for fault in faults.iter().take(SHOWN_MAX) {
        checks.push(check("attempts", Verdict::Bad, fault.as_str()));
    }
}

/// What was ordered from Slurm, where a daemon did that from this folder.
fn slurm_ledger(run: &Path) -> Option<Check> {
    let folder = run.join("slurm/jobs");
    let opened = folder.is_dir().then(|| Ledger::open(&folder))?;
    Some(match opened {
        Ok(ledger) => {
            check("slurm", Verdict::Good, format!("{} jobs in the ledger", ledger.entries.len()))
        }
        Err(error) => check("slurm", Verdict::Bad, error.to_string()),
    })
}
