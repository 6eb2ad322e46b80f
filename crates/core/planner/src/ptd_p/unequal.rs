//! A transformer over GPUs of several types at once: stages with as many layers as their type can carry.
//!
//! Not of the paper, whose machines are equal. Copies and tensor parallelism are the same everywhere, so a type with
//! more GPUs has more stages; layers are given out one by one to the stage that would end first with one more.

use super::cost::{Costs, Machines, Recompute, Split};
use crate::pipeline::{Chunk, Move, Pipeline};
use crate::schedule::Schedule;
use crate::{PlanError, Transformer};

/// The GPUs of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The type.
    pub kind: String,
    /// Its machines; the network is that between machines of any type.
    pub machines: Machines,
}

/// A division over several types.
#[derive(Clone, Debug, PartialEq)]
pub struct Unequal {
    /// Tensor, data, micro-batch and recomputation, which are the same in all stages; `pipeline` is all stages.
    pub split: Split,
    /// By stage: the index of its group, and its layers.
    pub stages: Vec<(usize, u32)>,
    /// Seconds of an iteration by formula.
    pub seconds: f64,
    /// The largest share of its memory that a GPU needs.
    pub fullness: f64,
}

impl Unequal {
    /// The plan in a few words, such as `tensor 4 x pipeline 3 x data 1, a100 28+28, v100 8 layers, micro-batch 1`.
    pub fn summary(&self, groups: &[Group]) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let own = self.stages.iter().filter(|(of, _)| *of == index);
            let layers: Vec<String> = own.map(|(_, layers)| layers.to_string()).collect();
            parts.push(format!("{} {}", group.kind, layers.join("+")));
        }
        let split = &self.split;
        let again = if split.recompute == Recompute::Full { ", recompute all" } else { "" };
        format!(
            "tensor {} x pipeline {} x data {}, {} layers, micro-batch {}{again}",
            split.tensor,
            split.pipeline,
            split.data,
            parts.join(", "),
            split.micro_batch
        )
    }

    /// The plan as a pipeline of one copy on devices that stand stage by stage.
    pub fn pipeline(&self, model: &Transformer, groups: &[Group]) -> Pipeline {
        let split = &self.split;
        let count = self.stages.len();
        let mut from = 0;
        let chunks = self.stages.iter().enumerate().map(|(at, (group, layers))| {
            let costs = Costs::new(model, &groups[*group].machines, *split);
            let (is_last, is_edge) = (at + 1 == count, at == 0 || at + 1 == count);
            let (forward, backward) = costs.layer();
            let head = if is_last { costs.head() } else { 0.0 };
            let to_next = match is_last {
                true => Vec::new(),
                false => vec![Move { latency: costs.hand_over(), ..Move::default() }],
            };
            let first = from;
            from += layers;
            let device = at * split.tensor as usize;
            Chunk {
                name: format!("layers {first}..{}", from - 1),
                layers: *layers,
                forward: f64::from(*layers) * forward + head,
                backward: f64::from(*layers) * backward + 2.0 * head,
                to_next,
                synchronise: Vec::new(),
                synchronise_seconds: costs.synchronise_layers(*layers, is_edge),
                devices: (device..device + split.tensor as usize).collect(),
                fixed_bytes: costs.fixed_layers(*layers, is_edge),
                kept_bytes: f64::from(*layers) * costs.kept(),
                working_bytes: costs.working(is_last),
            }
        });
        let schedule = Schedule::OneForwardOneBackward;
        Pipeline { chunks: chunks.collect(), micro_batches: split.micro_batches, schedule }
    }
}

/// Largest micro-batch that is looked at.
const MICRO_BATCH_MAX: u32 = 8;

/// The best division by formula that fits.
///
/// O(orders of types x divisors x layers x stages).
pub fn search(model: &Transformer, groups: &[Group], batch: u32) -> Result<Unequal, PlanError> {
    let mut best: Option<Unequal> = None;
    let mut lacking: Option<(f64, f64)> = None;
    let per_machine = |one: &Group| one.machines.per_machine;
    let least = groups.iter().map(per_machine).min().unwrap_or(1);
    for tensor in (1..=least).filter(|one| model.heads.is_multiple_of(*one)) {
        if groups.iter().any(|one| !per_machine(one).is_multiple_of(tensor)) {
            continue;
        }
        for data in (1..=batch).filter(|one| batch.is_multiple_of(*one)) {
            let each = tensor * data;
            if groups.iter().any(|one| !one.machines.devices.is_multiple_of(each)) {
                continue;
            }
            let mut stages: Vec<usize> = Vec::new();
            for (index, group) in groups.iter().enumerate() {
                stages.extend((0..group.machines.devices / each).map(|_| index));
            }
            for order in [false, true] {
                if order {
                    stages.reverse();
                }
                for split in splits((tensor, data), stages.len() as u32, batch) {
                    match assign((model, groups), split, &stages) {
                        Ok(found)
                            if best.as_ref().is_none_or(|one| found.seconds < one.seconds) =>
                        {
                            best = Some(found);
                        }
                        Ok(_) => {}
                        Err(lack) if lacking.is_none_or(|(needed, _)| lack.0 < needed) => {
                            lacking = Some(lack);
                        }
                        Err(_) => {}
                    }
                }
            }
        }
    }
    best.ok_or_else(|| match lacking {
        Some((needed, capacity)) => {
            let what = format!("`{}` with a batch of {batch}", model.name);
            PlanError::NoRoom { what, needed, capacity }
        }
        None => PlanError::Indivisible {
            what: format!("a batch of {batch} over copies on GPUs of several types"),
            whole: u64::from(batch),
            by: "any number of copies that divides the GPUs of each type".to_owned(),
            parts: groups.iter().map(|one| u64::from(one.machines.devices)).sum(),
        },
    })
}

fn splits((tensor, data): (u32, u32), stages: u32, batch: u32) -> Vec<Split> {
    let own = batch / data;
    let micros = (0..).map(|power| 1u32 << power).take_while(|one| *one <= MICRO_BATCH_MAX);
    let micros = micros.filter(|micro| own.is_multiple_of(*micro));
    let both = [Recompute::Nothing, Recompute::Full];
    let split = |micro_batch: u32, recompute: Recompute| Split {
        tensor,
        pipeline: stages,
        data,
        chunks: 1,
        micro_batch,
        micro_batches: own / micro_batch,
        context: 1,
        expert: 1,
        sequence: tensor > 1,
        recompute,
        overlap: false,
    };
    micros.flat_map(|micro| both.map(|recompute| split(micro, recompute))).collect()
}

/// Gives out the layers; where they do not fit, what a GPU would need and what it has.
fn assign(
    (model, groups): (&Transformer, &[Group]),
    split: Split,
    stages: &[usize],
) -> Result<Unequal, (f64, f64)> {
    let count = stages.len();
    if count as u32 > model.layers {
        return Err((f64::INFINITY, 0.0));
    }
    let costs: Vec<Costs<'_>> =
        groups.iter().map(|one| Costs::new(model, &one.machines, split)).collect();
    let seconds = |at: usize, layers: u32| {
        let own = &costs[stages[at]];
        let (forward, backward) = own.layer();
        let head = if at + 1 == count { 3.0 * own.head() } else { 0.0 };
        f64::from(layers) * (forward + backward) + head
    };
    let needed = |at: usize, layers: u32| {
        let own = &costs[stages[at]];
        let is_edge = at == 0 || at + 1 == count;
        let held = split.micro_batches.min((count - at) as u32);
        let kept = f64::from(held) * f64::from(layers) * own.kept();
        own.fixed_layers(layers, is_edge) + kept + own.working(at + 1 == count)
    };
    let memory = |at: usize| groups[stages[at]].machines.memory_bytes;
    let mut layers = vec![1u32; count];
    if let Some(at) = (0..count).find(|at| needed(*at, 1) > memory(*at)) {
        return Err((needed(at, 1), memory(at)));
    }
    for _ in count as u32..model.layers {
        let open = (0..count).filter(|at| needed(*at, layers[*at] + 1) <= memory(*at));
        let next = open.min_by(|a, b| {
            let ends = |at: usize| seconds(at, layers[at] + 1);
            ends(*a).total_cmp(&ends(*b)).then(a.cmp(b))
        });
        match next {
            Some(at) => layers[at] += 1,
            None => return Err((needed(0, layers[0] + 1), memory(0))),
        }
    }
    let times: Vec<f64> = (0..count).map(|at| seconds(at, layers[at])).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let moved: f64 = (0..count - 1).map(|at| 2.0 * costs[stages[at]].hand_over()).sum();
    let synchronise = (0..count)
        .map(|at| costs[stages[at]].synchronise_layers(layers[at], at == 0 || at + 1 == count));
    let synchronise = synchronise.fold(0.0, f64::max);
    // All but the slowest stage are passed once beside it.
    let once = times.iter().sum::<f64>() - slowest;
    let all = f64::from(split.micro_batches) * slowest + once + moved + synchronise;
    let fullness = (0..count).map(|at| needed(at, layers[at]) / memory(at)).fold(0.0, f64::max);
    let stages = stages.iter().copied().zip(layers).collect();
    Ok(Unequal { split, stages, seconds: all, fullness })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{DAPPLE_A, DeviceGraph, KindFigures};

    fn group(kind: &str, devices: u32, (memory, peak): (f64, f64)) -> Group {
        let machines = Machines {
            devices,
            per_machine: 8,
            inside: 150e9,
            network: 12.5e9,
            memory_bytes: memory,
            peak_flops: peak,
        };
        Group { kind: kind.to_owned(), machines }
    }

    #[test]
    fn layers_go_where_they_are_done_fastest_and_fit() {
        let model = Transformer::named("gpt-7.5b").unwrap();
        let groups = [group("a100", 8, (80e9, 312e12)), group("v100", 8, (32e9, 125e12))];
        let found = search(&model, &groups, 64).unwrap();
        let of = |index: usize| -> u32 {
            let own = found.stages.iter().filter(|(group, _)| *group == index);
            own.map(|(_, layers)| *layers).sum()
        };
        assert_eq!(of(0) + of(1), model.layers);
        let ratio = f64::from(of(0)) / f64::from(of(1));
        assert!((1.8..3.2).contains(&ratio), "{ratio}: {}", found.summary(&groups));
        assert!(found.fullness <= 1.0);
    }

    #[test]
    fn the_formula_is_near_the_simulation() {
        let model = Transformer::named("gpt-7.5b").unwrap();
        let groups = [group("a100", 16, (80e9, 312e12)), group("v100", 8, (32e9, 125e12))];
        let found = search(&model, &groups, 64).unwrap();
        let figures = KindFigures { speed: 1.0, memory_bytes: 80e9, peak_flops: 312e12 };
        let devices = DeviceGraph::uniform((3, 8), "any", figures, &DAPPLE_A);
        let run = found.pipeline(&model, &groups).simulate(&devices).unwrap().run;
        let off = found.seconds / run.seconds - 1.0;
        assert!(off.abs() < 0.05, "{} {}", found.seconds, run.seconds);
    }

    #[test]
    fn two_types_hold_what_neither_holds_alone() {
        let model = Transformer::named("gpt-18b").unwrap();
        let (a, v) = (group("a100", 4, (80e9, 312e12)), group("v100", 8, (32e9, 125e12)));
        let a = Group { machines: Machines { per_machine: 4, ..a.machines }, ..a };
        let alone = |one: &Group| search(&model, std::slice::from_ref(one), 64);
        assert!(matches!(alone(&a), Err(PlanError::NoRoom { .. })));
        assert!(matches!(alone(&v), Err(PlanError::NoRoom { .. })));
        assert!(search(&model, &[a, v], 64).is_ok());
    }
}
