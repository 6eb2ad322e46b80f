//! Cuts of a model: between layers, within them, and through graphs with branches.

use super::Cut;
use crate::{Chain, Graph};
use std::collections::BTreeSet;

/// The device and the way to the server.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Sides {
    /// The device's speed beside the one on which the model was timed.
    pub speed: f64,
    /// Bytes in a second to the server.
    pub bytes_per_second: f64,
    /// Bytes of the input.
    pub input_bytes: f64,
}

/// Sets of operators beyond which a graph is cut along one order.
const SETS_MAX: usize = 50_000;

/// Cuts between layers, from everything on the server to everything on the device.
pub fn of_chain(chain: &Chain, sides: &Sides) -> Vec<Cut> {
    below_layers(chain, sides, 1)
}

/// The same with cuts within layers: of each layer `1 / parts`, `2 / parts` and so on of its output is computed locally.
///
/// That part of the output is uploaded with the part of the input that the rest needs; what both need at the border is
/// left out.
pub fn below_layers(chain: &Chain, sides: &Sides, parts: u32) -> Vec<Cut> {
    let parts = parts.max(1);
    let mut cuts = vec![Cut { local: 0.0, upload: sides.input_bytes / sides.bytes_per_second }];
    let (mut local, mut into) = (0.0, sides.input_bytes);
    for (at, layer) in chain.layers.iter().enumerate() {
        let is_last = at + 1 == chain.layers.len();
        let own = layer.forward / sides.speed;
        for part in 1..=parts {
            let share = f64::from(part) / f64::from(parts);
            let bytes = share * layer.out_bytes + (1.0 - share) * into;
            let is_all = is_last && part == parts;
            let upload = if is_all { 0.0 } else { bytes / sides.bytes_per_second };
            cuts.push(Cut { local: local + share * own, upload });
        }
        local += own;
        into = layer.out_bytes;
    }
    undominated(cuts)
}

/// Cuts of a graph with branches: every set of operators that needs nothing from outside it may run locally.
///
/// Exact up to 64 operators and `SETS_MAX` such sets; beyond that, the cuts along one order.
pub fn of_graph(graph: &Graph, sides: &Sides) -> Vec<Cut> {
    let count = graph.operators.len();
    let (incoming, outgoing) = (graph.incoming(), graph.outgoing());
    let mut seen: BTreeSet<u64> = BTreeSet::from([0]);
    let mut open = vec![0u64];
    while let Some(set) = open.pop() {
        if count > 64 || seen.len() > SETS_MAX {
            return of_chain(&graph.chain(), sides);
        }
        for operator in (0..count).filter(|one| set >> one & 1 == 0) {
            let needs = |edge: &usize| set >> graph.edges[*edge].from & 1 == 1;
            if incoming[operator].iter().all(needs) && seen.insert(set | 1 << operator) {
                open.push(set | 1 << operator);
            }
        }
    }
    let cut = |set: u64| {
        let (mut local, mut bytes) = (0.0, 0.0);
        for operator in (0..count).filter(|one| set >> one & 1 == 1) {
            local += graph.operators[operator].forward / sides.speed;
            // A tensor that several need on the server is uploaded once for each size.
            let mut sizes: Vec<f64> = Vec::new();
            for edge in outgoing[operator].iter().map(|edge| &graph.edges[*edge]) {
                if set >> edge.to & 1 == 0 && !sizes.contains(&edge.bytes) {
                    sizes.push(edge.bytes);
                }
            }
            bytes += sizes.iter().sum::<f64>();
        }
        // What needs the input needs all of it.
        let reads_input = |one: usize| incoming[one].is_empty() && set >> one & 1 == 0;
        if (0..count).any(reads_input) {
            bytes += sides.input_bytes;
        }
        Cut { local, upload: bytes / sides.bytes_per_second }
    };
    undominated(seen.into_iter().map(cut).collect())
}

/// Cuts of which none is better than another in both, by local time.
fn undominated(mut cuts: Vec<Cut>) -> Vec<Cut> {
    cuts.sort_by(|a, b| a.local.total_cmp(&b.local).then(a.upload.total_cmp(&b.upload)));
    let mut kept: Vec<Cut> = Vec::new();
    for cut in cuts {
        if kept.last().is_none_or(|last| cut.upload < last.upload) {
            kept.push(cut);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cnn;
    use crate::duan_wu::best_mix;
    use crate::graph::{Edge, Operator};

    const SIDES: Sides = Sides { speed: 1e-6, bytes_per_second: 1e6, input_bytes: 6e5 };

    #[test]
    fn cuts_within_layers_shorten_what_whole_layers_cannot() {
        let text = "image=224x224x3 layers=conv8k7s4,pool2,conv64k3,pool2,conv64k3,pool2,fc10";
        let chain = Cnn::parse(text).unwrap().graph("v100", 1).unwrap().chain();
        let whole = of_chain(&chain, &SIDES);
        let below = below_layers(&chain, &SIDES, 8);
        let mut most: f64 = 1.0;
        for jobs in 1..8 {
            let (a, b) = (best_mix(&whole, jobs).unwrap(), best_mix(&below, jobs).unwrap());
            println!("{jobs} jobs: {:.3} s by layers, {:.3} s below", a.seconds, b.seconds);
            assert!(b.seconds <= a.seconds * (1.0 + 1e-12));
            most = most.min(b.seconds / a.seconds);
        }
        assert!(most < 0.99, "{most}");
    }

    #[test]
    fn a_branch_may_run_locally_without_the_other() {
        let operator = |name: &str, forward: f64| Operator {
            name: name.to_owned(),
            forward,
            backward: 0.0,
            parameter_bytes: 0.0,
            activation_bytes: 0.0,
        };
        // `a` makes much; its branch `c` is slow and makes nothing small, its branch `b` is fast and makes little.
        let operators =
            vec![operator("a", 0.1), operator("c", 9.0), operator("b", 0.1), operator("d", 9.0)];
        let edge = |from, to, bytes| Edge { from, to, bytes };
        let edges = vec![edge(0, 1, 1e3), edge(0, 2, 5e5), edge(1, 3, 1e3), edge(2, 3, 1e3)];
        let graph = Graph::new(("two", "v100"), 1, operators, edges).unwrap();
        let sides = Sides { speed: 1.0, bytes_per_second: 1e6, input_bytes: 6e5 };
        let along = best_mix(&of_chain(&graph.chain(), &sides), 1).unwrap().seconds;
        let through = best_mix(&of_graph(&graph, &sides), 1).unwrap().seconds;
        // `a` and `b` here, both results of 1 kB uploaded.
        assert!((through - (0.2 + 0.002)).abs() < 1e-9, "{through}");
        assert!(along > 0.5, "{along}");
    }
}
