//! `trainyard profile complete`: speeds of pairs that were not measured, and how far such estimates are off.

use crate::args::CompleteArgs;
use crate::failure::Failure;
use crate::output::Output;
use serde_json::{Value, json};
use trainyard_diagnostic::InputError;
use trainyard_experiment::given::load_catalog;
use trainyard_profile::complete::{Errors, Filled, Hidden, PairTable, Trial, fill, trial};
use trainyard_profile::{ANY_KIND, Catalog, ModelProfile, Sharing, profile_file};
use trainyard_report::SCHEMA_VERSION;
use trainyard_report::table::figures;

/// Parts of the pairs that are shown.
const SHOWN: [f64; 5] = [0.1, 0.2, 0.3, 0.5, 0.8];
/// How often other pairs are shown anywhere in a table; with a new model in turn there are as many tables as models.
const DRAWS: u64 = 5;
/// A group below this has too few pairs to hide any.
const PAIRS_MIN: usize = 10;

/// Measures the estimates on what is known, and with `--out` fills in what is not.
pub fn complete(args: &CompleteArgs, output: &Output) -> Result<(), Failure> {
    let mut catalog = load_catalog(&args.profiles)?;
    let sharing = if args.mps { Sharing::Mps } else { Sharing::TimeSliced };
    let groups = measured(&catalog, sharing);
    if groups.is_empty() {
        let expected = format!("models with at least {PAIRS_MIN} measured pairs among them");
        return Err(Failure::input("", InputError::missing(0, "pair", expected)));
    }
    let filled = match &args.out {
        None => Vec::new(),
        Some(path) => {
            let filled = fill(&mut catalog);
            let touched =
                |name: &str| filled.iter().any(|group| group.names.iter().any(|n| n == name));
            let models: Vec<ModelProfile> = catalog
                .iter()
                .map(|(_, model)| model)
                .filter(|model| touched(&model.name))
                .cloned()
                .collect();
            let toml = profile_file::write(&models);
            output.write_file(path, |file| file.write_all(toml.as_bytes()))?;
            filled
        }
    };
    if args.json {
        return output.print_json(&json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "profile-complete",
            "groups": groups.iter().map(Group::json).collect::<Vec<Value>>(),
            "file": args.out.as_ref().map(|path| path.display().to_string()),
            "filled": filled.iter().map(filled_json).collect::<Vec<Value>>(),
        }));
    }
    for group in &groups {
        group.print(output)?;
    }
    if let Some(path) = &args.out {
        let (known, new) = filled
            .iter()
            .fold((0, 0), |sum, group| (sum.0 + group.measured, sum.1 + group.estimated));
        output.print(&format!(
            "\n{}: {known} measured speeds of pairs, {new} estimated and marked\n",
            path.display()
        ))?;
    }
    Ok(())
}

/// Models that measured pairs join, and the trials on them.
struct Group {
    kind: String,
    table: PairTable,
    trials: Vec<Trial>,
}

fn measured(catalog: &Catalog, sharing: Sharing) -> Vec<Group> {
    let models = || catalog.iter().map(|(_, model)| model);
    let mut groups = Vec::new();
    for kind in PairTable::kinds(models()) {
        let table = PairTable::of(models(), kind, sharing);
        let tables = table.groups().into_iter().map(|places| table.only(&places));
        for table in tables.filter(|table| table.known().len() >= PAIRS_MIN) {
            let mut trials = Vec::new();
            for (hidden, draws) in [(Hidden::Anywhere, DRAWS), (Hidden::NewModel, 1)] {
                trials.extend(SHOWN.map(|shown| trial(&table, hidden, shown, draws)));
            }
            groups.push(Group { kind: kind.to_owned(), table, trials });
        }
    }
    groups
}

impl Group {
    /// The first name, and how many more.
    fn name(&self) -> String {
        let on = if self.kind == ANY_KIND { String::new() } else { format!(" on {}", self.kind) };
        format!("{} and {} more{on}", self.table.names()[0], self.table.len() - 1)
    }

    fn print(&self, output: &Output) -> Result<(), Failure> {
        let pairs = self.table.known().len();
        output.print(&format!("{}: {pairs} pairs measured\n", self.name()))?;
        let heading =
            ["hidden", "shown", "mean of all", "nearest", "low rank", "chosen", "its p95"];
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let row = |trial: &Trial| {
            let mut row =
                vec![word(trial.hidden).to_owned(), format!("{:.0} %", trial.shown * 100.0)];
            let errors = [trial.mean, trial.nearest, trial.low_rank, trial.chosen];
            row.extend(errors.map(|errors| percent(errors.mean)));
            row.push(percent(trial.chosen.p95));
            row
        };
        let rows: Vec<Vec<String>> = self.trials.iter().map(row).collect();
        output.print(&figures(&heading, 1, &rows, output.ink))
    }

    fn json(&self) -> Value {
        let trial = |trial: &Trial| {
            let ways: serde_json::Map<String, Value> =
                trial.ways.iter().map(|(way, times)| (way.to_string(), json!(times))).collect();
            json!({
                "hidden": word(trial.hidden),
                "shown": trial.shown,
                "mean": errors_json(&trial.mean),
                "nearest": errors_json(&trial.nearest),
                "low_rank": errors_json(&trial.low_rank),
                "chosen": errors_json(&trial.chosen),
                "ways": ways,
            })
        };
        json!({
            "kind": self.kind,
            "models": self.table.names(),
            "pairs": self.table.known().len(),
            "trials": self.trials.iter().map(trial).collect::<Vec<Value>>(),
        })
    }
}

fn word(hidden: Hidden) -> &'static str {
    match hidden {
        Hidden::Anywhere => "anywhere",
        Hidden::NewModel => "of a new model",
    }
}

fn errors_json(errors: &Errors) -> Value {
    json!({
        "cells": errors.cells,
        "mean": errors.mean,
        "median": errors.median,
        "p95": errors.p95,
    })
}

fn filled_json(filled: &Filled) -> Value {
    json!({
        "kind": filled.kind,
        "models": filled.names,
        "measured": filled.measured,
        "estimated": filled.estimated,
        "way": filled.way.0.to_string(),
        "error": errors_json(&filled.way.1),
    })
}
