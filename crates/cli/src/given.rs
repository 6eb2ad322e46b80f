//! The cluster and the jobs a run is given.

use crate::args::{Format, GivenArgs};
use crate::failure::{BadInput, Failure};
use crate::{files, options, spec};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trainyard_profile::{Catalog, InputError, profile_file};
use trainyard_types::{Cluster, Tenants};
use trainyard_workload::embedded::{EMBEDDED_CLUSTER, embedded_spec};
use trainyard_workload::{
    Problem, ReadError, TraceContext, Workload, cluster, generate, muri, switches, tiresias, trace,
};

/// The cluster and the jobs of a run.
pub struct Given {
    /// The jobs.
    pub workload: Workload,
    /// The cluster.
    pub cluster: Arc<Cluster>,
}

/// Reads or draws what the flags name, and refuses what cannot work.
pub fn load(args: &GivenArgs) -> Result<Given, Failure> {
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let (cluster, tenants) = load_cluster(args.cluster.as_deref())?;
    let catalog = load_catalog(&args.profiles)?;
    let source = match (&args.trace, &args.generate) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(_)) => "--generate".to_owned(),
        (None, None) => "the embedded workload".to_owned(),
    };
    let workload = match (&args.trace, &args.generate) {
        (Some(path), _) => read_trace(path, args.format, (&cluster, tenants, catalog))?,
        (None, generate) => {
            let spec = match generate {
                Some(pairs) => spec::read("--generate", seed, pairs.iter().map(String::as_str))?,
                None => embedded_spec(),
            };
            let drawn = generate_for(&source, &spec, (&cluster, &catalog))?;
            let name = if generate.is_some() { drawn.name.clone() } else { "embedded".to_owned() };
            owned_by(Workload { name, ..drawn }, tenants)
        }
    };
    if workload.jobs.is_empty() {
        return Err(Failure::input(&source, InputError::wrong(0, "jobs", "0", "at least one job")));
    }
    refuse_problems(&source, &workload, &cluster, args)?;
    Ok(Given { workload, cluster: Arc::new(cluster) })
}

/// A cluster from one line or a file; the embedded one if neither is given.
pub fn load_cluster(given: Option<&str>) -> Result<(Cluster, Tenants), Failure> {
    let text = given.unwrap_or(EMBEDDED_CLUSTER).trim();
    let path = Path::new(text);
    let is_line = text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(['x', 'X']);
    let names_file = path.exists() || (!is_line && text.contains(['.', '/', '\\']));
    if !names_file {
        let cluster =
            cluster::parse_line(text).map_err(|fault| Failure::input("--cluster", fault))?;
        return Ok((cluster, Tenants::default()));
    }
    if path.extension().is_some_and(|extension| extension == "csv") {
        // The table of switches of the Tiresias simulator; its testbed had P100s.
        let cluster = switches::read(files::open(path)?, "p100");
        let cluster = cluster.map_err(|error| read_failed(path, error))?;
        return Ok((cluster, Tenants::default()));
    }
    let content = files::read_text(path)?;
    cluster::parse(&content).map_err(|fault| Failure::input(path.display(), fault))
}

/// The built-in models and those of the user's files.
pub fn load_catalog(profiles: &[PathBuf]) -> Result<Catalog, Failure> {
    let mut catalog = Catalog::builtin();
    for path in profiles {
        let text = files::read_text(path)?;
        let models =
            profile_file::read(&text).map_err(|fault| Failure::input(path.display(), fault))?;
        for model in models {
            catalog.add(model);
        }
    }
    Ok(catalog)
}

/// Draws a workload; `source` is named when a law makes no sense.
pub fn generate_for(
    source: &str,
    spec: &trainyard_workload::Spec,
    (cluster, catalog): (&Cluster, &Catalog),
) -> Result<Workload, Failure> {
    generate(spec, catalog, cluster).map_err(|fault| Failure::input(source, fault))
}

fn read_trace(
    path: &Path,
    format: Format,
    (cluster, tenants, catalog): (&Cluster, Tenants, Catalog),
) -> Result<Workload, Failure> {
    let mut reader = files::open(path)?;
    let name =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let name = name.trim_end_matches(".csv").trim_end_matches(".jsonl").to_owned();
    let begin = reader.fill_buf().map_err(|error| files::unreadable(path, &error))?;
    let context = TraceContext { name: name.clone(), cluster, catalog, tenants: tenants.clone() };
    let read = match actual_format(path, format, begin) {
        Format::Auto | Format::Csv => trace::read_csv(reader, context),
        Format::Jsonl => trace::read_jsonl(reader, context),
        Format::Tiresias => {
            tiresias::read(reader, &name).map(|workload| owned_by(workload, tenants))
        }
        Format::Muri => {
            let options = muri::MuriOptions::named(&name);
            muri::read(reader, &options).map(|trace| owned_by(trace.workload, tenants))
        }
    };
    read.map_err(|error| read_failed(path, error))
}

/// The format a file has, by its name and its first line, unless one is stated.
fn actual_format(path: &Path, stated: Format, begin: &[u8]) -> Format {
    if stated != Format::Auto {
        return stated;
    }
    let first = begin.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    let first = String::from_utf8_lossy(first);
    let name = path.to_string_lossy();
    let name = name.trim_end_matches(".gz");
    if name.ends_with(".jsonl") || name.ends_with(".ndjson") || first.trim_start().starts_with('{')
    {
        Format::Jsonl
    } else if first.contains("resource_time_0") {
        Format::Muri
    } else if first.contains("num_gpu") && first.contains("duration") {
        Format::Tiresias
    } else {
        Format::Csv
    }
}

fn read_failed(path: &Path, error: ReadError) -> Failure {
    match error {
        ReadError::Input(fault) => Failure::input(path.display(), fault),
        ReadError::Io(error) => files::unreadable(path, &error),
    }
}

/// The same jobs with the tenants that a cluster file declares; others are added by name.
fn owned_by(mut workload: Workload, mut declared: Tenants) -> Workload {
    if declared == Tenants::default() {
        return workload;
    }
    let names: Vec<String> =
        workload.tenants.iter().map(|(_, tenant)| tenant.name.clone()).collect();
    let ids: Vec<_> = names.iter().map(|name| declared.intern(name)).collect();
    for one in &mut workload.jobs {
        let job = Arc::make_mut(&mut one.job);
        job.tenant = ids[job.tenant.index()];
    }
    workload.tenants = declared;
    workload
}

/// One message about the first job that cannot work.
fn refuse_problems(
    source: &str,
    workload: &Workload,
    cluster: &Cluster,
    args: &GivenArgs,
) -> Result<(), Failure> {
    let problems = workload.check(cluster);
    let Some(first) = problems.first() else { return Ok(()) };
    let (label, field, value, expected) = match first {
        Problem::TooLarge { label, need, most, .. } => {
            let line = cluster::line_of(cluster);
            let expected = format!("at most {most}, which is what the cluster `{line}` has for it");
            (label, "gpus", need.to_string(), expected)
        }
        Problem::BadSize { label, gpus, least, most, .. } => (
            label,
            "gpus",
            gpus.to_string(),
            format!("gpus_min {least} <= gpus <= gpus_max {most}"),
        ),
        Problem::Unknown { label, what, number, count, .. } => {
            (label, *what, number.to_string(), format!("less than {count}"))
        }
        Problem::NoWork { label, work, .. } => {
            (label, "steps", work.to_string(), "more than 0".to_owned())
        }
        Problem::Cycle { label, .. } => {
            (label, "after", label.clone(), "jobs that do not wait for each other".to_owned())
        }
    };
    let line = args.trace.as_ref().and_then(|path| line_of_job(path, args.format, label));
    let fault = InputError::wrong(line.unwrap_or(0), field, &value, expected);
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more jobs that cannot run)"),
    };
    let place = if fault.line > 0 { format!("line {}: ", fault.line) } else { String::new() };
    let sentence = Some(format!(
        "{place}job `{label}`: `{field}` cannot be `{value}`: expected {}{more}",
        fault.expected
    ));
    Err(Failure::Input(Box::new(BadInput { source: source.to_owned(), fault, sentence })))
}

/// The line of a trace that holds a job, found by reading it once more.
fn line_of_job(path: &Path, format: Format, label: &str) -> Option<u64> {
    let mut reader = files::open(path).ok()?;
    let begin = reader.fill_buf().ok()?;
    if actual_format(path, format, begin) == Format::Jsonl {
        let lines = reader.lines().map_while(Result::ok).zip(1..);
        let id =
            |text: &str| serde_json::from_str::<serde_json::Value>(text).ok()?.get("id").cloned();
        let name = |id| match id {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        return lines
            .into_iter()
            .find_map(|(text, line)| (name(id(&text)?) == label).then_some(line));
    }
    let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(reader);
    let at = table.headers().ok()?.iter().position(|name| name == "id" || name == "job_id")?;
    let mut rows = table.records().map_while(Result::ok);
    rows.find(|row| row.get(at) == Some(label)).and_then(|row| Some(row.position()?.line()))
}
