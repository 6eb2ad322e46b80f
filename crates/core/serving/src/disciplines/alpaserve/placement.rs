//! Which models are on which groups: greedy, each step judged by a simulation (algorithms 1 and 2).

use crate::discipline::Fleet;
use crate::draws::Draws;
use crate::registry::Told;
use crate::request::{ModelId, Server};

/// GPUs that serve as one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// By stage.
    pub servers: Vec<Server>,
    /// The models that it has.
    pub models: Vec<ModelId>,
}

/// A whole placement.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The groups.
    pub groups: Vec<Group>,
    /// The part of the sample that was in time.
    pub attainment: f64,
    /// By GPU: models and what their part takes there.
    pub by_server: Vec<Vec<(ModelId, u64)>>,
}

/// A drawn request: microseconds of arrival, and its model.
type Sample = Vec<(f64, usize)>;

/// The best placement over lengths of pipelines.
///
/// For each length at most groups * models steps, each a simulation of the sample in O(sample * groups).
pub fn place(told: &Told<'_>, stages_max: u32, sample: usize) -> Placement {
    let sample = drawn(told, sample);
    let mut best: Option<Placement> = None;
    let mut stages = 1;
    while stages <= stages_max.min(told.fleet.servers.max(1)) {
        let found = greedy(told, stages, &sample);
        if best.as_ref().is_none_or(|best| found.attainment > best.attainment) {
            best = Some(found);
        }
        stages *= 2;
    }
    best.unwrap_or(Placement { groups: Vec::new(), attainment: 0.0, by_server: Vec::new() })
}

/// Arrivals at the expected rates, without memory: what a history would show, where only rates are told.
fn drawn(told: &Told<'_>, count: usize) -> Sample {
    let mut draws = Draws::new(told.fleet.seed, 21);
    let mut sum = 0.0;
    let cumulated: Vec<f64> = (told.rates.iter())
        .map(|rate| {
            sum += rate;
            sum
        })
        .collect();
    let mut now = 0.0;
    (0..count)
        .map(|_| {
            now += draws.exponential() / sum.max(1e-9) * 1e6;
            (now, draws.index(&cumulated))
        })
        .collect()
}

/// What one stage of a model takes on a GPU.
fn memory(fleet: &Fleet, model: usize, stages: u32) -> u64 {
    fleet.models[model].memory_mib.div_ceil(u64::from(stages))
}

fn greedy(told: &Told<'_>, stages: u32, sample: &Sample) -> Placement {
    let fleet = told.fleet;
    let count = fleet.servers / stages;
    let servers = |number: u32| (number * stages..(number + 1) * stages).map(Server).collect();
    let mut groups: Vec<Group> = (0..count.max(1))
        .map(|number| Group { servers: servers(number), models: Vec::new() })
        .collect();
    let mut used = vec![0u64; groups.len()];
    let mut result = (0.0, Vec::new());
    for _ in 0..groups.len() * fleet.models.len() {
        let (attainment, missed, load) = judged(told, &groups, sample);
        if attainment >= result.0 || result.1.is_empty() {
            result = (attainment, groups.clone());
        }
        // The model with the most requests that were not served, to the group with the least to do that has room.
        // Where all of the sample is served, what is left of the memory goes to the busiest model for its replicas.
        let replicas = |model: usize| {
            let id = ModelId(model as u32);
            groups.iter().filter(|group| group.models.contains(&id)).count() as f64 + 1.0
        };
        let busy = |model: usize| {
            told.rates.get(model).copied().unwrap_or(0.0) * fleet.models[model].micros(1)
                / replicas(model)
        };
        let mut by_need: Vec<usize> = (0..missed.len()).collect();
        by_need.sort_by(|a, b| {
            missed[*b].cmp(&missed[*a]).then(busy(*b).total_cmp(&busy(*a))).then(a.cmp(b))
        });
        let fits = |model: usize| {
            let need = memory(fleet, model, stages);
            let has = |at: &usize| groups[*at].models.contains(&ModelId(model as u32));
            let room = |at: &usize| used[*at] + need <= fleet.memory_mib;
            let free = (0..groups.len()).filter(|at| !has(at) && room(at));
            free.min_by(|a, b| load[*a].total_cmp(&load[*b]).then(a.cmp(b)))
        };
        let step = by_need.into_iter().find_map(|model| Some((model, fits(model)?)));
        let Some((model, group)) = step else { break };
        used[group] += memory(fleet, model, stages);
        groups[group].models.push(ModelId(model as u32));
    }
    let (attainment, _, _) = judged(told, &groups, sample);
    if attainment >= result.0 {
        result = (attainment, groups);
    }
    let mut by_server = vec![Vec::new(); fleet.servers as usize];
    for group in &result.1 {
        for server in &group.servers {
            let all = group.models.iter().map(|id| (*id, memory(fleet, id.index(), stages)));
            by_server[server.index()] = all.collect();
        }
    }
    Placement { groups: result.1, attainment: result.0, by_server }
}

/// The part of the sample in time, what each model missed, and what each group had to do.
fn judged(told: &Told<'_>, groups: &[Group], sample: &Sample) -> (f64, Vec<u64>, Vec<f64>) {
    let models = &told.fleet.models;
    let mut free = vec![0.0f64; groups.len()];
    let mut load = vec![0.0; groups.len()];
    let mut missed = vec![0u64; models.len()];
    let mut holders = vec![Vec::new(); models.len()];
    for (at, group) in groups.iter().enumerate() {
        group.models.iter().for_each(|model| holders[model.index()].push(at));
    }
    let slo = told.slo.0 as f64;
    for (arrived, model) in sample {
        let shortest = holders[*model].iter().copied().min_by(|a, b| free[*a].total_cmp(&free[*b]));
        let Some(at) = shortest else {
            missed[*model] += 1;
            continue;
        };
        let start = free[at].max(*arrived);
        let stages = groups[at].servers.len() as f64;
        let launches = if stages > 1.0 { stages * told.fleet.launch.0 as f64 } else { 0.0 };
        let whole = models[*model].micros(1) + launches;
        if start + whole - arrived > slo {
            missed[*model] += 1;
            continue;
        }
        // A pipeline takes the next request when its first stage is through.
        free[at] = start + whole / stages;
        load[at] += whole / stages;
    }
    let all: u64 = missed.iter().sum();
    (1.0 - all as f64 / sample.len().max(1) as f64, missed, load)
}
