//! `fair` and `acct`.

use super::args::{AcctArgs, ConnectionArgs};
use super::connect::connect;
use super::job_files::context;
use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::answer::{AcctRow, FairRow};
use trainyard_api::ask;
use trainyard_api::request::AcctRequest;
use trainyard_client::show::{now, versioned};
use trainyard_report::table::figures;
use trainyard_types::Span;

/// `fair`.
pub fn fair(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(connection)?;
    if connection.json {
        return output.print_json(&versioned(client.value(&ask::fair())?));
    }
    let tenants = client.send(&ask::fair())?;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let row = |tenant: &FairRow| {
        vec![
            tenant.tenant.clone(),
            tenant.parent.clone().unwrap_or_default(),
            format!("{}", tenant.weight),
            percent(tenant.entitled),
            percent(tenant.used),
            format!("{}", tenant.gpus),
            tenant.ceiling.map(|gpus| gpus.to_string()).unwrap_or_default(),
            tenant.running.to_string(),
            tenant.waiting.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = tenants.iter().map(row).collect();
    let heading =
        ["tenant", "of", "weight", "entitled", "used", "GPUs", "ceiling", "running", "waiting"];
    output.print(&figures(&heading, 2, &rows, output.ink))
}

/// `acct`.
pub fn acct(args: &AcctArgs, output: &Output) -> Result<(), Failure> {
    let request = ask::acct(AcctRequest {
        since: args.since.as_ref().map(|text| moment("--since", text)).transpose()?,
        until: args.until.as_ref().map(|text| moment("--until", text)).transpose()?,
        user: args.user.clone(),
    });
    let client = connect(&args.connection)?;
    if args.connection.json {
        return output.print_json(&versioned(client.value(&request)?));
    }
    let usage = client.send(&request)?;
    // A first job is short, and 0.00 would say that it was not counted.
    let hours = |hours: f64| format!("{:.*}", if hours < 1.0 { 4 } else { 2 }, hours);
    let row = |row: &AcctRow| {
        vec![
            row.user.clone(),
            row.tenant.clone(),
            row.jobs.to_string(),
            row.launches.to_string(),
            hours(row.gpu_hours),
            if row.shared_gpu_hours > 0.0 { hours(row.shared_gpu_hours) } else { String::new() },
            format!("{:.2}", row.cost),
        ]
    };
    let rows: Vec<Vec<String>> = usage.iter().map(row).collect();
    let heading = ["user", "tenant", "jobs", "launches", "GPU-hours", "of them shared", "cost"];
    output.print(&figures(&heading, 2, &rows, output.ink))
}

/// A moment, or how long ago one was.
fn moment(flag: &str, text: &str) -> Result<f64, Failure> {
    // `12:00` is a time of the day here; a length of time with colons, such as `1:00:00`, is none.
    let ago = || text.parse::<Span>().ok().map(|span| now() - span.as_secs_f64());
    let found = trainyard_jobfile::moment(text, &context()).or_else(ago);
    let expected = "a time such as 2026-05-01, or how long ago, such as 7d";
    found.ok_or_else(|| Failure::flag(flag, text, expected))
}
