//! `trainyard split`: one model over a cluster, the best plan of each planner side by side.

mod given;
mod measured;

use crate::args::SplitArgs;
use crate::commands::planners::named;
use crate::failure::Failure;
use crate::output::Output;
pub use given::failure;
use given::{Given, Model};
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_planner::registry::{PLANNERS, PlannerEntry, Problem};
use trainyard_planner::{DeviceGraph, PlanError, Proposal, Request, Transformer, gib};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;

/// Characters of a full bar.
const BAR: usize = 24;

/// Runs the command.
pub fn run(args: &SplitArgs, output: &Output) -> Result<(), Failure> {
    if args.list {
        let names: String = Transformer::names().map(|name| format!("{name}\n")).collect();
        return output.print(&names);
    }
    if let Some(file) = &args.measured {
        return measured::run(file, args, output);
    }
    let given = Given::read(args)?;
    let planners = chosen(args)?;
    let answers = ask(&given, &given.devices, &planners);
    let mut proposals: Vec<&Proposal> =
        answers.iter().flat_map(|(_, plans)| plans.iter().flatten()).collect();
    proposals.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(best) = proposals.first() else { return Err(refused(&given, answers)) };
    let more = one_more_node(&given, &planners, best);
    if let Some(path) = &args.svg {
        let title = format!("{}: {} ({})", given.name, best.summary, best.planner);
        let svg = best.timeline.svg(&title);
        output.write_file(path, |out| out.write_all(svg.as_bytes()))?;
    }
    if args.json {
        return output.print_json(&as_json(&given, &proposals, &answers, more));
    }
    output.print(&as_text(&given, &proposals, &answers, more, output))
}

type Answers = Vec<(&'static str, Result<Vec<Proposal>, PlanError>)>;

fn chosen(args: &SplitArgs) -> Result<Vec<&'static PlannerEntry>, Failure> {
    let Some(names) = &args.planners else { return Ok(PLANNERS.to_vec()) };
    let chosen: Result<Vec<&PlannerEntry>, Failure> =
        names.split(',').map(|name| named(name.trim())).collect();
    let chosen = chosen?;
    match chosen.iter().find(|entry| !matches!(entry.problem, Problem::Training(_))) {
        Some(entry) => {
            let expected = "a planner for the training of one model; see `trainyard planners`";
            Err(Failure::flag("--planners", entry.name, expected))
        }
        None => Ok(chosen),
    }
}

/// What each planner says.
fn ask(given: &Given, devices: &DeviceGraph, planners: &[&'static PlannerEntry]) -> Answers {
    let request = Request {
        graph: &given.graph,
        transformer: match &given.model {
            Model::Transformer(model) => Some(model),
            Model::Graph => None,
        },
        devices,
        batch: given.batch,
        state_factor: given.state_factor,
    };
    let ask = |entry: &&'static PlannerEntry| match entry.problem {
        Problem::Training(plan) => Some((entry.name, plan(&request))),
        Problem::Stated { .. } => None,
    };
    planners.iter().filter_map(ask).collect()
}

/// The best time on the cluster with one more node like its last.
fn one_more_node(
    given: &Given,
    planners: &[&'static PlannerEntry],
    best: &Proposal,
) -> Option<(f64, String)> {
    let larger = given.with_one_more_node()?;
    let answers = ask(given, &larger, planners);
    let plans = answers.iter().flat_map(|(_, plans)| plans.iter().flatten());
    let found = plans.min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    Some((best.seconds / found.seconds, found.summary.clone()))
}

/// Why no planner has a plan: the one reason that concerns this model most.
fn refused(given: &Given, answers: Answers) -> Failure {
    let errors: Vec<PlanError> = answers.into_iter().filter_map(|(_, plans)| plans.err()).collect();
    let about_model = errors.iter().find(|error| !matches!(error, PlanError::NotFor { .. }));
    match about_model.or(errors.first()) {
        Some(error) => given::failure(&given.source, error.clone()),
        None => {
            let expected = "a planner for the training of one model";
            Failure::input("--planners", InputError::missing(0, "planner", expected))
        }
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
}

fn as_text(
    given: &Given,
    proposals: &[&Proposal],
    answers: &Answers,
    more: Option<(f64, String)>,
    output: &Output,
) -> String {
    let slowest = proposals.iter().map(|one| one.seconds).fold(0.0, f64::max);
    let row = |one: &&Proposal| {
        let fullest = one.memory.first();
        let memory = fullest.map_or(0.0, |one| one.bytes / one.capacity.max(1.0));
        vec![
            format!("{} ({})", one.planner, one.variant),
            one.summary.clone(),
            format!("{} {:.4} s", bar(one.seconds / slowest), one.seconds),
            format!("{:.1}", one.samples_per_second),
            format!("{} {:.0} %", bar(memory), 100.0 * memory),
            one.binds.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = proposals.iter().map(row).collect();
    let heading = ["planner", "plan", "iteration", "samples/s", "fullest memory", "what binds"];
    let mut text = format!(
        "{} on {} devices, {} samples an iteration\n\n{}",
        given.name,
        given.devices.devices.len(),
        given.batch,
        listing(&heading, &rows, output.ink, output.width)
    );
    let best = proposals[0];
    text.push_str(&format!("\nStages of {} ({})\n", best.planner, best.variant));
    for (at, stage) in best.stages.iter().enumerate().take(64) {
        text.push_str(&format!(
            "  {at:>3}  {} layers on {} devices, {:.4} s a micro-batch: {}\n",
            stage.count, stage.devices, stage.seconds, stage.layers
        ));
    }
    for one in best.memory.iter().take(4) {
        text.push_str(&format!(
            "memory of {} and {} like it: {} of {}\n",
            one.device,
            one.count - 1,
            gib(one.bytes),
            gib(one.capacity)
        ));
    }
    let width = usize::from(output.width.unwrap_or(100)).saturating_sub(30).clamp(40, 120);
    text.push_str(&format!("\n{}", best.timeline.text(width)));
    match more {
        // Every plan uses all devices, so more of them can be slower.
        Some((gain, _)) if gain <= 1.0 => {
            text.push_str(&format!("\nOne more node: no gain ({gain:.3} times as fast)\n"))
        }
        Some((gain, summary)) => {
            text.push_str(&format!("\nOne more node: {gain:.3} times as fast ({summary})\n"))
        }
        None => text.push_str("\nOne more node: no planner has a plan for it\n"),
    }
    for (name, plans) in answers {
        if let Err(error) = plans {
            text.push_str(&format!("note: {name}: {error}\n"));
        }
    }
    text
}

fn as_json(
    given: &Given,
    proposals: &[&Proposal],
    answers: &Answers,
    more: Option<(f64, String)>,
) -> Value {
    let refused: Vec<Value> = (answers.iter())
        .filter_map(|(name, plans)| {
            let error = plans.as_ref().err()?;
            Some(json!({ "planner": name, "reason": error.to_string() }))
        })
        .collect();
    let more = more.map(|(gain, summary)| json!({ "times_as_fast": gain, "summary": summary }));
    json!({
        "schema_version": SCHEMA_VERSION,
        "kind": "split",
        "model": given.name,
        "devices": given.devices.devices.len(),
        "batch": given.batch,
        "plans": proposals,
        "refused": refused,
        "one_more_node": more,
    })
}
