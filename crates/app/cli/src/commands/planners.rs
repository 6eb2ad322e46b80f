//! `trainyard planners`: the table of planners.

use crate::args::PlannersArgs;
use crate::commands::policies::word;
use crate::commands::split::failure;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_experiment::files::read_text;
use trainyard_planner::registry::{PLANNERS, PlannerEntry, Problem};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;

/// Lists them, or tells more of one.
pub fn run(args: &PlannersArgs, output: &Output) -> Result<(), Failure> {
    let shown: Vec<&PlannerEntry> = match &args.name {
        None => PLANNERS.to_vec(),
        Some(name) => vec![named(name)?],
    };
    if args.example || args.run.is_some() {
        return solved(shown[0], args, output);
    }
    if args.json {
        let entries: Vec<Value> = shown.iter().map(|entry| row(entry)).collect();
        return output.print_json(
            &json!({ "schema_version": SCHEMA_VERSION, "kind": "planners", "entries": entries }),
        );
    }
    if args.name.is_some() {
        let entry = shown[0];
        let mut text = format!("{}\n{}\n\npaper    {}\n", entry.name, entry.about, entry.paper);
        text.push_str(&format!("plans    {}\n", plans(entry)));
        text.push_str(&format!("level    {}\n", level(entry)));
        if !entry.partial.is_empty() {
            text.push_str(&format!("partial  {}\n", entry.partial));
        }
        return output.print(&format!("{text}page     {}\n", page(entry)));
    }
    let rows: Vec<Vec<String>> = (shown.iter())
        .map(|entry| {
            vec![entry.name.to_owned(), plans(entry), level(entry), entry.about.to_owned()]
        })
        .collect();
    output.print(&listing(
        &["name", "plans", "level", "what it is"],
        &rows,
        output.ink,
        output.width,
    ))
}

/// An example of a stated problem, or what the planner says of one.
fn solved(entry: &PlannerEntry, args: &PlannersArgs, output: &Output) -> Result<(), Failure> {
    let Problem::Stated { solve, example, .. } = entry.problem else {
        let expected = "a planner of stated problems; this one divides models: `trainyard split`";
        return Err(Failure::flag("NAME", entry.name, expected));
    };
    let Some(file) = &args.run else { return output.print(example) };
    let source = file.display().to_string();
    let answer = solve(&read_text(file)?).map_err(|error| failure(&source, error))?;
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "planner-answer",
            "planner": entry.name,
            "summary": answer.summary,
            "answer": answer.data,
        }));
    }
    let table = listing(&answer.heading, &answer.rows, output.ink, output.width);
    output.print(&format!("{}\n\n{table}", answer.summary))
}

/// A planner by its name, or the nearest one in the message.
pub fn named(name: &str) -> Result<&'static PlannerEntry, Failure> {
    let names = PLANNERS.iter().map(|entry| entry.name);
    trainyard_planner::registry::planner(name)
        .ok_or_else(|| Failure::input("", InputError::unknown(0, "planner", name, names)))
}

fn plans(entry: &PlannerEntry) -> String {
    match entry.problem {
        Problem::Training(_) => "training of one model".to_owned(),
        Problem::Stated { what, .. } => {
            format!("{what} (`trainyard planners {} --run`)", entry.name)
        }
    }
}

/// The unit it divides or orders.
fn level(entry: &PlannerEntry) -> String {
    word(&entry.level)
}

fn page(entry: &PlannerEntry) -> String {
    format!("docs/planners/{}.md", entry.name)
}

fn row(entry: &PlannerEntry) -> Value {
    json!({
        "name": entry.name,
        "about": entry.about,
        "paper": entry.paper,
        "level": entry.level,
        "partial": entry.partial,
        "plans": plans(entry),
        "page": page(entry),
    })
}
