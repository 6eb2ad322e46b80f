//! `status`, `policy` and `capture`.

use super::args::{Asking, CaptureArgs, PolicyArgs};
use super::client::{Client, Repeat};
use super::show::{since, versioned};
use crate::failure::Failure;
use crate::output::Output;
use std::path::Path;
use trainyard_api::answer::Status;
use trainyard_daemon::desk::PolicyRequest;

/// `status`.
pub fn status(asking: &Asking, output: &Output) -> Result<(), Failure> {
    let status: Status = Client::open(asking)?.get("/status", &[])?;
    if asking.json {
        return output.print_json(&versioned(&status));
    }
    let jobs: Vec<String> =
        status.jobs.iter().map(|(standing, count)| format!("{count} {standing}")).collect();
    let mut text = format!(
        "version  {}\npolicy   {}\njobs     {}\nGPUs     {} of {} in use, {} out of service\nup       {} (start {})\nyou      {} ({})\nusers    {}\n",
        status.version,
        status.policy,
        if jobs.is_empty() { "none".to_owned() } else { jobs.join(", ") },
        status.gpus_used,
        status.gpus,
        status.gpus_lost,
        since(status.since),
        status.epoch,
        status.user,
        status.role,
        if status.runs_as_users {
            "jobs run as who submitted them"
        } else {
            "jobs run as the daemon's user"
        },
    );
    let trouble =
        status.policy_trouble.iter().map(|trouble| format!("the policy is in trouble: {trouble}"));
    for warning in trouble.chain(status.warnings.iter().cloned()) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    output.print(&text)
}

/// `policy`.
pub fn policy(args: &PolicyArgs, output: &Output) -> Result<(), Failure> {
    let client = Client::open(&args.asking)?;
    let status: Status = match &args.policy {
        None => client.get("/status", &[])?,
        Some(policy) => {
            let request = PolicyRequest {
                policy: policy.clone(),
                place: args.place.clone(),
                admit: args.admit.clone(),
            };
            client.send("PUT", "/policy", &request, Repeat::Always)?
        }
    };
    if args.asking.json {
        return output.print_json(&versioned(&status));
    }
    let trouble =
        status.policy_trouble.map(|text| format!("warning: {text}\n")).unwrap_or_default();
    output.print(&format!("{}\n{trouble}", status.policy))
}

/// `capture`.
pub fn capture(args: &CaptureArgs, output: &Output) -> Result<(), Failure> {
    let record = Client::open(&args.asking)?.bytes("/capture", &[])?;
    if args.output == Path::new("-") {
        return output.print_with(|out| out.write_all(&record));
    }
    output.write_file(&args.output, |out| out.write_all(&record))?;
    let lines = record.iter().filter(|byte| **byte == b'\n').count();
    match args.asking.json {
        true => output.print_json(&versioned(serde_json::json!({
            "file": args.output.display().to_string(), "lines": lines, "bytes": record.len(),
        }))),
        false => output.print(&format!("{}: {lines} lines\n", args.output.display())),
    }
}
