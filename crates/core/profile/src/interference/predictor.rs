//! Predictors of the part of its speed that a job keeps beside others, each with the spread of its errors.

use super::forest::Forest;
use super::graph::{GRAPH, UtilisationModel};
use super::{Alone, Machine, Met};
use crate::features::Feature;
use crate::nnls::nnls;
use std::fmt;

/// What is predicted: a value, and how far such predictions were off in the mean where they were learnt.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The part of its speed that the job keeps.
    pub kept: f64,
    /// The standard deviation of the error on what was learnt from.
    pub spread: f64,
}

/// Something that learns from pairs and predicts others.
pub trait Predictor: fmt::Debug + Send + Sync {
    /// What it goes by.
    fn name(&self) -> &'static str;

    /// What must be known of each job.
    fn needs(&self) -> &'static [Feature];

    /// Whether it was made for more than two jobs at once. Others are asked about pairs.
    fn takes_groups(&self) -> bool {
        false
    }

    /// Learns from pairs, and forgets what it learnt before.
    fn fit(&mut self, seen: &[Met]);

    /// Predicts; the part that was kept is not looked at.
    fn predict(&self, met: &Met) -> Prediction;
}

/// What a profiler sees of a job alone.
const PROFILED: &[Feature] = &[Feature::Utilisation, Feature::MemoryUtilisation, Feature::Power];
/// What it sees, with the memory that is in use (Co-scheML's features as far as they were measured).
const METRICS: &[Feature] =
    &[Feature::Utilisation, Feature::MemoryUtilisation, Feature::Power, Feature::MemoryMib];
/// What a table of speeds tells.
const SPEEDS: &[Feature] = &[Feature::StepsPerSecond, Feature::SpeedUp];

/// All predictors that are compared.
pub fn all() -> Vec<Box<dyn Predictor>> {
    let linear =
        |name, needs, features| Box::new(Linear::new(name, needs, features)) as Box<dyn Predictor>;
    let hinge_on = |name, feature: &'static [Feature]| linear(name, feature, Form::Hinge);
    let each = |name, features| linear(name, features, Form::Each);
    vec![
        each("the mean of all", &[]),
        Box::new(LeftToOthers::default()),
        hinge_on("hinge on summed utilisation", &[Feature::Utilisation]),
        hinge_on("hinge on summed memory utilisation", &[Feature::MemoryUtilisation]),
        hinge_on("hinge on summed power", &[Feature::Power]),
        each("utilisation of each", &[Feature::Utilisation]),
        each("memory utilisation of each", &[Feature::MemoryUtilisation]),
        each("power of each", &[Feature::Power]),
        each("all of each", PROFILED),
        each("utilisations of each", &[Feature::Utilisation, Feature::MemoryUtilisation]),
        each("speed and speed-up of each", SPEEDS),
        Box::new(FairShare { spread: 0.0 }),
        nearest(),
        Box::new(Nearest {
            name: "the five nearest pairs, by speed and speed-up",
            ..Nearest::by(SPEEDS)
        }),
        forest(),
        Box::new(Trees::new("forest on batch, size and operators (graph)", GRAPH, false)),
        machines(),
        Box::new(Trees::new("forest over machines, on speed and speed-up", SPEEDS, true)),
        Box::new(FromGraph::default()),
    ]
}

/// The mean of the five nearest measured pairs.
pub fn nearest() -> Box<dyn Predictor> {
    Box::new(Nearest::by(PROFILED))
}

/// Utilisation of each of the two, linear.
pub fn utilisation() -> Box<dyn Predictor> {
    Box::new(Linear::new("utilisation of each", &[Feature::Utilisation], Form::Each))
}

/// A random forest on what a profiler sees of each job alone (Co-scheML, CLUSTER 2020).
pub fn forest() -> Box<dyn Predictor> {
    Box::new(Trees::new("forest on utilisation, memory and power of each", METRICS, false))
}

/// One forest for all types of machine and numbers of neighbours (Mendoza et al., EuroMLSys 2021).
pub fn machines() -> Box<dyn Predictor> {
    Box::new(Trees::new("forest over machines, on utilisation, memory and power", METRICS, true))
}

/// A hinge on the sum of utilisations that are themselves predicted from the graphs of the models (Horus, TPDS 2021).
pub fn graph() -> Box<dyn Predictor> {
    Box::new(FromGraph::default())
}

/// What all jobs together ask for, and by how much that is more than there is.
fn hinge(sum: f64) -> Vec<f64> {
    vec![1.0, sum, (sum - 1.0).max(0.0)]
}

/// Features of the job, then those of its neighbours, summed where there are several.
fn own_and_others(met: &Met, features: &'static [Feature]) -> Vec<f64> {
    let mut row: Vec<f64> = met.own.features.scaled(features).collect();
    let mut others = vec![0.0; features.len()];
    for other in &met.others {
        for (sum, value) in others.iter_mut().zip(other.features.scaled(features)) {
            *sum += value;
        }
    }
    row.extend(others);
    row
}

/// How a linear predictor sees two jobs.
#[derive(Copy, Clone, Debug)]
enum Form {
    /// The sum of one feature over all jobs, with a hinge at one.
    Hinge,
    /// Each feature of each job.
    Each,
}

/// A constant and a weight for each feature, by least squares.
#[derive(Clone, Debug)]
struct Linear {
    name: &'static str,
    features: &'static [Feature],
    form: Form,
    weights: Vec<f64>,
    spread: f64,
}

impl Linear {
    fn new(name: &'static str, features: &'static [Feature], form: Form) -> Linear {
        Linear { name, features, form, weights: Vec::new(), spread: 0.0 }
    }

    fn row(&self, met: &Met) -> Vec<f64> {
        let both = own_and_others(met, self.features);
        match self.form {
            Form::Hinge => hinge(both.iter().sum()),
            Form::Each => std::iter::once(1.0).chain(both).collect(),
        }
    }

    fn value(&self, met: &Met) -> f64 {
        self.row(met).iter().zip(&self.weights).map(|(x, weight)| x * weight).sum()
    }
}

impl Predictor for Linear {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [Feature] {
        self.features
    }

    fn fit(&mut self, seen: &[Met]) {
        let rows: Vec<Vec<f64>> = seen.iter().map(|met| self.row(met)).collect();
        let values: Vec<f64> = seen.iter().map(|met| met.kept).collect();
        self.weights = least_squares(&rows, &values);
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

/// The weights, of either sign, with the least squares; zeros where there are none.
fn least_squares(rows: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    // A weight of either sign is the difference of two that are not negative.
    let signed: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.iter().copied().chain(row.iter().map(|x| -x)).collect())
        .collect();
    let count = rows.first().map_or(0, Vec::len);
    let found = nnls(&signed, values).unwrap_or_else(|| vec![0.0; 2 * count]);
    (0..count).map(|index| found[index] - found[count + index]).collect()
}

/// Turns of equal length: a job has the time that the others leave idle, its part of the GPU at least, and needs as
/// much of it as it is busy alone. Nothing is learnt.
#[derive(Clone, Debug)]
struct FairShare {
    spread: f64,
}

impl FairShare {
    fn value(met: &Met) -> f64 {
        let busy = |alone: &Alone| alone.features.get(Feature::Utilisation).unwrap_or(1.0);
        let others: f64 = met.others.iter().map(busy).sum();
        let left = (1.0 - others).max(1.0 / (met.others.len() + 1) as f64);
        (left / busy(&met.own).max(1e-3)).min(1.0)
    }
}

impl Predictor for FairShare {
    fn name(&self) -> &'static str {
        "fair share of the time, by utilisation of each"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Utilisation]
    }

    fn takes_groups(&self) -> bool {
        true
    }

    fn fit(&mut self, seen: &[Met]) {
        self.spread = spread(seen, FairShare::value);
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: FairShare::value(met), spread: self.spread }
    }
}

/// What the same neighbour left other jobs in the mean; of one that was not seen, the mean of all.
#[derive(Clone, Debug, Default)]
struct LeftToOthers {
    /// Each neighbour on each machine, with the sum of what was kept beside it and how often.
    seen: Vec<(Alone, Machine, f64, f64)>,
    mean: f64,
    spread: f64,
}

impl LeftToOthers {
    fn value(&self, met: &Met) -> f64 {
        let of = |other: &Alone| {
            let is_it = |seen: &&(Alone, Machine, f64, f64)| seen.0 == *other && seen.1 == met.on;
            self.seen.iter().find(is_it).map_or(self.mean, |seen| seen.2 / seen.3)
        };
        met.others.iter().map(of).product()
    }
}

impl Predictor for LeftToOthers {
    fn name(&self) -> &'static str {
        "what the neighbour left others in the mean"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn fit(&mut self, seen: &[Met]) {
        self.seen.clear();
        for met in seen {
            let [other] = &met.others[..] else { continue };
            match self.seen.iter_mut().find(|seen| seen.0 == *other && seen.1 == met.on) {
                Some(known) => (known.2, known.3) = (known.2 + met.kept, known.3 + 1.0),
                None => self.seen.push((other.clone(), met.on, met.kept, 1.0)),
            }
        }
        self.mean = seen.iter().map(|met| met.kept).sum::<f64>() / seen.len().max(1) as f64;
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

/// The mean of the most similar pairs that were seen, by all that is known of both jobs.
#[derive(Clone, Debug)]
struct Nearest {
    name: &'static str,
    features: &'static [Feature],
    seen: Vec<(Vec<f64>, f64)>,
    spread: f64,
}

/// So many are the most similar.
const NEAREST: usize = 5;

impl Nearest {
    fn by(features: &'static [Feature]) -> Nearest {
        let name = "the five nearest pairs, by utilisation, memory and power of each";
        Nearest { name, features, seen: Vec::new(), spread: 0.0 }
    }

    fn value(&self, met: &Met) -> f64 {
        let at = own_and_others(met, self.features);
        let distance =
            |other: &[f64]| -> f64 { other.iter().zip(&at).map(|(a, b)| (a - b) * (a - b)).sum() };
        let mut by_distance: Vec<(f64, f64)> =
            self.seen.iter().map(|(other, kept)| (distance(other), *kept)).collect();
        by_distance.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        by_distance.truncate(NEAREST);
        let count = by_distance.len().max(1) as f64;
        by_distance.iter().map(|(_, kept)| kept).sum::<f64>() / count
    }
}

impl Predictor for Nearest {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [Feature] {
        self.features
    }

    fn fit(&mut self, seen: &[Met]) {
        self.seen = seen.iter().map(|met| (own_and_others(met, self.features), met.kept)).collect();
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

/// A random forest on features of each job; over machines, with what is known of the machine, and with the sum and the
/// most of each feature over the neighbours, so that one forest serves any number of them.
#[derive(Clone, Debug)]
struct Trees {
    name: &'static str,
    features: &'static [Feature],
    over_machines: bool,
    forest: Forest,
    spread: f64,
}

impl Trees {
    fn new(name: &'static str, features: &'static [Feature], over_machines: bool) -> Trees {
        Trees { name, features, over_machines, forest: Forest::default(), spread: 0.0 }
    }

    fn row(&self, met: &Met) -> Vec<f64> {
        let mut row = own_and_others(met, self.features);
        if self.over_machines {
            let mut most = vec![0.0_f64; self.features.len()];
            for other in &met.others {
                for (most, value) in most.iter_mut().zip(other.features.scaled(self.features)) {
                    *most = most.max(value);
                }
            }
            row.extend(most);
            row.extend([met.on.speed, met.on.memory_gib / 100.0, met.on.watts / 1000.0]);
            row.push(met.others.len() as f64);
        }
        row
    }
}

impl Predictor for Trees {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [Feature] {
        self.features
    }

    fn takes_groups(&self) -> bool {
        self.over_machines
    }

    fn fit(&mut self, seen: &[Met]) {
        let rows: Vec<Vec<f64>> = seen.iter().map(|met| self.row(met)).collect();
        let values: Vec<f64> = seen.iter().map(|met| met.kept).collect();
        self.forest = Forest::grow(&rows, &values);
        self.spread = self.forest.spread;
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.forest.value(&self.row(met)), spread: self.spread }
    }
}

/// A hinge on summed utilisation, where the utilisation is predicted from the description of the models.
#[derive(Clone, Debug, Default)]
struct FromGraph {
    utilisation: UtilisationModel,
    weights: Vec<f64>,
    spread: f64,
}

impl FromGraph {
    fn value(&self, met: &Met) -> f64 {
        let all = std::iter::once(&met.own).chain(&met.others);
        let sum: f64 = all.map(|alone| self.utilisation.of(&alone.features)).sum();
        hinge(sum).iter().zip(&self.weights).map(|(x, weight)| x * weight).sum()
    }
}

impl Predictor for FromGraph {
    fn name(&self) -> &'static str {
        "hinge on utilisation predicted from the graph"
    }

    fn needs(&self) -> &'static [Feature] {
        GRAPH
    }

    fn fit(&mut self, seen: &[Met]) {
        let mut jobs: Vec<&Alone> = Vec::new();
        for alone in seen.iter().flat_map(|met| std::iter::once(&met.own).chain(&met.others)) {
            if alone.features.tell(&[Feature::Utilisation]) && !jobs.contains(&alone) {
                jobs.push(alone);
            }
        }
        self.utilisation = UtilisationModel::fit(jobs.into_iter());
        self.weights = Vec::new();
        let rows: Vec<Vec<f64>> = seen
            .iter()
            .map(|met| {
                let all = std::iter::once(&met.own).chain(&met.others);
                hinge(all.map(|alone| self.utilisation.of(&alone.features)).sum())
            })
            .collect();
        let values: Vec<f64> = seen.iter().map(|met| met.kept).collect();
        self.weights = least_squares(&rows, &values);
        self.spread = spread(seen, |met| self.value(met));
    }

    fn predict(&self, met: &Met) -> Prediction {
        Prediction { kept: self.value(met), spread: self.spread }
    }
}

/// The root of the mean square of the errors on what was learnt from.
fn spread(seen: &[Met], value: impl Fn(&Met) -> f64) -> f64 {
    let squares = seen.iter().map(|met| (value(met) - met.kept) * (value(met) - met.kept));
    libm::sqrt(squares.sum::<f64>() / seen.len().max(1) as f64)
}
