//! How a shadow run is shown.

use crate::args::OutArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_experiment::shadow::{Counts, During, ShadowVerdict, Shown};
use trainyard_report::units::{Unit, span_text};
use trainyard_report::{Run, table};
use trainyard_slurm::{History, Inventory};

/// Prints the table, or JSON.
pub fn print(shown: &Shown, out: &OutArgs, output: &Output) -> Result<(), Failure> {
    if out.json {
        return output.print_json(&json(shown));
    }
    if out.csv {
        return output.print_with(|to| table::csv(&shown.comparison, to));
    }
    let about = &shown.comparison.about;
    output.print(&format!(
        "{} jobs that ended while watched, on {}: {} GPUs\n\n",
        about.jobs, about.cluster, about.gpus
    ))?;
    let heading = [
        "policy",
        "information",
        "waiting",
        "95 %",
        "completion",
        "95 %",
        "used",
        "ended",
        "queue",
        "preempted",
        "gain",
        "between",
        "",
    ];
    let rows: Vec<Vec<String>> = shown
        .comparison
        .runs
        .iter()
        .zip(&shown.during)
        .enumerate()
        .map(|(index, (run, during))| {
            row(run, during, index.checked_sub(1).and_then(|i| shown.verdicts.get(i)))
        })
        .collect();
    output.print(&table::figures(&heading, 2, &rows, output.ink))?;
    output.print("\nwaiting: time without GPUs; completion: from submission to the end; both over the jobs above.\n")?;
    output.print("used, ended, queue: GPUs held, jobs ended and jobs waiting during the watch, over all jobs.\n")?;
    output.print(
        "gain: completion as it happened over completion under the policy.\n\nTo judge it:\n",
    )?;
    for note in &shown.notes {
        output.print(&format!("- {note}\n"))?;
    }
    Ok(())
}

fn row(run: &Run, during: &During, verdict: Option<&ShadowVerdict>) -> Vec<String> {
    let summary = &run.summary;
    let mut row = vec![
        run.policy.clone(),
        if verdict.is_some() { run.information.text() } else { "-".to_owned() },
        span_text(summary.queueing_s.mean),
        span_text(summary.queueing_s.p95),
        span_text(summary.jct_s.mean),
        span_text(summary.jct_s.p95),
        Unit::Part.text(during.utilisation),
        during.ended.to_string(),
        format!("{:.1}", during.waiting_mean),
        summary.preemptions.to_string(),
    ];
    row.extend(match verdict {
        Some(ShadowVerdict { gain, gain_between: (low, high), says, .. }) => {
            [format!("{gain:.2}"), format!("{low:.2} to {high:.2}"), says.text().to_owned()]
        }
        None => ["1".to_owned(), String::new(), String::new()],
    });
    row
}

fn json(shown: &Shown) -> Value {
    let mut value = shown.comparison.json();
    let counts = &shown.counts;
    value["kind"] = "shadow".into();
    value["verdicts"] = json!(shown.verdicts);
    value["during"] = json!(shown.during);
    value["notes"] = json!(shown.notes);
    value["counts"] = json!({
        "measured": counts.measured,
        "ran_before": counts.ran_before,
        "running": counts.running,
        "waiting": counts.waiting,
        "without_gpus": counts.without_gpus,
        "never_ran": counts.never_ran,
        "too_large": counts.too_large,
        "requeued": counts.requeued,
        "shorter_than_a_start": counts.shorter_than_a_start,
    });
    value
}

/// What is said before any job has ended.
pub fn too_early(history: &History, inventory: &Inventory, counts: &Counts) -> String {
    let (nodes, gpus) = (inventory.cluster.nodes.len(), inventory.cluster.gpus());
    let mut text = format!(
        "{nodes} nodes with {gpus} GPUs; {} jobs run and {} wait.\n\
         {} looks over {}: no job with GPUs has come or waited and ended in that time, so nothing can be compared yet.\n\
         Watch on: the same command with --record FILE goes on where it stopped.\n",
        counts.running,
        counts.waiting,
        history.looks,
        span_text((history.to - history.from) as f64),
    );
    for warning in &inventory.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    text
}
