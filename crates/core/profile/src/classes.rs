//! What a job is like, from two short runs in each of four classifications: how it gains by more GPUs of a node
//! (scale-up), by more nodes (scale-out), by another type of GPU (heterogeneity), and what others on its GPU cost it
//! (interference).
//!
//! After Paragon (ASPLOS 2013) and Quasar (ASPLOS 2014): all other jobs are known, a new one has two entries in each
//! table, and the rest of its row is completed because such tables have low rank.
//! A model's own row is never shown to its completion but for these two entries, so that what is believed of it is what
//! would be believed if it came for the first time.

use crate::complete::PairTable;
use crate::complete::low_rank::fit_logs;
use crate::model::ANY_KIND;
use crate::{ModelProfile, Sharing, Speeds};
use std::sync::OnceLock;
use trainyard_types::{Config, GpuType, ModelId};

/// Traits of a row beside its level; more do not pay with as few rows as are known.
const RANK: usize = 1;
/// So many entries of a row are measured.
const RUNS: usize = 2;
/// Doublings of GPUs in a node, and of nodes, that are classified: up to 16 of each.
const DOUBLINGS: usize = 5;
/// A speed is estimated between these parts of what was asked for; beyond them a completion says nothing.
const LEAST: f64 = 1e-3;

/// The rows of one model, completed.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassRow {
    /// Steps per second on one GPU of the reference type.
    pub base: f64,
    /// The part of a linear gain on 1, 2, 4, ... GPUs of a node.
    pub scale_up: Vec<f64>,
    /// The part of a linear gain on 1, 2, 4, ... nodes.
    pub scale_out: Vec<f64>,
    /// Speed by type, relative to the reference type.
    pub types: Vec<f64>,
}

/// Classifications of the models of a catalog on one cluster, each made when it is first asked for.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    rows: Vec<OnceLock<Option<ClassRow>>>,
    tables: OnceLock<Tables>,
}

/// Logarithms by model and column, where a model has a speed.
#[derive(Clone, Debug, Default)]
struct Tables {
    base: Vec<Option<f64>>,
    scale_up: Vec<Option<f64>>,
    scale_out: Vec<Option<f64>>,
    types: Vec<Option<f64>>,
    kinds: usize,
}

impl Classes {
    /// For so many models. Nothing is classified yet.
    pub fn new(models: usize) -> Classes {
        Classes { rows: vec![OnceLock::new(); models], tables: OnceLock::new() }
    }

    /// The completed rows of a model; nothing if it has no speed on the reference type.
    pub fn row(&self, model: ModelId, speeds: &Speeds) -> Option<&ClassRow> {
        let tables = self.tables.get_or_init(|| Tables::new(self.rows.len(), speeds));
        self.rows.get(model.index())?.get_or_init(|| tables.classify(model)).as_ref()
    }

    /// Steps per second on some GPUs, as the classifications have it.
    pub fn rate(&self, model: ModelId, config: &Config, speeds: &Speeds) -> Option<f64> {
        let row = self.row(model, speeds)?;
        let nodes = config.nodes.max(1);
        let each = config.gpus.div_ceil(nodes);
        let slowest = config
            .kinds
            .iter()
            .map(|(kind, _)| row.types.get(kind.index()).copied().unwrap_or(1.0))
            .min_by(f64::total_cmp)?;
        let up = f64::from(each) * between(&row.scale_up, each);
        let out = f64::from(config.gpus) / f64::from(each) * between(&row.scale_out, nodes);
        Some(row.base * slowest * up * out)
    }
}

/// A figure for a count, from those for 1, 2, 4, ...: between them by the logarithm of the count.
fn between(column: &[f64], count: u32) -> f64 {
    let at = libm::log2(f64::from(count.max(1)));
    let low = (at as usize).min(column.len() - 1);
    let high = (low + 1).min(column.len() - 1);
    let part = (at - low as f64).clamp(0.0, 1.0);
    column[low] + (column[high] - column[low]) * part
}

impl Tables {
    fn new(models: usize, speeds: &Speeds) -> Tables {
        let kinds = speeds.kinds();
        let mut tables = Tables { kinds, ..Tables::default() };
        // As if nodes held as many as are asked for: what a shape costs beyond that is the scale-out's.
        let alone = |model: ModelId, kind: usize, gpus: u32, nodes: u32| {
            let config = Config::packed(GpuType(kind as u8), gpus * nodes, gpus.max(1));
            speeds.rate(model, &config).map(|rate| rate.0).filter(|rate| *rate > 0.0)
        };
        let part = |more: Option<f64>, one: Option<f64>, times: u32| {
            Some(libm::log((more? / one? / f64::from(times)).max(LEAST)))
        };
        for model in (0..models as u32).map(ModelId) {
            let one = alone(model, 0, 1, 1);
            tables.base.push(one);
            for step in 0..DOUBLINGS as u32 {
                let times = 1 << step;
                tables.scale_up.push(part(alone(model, 0, times, 1), one, times));
                tables.scale_out.push(part(alone(model, 0, 1, times), one, times));
            }
            for kind in 0..kinds {
                tables.types.push(part(alone(model, kind, 1, 1), one, 1));
            }
        }
        tables
    }

    fn classify(&self, model: ModelId) -> Option<ClassRow> {
        let base = self.base.get(model.index()).copied().flatten()?;
        Some(ClassRow {
            base,
            scale_up: completed(&self.scale_up, DOUBLINGS, model.index()),
            scale_out: completed(&self.scale_out, DOUBLINGS, model.index()),
            types: completed(&self.types, self.kinds, model.index()),
        })
    }
}

/// A row of a table of logarithms of which only the first entries were measured, completed from all other rows.
fn completed(table: &[Option<f64>], width: usize, row: usize) -> Vec<f64> {
    let mut shown = table.to_vec();
    let own = row * width..(row + 1) * width;
    let mut runs = 0;
    for entry in &mut shown[own.clone()] {
        runs += usize::from(entry.is_some());
        if runs > RUNS {
            *entry = None;
        }
    }
    let kept: Vec<Option<f64>> = shown[own.clone()].to_vec();
    let height = table.len() / width.max(1);
    let found = fit_logs(shown, (height, width), RANK);
    let completed = found[own].iter().zip(kept);
    completed.map(|(log, known)| libm::exp(known.unwrap_or(*log)).max(LEAST)).collect()
}

/// What each model keeps beside each other one on a type, where each in turn has only two measured pairs and the rest of
/// its row is completed; row by row. Nothing where no measured pair joins the two.
pub(crate) fn pairs(models: &[&ModelProfile], kind: &str, sharing: Sharing) -> Vec<Option<f64>> {
    let on_type = PairTable::of(models.iter().copied(), kind, sharing);
    let table = match on_type.known().is_empty() {
        true => PairTable::of(models.iter().copied(), ANY_KIND, sharing),
        false => on_type,
    };
    let n = models.len();
    let mut all: Vec<Option<f64>> = vec![None; n * n];
    for group in table.groups() {
        let known = table.only(&group);
        let size = group.len();
        for own in 0..size {
            let touching: Vec<(usize, usize)> =
                known.known().into_iter().filter(|two| two.0 == own || two.1 == own).collect();
            let shown = known.without(touching.get(RUNS..).unwrap_or(&[]));
            let cells = crate::complete::Way::LowRank(RANK).complete(&shown);
            for other in 0..size {
                all[group[own] * n + group[other]] = Some(cells[own * size + other]);
            }
        }
    }
    all
}

/// How far completed rows are off for the entries that were not measured, and how far the mean of the other rows is.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ClassErrors {
    /// Entries.
    pub entries: usize,
    /// Mean relative error of the completion.
    pub completed: f64,
    /// The same of the geometric mean of the other rows' entries.
    pub mean: f64,
}

/// The errors of scale-up, scale-out and heterogeneity over all models of some speeds, each left out in turn.
pub fn errors(models: usize, speeds: &Speeds) -> [ClassErrors; 3] {
    let tables = Tables::new(models, speeds);
    let of = |table: &[Option<f64>], width: usize| {
        let mut errors = ClassErrors::default();
        for row in 0..models {
            let own = &table[row * width..(row + 1) * width];
            if own.iter().flatten().count() <= RUNS {
                continue;
            }
            let found = completed(table, width, row);
            let unseen = (0..width).filter(|place| own[*place].is_some()).skip(RUNS);
            for place in unseen {
                let truth = libm::exp(own[place].expect("filtered above"));
                let others: Vec<f64> = (0..models)
                    .filter(|other| *other != row)
                    .filter_map(|other| table[other * width + place])
                    .collect();
                let mean = libm::exp(others.iter().sum::<f64>() / others.len().max(1) as f64);
                errors.entries += 1;
                errors.completed += (found[place] - truth).abs() / truth;
                errors.mean += (mean - truth).abs() / truth;
            }
        }
        let count = errors.entries.max(1) as f64;
        ClassErrors { completed: errors.completed / count, mean: errors.mean / count, ..errors }
    };
    [
        of(&tables.scale_up, DOUBLINGS),
        of(&tables.scale_out, DOUBLINGS),
        of(&tables.types, tables.kinds),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;
    use trainyard_types::Cluster;

    fn many() -> Cluster {
        let mut cluster = Cluster::uniform(8, 8, "v100");
        for name in ["p100", "k80"] {
            let kind = cluster.add_kind(name);
            cluster.add_node(kind, 8);
        }
        cluster
    }

    #[test]
    fn two_runs_tell_more_than_the_mean_of_the_others() {
        let catalog = Catalog::builtin();
        let speeds = Speeds::new(&catalog, &many());
        let [up, out, types] = errors(catalog.len(), &speeds);
        for (name, errors) in [("up", up), ("out", out), ("types", types)] {
            assert!(errors.entries > 20, "{name}: {errors:?}");
            assert!(errors.completed < errors.mean, "{name}: {errors:?}");
        }
    }

    #[test]
    fn what_was_measured_stays_and_a_row_of_a_table_of_rank_one_is_found() {
        // The gain falls with the size by a power that differs by model.
        let models = 12;
        let truth = |row: usize, column: usize| -0.02 * (row + 1) as f64 * column as f64;
        let table: Vec<Option<f64>> = (0..models * DOUBLINGS)
            .map(|place| Some(truth(place / DOUBLINGS, place % DOUBLINGS)))
            .collect();
        let found = completed(&table, DOUBLINGS, 11);
        assert_eq!((found[0], found[1]), (1.0, libm::exp(truth(11, 1))));
        assert!((found[4] - libm::exp(truth(11, 4))).abs() < 0.2, "{found:?}");
    }

    #[test]
    fn a_count_between_two_columns_is_between_their_figures() {
        let column = [1.0, 0.9, 0.7];
        assert_eq!(between(&column, 1), 1.0);
        assert!(between(&column, 3) < 0.9 && between(&column, 3) > 0.7);
        assert_eq!(between(&column, 64), 0.7);
    }

    #[test]
    fn pairs_of_a_model_are_completed_from_two() {
        let catalog = Catalog::builtin();
        let models: Vec<&ModelProfile> = catalog.iter().map(|(_, model)| model).collect();
        let pairs = pairs(&models, "h200", Sharing::TimeSliced);
        let find = |name: &str| catalog.find(name).unwrap().index();
        let (light, heavy) = (find("h200-resnet18-b128-tf32"), find("h200-vgg16-b64-bf16"));
        let kept = |own: usize, other: usize| pairs[own * models.len() + other].unwrap();
        assert!(kept(light, light) > kept(heavy, heavy));
        assert_eq!(pairs[find(crate::GENERIC) * models.len() + light], None);
    }
}
