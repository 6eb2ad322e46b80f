//! `trainyard trace ...`: traces generated from distributions, imported, looked at and reshaped.

mod look;
mod reshaped;
mod write;

use crate::args::trace::{GenerateArgs, TraceCommand};
use crate::failure::Failure;
use crate::output::Output;
use serde_json::json;
use trainyard_experiment::given::{generate_for, load_catalog, load_cluster};
use trainyard_experiment::{options, spec};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::units::{Unit, span_text};
use trainyard_workload::trace;
use write::{form_of, write};

/// Does what a command of `trace` says.
pub fn run(command: &TraceCommand, output: &Output) -> Result<(), Failure> {
    match command {
        TraceCommand::Generate(args) => generate(args, output),
        TraceCommand::Import(args) => look::import(args, output),
        TraceCommand::Check(args) => look::check(args, output),
        TraceCommand::Stats(args) => look::stats(args, output),
        TraceCommand::Sample(args) => reshaped::sample(args, output),
        TraceCommand::Slice(args) => reshaped::slice(args, output),
        TraceCommand::ScaleLoad(args) => reshaped::scale_load(args, output),
        TraceCommand::Anonymise(args) => reshaped::anonymise(args, output),
    }
}

/// Draws a trace and writes it.
fn generate(args: &GenerateArgs, output: &Output) -> Result<(), Failure> {
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let pairs = pairs(args);
    let spec = spec::read("trace generate", seed, pairs.iter().map(String::as_str))?;
    let (cluster, _) = load_cluster(args.cluster.as_deref())?;
    let catalog = load_catalog(&args.profiles)?;
    let workload = generate_for("trace generate", &spec, (&cluster, &catalog))?;
    let Some(path) = &args.out else {
        return output.print_with(|out| match args.json {
            true => trace::write_jsonl(&workload, &cluster, out),
            false => trace::write_csv(&workload, &cluster, out),
        });
    };
    let form = form_of(path)?;
    output.write_file(path, |file| write(&workload, &cluster, form, file))?;
    let (jobs, span) = (workload.jobs.len(), workload.span().as_secs_f64());
    let load = Some(workload.offered_load(&cluster)).filter(|load| load.is_finite());
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "trace",
            "file": path.display().to_string(),
            "jobs": jobs,
            "span_s": span,
            "offered_load": load,
            "spec": spec,
        }));
    }
    let load = load.map(|load| format!(", load {load:.2}")).unwrap_or_default();
    output.print(&format!(
        "{}: {} jobs over {}{load}, seed {}\n",
        path.display(),
        Unit::Count.text(jobs as f64),
        span_text(span),
        spec.seed
    ))
}

/// All settings that flags give, as pairs; `--set` comes last and wins.
fn pairs(args: &GenerateArgs) -> Vec<String> {
    let flags = [
        ("like", &args.like),
        ("jobs", &args.jobs),
        ("load", &args.load),
        ("per-hour", &args.per_hour),
        ("duration", &args.duration),
        ("size", &args.size),
        ("models", &args.models),
        ("tenants", &args.tenants),
    ];
    let given = flags.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let mut pairs: Vec<String> = given.map(|(key, value)| format!("{key}={value}")).collect();
    pairs.extend(args.sets.iter().cloned());
    pairs
}
