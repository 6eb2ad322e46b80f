//! The cluster and the jobs a run is given.

use crate::args::GivenArgs;
use crate::failure::{BadInput, Failure};
use crate::{files, options, spec};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_profile::{Catalog, profile_file};
use trainyard_types::{Cluster, Tenants};
use trainyard_workload::elasticity::loosen;
use trainyard_workload::embedded::{EMBEDDED_CLUSTER, embedded_spec};
use trainyard_workload::import::{self, Compact, Format, ImportContext, Imported};
use trainyard_workload::{
    CompactWorkload, Elasticity, Problem, ReadError, Workload, cluster, generate, switches,
};

/// The cluster and the jobs of a run.
pub struct Given {
    /// The jobs.
    pub workload: Workload,
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// What should be said about them.
    pub notes: Vec<String>,
}

/// The cluster and the jobs of a run, the jobs in little room.
pub struct GivenCompact {
    /// The jobs.
    pub workload: CompactWorkload,
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// What should be said about them.
    pub notes: Vec<String>,
}

/// What a run is given, as far as possible in little room.
pub enum Loaded {
    /// With jobs at full length.
    Whole(Given),
    /// With jobs in little room.
    Compact(GivenCompact),
}

impl Loaded {
    /// What should be said about it.
    pub fn notes(&self) -> &[String] {
        match self {
            Loaded::Whole(given) => &given.notes,
            Loaded::Compact(given) => &given.notes,
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        match self {
            Loaded::Whole(given) => &given.cluster,
            Loaded::Compact(given) => &given.cluster,
        }
    }
}

/// The same as [`load`], with the jobs of a trace in little room.
///
/// Jobs that are drawn or loosened, and traces with jobs that follow others, come at full length.
pub fn load_compact(args: &GivenArgs) -> Result<Loaded, Failure> {
    let Some(path) = &args.trace else { return load(args).map(Loaded::Whole) };
    if args.elasticity.elasticity() != Elasticity::Rigid {
        return load(args).map(Loaded::Whole);
    }
    let catalog = load_catalog(&args.profiles)?;
    options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let (cluster, tenants) = load_cluster(args.cluster.as_deref())?;
    let context = ImportContext { name: String::new(), cluster: Some(&cluster), catalog, tenants };
    let Compact { workload, report, .. } = read_jobs(path, &args.format, context)?;
    let notes: Vec<String> = drops(path, &report).into_iter().collect();
    if workload.jobs.is_empty() || !workload.is_sound(&cluster) {
        let source = path.display().to_string();
        let workload = checked((&source, args), workload.into_whole(), &cluster)?;
        return Ok(Loaded::Whole(Given { workload, cluster: Arc::new(cluster), notes }));
    }
    Ok(Loaded::Compact(GivenCompact { workload, cluster: Arc::new(cluster), notes }))
}

/// Reads or draws what the flags name, and refuses what cannot work.
pub fn load(args: &GivenArgs) -> Result<Given, Failure> {
    load_with(args, load_catalog(&args.profiles)?)
}

/// The same with models that were read already.
pub fn load_with(args: &GivenArgs, catalog: Catalog) -> Result<Given, Failure> {
    let seed = options::whole("--seed", &args.seed, options::SEED_MAX)?;
    let (cluster, tenants) = load_cluster(args.cluster.as_deref())?;
    let source = match (&args.trace, &args.generate) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(_)) => "--generate".to_owned(),
        (None, None) => "the embedded workload".to_owned(),
    };
    let mut notes = Vec::new();
    let workload = match (&args.trace, &args.generate) {
        (Some(path), _) => {
            let name = String::new();
            let context = ImportContext { name, cluster: Some(&cluster), catalog, tenants };
            let Imported { workload, report, .. } =
                read_jobs(path, &args.format, context)?.into_whole();
            notes.extend(drops(path, &report));
            workload
        }
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
    let workload = checked((&source, args), workload, &cluster)?;
    let workload = loosen(workload, &cluster, args.elasticity.elasticity());
    Ok(Given { workload, cluster: Arc::new(cluster), notes })
}

/// The workload, if there is one and it can run.
fn checked(
    (source, args): (&str, &GivenArgs),
    workload: Workload,
    cluster: &Cluster,
) -> Result<Workload, Failure> {
    if workload.jobs.is_empty() {
        return Err(Failure::input(source, InputError::wrong(0, "jobs", "0", "at least one job")));
    }
    refuse_problems(source, &workload, cluster, args)?;
    Ok(workload)
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

/// Draws a workload; `source` is named when a setting makes no sense.
pub fn generate_for(
    source: &str,
    spec: &trainyard_workload::Spec,
    (cluster, catalog): (&Cluster, &Catalog),
) -> Result<Workload, Failure> {
    generate(spec, catalog, cluster).map_err(|fault| Failure::input(source, fault))
}

/// Reads a trace of any format and describes it; it is called after its file unless the context says otherwise.
pub fn read_trace(
    path: &Path,
    format: &str,
    context: ImportContext<'_>,
) -> Result<Imported, Failure> {
    let mut imported = read_jobs(path, format, context)?.into_whole();
    imported.report.describe(&imported.workload, &imported.cluster);
    Ok(imported)
}

/// The same without the description.
fn read_jobs(
    path: &Path,
    format: &str,
    mut context: ImportContext<'_>,
) -> Result<Compact, Failure> {
    let mut reader = files::open(path)?;
    if context.name.is_empty() {
        context.name = name_of(path);
    }
    let begin = reader.fill_buf().map_err(|error| files::unreadable(path, &error))?;
    let format = actual_format(format, begin).ok_or_else(|| match begin.is_empty() {
        true => {
            let fault = InputError::wrong(0, "", "an empty file", "a trace");
            Failure::file(path, "is empty: expected a trace".to_owned(), fault)
        }
        false => Failure::input(path.display(), import::unknown_format(begin)),
    })?;
    import::import_compact(format, reader, context).map_err(|error| read_failed(path, error))
}

/// The name of a file without what says how it is written and packed.
fn name_of(path: &Path) -> String {
    let name =
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut name = name.as_str();
    for ending in [".gz", ".zst", ".xz"] {
        name = name.trim_end_matches(ending);
    }
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}

/// The format that is stated, or the one that the first bytes show.
fn actual_format(stated: &str, begin: &[u8]) -> Option<&'static Format> {
    Format::named(stated).or_else(|| import::detect(begin)).filter(|_| !begin.is_empty())
}

/// Rows that were left out are reported, so that the user does not take a part for the whole.
fn drops(path: &Path, report: &import::ImportReport) -> Option<String> {
    let (dropped, rows, path) = (report.dropped_rows(), report.rows, path.display());
    (dropped > 0).then(|| {
        format!("note: {path}: {dropped} of {rows} rows give no job; see `trainyard trace check`")
    })
}

fn read_failed(path: &Path, error: ReadError) -> Failure {
    match error {
        ReadError::Input(fault) => Failure::input(path.display(), fault),
        ReadError::Io(error) => files::unreadable(path, &error),
    }
}

/// The same jobs with the tenants that a cluster file declares; others are added by name.
fn owned_by(workload: Workload, declared: Tenants) -> Workload {
    if declared == Tenants::default() { workload } else { workload.owned_by(declared) }
}

/// One message about the first job that cannot work.
pub fn refuse_problems(
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
        Problem::FitsNowhere { job, label, reason } => (
            label,
            "model",
            workload.catalog.get(workload.jobs[job.index()].job.model).name.clone(),
            format!("a model that fits on the GPUs asked for: {reason}"),
        ),
        Problem::Cycle { label, .. } => {
            (label, "after", label.clone(), "jobs that do not wait for each other".to_owned())
        }
    };
    let line = args.trace.as_ref().and_then(|path| line_of_job(path, &args.format, label));
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
fn line_of_job(path: &Path, format: &str, label: &str) -> Option<u64> {
    let mut reader = files::open(path).ok()?;
    let begin = reader.fill_buf().ok()?;
    let format = actual_format(format, begin)?;
    if format.name == "jsonl" {
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
    let at =
        table.headers().ok()?.iter().position(|name| ["id", "job_id", "name"].contains(&name))?;
    let mut rows = table.records().map_while(Result::ok);
    rows.find(|row| row.get(at) == Some(label)).and_then(|row| Some(row.position()?.line()))
}
