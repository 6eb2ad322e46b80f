//! Operator graphs: what a model computes, and what passes from one operator to the next.

use crate::PlanError;
use std::collections::BTreeMap;

/// One operator or layer, with figures for one micro-batch of [`Graph::batch`] samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Its name; no two of a graph are alike.
    pub name: String,
    /// Seconds of the forward pass on the device that the graph was measured on.
    pub forward: f64,
    /// Seconds of the backward pass there.
    pub backward: f64,
    /// Bytes of its parameters.
    pub parameter_bytes: f64,
    /// Bytes that are kept from its forward to its backward pass.
    pub activation_bytes: f64,
}

/// What one operator hands to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The operator that makes it, by index.
    pub from: usize,
    /// The operator that needs it, by index.
    pub to: usize,
    /// Its size.
    pub bytes: f64,
}

/// A model as a directed graph without cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// What it is called.
    pub name: String,
    /// The type of device on which the times were taken.
    pub measured_on: String,
    /// Samples for which the figures hold.
    pub batch: u32,
    /// Its operators.
    pub operators: Vec<Operator>,
    /// What passes between them.
    pub edges: Vec<Edge>,
    /// Operators so that each comes after all that it needs; ties by index.
    order: Vec<usize>,
}

impl Graph {
    /// A graph, if it is one that can be planned.
    pub fn new(
        (name, measured_on): (&str, &str),
        batch: u32,
        operators: Vec<Operator>,
        edges: Vec<Edge>,
    ) -> Result<Graph, PlanError> {
        if operators.is_empty() || batch == 0 {
            return Err(PlanError::Empty(name.to_owned()));
        }
        let mut names = BTreeMap::new();
        for (index, operator) in operators.iter().enumerate() {
            if names.insert(operator.name.as_str(), index).is_some() {
                return Err(PlanError::Twice(operator.name.clone()));
            }
            check_figures(operator)?;
        }
        for edge in &edges {
            assert!(edge.from.max(edge.to) < operators.len(), "an edge names operators by index");
            check_figure(&operators[edge.from].name, "bytes", edge.bytes)?;
        }
        let order = in_order(&operators, &edges)?;
        let (name, measured_on) = (name.to_owned(), measured_on.to_owned());
        Ok(Graph { name, measured_on, batch, operators, edges, order })
    }

    /// Operators so that each comes after all that it needs; ties by index.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// Edges into each operator, by index.
    pub fn incoming(&self) -> Vec<Vec<usize>> {
        let mut into = vec![Vec::new(); self.operators.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            into[edge.to].push(index);
        }
        into
    }

    /// Edges out of each operator, by index.
    pub fn outgoing(&self) -> Vec<Vec<usize>> {
        let mut out = vec![Vec::new(); self.operators.len()];
        for (index, edge) in self.edges.iter().enumerate() {
            out[edge.from].push(index);
        }
        out
    }

    /// Seconds of one forward and one backward pass of all operators.
    pub fn seconds(&self) -> f64 {
        self.operators.iter().map(|one| one.forward + one.backward).sum()
    }

    /// Bytes of all parameters.
    pub fn parameter_bytes(&self) -> f64 {
        self.operators.iter().map(|one| one.parameter_bytes).sum()
    }

    /// The graph as a chain of layers in topological order.
    ///
    /// What leaves a layer of the chain is everything made up to there and needed after it; what one operator makes for
    /// several counts once for each size in which it is handed on.
    pub fn chain(&self) -> Chain {
        let mut position = vec![0; self.operators.len()];
        for (at, operator) in self.order.iter().enumerate() {
            position[*operator] = at;
        }
        let mut layers: Vec<Layer> = (self.order.iter())
            .map(|index| {
                let one = &self.operators[*index];
                Layer {
                    name: one.name.clone(),
                    forward: one.forward,
                    backward: one.backward,
                    parameter_bytes: one.parameter_bytes,
                    activation_bytes: one.activation_bytes,
                    out_bytes: 0.0,
                }
            })
            .collect();
        for out in self.outgoing() {
            // The farthest need of each size that an operator hands on.
            let mut farthest: Vec<(f64, usize, usize)> = Vec::new();
            for edge in out.iter().map(|edge| &self.edges[*edge]) {
                let (from, to) = (position[edge.from], position[edge.to]);
                match farthest.iter_mut().find(|(bytes, ..)| *bytes == edge.bytes) {
                    Some((_, _, last)) => *last = to.max(*last),
                    None => farthest.push((edge.bytes, from, to)),
                }
            }
            for (bytes, from, to) in farthest {
                layers[from..to].iter_mut().for_each(|layer| layer.out_bytes += bytes);
            }
        }
        Chain {
            name: self.name.clone(),
            measured_on: self.measured_on.clone(),
            batch: self.batch,
            layers,
        }
    }
}

/// One layer of a chain, with figures for one micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name; of several operators, the first and the last.
    pub name: String,
    /// Seconds of the forward pass.
    pub forward: f64,
    /// Seconds of the backward pass.
    pub backward: f64,
    /// Bytes of its parameters.
    pub parameter_bytes: f64,
    /// Bytes kept from its forward to its backward pass.
    pub activation_bytes: f64,
    /// Bytes that cross to the layers after it.
    pub out_bytes: f64,
}

/// A model as layers one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// What it is called.
    pub name: String,
    /// The type of device on which the times were taken.
    pub measured_on: String,
    /// Samples for which the figures hold.
    pub batch: u32,
    /// Its layers.
    pub layers: Vec<Layer>,
}

impl Chain {
    /// The same with layers that take next to no time joined to the one before, so that there are fewer places to cut.
    ///
    /// Layers below `share` of the whole time are joined, unless they hold more than that share of the parameters; at
    /// each join the cut with fewer bytes is the one that stays.
    pub fn joined(&self, share: f64) -> Chain {
        let seconds: f64 = self.layers.iter().map(|one| one.forward + one.backward).sum();
        let bytes: f64 = self.layers.iter().map(|one| one.parameter_bytes).sum();
        let small = |one: &Layer| {
            one.forward + one.backward <= share * seconds && one.parameter_bytes <= share * bytes
        };
        let mut layers: Vec<Layer> = Vec::new();
        let mut open = false;
        for layer in &self.layers {
            let is_small = small(layer);
            match layers.last_mut() {
                Some(last) if is_small || open => {
                    last.name = joined_name(&last.name, &layer.name);
                    last.forward += layer.forward;
                    last.backward += layer.backward;
                    last.parameter_bytes += layer.parameter_bytes;
                    last.activation_bytes += layer.activation_bytes;
                    last.out_bytes = layer.out_bytes;
                    open = open && is_small;
                }
                _ => {
                    layers.push(layer.clone());
                    // What comes first and is small goes with what follows.
                    open = is_small;
                }
            }
        }
        Chain { layers, ..self.clone() }
    }
}

fn joined_name(first: &str, second: &str) -> String {
    let start = first.split("..").next().unwrap_or(first);
    format!("{start}..{}", second.split("..").last().unwrap_or(second))
}

fn check_figures(operator: &Operator) -> Result<(), PlanError> {
    let figures = [
        ("forward_seconds", operator.forward),
        ("backward_seconds", operator.backward),
        ("parameter_bytes", operator.parameter_bytes),
        ("activation_bytes", operator.activation_bytes),
    ];
    figures.into_iter().try_for_each(|(field, value)| check_figure(&operator.name, field, value))
}

fn check_figure(operator: &str, field: &'static str, value: f64) -> Result<(), PlanError> {
    // More than this is no size of anything, and sums of it would no longer be numbers.
    match value.is_finite() && (0.0..=1e18).contains(&value) {
        true => Ok(()),
        false => Err(PlanError::Figure { operator: operator.to_owned(), field, value }),
    }
}

fn in_order(operators: &[Operator], edges: &[Edge]) -> Result<Vec<usize>, PlanError> {
    let mut missing = vec![0usize; operators.len()];
    let mut next = vec![Vec::new(); operators.len()];
    for edge in edges {
        missing[edge.to] += 1;
        next[edge.from].push(edge.to);
    }
    let free = (0..operators.len()).filter(|index| missing[*index] == 0);
    let mut ready: std::collections::BTreeSet<usize> = free.collect();
    let mut order = Vec::with_capacity(operators.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for after in &next[index] {
            missing[*after] -= 1;
            if missing[*after] == 0 {
                ready.insert(*after);
            }
        }
    }
    if order.len() == operators.len() {
        return Ok(order);
    }
    let start = missing.iter().position(|left| *left > 0).expect("an operator is left over");
    Err(PlanError::Cycle(cycle_from(start, operators, edges, &missing)))
}

/// Walks back over operators that wait until one comes a second time.
fn cycle_from(
    start: usize,
    operators: &[Operator],
    edges: &[Edge],
    missing: &[usize],
) -> Vec<String> {
    let mut path = vec![start];
    loop {
        let here = *path.last().expect("the path is not empty");
        let waits = |edge: &&Edge| edge.to == here && missing[edge.from] > 0;
        let before = edges.iter().find(waits).expect("an operator that waits waits for another");
        if let Some(at) = path.iter().position(|one| *one == before.from) {
            let mut names: Vec<String> =
                path[at..].iter().rev().map(|index| operators[*index].name.clone()).collect();
            names.push(names[0].clone());
            return names;
        }
        path.push(before.from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str, seconds: f64) -> Operator {
        Operator {
            name: name.to_owned(),
            forward: seconds,
            backward: 2.0 * seconds,
            parameter_bytes: 1.0,
            activation_bytes: 1.0,
        }
    }

    fn edge(from: usize, to: usize, bytes: f64) -> Edge {
        Edge { from, to, bytes }
    }

    #[test]
    fn a_cycle_is_told_with_the_names_in_it() {
        let operators = ["a", "b", "c", "d"].map(|name| operator(name, 1.0)).to_vec();
        let edges = vec![edge(0, 1, 1.0), edge(1, 2, 1.0), edge(2, 1, 1.0), edge(2, 3, 1.0)];
        let error = Graph::new(("g", "v100"), 1, operators, edges).unwrap_err();
        assert_eq!(error.to_string(), "the graph has a cycle: c -> b -> c");
    }

    #[test]
    fn a_figure_that_is_none_names_its_operator() {
        let mut bad = operator("conv", 1.0);
        bad.backward = f64::NAN;
        let error = Graph::new(("g", "v100"), 1, vec![bad], Vec::new()).unwrap_err();
        assert!(error.to_string().contains("operator `conv`: `backward_seconds`"), "{error}");
    }

    #[test]
    fn a_skip_connection_crosses_every_cut_it_spans_once() {
        let operators = ["a", "b", "c", "d"].map(|name| operator(name, 1.0)).to_vec();
        // `a` hands the same tensor to b, c and d.
        let edges = vec![
            edge(0, 1, 8.0),
            edge(0, 2, 8.0),
            edge(0, 3, 8.0),
            edge(1, 2, 1.0),
            edge(2, 3, 2.0),
        ];
        let graph = Graph::new(("g", "v100"), 1, operators, edges).unwrap();
        let out: Vec<f64> = graph.chain().layers.iter().map(|layer| layer.out_bytes).collect();
        assert_eq!(out, [8.0, 9.0, 10.0, 0.0]);
    }

    #[test]
    fn joining_keeps_all_time_and_bytes() {
        let operators: Vec<Operator> =
            (0..6).map(|index| operator(&format!("o{index}"), f64::from(index % 2))).collect();
        let edges = (0..5).map(|index| edge(index, index + 1, 3.0)).collect();
        let chain = Graph::new(("g", "v100"), 1, operators, edges).unwrap().chain();
        let joined = chain.joined(0.2);
        let total = |chain: &Chain| chain.layers.iter().map(|one| one.forward).sum::<f64>();
        assert_eq!(total(&joined), total(&chain));
        assert!(joined.layers.len() < chain.layers.len());
    }
}
