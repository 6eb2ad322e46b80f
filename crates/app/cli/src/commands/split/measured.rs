//! `split --measured`: what was measured on a GPU beside what is predicted of it.

use crate::args::SplitArgs;
use crate::commands::split::given::failure;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use std::path::Path;
use trainyard_experiment::files::read_text;
use trainyard_planner::evidence::{self, Compared};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::listing;

/// By how much a prediction may be off where nothing else is said.
const WITHIN: f64 = 0.15;

/// Prints the comparison; fails where a prediction from layers is further off than is allowed.
pub fn run(file: &Path, args: &SplitArgs, output: &Output) -> Result<(), Failure> {
    let within = match &args.within {
        None => WITHIN,
        Some(text) => {
            let part = text.parse().ok().filter(|part: &f64| (0.0..=10.0).contains(part));
            part.ok_or_else(|| {
                Failure::flag("--within", text, "a part from 0 to 10, such as 0.15")
            })?
        }
    };
    let source = file.display().to_string();
    let evidence =
        evidence::parse(&read_text(file)?).map_err(|fault| Failure::input(&source, fault))?;
    let compared = evidence::compare(&evidence).map_err(|error| failure(&source, error))?;
    match args.json {
        true => output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "split-measured",
            "gpu": evidence.gpu,
            "model": evidence.model,
            "within": within,
            "cases": compared.iter().map(row).collect::<Vec<Value>>(),
        }))?,
        false => output.print(&text(&evidence, &compared, output))?,
    }
    let worst = compared.iter().map(|one| one.off().abs()).fold(0.0, f64::max);
    match worst > within {
        true => Err(Failure::Operation(format!(
            "a prediction from the times of layers is {:.1} % off, and {:.1} % are allowed (--within)",
            100.0 * worst,
            100.0 * within
        ))),
        false => Ok(()),
    }
}

fn row(one: &Compared) -> Value {
    json!({
        "micro_batch": one.micro_batch,
        "recompute": recompute(one),
        "measured_seconds": one.measured,
        "from_layers_seconds": one.from_layers,
        "from_layers_off": one.off(),
        "from_description_seconds": one.from_description,
    })
}

fn recompute(one: &Compared) -> &'static str {
    if one.recomputes { "all" } else { "nothing" }
}

fn text(evidence: &evidence::Evidence, compared: &[Compared], output: &Output) -> String {
    let off = |seconds: f64, measured: f64| format!("{:+.1} %", 100.0 * (seconds / measured - 1.0));
    let rows: Vec<Vec<String>> = compared
        .iter()
        .map(|one| {
            let described = one.from_description;
            vec![
                one.micro_batch.to_string(),
                recompute(one).to_owned(),
                format!("{:.4} s", one.measured),
                format!("{:.4} s", one.from_layers),
                off(one.from_layers, one.measured),
                described.map_or("-".to_owned(), |seconds| format!("{seconds:.4} s")),
                described.map_or("-".to_owned(), |seconds| off(seconds, one.measured)),
            ]
        })
        .collect();
    let heading =
        ["micro-batch", "recompute", "measured", "from layers", "off", "from description", "off"];
    let table = listing(&heading, &rows, output.ink, output.width);
    format!("{} on one {}\n\n{table}", evidence.model, evidence.gpu)
}
