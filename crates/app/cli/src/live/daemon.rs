//! `status`, `policy` and `capture`.

use super::args::{CaptureArgs, ConnectionArgs, PolicyArgs, PolicyCommand, TryArgs};
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use std::path::Path;
use trainyard_api::ask;
use trainyard_api::request::PolicyRequest;
use trainyard_api::trial::{GuardRequest, Measure, TrialEnd, TrialRequest, TrialRow};
use trainyard_client::show::{clock, since, versioned};
use trainyard_diagnostic::InputError;
use trainyard_experiment::options::span;

/// `status`.
pub fn status(connection: &ConnectionArgs, output: &Output) -> Result<(), Failure> {
    let status = connect(connection)?.send(&ask::status())?;
    if connection.json {
        return output.print_json(&versioned(&status));
    }
    let jobs: Vec<String> =
        status.jobs.iter().map(|(state, count)| format!("{count} {state}")).collect();
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
            "jobs run as the users who submit them"
        } else {
            "jobs run as the daemon's user"
        },
    );
    if let Some(aside) = &status.aside {
        text.push_str(&format!(
            "aside    {} jobs in {} of {} MiB of host memory\n",
            aside.jobs, aside.used_mib, aside.memory_mib
        ));
    }
    text.push_str(&status.trial.as_ref().map(on_trial).unwrap_or_default());
    let trouble =
        status.policy_trouble.iter().map(|trouble| format!("the policy is in trouble: {trouble}"));
    for warning in trouble.chain(status.warnings.iter().cloned()) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    output.print(&text)
}

/// `policy`.
pub fn policy(args: &PolicyArgs, output: &Output) -> Result<(), Failure> {
    if let Some(PolicyCommand::Try(args)) = &args.command {
        return trial(args, output);
    }
    let client = connect(&args.connection)?;
    let status = match &args.policy {
        None => client.send(&ask::status())?,
        Some(policy) => {
            let request = PolicyRequest {
                policy: policy.clone(),
                place: args.place.clone(),
                admit: args.admit.clone(),
            };
            client.send(&ask::set_policy(request))?
        }
    };
    if args.connection.json {
        return output.print_json(&versioned(&status));
    }
    let trouble =
        status.policy_trouble.map(|text| format!("warning: {text}\n")).unwrap_or_default();
    let trial = status.trial.as_ref().map(on_trial).unwrap_or_default();
    output.print(&format!("{}\n{trial}{trouble}", status.policy))
}

/// `policy try`.
fn trial(args: &TryArgs, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let status = match &args.policy {
        None => client.send(&ask::end_trial(TrialEnd { keep: args.keep }))?,
        Some(policy) => {
            let request = TrialRequest {
                policy: policy.clone(),
                place: args.place.clone(),
                admit: args.admit.clone(),
                seconds: span("--for", args.length.as_deref().unwrap_or_default())?.as_secs_f64(),
                guard: guard(args)?,
            };
            client.send(&ask::try_policy(request))?
        }
    };
    if args.connection.json {
        return output.print_json(&versioned(&status));
    }
    let trial = status.trial.as_ref().map(on_trial).unwrap_or_default();
    output.print(&format!("{}\n{trial}", status.policy))
}

fn guard(args: &TryArgs) -> Result<Option<GuardRequest>, Failure> {
    let Some(name) = &args.measure else { return Ok(None) };
    let measure = Measure::named(name).ok_or_else(|| {
        let names = Measure::ALL.iter().map(|(name, _)| *name);
        Failure::input("--measure", InputError::unknown(0, "measure", name, names))
    })?;
    let percent = args.worse_by.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100_000.0).contains(percent));
    let expected = "percent, such as 20%";
    let percent = percent.ok_or_else(|| Failure::flag("--worse-by", &args.worse_by, expected))?;
    Ok(Some(GuardRequest { measure, worse_by: percent / 100.0 }))
}

/// A trial in a line.
fn on_trial(trial: &TrialRow) -> String {
    let watched = trial.guard.map(|guard| {
        let value =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let percent = guard.worse_by * 100.0;
        let (name, before, now) = (guard.measure.name(), value(trial.before), value(trial.now));
        format!(", or if {name} is more than {percent:.0} % worse (before {before}, now {now})")
    });
    let watched = watched.unwrap_or_default();
    format!("on trial: {} comes back at {}{watched}\n", trial.back_to, clock(trial.until))
}

/// `capture`.
pub fn capture(args: &CaptureArgs, output: &Output) -> Result<(), Failure> {
    let record = connect(&args.connection)?.send_raw(&ask::capture())?;
    if args.output == Path::new("-") {
        return output.print_with(|out| out.write_all(&record));
    }
    output.write_file(&args.output, |out| out.write_all(&record))?;
    let lines = record.iter().filter(|byte| **byte == b'\n').count();
    match args.connection.json {
        true => output.print_json(&versioned(serde_json::json!({
            "file": args.output.display().to_string(), "lines": lines, "bytes": record.len(),
        }))),
        false => output.print(&format!("{}: {lines} lines\n", args.output.display())),
    }
}
