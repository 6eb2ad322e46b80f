//! `trace import`, `check` and `stats`: a trace is read and reported on.

use super::write::{form_of, write};
use crate::args::trace::{ImportArgs, LookArgs, SourceArgs};
use crate::failure::Failure;
use crate::output::Output;
use serde_json::json;
use std::path::Path;
use trainyard_diagnostic::InputError;
use trainyard_experiment::failure::BadInput;
use trainyard_experiment::given::{load_catalog, load_cluster, read_trace};
use trainyard_profile::Catalog;
use trainyard_report::SCHEMA_VERSION;
use trainyard_workload::Workload;
use trainyard_workload::import::{ImportContext, ImportReport, Imported};
use trainyard_workload::reshape::{Unfit, fitted, with_models_for_our_format};

/// Reads a trace, writes it in our own format and reports.
pub fn import(args: &ImportArgs, output: &Output) -> Result<(), Failure> {
    let form = args.out.as_deref().map(form_of).transpose()?;
    let mut read = read(&args.source)?;
    let unfit = match (args.drop_unfit, args.cap_unfit) {
        (true, _) => Some(Unfit::Drop),
        (_, true) => Some(Unfit::Cap),
        _ => None,
    };
    if let Some(unfit) = unfit {
        fit(&mut read, unfit, &args.source.file)?;
    }
    if let (Some(path), Some(form)) = (&args.out, form) {
        put(&mut read, &args.source.file, output, |read, output| {
            output.write_file(path, |file| write(&read.workload, &read.cluster, form, file))
        })?;
    }
    show("import", args.source.json, (&read.imported.report, args.out.as_deref()), output)
}

/// Leaves out jobs that are too large for the cluster, or makes them smaller, and notes how many.
fn fit(read: &mut ReadTrace, unfit: Unfit, file: &Path) -> Result<(), Failure> {
    let Imported { workload, cluster, report } = &mut read.imported;
    let (kept, changed) = fitted(workload, cluster, unfit);
    if kept.jobs.is_empty() {
        let fault = InputError::wrong(0, "jobs", "0", "at least one job that fits on --cluster");
        return Err(Failure::input(file.display(), fault));
    }
    *workload = kept;
    // What it says about the whole is said again about what is left.
    let notes = std::mem::take(&mut report.notes);
    report.describe(workload, cluster);
    report.notes = notes;
    report.kept = workload.jobs.len() as u64;
    if changed > 0 {
        report.notes.push(match unfit {
            Unfit::Drop => format!("{changed} jobs that never fit on the cluster are left out"),
            Unfit::Cap => {
                format!(
                    "{changed} jobs that never fit on the cluster are made as large as it allows"
                )
            }
        });
    }
    Ok(())
}

/// Reports, and fails when a job can never run.
pub fn check(args: &LookArgs, output: &Output) -> Result<(), Failure> {
    let read = read(&args.source)?;
    let report = &read.imported.report;
    show("check", args.source.json, (report, None), output)?;
    let problem = report.never_fit_first.clone();
    // Without a cluster nothing can be too large, but jobs may still wait for each other.
    let problem = problem.or_else(|| read.stuck());
    match problem {
        None => Ok(()),
        Some(problem) => {
            let source = args.source.file.display().to_string();
            let fault = InputError::wrong(0, "jobs", &problem, "jobs that can run");
            let sentence = Some(problem);
            Err(Failure::Input(Box::new(BadInput { source, fault, sentence })))
        }
    }
}

/// Reports.
pub fn stats(args: &LookArgs, output: &Output) -> Result<(), Failure> {
    let read = read(&args.source)?;
    show("stats", args.source.json, (&read.imported.report, None), output)
}

/// A trace that was read, and the models that our own format may name.
pub struct ReadTrace {
    /// What was read.
    pub imported: Imported,
    known: Catalog,
}

impl ReadTrace {
    /// The first job that waits for itself.
    fn stuck(&self) -> Option<String> {
        let waits = |problem: &trainyard_workload::Problem| {
            matches!(problem, trainyard_workload::Problem::Cycle { .. })
        };
        let Imported { workload, cluster, .. } = &self.imported;
        workload.check(cluster).iter().find(|problem| waits(problem)).map(ToString::to_string)
    }
}

/// Reads the trace that flags name.
pub fn read(args: &SourceArgs) -> Result<ReadTrace, Failure> {
    let given = args.cluster.as_deref().map(|text| load_cluster(Some(text))).transpose()?;
    let known = load_catalog(&args.profiles)?;
    let context = ImportContext {
        name: String::new(),
        cluster: given.as_ref().map(|(cluster, _)| cluster),
        catalog: known.clone(),
        tenants: given.as_ref().map(|(_, tenants)| tenants.clone()).unwrap_or_default(),
    };
    let imported = read_trace(&args.file, &args.format, context)?;
    if args.strict {
        refuse_drops(&args.file, &imported.report)?;
    }
    if imported.workload.jobs.is_empty() {
        let fault = InputError::wrong(0, "jobs", "0", "at least one row that is kept");
        return Err(Failure::input(args.file.display(), fault));
    }
    Ok(ReadTrace { imported, known })
}

/// Writes with models that our own format may name, and notes where that changed anything.
pub fn put(
    read: &mut ReadTrace,
    file: &Path,
    output: &Output,
    write: impl FnOnce(&Imported, &Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Imported { workload, cluster, report } = &mut read.imported;
    let given = std::mem::replace(workload, Workload::empty(""));
    let (plain, changed) = with_models_for_our_format(given, cluster, &read.known);
    *workload = plain;
    if changed > 0 {
        report.notes.push(format!(
            "{changed} jobs of models that the catalog does not hold are written as seconds of `generic`; \
             `trainyard compare --trace {} --format {}` keeps their models, and so does --profiles with a file that has them",
            file.display(),
            report.format
        ));
    }
    write(&read.imported, output)
}

fn refuse_drops(path: &Path, report: &ImportReport) -> Result<(), Failure> {
    let Some(first) = report.dropped.iter().min_by_key(|count| count.first_line) else {
        return Ok(());
    };
    let rows = report.dropped_rows();
    let expected = "rows that can all be kept; leave out --strict to drop the others";
    let fault = InputError::wrong(first.first_line, "row", &first.what, expected);
    let sentence = Some(format!(
        "line {}: the row would be dropped, because {} ({rows} of {} rows): expected {expected}",
        first.first_line, first.what, report.rows
    ));
    let source = path.display().to_string();
    Err(Failure::Input(Box::new(BadInput { source, fault, sentence })))
}

/// Prints a report.
pub fn show(
    kind: &str,
    as_json: bool,
    (report, out): (&ImportReport, Option<&Path>),
    output: &Output,
) -> Result<(), Failure> {
    let out = out.map(|path| path.display().to_string());
    if as_json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": format!("trace-{kind}"),
            "file": out,
            "report": report,
        }));
    }
    let written = out.map(|path| format!("written       {path}\n")).unwrap_or_default();
    output.print(&format!("{}{written}", report.text()))
}
