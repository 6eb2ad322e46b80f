//! `trace sample`, `slice`, `scale-load` and `anonymise`: another trace from a trace.

use super::look::{ReadTrace, put, read, show};
use super::write::{form_of, write};
use crate::args::trace::{AnonymiseArgs, SampleArgs, ScaleArgs, SliceArgs, SourceArgs, TargetArgs};
use crate::failure::Failure;
use crate::output::Output;
use trainyard_diagnostic::InputError;
use trainyard_experiment::options;
use trainyard_types::{Cluster, Span, Time};
use trainyard_workload::{Workload, reshape};

/// Draws some of the jobs.
pub fn sample(args: &SampleArgs, output: &Output) -> Result<(), Failure> {
    let count = options::whole("--jobs", &args.jobs, u64::from(u32::MAX))?;
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let change =
        |workload: &Workload, _: &Cluster| Ok(reshape::sample(workload, count as usize, seed));
    reshaped("sample", (&args.source, &args.target), output, change)
}

/// Keeps a stretch of time.
pub fn slice(args: &SliceArgs, output: &Output) -> Result<(), Failure> {
    let moment = |flag: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some("0") => Ok(Some(Span::ZERO)),
        Some(text) => options::span(flag, text).map(Some),
    };
    let (from, to) = (moment("--from", &args.from)?, moment("--to", &args.to)?);
    let change = |workload: &Workload, _: &Cluster| {
        let first = workload.jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
        let from = Time(first.0.saturating_add(from.unwrap_or(Span::ZERO).0));
        let to = to.map_or(Time(u64::MAX), |to| Time(first.0.saturating_add(to.0)));
        Ok(reshape::slice(workload, from, to))
    };
    reshaped("slice", (&args.source, &args.target), output, change)
}

/// Lets jobs arrive faster or slower.
pub fn scale_load(args: &ScaleArgs, output: &Output) -> Result<(), Failure> {
    let number = |flag: &str, text: &str| {
        let number = text.parse().ok().filter(|number| (1e-6..=1e6).contains(number));
        number.ok_or_else(|| Failure::flag(flag, text, "a number from 0.000001 to 1000000"))
    };
    let factor = args.factor.as_deref().map(|text| number("--factor", text)).transpose()?;
    let load = args.load.as_deref().map(|text| number("--load", text)).transpose()?;
    let change = |workload: &Workload, cluster: &Cluster| {
        let factor: f64 = match (factor, load) {
            (Some(factor), _) => factor,
            (None, load) => load.unwrap_or(1.0) / workload.offered_load(cluster),
        };
        if !(factor > 0.0 && factor.is_finite()) {
            let expected = "a trace whose jobs do not all come at once";
            return Err(Failure::input(
                args.source.file.display(),
                InputError::wrong(0, "submit_s", "the same for all jobs", expected),
            ));
        }
        Ok(reshape::scale_load(workload, factor))
    };
    reshaped("scale-load", (&args.source, &args.target), output, change)
}

/// Replaces names.
pub fn anonymise(args: &AnonymiseArgs, output: &Output) -> Result<(), Failure> {
    let change = |workload: &Workload, cluster: &Cluster| {
        let names_models = workload.jobs.iter().any(|one| one.job.model.index() > 0);
        if names_models && cluster.kinds.is_empty() {
            let expected = "a cluster, which tells how long the steps of models take";
            return Err(Failure::flag("--cluster", "none", expected));
        }
        Ok(reshape::anonymise(workload, cluster, &args.key))
    };
    reshaped("anonymise", (&args.source, &args.target), output, change)
}

/// Reads a trace, changes it, writes it and reports on what was written.
fn reshaped(
    kind: &str,
    (source, target): (&SourceArgs, &TargetArgs),
    output: &Output,
    change: impl FnOnce(&Workload, &Cluster) -> Result<Workload, Failure>,
) -> Result<(), Failure> {
    let form = form_of(&target.out)?;
    let mut given: ReadTrace = read(source)?;
    let imported = &mut given.imported;
    let before = imported.workload.jobs.len();
    imported.workload = change(&imported.workload, &imported.cluster)?;
    if imported.workload.jobs.is_empty() {
        let fault = InputError::wrong(0, "jobs", "0", "at least one job that is left");
        return Err(Failure::input(source.file.display(), fault));
    }
    let first = imported.workload.jobs.first().map_or(Time::ZERO, |one| one.job.submitted);
    let last = Time(first.0 + imported.workload.span().0);
    let report = &mut imported.report;
    (report.first, report.last) =
        (format!("{} s", first.as_secs_f64()), format!("{} s", last.as_secs_f64()));
    report.notes.push(format!("{} of {before} jobs are written", imported.workload.jobs.len()));
    report.describe(&imported.workload, &imported.cluster);
    put(&mut given, &source.file, output, |read, output| {
        output.write_file(&target.out, |file| write(&read.workload, &read.cluster, form, file))
    })?;
    show(kind, source.json, (&given.imported.report, Some(&target.out)), output)
}
