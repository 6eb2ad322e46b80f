//! Chronus' placement speeds (SoCC 2021), as JSON.
//!
//! `{model: {GPUs: {nodes: speed relative to one node}}}`.
//! The table has no absolute speeds, so work is seconds at the wanted size on one node, on any type of GPU, as for
//! the generic model; only the loss by spreading differs between models.
//! Save and start times are those of the authors' simulator: 0.1 and 0.4 minutes, times 1 + log2 of the GPUs.

use super::{At, add_point, json, plain_name, size, skew, speed, with_points};
use crate::{ANY_KIND, ModelProfile, Point, SizeCost};
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// Reads the table into one profile for each model.
pub fn read(text: &str) -> Result<Vec<ModelProfile>, InputError> {
    let mut models: Vec<ModelProfile> = Vec::new();
    for (name, sizes) in json::root(text)?.entries("an object of models")? {
        let mut model = named(&name);
        if plain_name(&name).is_empty() || models.iter().any(|other| other.name == model.name) {
            let expected = "a name with letters that no other model has";
            return Err(InputError::wrong(sizes.line(), "model", &name, expected));
        }
        for (gpus, speeds) in sizes.entries("an object of numbers of GPUs")? {
            let gpus = size(&At { line: speeds.line(), field: "GPUs" }, &gpus)?;
            for (nodes, node) in speeds.entries("an object of numbers of nodes")? {
                let at = At { line: node.line(), field: &node.path };
                let count = nodes.parse().ok().filter(|nodes| (1..=gpus).contains(nodes));
                let expected = format!("a number of nodes from 1 to the {gpus} GPUs");
                let nodes =
                    count.ok_or_else(|| InputError::wrong(at.line, "nodes", &nodes, expected))?;
                if let Some(rate) = speed(&at, node.shown(), node.number("a relative speed")?)? {
                    let point = Point { kind: ANY_KIND.to_owned(), gpus, nodes, rate };
                    add_point(&mut model, point, &at)?;
                }
            }
        }
        models.push(model);
    }
    with_points(models)
}

fn named(model: &str) -> ModelProfile {
    let source = format!(
        "Chronus (SoCC 2021), an imported table of placement speeds: {model}; relative to one node, \
         so work is seconds at the wanted size"
    );
    let growing = |base: Span| SizeCost { base, per_doubling: base, ..SizeCost::default() };
    ModelProfile {
        scaling: 0.0,
        skew: skew(model),
        save: growing(Span::secs(6)),
        start: growing(Span::secs(24)),
        ..ModelProfile::named(&plain_name(&format!("chronus-{model}")), &source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_over_nodes_has_its_own_point() {
        let models = read(r#"{"mobilenet_v2": {"8": {"1": 1.0, "4": 0.6, "2": 0.9}}}"#).unwrap();
        assert_eq!(models[0].name, "chronus-mobilenet-v2");
        let points: Vec<(u32, u32, f64)> =
            models[0].points.iter().map(|point| (point.gpus, point.nodes, point.rate)).collect();
        assert_eq!(points, [(8, 1, 1.0), (8, 2, 0.9), (8, 4, 0.6)]);
        assert_eq!(models[0].start.on(8), Span::secs(24 * 4));
    }

    #[test]
    fn faults_name_line_path_and_value() {
        for (text, expected) in [
            ("{\"a\": {\"2\":\n {\"3\": 1.0}}}", "line 2: `nodes` cannot be `3`"),
            ("{\"a\": {\"2\": {\"1\": \"x\"}}}", "line 1: `a.2.1` cannot be `\"x\"`"),
            ("{\"a\": {\"0\": {\"1\": 1}}}", "line 1: `GPUs` cannot be `0`"),
            ("{\"a\": 3}", "line 1: `a` cannot be `3`"),
            ("{\"a\": {}, \"a\": {}}", "line 1: `a` cannot be `{}`: expected each key once"),
        ] {
            let found = read(text).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}\n  does not start with\n{expected}");
        }
    }
}
