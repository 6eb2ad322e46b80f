//! The dynamic program of the paper, with its three ways to place a stage, and its two simple plans.

use super::instance::{Instance, Placed};
use std::collections::BTreeMap;

/// How the devices of a stage are taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// From machines that are not used yet.
    Fresh,
    /// From machines that are partly used.
    Append,
    /// Evenly from all machines.
    Scatter,
}

/// The three placements.
pub const PLACEMENTS: [Placement; 3] = [Placement::Fresh, Placement::Append, Placement::Scatter];

/// The devices of a stage on `count` devices, where the first `used` of each machine are taken.
pub fn place(
    instance: &Instance<'_>,
    used: &[usize],
    count: usize,
    placement: Placement,
) -> Option<Vec<usize>> {
    let left = |machine: usize| instance.machines[machine].len() - used[machine];
    let mut order: Vec<usize> = (0..used.len()).filter(|machine| left(*machine) > 0).collect();
    if order.iter().map(|machine| left(*machine)).sum::<usize>() < count {
        return None;
    }
    let mut takes = vec![0; used.len()];
    match placement {
        Placement::Fresh => order.sort_by_key(|machine| (used[*machine] > 0, *machine)),
        Placement::Append => order.sort_by_key(|machine| (used[*machine] == 0, *machine)),
        Placement::Scatter => {}
    }
    let mut open = count;
    if placement == Placement::Scatter {
        while open > 0 {
            for machine in &order {
                if open > 0 && takes[*machine] < left(*machine) {
                    takes[*machine] += 1;
                    open -= 1;
                }
            }
        }
    }
    for machine in order {
        let taken = (left(machine) - takes[machine]).min(open);
        takes[machine] += taken;
        open -= taken;
    }
    let devices = (0..used.len()).flat_map(|machine| {
        let from = used[machine];
        instance.machines[machine][from..from + takes[machine]].iter().copied()
    });
    Some(devices.collect())
}

/// What is used of each machine after a stage.
pub fn after(instance: &Instance<'_>, used: &[usize], devices: &[usize]) -> Vec<usize> {
    let mut used = used.to_vec();
    devices.iter().for_each(|one| used[instance.devices.devices[*one].machine] += 1);
    used
}

/// The way in which the best partial plan of a state came about.
struct Partial {
    /// The longest stage or transfer, seconds for one sample.
    block: f64,
    stages: Vec<Placed>,
}

/// The plan of the dynamic program, or one stage over all devices, or a stage for each: the best by the formula.
///
/// For each number of stages the program keeps, by layers planned and devices used, the plan whose longest stage or
/// transfer is shortest; each complete one is then rated by the formula.
pub fn paper_plan(instance: &Instance<'_>) -> Vec<Placed> {
    let mut best =
        data_parallel(instance).into_iter().chain(straight(instance)).collect::<Vec<_>>();
    let nothing = Partial { block: 0.0, stages: Vec::new() };
    let start = (0usize, vec![0usize; instance.machines.len()]);
    let mut states: BTreeMap<(usize, Vec<usize>), Partial> = BTreeMap::from([(start, nothing)]);
    for _ in 0..instance.settings.stages_max.min(instance.layers()) {
        let mut next: BTreeMap<(usize, Vec<usize>), Partial> = BTreeMap::new();
        for ((planned, used), partial) in &states {
            extend(instance, (*planned, used), partial, &mut next);
        }
        let all = instance.devices.devices.len();
        let whole = next.iter().filter(|((planned, used), _)| {
            *planned == instance.layers() && used.iter().sum::<usize>() == all
        });
        best.extend(whole.map(|(_, partial)| partial.stages.clone()));
        states = next;
        states.retain(|(planned, _), _| *planned < instance.layers());
    }
    let by_latency =
        |a: &Vec<Placed>, b: &Vec<Placed>| instance.latency(a).total_cmp(&instance.latency(b));
    best.into_iter().min_by(by_latency).expect("one stage over all devices is a plan")
}

fn extend(
    instance: &Instance<'_>,
    (planned, used): (usize, &[usize]),
    partial: &Partial,
    next: &mut BTreeMap<(usize, Vec<usize>), Partial>,
) {
    let left = instance.devices.devices.len() - used.iter().sum::<usize>();
    for count in 1..=left {
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for placement in PLACEMENTS {
            let Some(devices) = place(instance, used, count, placement) else { continue };
            if seen.contains(&devices) {
                continue;
            }
            seen.push(devices.clone());
            let (used, speed) = (after(instance, used, &devices), instance.speed(&devices));
            let stage = Placed { from: planned, to: planned, devices };
            let moved = partial
                .stages
                .last()
                .map_or(0.0, |last| 2.0 * instance.transfer(&instance.moves(last, &stage, 1.0)));
            let before = partial.block.max(moved);
            // Layers must be left for what is left of the devices, and devices for what is left of the layers.
            let ends = match left == count {
                true => instance.layers()..instance.layers() + 1,
                false => planned + 1..instance.layers(),
            };
            for to in ends {
                let block = before.max(instance.work(planned, to) / speed);
                let state = (to, used.clone());
                if next.get(&state).is_none_or(|other| block < other.block) {
                    let mut stages = partial.stages.clone();
                    stages.push(Placed { to, ..stage.clone() });
                    next.insert(state, Partial { block, stages });
                }
            }
        }
    }
}

/// All layers on all devices.
pub fn data_parallel(instance: &Instance<'_>) -> Option<Vec<Placed>> {
    let devices = (0..instance.devices.devices.len()).collect();
    Some(vec![Placed { from: 0, to: instance.layers(), devices }])
}

/// A stage for each device, cut so that the longest is shortest; nothing where there are fewer layers.
pub fn straight(instance: &Instance<'_>) -> Option<Vec<Placed>> {
    let (layers, devices) = (instance.layers(), instance.devices.devices.len());
    if layers < devices || devices < 2 {
        return None;
    }
    let speed = |device: usize| instance.devices.devices[device].speed;
    // best[k][j]: the shortest longest stage of the first j layers on the first k devices, and where its last begins.
    let mut best = vec![vec![(f64::INFINITY, 0usize); layers + 1]; devices + 1];
    best[0][0] = (0.0, 0);
    for device in 1..=devices {
        for to in device..=layers {
            for from in device - 1..to {
                let own = instance.work(from, to) / speed(device - 1);
                let block = best[device - 1][from].0.max(own);
                if block < best[device][to].0 {
                    best[device][to] = (block, from);
                }
            }
        }
    }
    let mut stages = Vec::with_capacity(devices);
    let mut to = layers;
    for device in (0..devices).rev() {
        let from = best[device + 1][to].1;
        stages.push(Placed { from, to, devices: vec![device] });
        to = from;
    }
    stages.reverse();
    Some(stages)
}
