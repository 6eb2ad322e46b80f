//! `job show`: all about one job.

use super::args::OneJob;
use super::client::Client;
use super::show::{asked, clock, holdings, length, state, versioned};
use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::answer::{AttemptRow, JobDetail, Measured};
use trainyard_report::table::listing;

/// `job show`.
pub fn show(args: &OneJob, output: &Output) -> Result<(), Failure> {
    let client = Client::open(&args.connection)?;
    let detail: JobDetail = client.get(&format!("/jobs/{}", args.job), &[])?;
    if args.connection.json {
        return output.print_json(&versioned(&detail));
    }
    let facts = facts(&detail);
    let lines = facts.iter().map(|(name, value)| format!("{name:<10} {value}\n"));
    output.print(&lines.collect::<String>())?;
    if detail.attempts.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = detail.attempts.iter().map(attempt).collect();
    let heading = ["launch", "where", "launched", "held for", "what became of it"];
    output.print("\n")?;
    output.print(&listing(&heading, &rows, output.ink, output.width))
}

/// What there is to say about a job, each under its name.
pub fn facts(detail: &JobDetail) -> Vec<(&'static str, String)> {
    let (row, spec) = (&detail.row, &detail.spec);
    let done = row.progress.map(|share| format!(", {:.0} % done", share * 100.0));
    let wishes = asked(spec);
    let lines = [
        ("job", format!("{} ({})", row.id, row.name)),
        ("of", format!("{}, tenant {}", row.user, row.tenant)),
        ("state", state(row.state) + &done.unwrap_or_default()),
        ("why", row.why.clone()),
        ("command", spec.argv.join(" ")),
        ("in", spec.cwd.clone().unwrap_or_default()),
        ("GPUs", row.gpus.to_string()),
        ("asks for", wishes),
        ("holds", holdings(&row.holds)),
        ("submitted", clock(row.submitted)),
        ("ended", row.ended.map(clock).unwrap_or_default()),
        ("ran", length(row.ran_seconds)),
        ("preempted", row.preemptions.to_string()),
        ("measured", measured(&detail.measured)),
        ("says", detail.report.as_ref().map(said).unwrap_or_default()),
    ];
    lines.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// What it last said: the fields of its message, without the kind.
fn said(report: &serde_json::Value) -> String {
    let fields = report.as_object().into_iter().flatten();
    let fields = fields.filter(|(name, value)| *name != "type" && !value.is_null());
    fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn measured(of: &Measured) -> String {
    let seconds =
        |name: &str, value: Option<f64>| value.map(|value| format!("{name} {value:.3} s"));
    let parts = [
        seconds("start", of.start),
        seconds("save", of.save),
        seconds("restore", of.restore),
        of.rate.map(|rate| format!("{rate:.3} steps/s")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn attempt(of: &AttemptRow) -> Vec<String> {
    let held = of.ended.map(|ended| format!("{:.1} s", (ended - of.launched).max(0.0)));
    vec![
        of.attempt.to_string(),
        holdings(&of.holds),
        clock(of.launched),
        held.unwrap_or_else(|| "until now".to_owned()),
        of.outcome.clone(),
    ]
}
