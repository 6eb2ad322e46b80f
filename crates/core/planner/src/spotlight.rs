//! Spotlight: a placement learnt by trying, with a bounded step of the policy (ICML 2018).
//!
//! Each group of operators has a row of preferences over devices; a placement is drawn row after row, each with a look at
//! where the group before went, as the stages of a decision process. What a drawn placement takes in the simulation is
//! its reward, and preferences move where it beats the mean, with a clipped ratio and a pull back to the policy that drew.

use crate::draws::Draws;
use crate::pesto::refuse_if_full;
use crate::placing::{Placing, is_better};
use crate::plan::Title;
use crate::registry::{Level, PlannerEntry, Problem};
use crate::{PlanError, Proposal, Request};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "spotlight",
    about: "a device for each operator, learnt by a policy gradient with bounded steps in the simulation",
    paper: "Gao, Chen and Li, Spotlight: Optimizing Device Placement for Training Deep Neural Networks, ICML 2018",
    level: Level::Operator,
    partial: "a table of preferences instead of a recurrent network; at most 16 devices",
    problem: Problem::Training(plan),
};

/// Devices from which learning would take too long.
const DEVICES_MAX: usize = 16;

/// What may be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where chance starts.
    pub seed: u64,
    /// Groups of consecutive operators that go together.
    pub groups_max: usize,
    /// Rounds of drawing and learning.
    pub rounds: u32,
    /// Placements drawn in a round.
    pub samples: u32,
    /// Steps on the drawn placements of a round.
    pub epochs: u32,
    /// How far a step goes.
    pub step: f64,
    /// The ratio of new to old probability beyond which nothing more is learnt.
    pub clip: f64,
    /// The weight of the divergence from the policy that drew.
    pub pull: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            groups_max: 40,
            rounds: 60,
            samples: 20,
            epochs: 4,
            step: 1.0,
            clip: 0.3,
            pull: 0.05,
        }
    }
}

/// What learning came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Learnt {
    /// The best placement that was drawn.
    pub placement: Vec<usize>,
    /// The mean seconds of the placements of each round.
    pub means: Vec<f64>,
    /// Placements that were tried.
    pub tried: u32,
}

/// The learnt plan.
pub fn plan(request: &Request<'_>) -> Result<Vec<Proposal>, PlanError> {
    if request.devices.devices.len() > DEVICES_MAX {
        let reason = format!("its learning ends at {DEVICES_MAX} devices");
        return Err(PlanError::NotFor { planner: ENTRY.name, reason });
    }
    let placing = Placing::single(request)?;
    let learnt = learn(&placing, &Settings::default());
    let summary = format!("{}, {} tried", placing.summary(&learnt.placement), learnt.tried);
    let title = Title { planner: ENTRY.name, variant: "paper", summary };
    let mut proposals = vec![placing.proposal(title, &learnt.placement)?];
    refuse_if_full(&mut proposals, request)?;
    Ok(proposals)
}

/// Preferences for each group, previous device and device; the previous of the first group is device 0.
struct Policy {
    logits: Vec<Vec<Vec<f64>>>,
}

impl Policy {
    fn chances(&self, group: usize, before: usize) -> Vec<f64> {
        let row = &self.logits[group][before];
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let raised: Vec<f64> = row.iter().map(|one| libm::exp(one - most)).collect();
        let sum: f64 = raised.iter().sum();
        raised.into_iter().map(|one| one / sum).collect()
    }

    fn draw(&self, draws: &mut Draws) -> Vec<usize> {
        let mut drawn = Vec::with_capacity(self.logits.len());
        let mut before = 0;
        for group in 0..self.logits.len() {
            let chances = self.chances(group, before);
            let mut point = draws.unit();
            let mut device = chances.len() - 1;
            for (at, chance) in chances.iter().enumerate() {
                if point < *chance {
                    device = at;
                    break;
                }
                point -= chance;
            }
            drawn.push(device);
            before = device;
        }
        drawn
    }
}

/// One placement of a round.
struct Sample {
    devices: Vec<usize>,
    advantage: f64,
    /// The chance of each of its choices when it was drawn.
    old: Vec<f64>,
}

/// Learns a placement: `rounds * samples` list schedules.
pub fn learn(placing: &Placing<'_>, settings: &Settings) -> Learnt {
    let groups = groups(placing, settings.groups_max);
    let devices = placing.devices.devices.len();
    let mut policy = Policy { logits: vec![vec![vec![0.0; devices]; devices]; groups.len()] };
    let mut draws = Draws::new(settings.seed);
    let mut best: Option<((f64, f64), Vec<usize>)> = None;
    let (mut means, mut tried) = (Vec::new(), 0);
    let total: f64 =
        (0..placing.graph.operators.len()).map(|one| placing.site_seconds(one, 0)).sum();
    let mut baseline: Option<f64> = None;
    for _ in 0..settings.rounds {
        let mut drawn: Vec<(Vec<usize>, f64)> = Vec::new();
        let mut seconds_sum = 0.0;
        for _ in 0..settings.samples {
            let devices = policy.draw(&mut draws);
            let placement = spread(placing, &groups, &devices);
            let rating = placing.rate(&placement);
            tried += 1;
            seconds_sum += rating.1;
            if best.as_ref().is_none_or(|(other, _)| is_better(rating, *other)) {
                best = Some((rating, placement));
            }
            // The paper's reward, relative to one device; what does not fit counts as twice as long as one device.
            let seconds = if rating.0 > 0.0 { 2.0 * total } else { rating.1 };
            drawn.push((devices, -libm::sqrt(seconds / total)));
        }
        means.push(seconds_sum / f64::from(settings.samples));
        let mean = drawn.iter().map(|(_, reward)| reward).sum::<f64>() / drawn.len() as f64;
        // A running mean of rewards is the baseline.
        let known = baseline.map_or(mean, |old| 0.7 * old + 0.3 * mean);
        baseline = Some(known);
        learn_round(&mut policy, drawn, known, settings);
    }
    let placement = best.map_or_else(Vec::new, |(_, placement)| placement);
    Learnt { placement, means, tried }
}

fn learn_round(policy: &mut Policy, drawn: Vec<(Vec<usize>, f64)>, mean: f64, settings: &Settings) {
    let spread = drawn.iter().map(|(_, reward)| (reward - mean) * (reward - mean)).sum::<f64>();
    let spread = libm::sqrt(spread / drawn.len() as f64).max(1e-9);
    let old_rows: Vec<Vec<Vec<f64>>> = (0..policy.logits.len())
        .map(|group| {
            (0..policy.logits[group].len()).map(|one| policy.chances(group, one)).collect()
        })
        .collect();
    let samples: Vec<Sample> = (drawn.into_iter())
        .map(|(devices, reward)| {
            let before = |group: usize| if group == 0 { 0 } else { devices[group - 1] };
            let old =
                (0..devices.len()).map(|group| old_rows[group][before(group)][devices[group]]);
            Sample { old: old.collect(), advantage: (reward - mean) / spread, devices }
        })
        .collect();
    for _ in 0..settings.epochs {
        let mut slopes = policy.logits.clone();
        slopes.iter_mut().flatten().flatten().for_each(|one| *one = 0.0);
        for sample in &samples {
            add_slopes(policy, sample, (&old_rows, settings), &mut slopes);
        }
        let step = settings.step / samples.len() as f64;
        let rows = policy.logits.iter_mut().flatten().zip(slopes.iter().flatten());
        for (row, slope) in rows {
            row.iter_mut().zip(slope).for_each(|(one, slope)| *one += step * slope);
        }
    }
}

/// The slope of `min(ratio A, clip(ratio) A) - pull KL(old || new)` at each stage.
fn add_slopes(
    policy: &Policy,
    sample: &Sample,
    (old_rows, settings): (&[Vec<Vec<f64>>], &Settings),
    slopes: &mut [Vec<Vec<f64>>],
) {
    let mut before = 0;
    for (group, device) in sample.devices.iter().enumerate() {
        let chances = policy.chances(group, before);
        let ratio = chances[*device] / sample.old[group].max(1e-12);
        let is_clipped = match sample.advantage >= 0.0 {
            true => ratio > 1.0 + settings.clip,
            false => ratio < 1.0 - settings.clip,
        };
        let gain = if is_clipped { 0.0 } else { ratio * sample.advantage };
        let old = &old_rows[group][before];
        for (other, slope) in slopes[group][before].iter_mut().enumerate() {
            let own = if other == *device { 1.0 } else { 0.0 };
            *slope += gain * (own - chances[other]) + settings.pull * (old[other] - chances[other]);
        }
        before = *device;
    }
}

/// Consecutive operators in groups of about equal time.
fn groups(placing: &Placing<'_>, most: usize) -> Vec<Vec<usize>> {
    let order = placing.graph.order();
    let total: f64 = order.iter().map(|one| placing.site_seconds(*one, 0)).sum();
    let most = most.clamp(1, order.len());
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); most];
    let mut passed = 0.0;
    for (at, operator) in order.iter().enumerate() {
        let own = placing.site_seconds(*operator, 0);
        let middle =
            if total > 0.0 { (passed + own / 2.0) / total } else { at as f64 / order.len() as f64 };
        groups[((middle * most as f64) as usize).min(most - 1)].push(*operator);
        passed += own;
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn spread(placing: &Placing<'_>, groups: &[Vec<usize>], devices: &[usize]) -> Vec<usize> {
    let mut placement = vec![0; placing.graph.operators.len()];
    for (group, device) in groups.iter().zip(devices) {
        group.iter().for_each(|operator| placement[*operator] = *device);
    }
    placement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{DAPPLE_A, DeviceGraph, KindFigures};
    use crate::graph::{Edge, Graph, Operator};
    use crate::pesto;

    const V100: KindFigures = KindFigures { speed: 1.0, memory_bytes: 16e9, peak_flops: 125e12 };

    /// Two towers of equal operators that meet at the end.
    fn towers(length: usize) -> Graph {
        let operator = |name: String| Operator {
            name,
            forward: 0.01,
            backward: 0.02,
            parameter_bytes: 1e6,
            activation_bytes: 1e6,
        };
        let mut operators: Vec<Operator> =
            (0..2 * length).map(|at| operator(format!("o{at}"))).collect();
        operators.push(operator("join".to_owned()));
        let mut edges: Vec<Edge> =
            (2..2 * length).map(|to| Edge { from: to - 2, to, bytes: 1e7 }).collect();
        for from in [2 * length - 2, 2 * length - 1] {
            edges.push(Edge { from, to: 2 * length, bytes: 1e7 });
        }
        Graph::new(("towers", "v100"), 1, operators, edges).unwrap()
    }

    fn request<'a>(graph: &'a Graph, devices: &'a DeviceGraph) -> Request<'a> {
        Request { graph, transformer: None, devices, batch: 1, state_factor: 4.0 }
    }

    /// Direction of the paper: what is learnt beats what is drawn without learning; and the search beats both.
    #[test]
    fn learning_beats_drawing_and_the_search_is_no_worse() {
        let graph = towers(12);
        let devices = DeviceGraph::uniform((1, 2), "v100", V100, &DAPPLE_A);
        let placing = Placing::single(&request(&graph, &devices)).unwrap();
        let learnt = learn(&placing, &Settings::default());
        let unlearnt = learn(&placing, &Settings { step: 0.0, ..Settings::default() });
        assert_eq!(learnt.tried, unlearnt.tried);
        let (first, last) = (learnt.means[0], learnt.means[learnt.means.len() - 1]);
        let seconds = placing.rate(&learnt.placement).1;
        let drawn = placing.rate(&unlearnt.placement).1;
        let found = pesto::search(
            &placing,
            std::slice::from_ref(&learnt.placement),
            &pesto::Effort::default(),
        );
        let search = placing.rate(&found).1;
        println!(
            "means {first:.3} to {last:.3}, best {seconds:.4}, drawn {drawn:.4}, search {search:.4}"
        );
        assert!(last < 0.9 * first, "{first} {last}");
        assert!(seconds < drawn && search <= seconds, "{seconds} {drawn} {search}");
        // The longer tower and the join on one device, and nothing faster.
        assert!(search >= 13.0 * 0.03);
    }

    #[test]
    fn the_same_seed_learns_the_same() {
        let graph = towers(6);
        let devices = DeviceGraph::uniform((1, 3), "v100", V100, &DAPPLE_A);
        let placing = Placing::single(&request(&graph, &devices)).unwrap();
        let settings = Settings { rounds: 5, ..Settings::default() };
        assert_eq!(learn(&placing, &settings), learn(&placing, &settings));
        let other = Settings { seed: 2, ..settings.clone() };
        assert_ne!(learn(&placing, &settings).means, learn(&placing, &other).means);
    }

    #[test]
    fn what_fits_nowhere_is_refused_with_what_is_lacking() {
        let graph = towers(3);
        let small = KindFigures { memory_bytes: 9e6, ..V100 };
        let devices = DeviceGraph::uniform((1, 2), "v100", small, &DAPPLE_A);
        let error = plan(&request(&graph, &devices)).unwrap_err().to_string();
        assert!(error.contains("are lacking"), "{error}");
        let many = DeviceGraph::uniform((3, 8), "v100", V100, &DAPPLE_A);
        let error = plan(&request(&graph, &many)).unwrap_err().to_string();
        assert!(error.contains("ends at 16 devices"), "{error}");
    }
}
