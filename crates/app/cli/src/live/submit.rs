//! `submit`, `run` and `plan`.

use super::args::{PlanArgs, RunArgs, SubmitArgs};
use super::connect::connect;
use super::{follow, interactive, job_files, snapshot};
use crate::failure::Failure;
use crate::output::{Output, note, reason};
use trainyard_api::answer::{PlanRow, SubmitRequest, Submitted};
use trainyard_api::ask;
use trainyard_api::{JobSpec, Processes};
use trainyard_client::Client;
use trainyard_client::show::{holdings, ids, length, versioned};
use trainyard_diagnostic::InputError;
use trainyard_experiment::options::{span, whole};
use trainyard_jobfile::Form;
use trainyard_report::table::listing;

/// `submit`.
pub fn submit(args: &SubmitArgs, output: &Output) -> Result<(), Failure> {
    let mut jobs = job_files::read(&args.files)?;
    if args.hold {
        jobs.iter_mut().for_each(|job| job.hold = true);
    }
    let jobs = jobs.into_iter().map(snapshot::taken).collect::<Result<_, _>>()?;
    let client = connect(&args.connection)?;
    let submitted = send(&client, jobs, args.key.clone())?;
    if args.connection.json {
        output.print_json(&versioned(&submitted))?;
    } else {
        output.print(&described(&submitted))?;
    }
    if args.wait { follow::wait(client.following(), &submitted.jobs) } else { Ok(()) }
}

/// `run`.
pub fn run(args: &RunArgs, output: &Output) -> Result<(), Failure> {
    let here = std::env::current_dir().map_err(|error| {
        Failure::Operation(format!("the present directory: {}", reason(&error)))
    })?;
    let job = args.surroundings.around(described_by(args)?, &here)?;
    let job = snapshot::taken(job_files::placed(job, &here))?;
    if args.surroundings.interactive {
        return interactive::run(args, job, output);
    }
    let client = connect(&args.connection)?;
    let submitted = send(&client, vec![job], args.key.clone())?;
    let Some(id) = submitted.jobs.first().copied() else {
        return Err(Failure::Operation("the daemon gave no id".to_owned()));
    };
    if args.detach {
        return match args.connection.json {
            true => output.print_json(&versioned(&submitted)),
            false => output.print(&described(&submitted)),
        };
    }
    eprintln!(
        "job {id}; an interrupt leaves it running: `trainyard logs -f {id}`, `trainyard cancel {id}`"
    );
    let client = client.following();
    follow::whole_log(&client, id, 0, output)?;
    follow::wait(client, &[id])
}

/// `plan`.
pub fn plan(args: &PlanArgs, output: &Output) -> Result<(), Failure> {
    let request = SubmitRequest { jobs: job_files::read(&args.files)?, key: None };
    let client = connect(&args.connection)?;
    let answer = client.send(&ask::plan(request))?;
    if args.connection.json {
        return output.print_json(&versioned(&answer));
    }
    let rows: Vec<Vec<String>> = answer.jobs.iter().map(plan_row).collect();
    let heading = ["job", "starts", "where", "moves", "why"];
    output.print(&listing(&heading, &rows, output.ink, output.width))?;
    output.print(&format!("\n{}\n", answer.basis))
}

fn plan_row(row: &PlanRow) -> Vec<String> {
    let starts = match row.starts_in_seconds {
        _ if row.starts_now => "now".to_owned(),
        Some(seconds) => format!("in {}", length(seconds)),
        None => "cannot be told".to_owned(),
    };
    vec![row.name.clone(), starts, holdings(&row.holds), ids(&row.moved), row.why.clone()]
}

/// A key goes with every submission, so that one whose answer was lost can be sent again.
pub fn send(
    client: &Client,
    jobs: Vec<JobSpec>,
    key: Option<String>,
) -> Result<Submitted, Failure> {
    let key = match key {
        Some(key) if key.trim().is_empty() => {
            return Err(Failure::flag("--key", &key, "a text that is not empty"));
        }
        Some(key) => key,
        None => drawn_key()?,
    };
    let request = SubmitRequest { jobs, key: Some(key) };
    Ok(client.send(&ask::submit(request))?)
}

fn drawn_key() -> Result<String, Failure> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::Operation(format!("the system gives no random bytes: {error}"))
    })?;
    Ok(format!("cli-{:032x}", u128::from_be_bytes(bytes)))
}

fn described(submitted: &Submitted) -> String {
    let word = if submitted.jobs.len() == 1 { "job" } else { "jobs" };
    let again = if submitted.repeated { " (submitted before with this key)" } else { "" };
    format!("{word} {}{again}\n", ids(&submitted.jobs))
}

/// Keys of a job file that `run` has a flag for, and the one of several jobs, of which it could follow one only.
const FLAGS: [(&str, &str); 13] = [
    ("array", "`submit` with a job file"),
    ("command", "the command behind `--`"),
    ("argv", "the command behind `--`"),
    ("gpus", "--gpus"),
    ("gpu_type", "--type"),
    ("gpu_types", "--type"),
    ("name", "--name"),
    ("tenant", "--tenant"),
    ("priority", "--priority"),
    ("time_limit", "--time-limit"),
    ("retries", "--retries"),
    ("on_hang", "--on-hang"),
    ("cwd", "--cwd"),
];

/// The job that the command and `--with` describe: each is read as the line of a job file that it stands for.
fn with_keys(args: &RunArgs) -> Result<JobSpec, Failure> {
    let command = toml::Value::from(args.command.clone());
    let mut text = format!("command = {command}\n");
    for pair in &args.with {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty())
        else {
            return Err(Failure::flag("--with", pair, "KEY=VALUE, a key of a job file"));
        };
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == key.trim()) {
            return Err(Failure::flag("--with", pair, format!("{flag} for this")));
        }
        let line = format!("{} = {}\n", key.trim(), literal(value.trim()));
        one_job(pair, &format!("{text}{line}"))?;
        text.push_str(&line);
    }
    one_job("--with", &text)
}

/// A value as TOML: numbers, truths and lists as they are, all else as a text.
fn literal(value: &str) -> String {
    let read = toml::from_str::<toml::Table>(&format!("x = {value}"));
    match read.ok().and_then(|mut table| table.remove("x")) {
        Some(toml::Value::Datetime(_)) | None => toml::Value::from(value).to_string(),
        Some(_) => value.to_owned(),
    }
}

fn one_job(pair: &str, text: &str) -> Result<JobSpec, Failure> {
    let source = format!("--with {pair}");
    let source = if pair == "--with" { pair } else { &source };
    let file = trainyard_jobfile::read(Form::Toml, source, text, &job_files::context())
        .map_err(|fault| Failure::input(source, InputError { line: 0, ..fault }))?;
    for remark in &file.remarks {
        note(&format!("note: {source}: {}", remark.text));
    }
    let [job] = <[JobSpec; 1]>::try_from(file.jobs)
        .map_err(|_| Failure::flag("--with", pair, "what makes one job; submit a file"))?;
    Ok(job)
}

fn described_by(args: &RunArgs) -> Result<JobSpec, Failure> {
    let gpus = whole("--gpus", &args.gpus, 1_000_000)? as u32;
    if gpus == 0 {
        return Err(Failure::flag("--gpus", &args.gpus, "a whole number from 1"));
    }
    let time_limit =
        args.time_limit.as_deref().map(|text| span("--time-limit", text)).transpose()?;
    let mut job = JobSpec {
        argv: args.command.clone(),
        gpus,
        gpu_types: args.types.clone(),
        tenant: args.tenant.clone(),
        priority: args.priority,
        retries: args.retries,
        on_hang: args.on_hang.into(),
        time_limit_seconds: time_limit.map(|span| span.as_secs_f64()),
        cwd: args.cwd.as_ref().map(|path| path.to_string_lossy().into_owned()),
        ..with_keys(args)?
    };
    match (args.per_gpu, args.per_node) {
        (true, _) => job.processes = Processes::PerGpu,
        (_, true) => job.processes = Processes::PerNode,
        _ => {}
    }
    let command = job.argv.first().map(String::as_str).unwrap_or_default();
    let file = command.rsplit('/').next().unwrap_or_default().to_owned();
    job.name = args.name.clone().unwrap_or(file);
    for text in &args.env {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::flag("--env", text, "NAME=VALUE"));
        };
        job.env.insert(name.to_owned(), value.to_owned());
    }
    Ok(job)
}
