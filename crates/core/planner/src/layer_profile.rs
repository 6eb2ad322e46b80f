//! Layer profiles in the text form of PipeDream, as the public planner of DAPPLE has them.
//!
//! A line is `node7 -- Layer_0 -- forward_compute_time=3.4, backward_compute_time=4.9, activation_size=2000000,
//! parameter_size=52000000`, with times in milliseconds, or, indented, an edge `node7 -- node8`.
//! Where an activation is a list with an entry for each edge, each edge carries its own entry; any other carries the
//! sum.

use crate::PlanError;
use crate::graph::{Edge, Graph, Operator};
use std::collections::BTreeMap;
use trainyard_diagnostic::InputError;

/// Reads a profile that was taken with `batch` samples.
pub fn parse(name: &str, text: &str, batch: u32) -> Result<Graph, PlanError> {
    let mut operators = Vec::new();
    let mut outputs: Vec<Vec<f64>> = Vec::new();
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pairs: Vec<(u64, &str, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let parts: Vec<&str> = line.split(" -- ").map(str::trim).collect();
        match parts[..] {
            _ if line.trim().is_empty() => {}
            [from, to] => pairs.push((number, from, to)),
            [node, called, figures] => {
                if nodes.insert(node, operators.len()).is_some() {
                    return Err(PlanError::Twice(node.to_owned()));
                }
                let (operator, sizes) = layer(number, (node, called), figures)?;
                operators.push(operator);
                outputs.push(sizes);
            }
            _ => {
                let expected = "`NODE -- NAME -- FIGURES` or `NODE -- NODE`";
                return Err(InputError::wrong(number, "", line, expected).into());
            }
        }
    }
    let edges = edges(&nodes, &outputs, &pairs)?;
    Graph::new((name, "v100"), batch, operators, edges)
}

/// The number of samples in the name of a profile: `bert-48-pbs-2.txt`.
pub fn batch_in(file_name: &str) -> Option<u32> {
    let rest = file_name.split_once("-pbs-")?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn layer(
    line: u64,
    (node, called): (&str, &str),
    figures: &str,
) -> Result<(Operator, Vec<f64>), InputError> {
    let mut times = [None; 2];
    let (mut sizes, mut parameters) = (None, None);
    for pair in figures.split(", ") {
        let Some((key, value)) = pair.trim().split_once('=') else { continue };
        let number = |text: &str| {
            let expected = format!("a number, of node `{node}`");
            text.trim().parse::<f64>().map_err(|_| InputError::wrong(line, key, text, expected))
        };
        match key {
            "forward_compute_time" => times[0] = Some(number(value)? / 1e3),
            "backward_compute_time" => times[1] = Some(number(value)? / 1e3),
            "activation_size" => {
                let inner = value.trim().trim_start_matches('[').trim_end_matches(']');
                sizes = Some(inner.split(';').map(number).collect::<Result<Vec<f64>, _>>()?);
            }
            "parameter_size" => parameters = Some(number(value)?),
            _ => {}
        }
    }
    let missing =
        |field: &str| InputError::missing(line, field, format!("a figure of node `{node}`"));
    let sizes = sizes.ok_or_else(|| missing("activation_size"))?;
    let operator = Operator {
        name: format!("{node} {called}"),
        forward: times[0].ok_or_else(|| missing("forward_compute_time"))?,
        backward: times[1].ok_or_else(|| missing("backward_compute_time"))?,
        parameter_bytes: parameters.ok_or_else(|| missing("parameter_size"))?,
        activation_bytes: sizes.iter().sum(),
    };
    Ok((operator, sizes))
}

fn edges(
    nodes: &BTreeMap<&str, usize>,
    outputs: &[Vec<f64>],
    pairs: &[(u64, &str, &str)],
) -> Result<Vec<Edge>, InputError> {
    let index = |line: u64, name: &str| {
        let unknown = || InputError::unknown(line, "node", name, nodes.keys().copied());
        nodes.get(name).copied().ok_or_else(unknown)
    };
    let mut edges = Vec::with_capacity(pairs.len());
    for (line, from, to) in pairs {
        edges.push(Edge { from: index(*line, from)?, to: index(*line, to)?, bytes: 0.0 });
    }
    for (from, sizes) in outputs.iter().enumerate() {
        let own = edges.iter_mut().filter(|edge| edge.from == from);
        let own: Vec<&mut Edge> = own.collect();
        let matches = own.len() == sizes.len();
        for (at, edge) in own.into_iter().enumerate() {
            edge.bytes = if matches { sizes[at] } else { sizes.iter().sum() };
        }
    }
    Ok(edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "node1 -- In(a, b) -- forward_compute_time=1.5, backward_compute_time=0, \
        activation_size=[8; 2], parameter_size=0 \nnode2 -- Out -- forward_compute_time=2, \
        backward_compute_time=4.0, activation_size=4.0, parameter_size=16\n\tnode1 -- node2\n";

    #[test]
    fn milliseconds_become_seconds_and_lists_are_summed_where_they_do_not_match() {
        let graph = parse("p", TEXT, 2).unwrap();
        assert_eq!(graph.operators[0].forward, 0.0015);
        assert_eq!((graph.edges[0].bytes, graph.operators[0].activation_bytes), (10.0, 10.0));
        assert_eq!(batch_in("bert-48-pbs-2.txt"), Some(2));
        assert_eq!(batch_in("vgg16.txt"), None);
    }

    #[test]
    fn a_missing_time_names_its_node_and_line() {
        let error = parse("p", &TEXT.replace("forward_compute_time=2,", ""), 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: `forward_compute_time` is missing: expected a figure of node `node2`"
        );
        let error = parse("p", &TEXT.replace("node1 -- node2", "node1 -- node3"), 2).unwrap_err();
        assert!(error.to_string().starts_with("line 3: `node` cannot be `node3`"), "{error}");
    }
}
