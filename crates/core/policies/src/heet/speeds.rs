//! Speeds of models on types and numbers of GPUs that were not profiled, completed from those that were.

use crate::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_profile::complete::choose::mixed;
use trainyard_profile::complete::tensor::{Completed, Tensor, complete};
use trainyard_types::{Config, ModelId};

/// Numbers of GPUs that the table has a place for: 1, 2, 4 and so on.
const LAYERS: usize = 11;

/// What is known and estimated of the models of a moment.
pub(super) struct Speeds {
    profiled: Profiled,
    models: BTreeMap<ModelId, usize>,
    /// The highest known speed of one GPU of each model: what efficiency is measured by.
    references: Vec<f64>,
    table: Option<Completed>,
    /// What is known of sizes that the table has no place for.
    others: BTreeMap<(ModelId, GpuType, u32), f64>,
}

/// A type of GPU as speeds are counted on it.
#[derive(Copy, Clone)]
pub(super) struct Column {
    /// Its place in the list of types.
    pub(super) index: usize,
    pub(super) kind: GpuType,
    /// GPUs of its nodes.
    pub(super) per_node: u32,
}

/// A known speed.
struct Known {
    /// The model and the type, by their places in the table.
    row: usize,
    column: usize,
    gpus: u32,
    rate: f64,
}

/// Where a job runs by itself, and how fast it says it is.
struct Running {
    kind: GpuType,
    gpus: u32,
    rate: f64,
}

/// Which part of the cells was profiled.
#[derive(Copy, Clone)]
pub(super) struct Profiled(pub f64);

impl Profiled {
    /// Whether a cell was; of each model at least one GPU of the first type is.
    fn has(self, model: ModelId, kind: GpuType, gpus: u32) -> bool {
        if self.0 >= 1.0 || (kind.index() == 0 && gpus == 1) {
            return true;
        }
        let draw = mixed(&((model.index() << 8) | kind.index(), gpus as usize));
        (draw >> 11) as f64 / (1u64 << 53) as f64 <= self.0
    }
}

impl Speeds {
    /// Gathers what is known of the jobs' models, and completes the rest. O(cells) where nothing is missing.
    pub(super) fn new(jobs: &[JobRef<'_>], profiled: Profiled, view: &View<'_>) -> Speeds {
        let mut models: BTreeMap<ModelId, usize> = BTreeMap::new();
        let mut names: Vec<ModelId> = Vec::new();
        let mut known: Vec<Known> = Vec::new();
        let shapes = &view.state().shapes;
        let mut missing = false;
        let mut seen: BTreeSet<(usize, usize, u32)> = BTreeSet::new();
        for job in jobs {
            let row = *models.entry(job.spec.model).or_insert_with(|| {
                names.push(job.spec.model);
                names.len() - 1
            });
            for (column, (kind, per_node)) in shapes.iter().enumerate() {
                for gpus in (0..LAYERS).map(|layer| 1 << layer).filter(|n| fits(*n, *kind, view)) {
                    if seen.contains(&(row, column, gpus)) {
                        continue;
                    }
                    let rate = view.rate(*job, &Config::packed(*kind, gpus, *per_node));
                    match rate.map(|rate| rate.0) {
                        Some(rate) if !is_sound(rate) => {}
                        Some(rate) if profiled.has(job.spec.model, *kind, gpus) => {
                            seen.insert((row, column, gpus));
                            known.push(Known { row, column, gpus, rate });
                        }
                        _ => missing = true,
                    }
                }
            }
        }
        let mut speeds = Speeds {
            references: vec![0.0; models.len()],
            profiled,
            models,
            table: None,
            others: BTreeMap::new(),
        };
        for job in jobs {
            if let Some(Running { kind, gpus, rate }) = running(*job, view) {
                let column = shapes.iter().position(|(other, _)| *other == kind);
                let row = speeds.models[&job.spec.model];
                known.extend(column.map(|column| Known { row, column, gpus, rate }));
            }
        }
        for Known { row, gpus, rate, .. } in &known {
            let one = rate / f64::from(*gpus);
            speeds.references[*row] = speeds.references[*row].max(one);
        }
        let table = speeds.fill(&known, names, view);
        speeds.table = missing.then(|| complete(&table));
        speeds
    }

    /// What is known as a table of models, types and sizes: the paper's tensor, in scaling efficiency.
    fn fill(&mut self, known: &[Known], models: Vec<ModelId>, view: &View<'_>) -> Tensor {
        let shapes = &view.state().shapes;
        let mut table = Tensor::unknown([models.len(), shapes.len(), LAYERS]);
        for Known { row, column, gpus, rate } in known {
            let efficiency = rate / (f64::from(*gpus) * self.references[*row]);
            if gpus.is_power_of_two() && (gpus.trailing_zeros() as usize) < LAYERS {
                table.set([*row, *column, gpus.trailing_zeros() as usize], efficiency);
            } else {
                self.others.insert((models[*row], shapes[*column].0, *gpus), *rate);
            }
        }
        table
    }

    /// How fast a job is on so many GPUs of a type: as it was profiled or seen, else as it is estimated.
    pub(super) fn rate(
        &self,
        job: JobRef<'_>,
        Column { index: column, kind, per_node }: Column,
        gpus: u32,
        view: &View<'_>,
    ) -> Option<f64> {
        let believed = view.rate(job, &Config::packed(kind, gpus, per_node)).map(|rate| rate.0);
        // It is known not to run there: nothing is estimated.
        if believed.is_some_and(|rate| !is_sound(rate)) {
            return None;
        }
        let known = believed.filter(|_| self.profiled.has(job.spec.model, kind, gpus));
        let Some(table) = self.table.as_ref().filter(|_| known.is_none()) else { return known };
        if let Some(rate) = self.others.get(&(job.spec.model, kind, gpus)) {
            return Some(*rate);
        }
        let row = *self.models.get(&job.spec.model)?;
        if self.references[row] <= 0.0 {
            return None;
        }
        // Between two powers of two the efficiency lies between theirs.
        let layer = gpus.ilog2() as usize;
        let part = f64::from(gpus) / f64::from(1u32 << layer) - 1.0;
        let low = table.get([row, column, layer.min(LAYERS - 1)])?;
        let high = table.get([row, column, (layer + 1).min(LAYERS - 1)])?;
        let efficiency = low + (high - low) * part;
        Some(efficiency * f64::from(gpus) * self.references[row])
    }
}

fn is_sound(rate: f64) -> bool {
    rate > 0.0 && rate.is_finite()
}

fn fits(gpus: u32, kind: GpuType, view: &View<'_>) -> bool {
    let of_kind = view.cluster().nodes.iter().filter(|node| node.kind == kind);
    gpus <= of_kind.map(|node| u32::from(node.gpus)).sum()
}

fn running(job: JobRef<'_>, view: &View<'_>) -> Option<Running> {
    let held = job.state.held.as_ref()?;
    let config = held.config(view.cluster());
    let [(kind, gpus)] = config.kinds[..] else { return None };
    let rate = job.state.progress.rate.0;
    (config.permille == 1000 && is_sound(rate)).then_some(Running { kind, gpus, rate })
}
