//! Operator graphs as JSON.
//!
//! ```json
//! {
//!   "name": "two-towers",
//!   "measured_on": "v100",
//!   "batch": 8,
//!   "operators": [
//!     { "name": "left", "forward_seconds": 0.002, "backward_seconds": 0.004,
//!       "parameter_bytes": 4000000, "activation_bytes": 1000000 },
//!     { "name": "join", "forward_seconds": 0.001, "backward_seconds": 0.002 }
//!   ],
//!   "edges": [ { "from": "left", "to": "join", "bytes": 500000 } ]
//! }
//! ```
//!
//! Both times are needed, because a time that is not stated would count as none; sizes default to 0.

use crate::PlanError;
use crate::graph::{Edge, Graph, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GraphText {
    name: String,
    measured_on: String,
    batch: u32,
    operators: Vec<OperatorText>,
    #[serde(default)]
    edges: Vec<EdgeText>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct OperatorText {
    name: String,
    #[serde(default)]
    forward_seconds: Option<f64>,
    #[serde(default)]
    backward_seconds: Option<f64>,
    #[serde(default)]
    parameter_bytes: f64,
    #[serde(default)]
    activation_bytes: f64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct EdgeText {
    from: String,
    to: String,
    bytes: f64,
}

/// More operators than this are taken for another kind of file.
const OPERATORS_MAX: usize = 200_000;

/// Reads a graph.
pub fn parse(text: &str) -> Result<Graph, PlanError> {
    let given: GraphText = serde_json::from_str(text).map_err(|error| {
        let line = error.line() as u64;
        let shown = text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("").trim();
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default().to_owned();
        InputError::wrong(line, "", shown, format!("a graph as JSON ({what})"))
    })?;
    if given.operators.len() > OPERATORS_MAX {
        let count = given.operators.len().to_string();
        let expected = format!("at most {OPERATORS_MAX}");
        return Err(InputError::wrong(0, "operators", &count, expected).into());
    }
    let names: BTreeMap<&str, usize> =
        given.operators.iter().enumerate().map(|(at, one)| (one.name.as_str(), at)).collect();
    let index = |field: &str, name: &str| {
        let unknown = || InputError::unknown(0, field, name, names.keys().copied());
        names.get(name).copied().ok_or_else(unknown)
    };
    let mut edges = Vec::with_capacity(given.edges.len());
    for edge in &given.edges {
        let (from, to) = (index("from", &edge.from)?, index("to", &edge.to)?);
        edges.push(Edge { from, to, bytes: edge.bytes });
    }
    let operators: Result<Vec<Operator>, InputError> = given.operators.iter().map(read).collect();
    Graph::new((&given.name, &given.measured_on), given.batch, operators?, edges)
}

fn read(one: &OperatorText) -> Result<Operator, InputError> {
    let needed = |field: &str, value: Option<f64>| {
        let expected = format!("the time of operator `{}` in seconds", one.name);
        value.ok_or_else(|| InputError::missing(0, field, expected))
    };
    Ok(Operator {
        name: one.name.clone(),
        forward: needed("forward_seconds", one.forward_seconds)?,
        backward: needed("backward_seconds", one.backward_seconds)?,
        parameter_bytes: one.parameter_bytes,
        activation_bytes: one.activation_bytes,
    })
}

/// Writes a graph so that [`parse`] reads the same.
pub fn write(graph: &Graph) -> String {
    let name = |index: usize| graph.operators[index].name.clone();
    let operator = |one: &Operator| OperatorText {
        name: one.name.clone(),
        forward_seconds: Some(one.forward),
        backward_seconds: Some(one.backward),
        parameter_bytes: one.parameter_bytes,
        activation_bytes: one.activation_bytes,
    };
    let edge = |one: &Edge| EdgeText { from: name(one.from), to: name(one.to), bytes: one.bytes };
    let text = GraphText {
        name: graph.name.clone(),
        measured_on: graph.measured_on.clone(),
        batch: graph.batch,
        operators: graph.operators.iter().map(operator).collect(),
        edges: graph.edges.iter().map(edge).collect(),
    };
    serde_json::to_string_pretty(&text).expect("names and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "name": "g", "measured_on": "v100", "batch": 4,
        "operators": [
            { "name": "a", "forward_seconds": 1, "backward_seconds": 2, "parameter_bytes": 8 },
            { "name": "b", "forward_seconds": 3, "backward_seconds": 4 }
        ],
        "edges": [ { "from": "a", "to": "b", "bytes": 16 } ] }"#;

    #[test]
    fn what_is_written_reads_the_same() {
        let graph = parse(TEXT).unwrap();
        assert_eq!(parse(&write(&graph)).unwrap(), graph);
        assert_eq!(graph.seconds(), 10.0);
    }

    #[test]
    fn faults_name_the_operator() {
        let error = parse(&TEXT.replace("\"forward_seconds\": 3, ", "")).unwrap_err();
        assert!(error.to_string().contains("operator `b`"), "{error}");
        let error = parse(&TEXT.replace("\"to\": \"b\"", "\"to\": \"bb\"")).unwrap_err();
        assert!(error.to_string().contains("`to` cannot be `bb`"), "{error}");
        let error = parse(&TEXT.replace("\"batch\": 4", "\"batch\": -4")).unwrap_err();
        assert!(error.to_string().contains("line 1"), "{error}");
        let edge = r#"{ "from": "a", "to": "b", "bytes": 16 }"#;
        let back = format!(
            "{edge}, {}",
            edge.replace("\"a\"", "\"x\"").replace("\"b\"", "\"a\"").replace("\"x\"", "\"b\"")
        );
        let error = parse(&TEXT.replace(edge, &back)).unwrap_err();
        assert!(error.to_string().contains("cycle: "), "{error}");
    }
}
