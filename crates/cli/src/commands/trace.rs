//! `trainyard trace generate`: a trace drawn by laws.

use crate::args::GenerateArgs;
use crate::failure::Failure;
use crate::given::{generate_for, load_catalog, load_cluster};
use crate::output::Output;
use crate::{options, spec};
use flate2::{Compression, GzBuilder};
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::units::{Unit, span_text};
use trainyard_types::Cluster;
use trainyard_workload::{Workload, trace};

/// Draws a trace and writes it.
pub fn generate(args: &GenerateArgs, output: &Output) -> Result<(), Failure> {
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

/// All laws that flags give, as pairs; `--set` comes last and wins.
fn pairs(args: &GenerateArgs) -> Vec<String> {
    let flags = [
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

/// How a trace is written.
#[derive(Copy, Clone)]
struct Form {
    is_json: bool,
    is_packed: bool,
}

fn form_of(path: &Path) -> Result<Form, Failure> {
    let name = path.to_string_lossy();
    let is_packed = name.ends_with(".gz");
    let name = name.trim_end_matches(".gz");
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Ok(Form { is_json: false, is_packed }),
        Some("jsonl" | "ndjson") => Ok(Form { is_json: true, is_packed }),
        // A device or a pipe has no extension.
        _ if path.exists() && !path.is_file() && !path.is_dir() => {
            Ok(Form { is_json: false, is_packed })
        }
        _ => {
            let expected = "a name that ends in .csv or .jsonl, with .gz to pack it";
            Err(Failure::flag("--out", &path.display().to_string(), expected))
        }
    }
}

fn write(
    workload: &Workload,
    cluster: &Cluster,
    form: Form,
    file: &mut dyn Write,
) -> io::Result<()> {
    let plain = |out: &mut dyn Write| match form.is_json {
        true => trace::write_jsonl(workload, cluster, out),
        false => trace::write_csv(workload, cluster, out),
    };
    if !form.is_packed {
        return plain(file);
    }
    // No time stamp, so that the same trace gives the same bytes.
    let mut packed = GzBuilder::new().mtime(0).write(file, Compression::default());
    plain(&mut packed)?;
    packed.finish().map(|_| ())
}
