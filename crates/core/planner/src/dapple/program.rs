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

/// Plans that the program rates at most; what is left then is not looked at.
const RATINGS_MAX: u64 = 200_000;

/// The best partial plan of a state: its stages, and the latency with all other layers on all other devices after them.
struct Partial {
    latency: f64,
    stages: Vec<Placed>,
}

type States = BTreeMap<(usize, Vec<usize>), Partial>;

struct Program<'a, 'b> {
    instance: &'a Instance<'b>,
    best: (f64, Vec<Placed>),
    ratings: u64,
}

/// The plan of the dynamic program, or one stage over all devices, or a stage for each: the best by the formula.
///
/// For each number of stages the program keeps, by layers planned and devices used, the plan of the least latency with
/// the rest as one more stage (section 4.3).
pub fn paper_plan(instance: &Instance<'_>) -> Vec<Placed> {
    let simple = data_parallel(instance).into_iter().chain(straight(instance));
    let rated = simple.map(|plan| (instance.latency(&plan), plan));
    let best = rated.min_by(|a, b| a.0.total_cmp(&b.0));
    let best = best.expect("one stage over all devices is a plan");
    let mut program = Program { instance, best, ratings: 0 };
    let start = (0usize, vec![0usize; instance.machines.len()]);
    let nothing = Partial { latency: f64::INFINITY, stages: Vec::new() };
    let mut states: States = BTreeMap::from([(start, nothing)]);
    for _ in 1..instance.settings.stages_max.min(instance.layers()) {
        let mut next = States::new();
        for ((planned, used), partial) in &states {
            program.extend((*planned, used), partial, &mut next);
        }
        states = next;
    }
    program.best.1
}

impl Program<'_, '_> {
    /// Adds a stage in every way that leaves layers and devices for one more, and rates the plan with that one.
    fn extend(&mut self, (planned, used): (usize, &[usize]), partial: &Partial, next: &mut States) {
        let instance = self.instance;
        let left = instance.devices.devices.len() - used.iter().sum::<usize>();
        for count in 1..left {
            let mut seen: Vec<Vec<usize>> = Vec::new();
            for placement in PLACEMENTS {
                let Some(devices) = place(instance, used, count, placement) else { continue };
                if seen.contains(&devices) {
                    continue;
                }
                seen.push(devices.clone());
                let used = after(instance, used, &devices);
                let Some(rest) = place(instance, &used, left - count, Placement::Fresh) else {
                    continue;
                };
                let speed = instance.speed(&devices);
                for to in planned + 1..instance.layers() {
                    // Every sample passes every stage, so none can take longer than the best plan has in all.
                    let whole = |seconds: f64| f64::from(instance.batch) * seconds;
                    if whole(instance.work(planned, to) / speed) >= self.best.0 {
                        break;
                    }
                    let mut stages = partial.stages.clone();
                    stages.push(Placed { from: planned, to, devices: devices.clone() });
                    let last = Placed { from: to, to: instance.layers(), devices: rest.clone() };
                    self.rate((to, &used), (stages, last), next);
                }
            }
        }
    }

    fn rate(
        &mut self,
        (to, used): (usize, &[usize]),
        (mut stages, last): (Vec<Placed>, Placed),
        next: &mut States,
    ) {
        if self.ratings >= RATINGS_MAX {
            return;
        }
        self.ratings += 1;
        stages.push(last);
        let latency = self.instance.latency(&stages);
        if latency < self.best.0 {
            self.best = (latency, stages.clone());
        }
        stages.pop();
        let state = (to, used.to_vec());
        if next.get(&state).is_none_or(|other| latency < other.latency) {
            next.insert(state, Partial { latency, stages });
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
