//! `--bound`: how far runs are from what no schedule can do better than.

use crate::failure::Failure;
use serde_json::{Value, json};
use trainyard_bound::Bounds;
use trainyard_experiment::given::Given;
use trainyard_experiment::runs::Done;
use trainyard_report::metrics::Bound;
use trainyard_report::units::Unit;
use trainyard_report::{Comparison, Summary};
use trainyard_sim::Options;

/// The bounds of a workload, where they are asked for.
pub fn of(asked: bool, given: &Given, options: &Options) -> Result<Option<Bounds>, Failure> {
    if !asked {
        return Ok(None);
    }
    let tasks = trainyard_bound::tasks(&given.workload, &given.cluster, options)
        .map_err(|error| Failure::flag("--bound", "on", error.to_string()))?;
    Ok(Some(Bounds::new(&tasks, f64::from(given.cluster.gpus()))))
}

/// Adds them to what came of each run.
pub fn add(done: &mut [Done], bounds: Option<&Bounds>) {
    let Some(bounds) = bounds else { return };
    for one in done {
        let shares_gpus = one.outcome.gpu_seconds_doubled > 0.0;
        let figures = bounds.of_run(shares_gpus);
        one.run.summary.bound = Some(Bound {
            jct_mean_s: figures.jct_mean_s,
            makespan_s: figures.makespan_s,
            deadlines_met: figures.deadlines_met,
            covered: bounds.covered,
            shares_gpus,
        });
    }
}

/// Says in JSON how far each run is above its bounds, beside these.
pub fn add_to_json(comparison: &Comparison, value: &mut Value) {
    for (index, run) in comparison.runs.iter().enumerate() {
        if run.summary.bound.is_some() {
            let bound = &mut value["runs"][index]["summary"]["bound"];
            bound["jct_above"] = json!(run.summary.jct_above_bound());
            bound["makespan_above"] = json!(run.summary.makespan_above_bound());
        }
    }
}

/// A line for each run that has a bound.
pub fn sentences(comparison: &Comparison) -> String {
    comparison.runs.iter().filter_map(|run| sentence(&run.policy, &run.summary)).collect()
}

fn sentence(policy: &str, summary: &Summary) -> Option<String> {
    let bound = summary.bound?;
    let Some(above) = summary.jct_above_bound() else {
        return Some(format!(
            "{policy}: not every job finished, or nothing is known of any, so that no bound on their mean JCT holds.\n"
        ));
    };
    let least = Unit::Seconds.text(bound.jct_mean_s);
    let covered = match bound.covered == summary.jobs {
        true => String::new(),
        false => format!("; {} of {} jobs are covered", bound.covered, summary.jobs),
    };
    let shares = if bound.shares_gpus { ", each job alone, for it shares GPUs" } else { "" };
    Some(format!(
        "{policy}: mean JCT at most {:.1} % above the bound ({least}{shares}{covered}).\n",
        100.0 * above
    ))
}
