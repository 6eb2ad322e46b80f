//! `window add`, `window list` and `window remove`.

use super::args::ConnectionArgs;
use super::connect::connect;
use super::job_files::context;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use trainyard_api::ask;
use trainyard_api::window::{Reserved, WindowRequest, WindowRow};
use trainyard_client::show::{clock, versioned};
use trainyard_diagnostic::InputError;
use trainyard_diagnostic::{Document, Section};
use trainyard_experiment::files;
use trainyard_experiment::options::span;
use trainyard_report::table::listing;

const ADD_HELP: &str = "\
Examples:
  trainyard window add --nodes n1,n2 --from 2026-11-20T08:00 --for 4h --reason 'new driver'
  trainyard window add --nodes n3 --from 22:00 --for 10h --tenant vision
  trainyard window add --file november.toml

Without --tenant, --user or --job the nodes are under maintenance: no job may use them.
With one of them they are reserved: only those may use them.
A job that can neither end (time limit) nor save (preemptible) before a window does not start there.
A job that runs there is asked to stop in time to save, and goes on elsewhere or afterwards.

A file of windows:
  [[window]]
  nodes = [\"n1\", \"n2\"]
  from = \"2026-11-20T08:00\"
  for = \"4h\"
  reason = \"new driver\"
  # tenants = [\"vision\"], users = [\"ada\"], jobs = [\"12\"] reserve it";

/// `window ...`.
#[derive(Debug, Subcommand)]
pub enum WindowCommand {
    /// Declare a maintenance window, or a reservation.
    #[command(after_help = ADD_HELP)]
    Add(WindowArgs),
    /// List windows that are not over.
    #[command(after_help = "Example:\n  trainyard window list")]
    List(ConnectionArgs),
    /// Take windows back.
    #[command(after_help = "Example:\n  trainyard window remove 3")]
    Remove {
        /// Their numbers, as `window list` shows them.
        #[arg(required = true, value_name = "WINDOW")]
        windows: Vec<u32>,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

/// `window add`.
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Names of nodes, separated by commas.
    #[arg(long, value_name = "NODES", value_delimiter = ',', required_unless_present = "file")]
    pub nodes: Vec<String>,
    /// When it begins: 2026-11-20T08:00, 08:00 or now+2h.
    #[arg(long, value_name = "TIME", required_unless_present = "file")]
    pub from: Option<String>,
    /// How long it lasts, such as 4h.
    #[arg(long = "for", value_name = "SPAN", required_unless_present = "file")]
    pub length: Option<String>,
    /// Why, for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Reserve the nodes for a tenant (repeatable).
    #[arg(long = "tenant", value_name = "TENANT")]
    pub tenants: Vec<String>,
    /// Reserve the nodes for a user (repeatable).
    #[arg(long = "user", value_name = "USER")]
    pub users: Vec<String>,
    /// Reserve the nodes for a job (repeatable).
    #[arg(long = "job", value_name = "JOB")]
    pub jobs: Vec<u32>,
    /// Declare all windows of a file instead.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["nodes", "from", "length", "reason", "tenants", "users", "jobs"]
    )]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// `window ...`.
pub fn run(command: &WindowCommand, output: &Output) -> Result<(), Failure> {
    match command {
        WindowCommand::Add(args) => add(args, output),
        WindowCommand::List(connection) => list(connection, output),
        WindowCommand::Remove { windows, connection } => {
            let client = connect(connection)?;
            for window in windows {
                client.send(&ask::remove_window(*window))?;
            }
            match connection.json {
                true => output.print_json(&versioned(json!({ "removed": windows }))),
                false => output.print("removed\n"),
            }
        }
    }
}

fn add(args: &WindowArgs, output: &Output) -> Result<(), Failure> {
    let requests = match &args.file {
        Some(path) => {
            let place = path.display().to_string();
            let text = files::read_text(path)?;
            read_file(&text).map_err(|error| Failure::input(&place, error))?
        }
        None => vec![request(args)?],
    };
    let client = connect(&args.connection)?;
    let mut rows: Vec<WindowRow> = Vec::new();
    for request in requests {
        rows.push(client.send(&ask::add_window(request))?);
    }
    if args.connection.json {
        return output.print_json(&versioned(json!({ "windows": rows })));
    }
    let told: Vec<String> = rows.iter().map(told).collect();
    output.print(&told.concat())
}

/// One window in words, with the jobs it is in the way of.
fn told(row: &WindowRow) -> String {
    let (from, until) = (clock(row.window.from), clock(row.window.until));
    let mut text =
        format!("window {} on {} from {from} to {until}\n", row.id, row.window.nodes.join(", "));
    if !row.leaving.is_empty() {
        let jobs: Vec<String> = row.leaving.iter().map(u32::to_string).collect();
        text.push_str(&format!(
            "jobs that run there and are stopped before: {}\n",
            jobs.join(", ")
        ));
    }
    text
}

fn request(args: &WindowArgs) -> Result<WindowRequest, Failure> {
    let text = args.from.as_deref().unwrap_or_default();
    let expected = "a time such as 2026-11-20T08:00, 08:00 or now+2h";
    let from = trainyard_jobfile::moment(text, &context())
        .ok_or_else(|| Failure::flag("--from", text, expected))?;
    let length = span("--for", args.length.as_deref().unwrap_or_default())?;
    let reserved = reserved((args.tenants.clone(), args.users.clone(), args.jobs.clone()));
    Ok(WindowRequest {
        nodes: args.nodes.clone(),
        from,
        until: from + length.as_secs_f64(),
        reason: args.reason.clone(),
        reserved,
    })
}

fn reserved((tenants, users, jobs): (Vec<String>, Vec<String>, Vec<u32>)) -> Option<Reserved> {
    let any = !(tenants.is_empty() && users.is_empty() && jobs.is_empty());
    any.then_some(Reserved { tenants, users, jobs })
}

/// The windows of a file.
fn read_file(text: &str) -> Result<Vec<WindowRequest>, InputError> {
    let document = Document::parse(text)?;
    let root = document.root();
    root.allow(&["window"])?;
    let sections = root.sections("window")?;
    if sections.is_empty() {
        return Err(InputError::missing(1, "window", "at least one `[[window]]` table"));
    }
    sections.iter().map(read_window).collect()
}

fn read_window(section: &Section<'_, '_>) -> Result<WindowRequest, InputError> {
    section.allow(&["nodes", "from", "for", "reason", "tenants", "users", "jobs"])?;
    let names = |key: &str| -> Result<Vec<String>, InputError> {
        Ok(section.texts(key)?.unwrap_or_default().into_iter().map(str::to_owned).collect())
    };
    let from = section.needed_text("from")?;
    let from = trainyard_jobfile::moment(from, &context())
        .ok_or_else(|| section.wrong("from", "a time such as 2026-11-20T08:00"))?;
    let length = section.span("for")?;
    let length = length.ok_or_else(|| section.wrong("for", "a length of time such as 4h"))?;
    let jobs: Result<Vec<u32>, _> = names("jobs")?.iter().map(|job| job.parse()).collect();
    let jobs = jobs.map_err(|_| section.wrong("jobs", "a list of ids in quotes"))?;
    Ok(WindowRequest {
        nodes: names("nodes")?,
        from,
        until: from + length.as_secs_f64(),
        reason: section.text("reason")?.unwrap_or_default().to_owned(),
        reserved: reserved((names("tenants")?, names("users")?, jobs)),
    })
}

fn list(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.value(&ask::windows())?));
    }
    let windows = client.send(&ask::windows())?;
    let rows: Vec<Vec<String>> = windows.iter().map(row).collect();
    let heading = ["window", "state", "nodes", "from", "to", "for", "reason"];
    output.print(&listing(&heading, &rows, output.ink, output.width))
}

fn row(row: &WindowRow) -> Vec<String> {
    let whom = row.window.reserved.as_ref().map(|reserved| {
        let jobs = reserved.jobs.iter().map(|job| format!("job {job}"));
        let names = reserved.tenants.iter().chain(&reserved.users).cloned();
        names.chain(jobs).collect::<Vec<_>>().join(", ")
    });
    vec![
        row.id.to_string(),
        row.state.clone(),
        row.window.nodes.join(","),
        clock(row.window.from),
        clock(row.window.until),
        whom.unwrap_or_else(|| "maintenance".to_owned()),
        row.window.reason.clone(),
    ]
}
