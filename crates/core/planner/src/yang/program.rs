//! The dynamic programs: the paper's over equal devices, and ours over types of devices.

use super::{Edge, EdgePlan, Strips};
use std::collections::BTreeMap;

/// Partial plans that are kept for a state: none is worse than another in both period and latency.
const FRONT_MAX: usize = 64;

/// A partial plan: period, latency, and its stages by layers and devices of each type.
#[derive(Clone)]
struct Partial {
    period: f64,
    latency: f64,
    stages: Vec<((usize, usize), Vec<u32>)>,
}

/// Everything on the fastest device.
pub fn one_device(edge: &Edge<'_>) -> EdgePlan {
    let faster = |a: &usize, b: &usize| {
        edge.devices[*a].flops.total_cmp(&edge.devices[*b].flops).then(b.cmp(a))
    };
    let fastest = (0..edge.devices.len()).max_by(faster).expect("there is a device");
    EdgePlan { stages: vec![edge.stage((0, edge.cnn.layers.len()), vec![fastest])] }
}

/// All that can be cut in strips as one stage on all devices, and the rest on the fastest.
pub fn whole_as_one(edge: &Edge<'_>) -> EdgePlan {
    let layers = edge.cnn.layers.len();
    let cut = (0..layers).find(|layer| !edge.is_by_rows(*layer)).unwrap_or(layers);
    let fastest = one_device(edge).stages[0].devices.clone();
    let mut stages = Vec::new();
    if cut > 0 {
        stages.push(edge.stage((0, cut), (0..edge.devices.len()).collect()));
    }
    if cut < layers {
        stages.push(edge.stage((cut, layers), fastest));
    }
    // Both use the same device, so an image is over before the next begins.
    let seconds = stages.iter().map(|one| one.seconds).sum();
    let devices = (0..edge.devices.len()).collect();
    EdgePlan { stages: vec![Strips { from: 0, to: layers, devices, seconds }] }
}

/// The paper's plan: the program over devices of mean speed, then the real ones by capacity, with strips by speed.
///
/// O(layers^2 devices^2) stages. Nothing where no plan keeps the latency.
pub fn paper_plan(edge: &Edge<'_>, latency_max: f64) -> Option<EdgePlan> {
    let mean = edge.devices.iter().map(|one| one.flops).sum::<f64>() / edge.devices.len() as f64;
    let found = program(edge, &[(mean, edge.devices.len() as u32)], latency_max)?;
    // The stage with the most work for each of its devices takes the fastest devices.
    let work = |(from, to): (usize, usize)| {
        edge.cnn.layers[from..to].iter().map(|layer| layer.flops()).sum::<f64>()
    };
    let mut order: Vec<usize> = (0..found.stages.len()).collect();
    let heavy = |at: usize| work(found.stages[at].0) / f64::from(found.stages[at].1[0]);
    order.sort_by(|a, b| heavy(*b).total_cmp(&heavy(*a)).then(a.cmp(b)));
    let mut devices: Vec<usize> = (0..edge.devices.len()).collect();
    let flops = |one: usize| edge.devices[one].flops;
    devices.sort_by(|a, b| flops(*b).total_cmp(&flops(*a)).then(a.cmp(b)));
    let mut devices = devices.into_iter();
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); found.stages.len()];
    for at in order {
        own[at] = devices.by_ref().take(found.stages[at].1[0] as usize).collect();
        own[at].sort_unstable();
    }
    let stages = found.stages.iter().zip(own).map(|((layers, _), own)| edge.stage(*layers, own));
    let plan = EdgePlan { stages: stages.collect() };
    (plan.latency() <= latency_max).then_some(plan)
}

/// Ours: the same program with a number of devices of each type in its state; no plan of such stages is faster.
///
/// The states grow with the product of the numbers of each type.
pub fn exact_by_type(edge: &Edge<'_>, latency_max: f64) -> Option<EdgePlan> {
    let mut types: Vec<(f64, Vec<usize>)> = Vec::new();
    for (at, device) in edge.devices.iter().enumerate() {
        match types.iter_mut().find(|(flops, _)| *flops == device.flops) {
            Some((_, own)) => own.push(at),
            None => types.push((device.flops, vec![at])),
        }
    }
    let counts: Vec<(f64, u32)> =
        types.iter().map(|(flops, own)| (*flops, own.len() as u32)).collect();
    let found = program(edge, &counts, latency_max)?;
    let mut next = vec![0usize; types.len()];
    let stages = found.stages.into_iter().map(|(layers, takes)| {
        let mut own = Vec::new();
        for (kind, count) in takes.iter().enumerate() {
            own.extend(&types[kind].1[next[kind]..next[kind] + *count as usize]);
            next[kind] += *count as usize;
        }
        own.sort_unstable();
        edge.stage(layers, own)
    });
    Some(EdgePlan { stages: stages.collect() })
}

/// The plan of the least period whose latency is kept, over layers planned and devices of each type used.
fn program(edge: &Edge<'_>, types: &[(f64, u32)], latency_max: f64) -> Option<Partial> {
    let layers = edge.cnn.layers.len();
    let takes = takes(types);
    // Stages are the same in every state.
    let mut seconds: BTreeMap<(usize, usize, usize), f64> = BTreeMap::new();
    for from in 0..layers {
        for to in from + 1..=layers {
            for (at, take) in takes.iter().enumerate() {
                let speeds: Vec<f64> = (take.iter().zip(types))
                    .flat_map(|(count, (flops, _))| vec![*flops; *count as usize])
                    .collect();
                seconds.insert((from, to, at), edge.stage_seconds((from, to), &speeds));
            }
        }
    }
    let start = Partial { period: 0.0, latency: 0.0, stages: Vec::new() };
    let mut states: Vec<BTreeMap<Vec<u32>, Vec<Partial>>> = vec![BTreeMap::new(); layers + 1];
    states[0].insert(vec![0; types.len()], vec![start]);
    for from in 0..layers {
        for (used, front) in std::mem::take(&mut states[from]) {
            for (at, take) in takes.iter().enumerate() {
                let after: Vec<u32> = used.iter().zip(take).map(|(a, b)| a + b).collect();
                if after.iter().zip(types).any(|(one, (_, most))| one > most) {
                    continue;
                }
                for to in from + 1..=layers {
                    let own = seconds[&(from, to, at)];
                    for partial in &front {
                        let latency = partial.latency + own;
                        if latency > latency_max || !own.is_finite() {
                            continue;
                        }
                        let mut stages = partial.stages.clone();
                        stages.push(((from, to), take.clone()));
                        let next = Partial { period: partial.period.max(own), latency, stages };
                        keep(states[to].entry(after.clone()).or_default(), next);
                    }
                }
            }
        }
    }
    let whole = std::mem::take(&mut states[layers]).into_values().flatten();
    whole.min_by(|a, b| a.period.total_cmp(&b.period).then(a.latency.total_cmp(&b.latency)))
}

/// Adds a partial plan to those of a state, unless one there is as good in both.
fn keep(front: &mut Vec<Partial>, new: Partial) {
    if front.iter().any(|one| one.period <= new.period && one.latency <= new.latency) {
        return;
    }
    front.retain(|one| one.period < new.period || one.latency < new.latency);
    front.push(new);
    if front.len() > FRONT_MAX {
        let longest = (0..front.len()).max_by(|a, b| front[*a].period.total_cmp(&front[*b].period));
        front.remove(longest.expect("the front is not empty"));
    }
}

/// All numbers of devices of each type for one stage, at least one device.
fn takes(types: &[(f64, u32)]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for (_, most) in types {
        all = (all.into_iter())
            .flat_map(|take: Vec<u32>| {
                (0..=*most).map(move |count| take.iter().copied().chain([count]).collect())
            })
            .collect();
    }
    all.retain(|take: &Vec<u32>| take.iter().any(|count| *count > 0));
    all
}
