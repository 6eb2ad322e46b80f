//! Pesto against the exact answer, an integer program, and the lists.

use super::*;
use crate::devices::{DeviceGraph, KindFigures, LinkSpeeds};
use crate::draws::Draws;
use crate::graph::{Edge, Graph, Operator};
use trainyard_solver::{Column, Limit, Model, Name, Sense, Simplex, Solve};

const LINKS: LinkSpeeds = LinkSpeeds {
    inside: 10e9,
    network: 3e9,
    between_two: f64::INFINITY,
    host: 12e9,
    latency: 1e-4,
};

/// Devices of one machine with these speeds.
fn devices(speeds: &[f64]) -> DeviceGraph {
    let mut graph = DeviceGraph::new(&LINKS);
    let figures = KindFigures { speed: 1.0, memory_bytes: 16e9, peak_flops: 125e12 };
    graph.add_machine(speeds.len() as u32, "v100", figures, &LINKS);
    for (device, speed) in graph.devices.iter_mut().zip(speeds) {
        device.speed = *speed;
    }
    graph
}

/// A drawn graph in which an operator needs some of the `reach` before it.
fn drawn(draws: &mut Draws, count: u32, (reach, backward): (u32, f64)) -> Graph {
    let operator = |index: u32, draws: &mut Draws| {
        let forward = 0.001 + 0.009 * draws.unit();
        Operator {
            name: format!("o{index}"),
            forward,
            backward: backward * forward,
            parameter_bytes: 1e6 * draws.unit(),
            activation_bytes: 1e6 * draws.unit(),
        }
    };
    let operators = (0..count).map(|index| operator(index, draws)).collect();
    let mut edges = Vec::new();
    for to in 1..count {
        for from in to.saturating_sub(reach)..to {
            if draws.unit() < 1.2 / f64::from(reach) {
                let bytes = 4e7 * draws.unit();
                edges.push(Edge { from: from as usize, to: to as usize, bytes });
            }
        }
    }
    Graph::new(("drawn", "v100"), 1, operators, edges).unwrap()
}

fn request<'a>(graph: &'a Graph, devices: &'a DeviceGraph) -> Request<'a> {
    Request { graph, transformer: None, devices, batch: 1, state_factor: 4.0 }
}

/// Speeds of the drawn cases: equal and unequal.
const SPEEDS: [&[f64]; 3] = [&[1.0, 1.0], &[1.0, 0.5], &[1.0, 1.0, 0.6]];

#[test]
fn the_search_is_near_the_exact_answer_on_two_hundred_small_graphs() {
    let (mut worst, mut sum, mut met, mut proven) = (0.0f64, 0.0, 0, 0);
    let mut lists_sum = 0.0;
    for seed in 0..200 {
        let mut draws = Draws::new(seed);
        let count = 4 + draws.below(9);
        let backward = if seed % 2 == 0 { 0.0 } else { 2.0 };
        let count = if backward > 0.0 { count.min(8) } else { count };
        let graph = drawn(&mut draws, count, (4, backward));
        let devices = devices(SPEEDS[seed as usize % 3]);
        let placing = Placing::single(&request(&graph, &devices)).unwrap();
        let seeds = baselines::all(&placing);
        let found = search(&placing, &seeds, &Effort::default());
        let ours = placing.rate(&found).1;
        let exact = exact(&placing, &found, 2_000_000);
        assert!(exact.seconds <= ours * (1.0 + 1e-9), "seed {seed}");
        let gap = ours / exact.seconds - 1.0;
        (worst, sum) = (worst.max(gap), sum + gap);
        met += u32::from(gap < 1e-9);
        proven += u32::from(exact.is_proven);
        let lists = seeds.iter().map(|one| placing.rate(one).1).fold(f64::INFINITY, f64::min);
        lists_sum += lists / exact.seconds - 1.0;
    }
    println!(
        "mean gap {:.4} %, worst {:.2} %, met {met}, proven {proven}, best list {:.2} %",
        sum / 2.0,
        100.0 * worst,
        lists_sum / 2.0
    );
    assert!(proven >= 195, "{proven}");
    assert!(sum / 200.0 < 0.01 && worst < 0.15, "{sum} {worst}");
    assert!(lists_sum > 3.0 * sum, "the lists must be worse: {lists_sum} {sum}");
}

/// The paper's program: devices as bits, an order for each two of one device or link, with large constants.
fn integer_program(placing: &Placing<'_>) -> f64 {
    let graph = placing.graph;
    let count = graph.operators.len();
    let large: f64 = (0..count).map(|one| placing.site_seconds(one, 0)).sum::<f64>()
        + (0..graph.edges.len()).map(|edge| placing.edge_seconds(edge, (0, 1))).sum::<f64>();
    let mut rows: Vec<(f64, Vec<(usize, f64)>)> = Vec::new();
    // Columns: makespan, start of each operator, device of each, start and whether moved of each edge.
    let (start, device) = (|i: usize| 1 + i, |i: usize| 1 + count + i);
    let moved = |e: usize| 1 + 2 * count + 2 * e;
    let mut integers: Vec<usize> = (0..count).map(device).collect();
    let mut next = 1 + 2 * count + 2 * graph.edges.len();
    let seconds = |i: usize| placing.site_seconds(i, 0);
    let travel = |e: usize| placing.edge_seconds(e, (0, 1));
    // Each row is: sum of terms <= bound.
    rows.extend((0..count).map(|i| (-seconds(i), vec![(start(i), 1.0), (0, -1.0)])));
    for (e, edge) in graph.edges.iter().enumerate() {
        let (a, b) = (edge.from, edge.to);
        integers.push(moved(e) + 1);
        rows.push((0.0, vec![(device(a), 1.0), (device(b), -1.0), (moved(e) + 1, -1.0)]));
        rows.push((0.0, vec![(device(b), 1.0), (device(a), -1.0), (moved(e) + 1, -1.0)]));
        rows.push((-seconds(a), vec![(start(a), 1.0), (moved(e), -1.0)]));
        rows.push((0.0, vec![(moved(e), 1.0), (moved(e) + 1, travel(e)), (start(b), -1.0)]));
    }
    // Two operators on one device: one is before the other, unless their devices differ.
    for i in 0..count {
        for j in i + 1..count {
            integers.push(next);
            for (sign, constant) in [(1.0, 2.0), (-1.0, 0.0)] {
                let either = |first: usize, second: usize, order: f64, bound: f64| {
                    let terms = vec![
                        (start(first), 1.0),
                        (start(second), -1.0),
                        (next, order * large),
                        (device(i), sign * large),
                        (device(j), sign * large),
                    ];
                    (bound * large - seconds(first), terms)
                };
                rows.push(either(i, j, 1.0, 1.0 + constant));
                rows.push(either(j, i, -1.0, constant));
            }
            next += 1;
        }
    }
    // Two transfers in one direction: the same, where both are made.
    for e in 0..graph.edges.len() {
        for f in e + 1..graph.edges.len() {
            integers.push(next);
            let (a, b) = (device(graph.edges[e].from), device(graph.edges[f].from));
            for (sign, constant) in [(1.0, 2.0), (-1.0, 0.0)] {
                let either = |first: usize, second: usize, order: f64, bound: f64| {
                    let terms = vec![
                        (moved(first), 1.0),
                        (moved(second), -1.0),
                        (next, order * large),
                        (a, sign * large),
                        (b, sign * large),
                        (moved(e) + 1, large),
                        (moved(f) + 1, large),
                    ];
                    ((bound + 2.0) * large - travel(first), terms)
                };
                rows.push(either(e, f, 1.0, 1.0 + constant));
                rows.push(either(f, e, -1.0, constant));
            }
            next += 1;
        }
    }
    least_makespan(&rows, (&integers, next), large)
}

/// Solves rows of terms and upper bounds, the first column at least cost.
fn least_makespan(
    rows: &[(f64, Vec<(usize, f64)>)],
    (integers, columns): (&[usize], usize),
    large: f64,
) -> f64 {
    let mut model = Model::new(Sense::Minimise);
    let mut entries: Vec<Vec<(trainyard_solver::Row, f64)>> = vec![Vec::new(); columns];
    for (at, (bound, terms)) in rows.iter().enumerate() {
        let row = model.row(Name("row", at), f64::NEG_INFINITY, *bound);
        terms.iter().for_each(|(column, factor)| entries[*column].push((row, *factor)));
    }
    for (column, entries) in entries.into_iter().enumerate() {
        let cost = if column == 0 { 1.0 } else { 0.0 };
        let _: Column = match integers.contains(&column) {
            true => model.integer(cost, 0.0, 1.0, entries),
            false => model.column(cost, 0.0, 4.0 * large, entries),
        };
    }
    let solution = Simplex::default().solve(&model, &Limit::steps(1_000_000)).unwrap();
    assert!(solution.has_values(), "{:?}", solution.status);
    solution.objective
}

#[test]
fn the_exact_search_and_the_papers_integer_program_agree() {
    for seed in 0..12 {
        let mut draws = Draws::new(1000 + seed);
        let graph = drawn(&mut draws, 4, (3, 0.0));
        // One operator hands one tensor to all, so each edge is a transfer of its own only where sizes differ.
        let devices = devices(&[1.0, 1.0]);
        let placing = Placing::single(&request(&graph, &devices)).unwrap();
        let exact = exact(&placing, &[0; 4], 2_000_000);
        let program = integer_program(&placing);
        assert!(exact.is_proven);
        assert!(
            (exact.seconds / program - 1.0).abs() < 1e-5,
            "{seed}: {} {program}",
            exact.seconds
        );
    }
}

/// Branches side by side that hand on much within and little between them.
fn branches(draws: &mut Draws, count: usize, width: usize) -> Graph {
    let graph = drawn(draws, count as u32, (1, 2.0));
    let mut edges = Vec::new();
    for to in width..count {
        edges.push(Edge { from: to - width, to, bytes: 8e7 * draws.unit() });
        if draws.unit() < 0.3 {
            let from = to - 1 - draws.below(width as u32 - 1) as usize;
            edges.push(Edge { from, to, bytes: 2e7 * draws.unit() });
        }
    }
    Graph::new(("branches", "v100"), 1, graph.operators, edges).unwrap()
}

/// Seconds of the best list and of the search, and the work over all speeds.
fn against_lists(graph: &Graph, speeds: &[f64]) -> (f64, f64, f64) {
    let devices = devices(speeds);
    let placing = Placing::single(&request(graph, &devices)).unwrap();
    let seeds = baselines::all(&placing);
    let lists = seeds.iter().map(|one| placing.rate(one).1).fold(f64::INFINITY, f64::min);
    let found = search(&placing, &seeds, &Effort::default());
    (lists, placing.rate(&found).1, graph.seconds() / speeds.iter().sum::<f64>())
}

#[test]
fn a_hundred_operators_are_placed_better_than_by_any_list() {
    let (mut gain, mut least) = (0.0, f64::INFINITY);
    for seed in 0..6 {
        let graph = branches(&mut Draws::new(50 + seed), 100, 6);
        let speeds: &[f64] = if seed % 2 == 0 { &[1.0; 4] } else { &[1.0, 1.0, 0.5, 0.5] };
        let (lists, ours, _) = against_lists(&graph, speeds);
        gain += (1.0 - ours / lists) / 6.0;
        least = least.min(1.0 - ours / lists);
    }
    println!(
        "100 operators: {:.1} % less than the best list, at least {:.1} %",
        100.0 * gain,
        100.0 * least
    );
    assert!(gain > 0.02 && least >= 0.0, "{gain} {least}");
}

#[test]
fn a_thousand_operators_are_placed_no_worse_than_by_any_list() {
    for (seed, speeds) in [(1, vec![1.0; 4]), (2, vec![1.0, 1.0, 0.5, 0.5])] {
        let graph = branches(&mut Draws::new(seed), 1000, 6);
        let (lists, ours, bound) = against_lists(&graph, &speeds);
        println!("1,000 operators: best list {lists:.3}, ours {ours:.3}, bound {bound:.3}");
        assert!(ours <= lists && ours < 1.3 * bound, "{ours} {lists} {bound}");
    }
}

/// On unequal devices with a large operator among small ones, sharing its samples is what pays.
#[test]
fn sharing_an_operator_beats_any_device_for_each() {
    let operator = |name: &str, forward: f64| Operator {
        name: name.to_owned(),
        forward,
        backward: 2.0 * forward,
        parameter_bytes: 1e6,
        activation_bytes: 1e6,
    };
    let operators = vec![operator("in", 0.01), operator("wide", 0.2), operator("out", 0.01)];
    let edges = vec![Edge { from: 0, to: 1, bytes: 1e6 }, Edge { from: 1, to: 2, bytes: 1e6 }];
    let graph = Graph::new(("wide", "v100"), 1, operators, edges).unwrap();
    let devices = devices(&[1.0, 0.5]);
    let plans = plan(&request(&graph, &devices)).unwrap();
    // A device of half the speed takes a third of the samples.
    assert!((plans[0].seconds - 0.66).abs() < 1e-9, "{}", plans[0].seconds);
    assert!(plans[1].seconds < 0.70 * plans[0].seconds, "{}", plans[1].seconds);
}

#[test]
fn memory_is_kept_and_what_fits_nowhere_is_refused_by_name() {
    let mut graph = drawn(&mut Draws::new(5), 8, (3, 2.0));
    let devices = devices(&[1.0, 1.0]);
    for operator in &mut graph.operators {
        operator.parameter_bytes = 0.9e9;
    }
    // 8 x 3.6 GB on two devices of 16 GB: four on each.
    let plans = plan(&request(&graph, &devices)).unwrap();
    assert!(plans.iter().all(|one| one.lacking_bytes() <= 0.0));
    for operator in &mut graph.operators {
        operator.parameter_bytes = 1.1e9;
    }
    let error = plan(&request(&graph, &devices)).unwrap_err().to_string();
    assert!(error.contains("`drawn`") && error.contains("are lacking"), "{error}");
    graph.operators[3].parameter_bytes = 5e9;
    let error = plan(&request(&graph, &devices)).unwrap_err().to_string();
    assert!(error.contains("operator `o3`"), "{error}");
    let odd = Request { batch: 3, ..request(&graph, &devices) };
    let mut graph = odd.graph.clone();
    graph.batch = 2;
    let error = plan(&Request { graph: &graph, ..odd }).unwrap_err().to_string();
    assert!(error.contains("(3) cannot be divided"), "{error}");
}

#[test]
fn the_same_request_gives_the_same_plan() {
    let graph = drawn(&mut Draws::new(9), 40, (6, 2.0));
    let devices = devices(&[1.0, 0.7, 0.5]);
    assert_eq!(plan(&request(&graph, &devices)), plan(&request(&graph, &devices)));
}
