//! Problems that are stated as JSON and planned by planners of other things than the training of one model.
//!
//! Every figure has a unit in its name, others are named by their names, and a field that is not known is refused.
//! `trainyard planners NAME --example` prints an input of each.

mod cc_os;
mod duan_wu;
mod harmony;
mod herti;
mod perotin;
mod ursa;
mod yang;

pub use cc_os::{EXAMPLE as CC_OS, solve as solve_cc_os};
pub use duan_wu::{EXAMPLE as DUAN_WU, solve as solve_duan_wu};
pub use harmony::{EXAMPLE as HARMONY, solve as solve_harmony};
pub use herti::{EXAMPLE as HERTI, solve as solve_herti};
pub use perotin::{EXAMPLE as PEROTIN, solve as solve_perotin};
pub use ursa::{EXAMPLE as URSA, solve as solve_ursa};
pub use yang::{EXAMPLE as YANG, solve as solve_yang};

use crate::{Graph, PlanError, Transformer, graph_json};
use serde::de::DeserializeOwned;
use serde_json::Value;
use trainyard_diagnostic::InputError;

/// What a planner says of a stated problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// In one line.
    pub summary: String,
    /// Headings of the table.
    pub heading: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// The same as data.
    pub data: Value,
}

/// Reads a problem; a fault names the line and what was found there.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, PlanError> {
    serde_json::from_str(text).map_err(|error| {
        let line = error.line() as u64;
        let shown = text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("").trim();
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        let expected = format!("an input as `--example` prints it ({what})");
        InputError::wrong(line, "", shown, expected).into()
    })
}

/// The place of a name among earlier ones, so that nothing waits for what comes later.
fn earlier(names: &[&str], of: &str, name: &str) -> Result<usize, PlanError> {
    names.iter().position(|known| *known == name).ok_or_else(|| {
        let fault = InputError::unknown(0, "after", name, names.iter().copied());
        InputError { expected: format!("{} before `{of}`", fault.expected), ..fault }.into()
    })
}

/// Names that come once.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, PlanError> {
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        if known.contains(&name) {
            return Err(PlanError::Twice(name.to_owned()));
        }
        known.push(name);
    }
    Ok(known)
}

/// A figure that must be above 0.
fn above_zero(operator: &str, field: &'static str, value: f64) -> Result<f64, PlanError> {
    match value.is_finite() && value > 0.0 {
        true => Ok(value),
        false => Err(PlanError::Figure { operator: operator.to_owned(), field, value }),
    }
}

/// A model: an object with a graph, or a description such as `gpt-1.7b`.
fn model(given: &Value, kind: &str) -> Result<Graph, PlanError> {
    match given {
        Value::String(text) => {
            let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
            match first {
                "transformer" => Transformer::parse(rest)?.graph(kind, 1),
                "cnn" => crate::Cnn::parse(rest)?.graph(kind, 1),
                name => match Transformer::named(name) {
                    Some(model) => model.graph(kind, 1),
                    None => {
                        let names = Transformer::names().chain(["transformer", "cnn"]);
                        Err(InputError::unknown(0, "model", name, names).into())
                    }
                },
            }
        }
        graph => graph_json::parse(&graph.to_string()),
    }
}

fn seconds(value: f64) -> String {
    format!("{value:.4} s")
}

#[cfg(test)]
mod tests {
    use crate::registry::{PLANNERS, Problem};

    #[test]
    fn every_example_is_solved_and_a_wrong_field_is_named() {
        let mut count = 0;
        for entry in PLANNERS {
            let Problem::Stated { solve, example, .. } = entry.problem else { continue };
            count += 1;
            let answer = solve(example).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            assert!(!answer.rows.is_empty() && !answer.summary.is_empty(), "{}", entry.name);
            assert!(answer.rows.iter().all(|row| row.len() == answer.heading.len()));
            let wrong = example.replacen('{', "{ \"colour\": 1,", 1);
            let error = solve(&wrong).unwrap_err().to_string();
            assert!(error.contains("colour"), "{}: {error}", entry.name);
        }
        assert_eq!(count, 7);
    }
}
