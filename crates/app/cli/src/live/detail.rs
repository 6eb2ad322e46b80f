//! `job show`: all about one job.

use super::args::OneJob;
use super::connect::connect;
use crate::failure::Failure;
use crate::output::Output;
use trainyard_api::answer::AttemptRow;
use trainyard_api::ask;
use trainyard_client::show::{clock, facts, holdings, versioned};
use trainyard_report::table::listing;

/// `job show`.
pub fn show(args: &OneJob, output: &Output) -> Result<(), Failure> {
    let client = connect(&args.connection)?;
    let detail = client.send(&ask::job(args.job))?;
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
