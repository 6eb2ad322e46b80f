//! Measured pairs with what is known of both jobs: our own on an H200, and those of any profiles.

use super::{Alone, Machine, Met};
use crate::features::{Feature, Features};
use crate::model::ANY_KIND;
use crate::zoo::{self, Row};
use crate::{ModelProfile, Sharing};
use std::collections::BTreeMap;

/// What an H200 may draw, in watts.
const POWER_MAX: f64 = 700.0;
/// Its speed is the host's, not the GPU's.
const ON_THE_HOST: &str = "a3c_cpu";

/// All measured pairs of one way of sharing, seen from both sides. A job that computes on the host is left out.
pub fn measured(sharing: Sharing) -> Vec<Met> {
    let rows = zoo::h200_pair_rows(sharing);
    let solo = zoo::h200_pair_rows(Sharing::TimeSliced);
    let alone = |row: &Row, side: u8| -> Option<Alone> {
        let entry = zoo::side(row, side);
        let found = solo
            .iter()
            .find(|row| zoo::text(row, "mode").ends_with("-solo") && zoo::side(row, 1) == entry)?;
        let features = measured_alone(entry, found, zoo::number(found, "mib1"));
        Some(Alone { architecture: entry.0.to_owned(), features })
    };
    let on = Machine::of("h200");
    let mut met = Vec::new();
    for row in rows.iter().filter(|row| !zoo::text(row, "norm1").is_empty()) {
        let (Some(one), Some(two)) = (alone(row, 1), alone(row, 2)) else { continue };
        if one.architecture == ON_THE_HOST || two.architecture == ON_THE_HOST {
            continue;
        }
        let (first, second) = (zoo::number(row, "norm1"), zoo::number(row, "norm2"));
        met.push(Met { own: one.clone(), others: vec![two.clone()], on, kept: first });
        met.push(Met { own: two, others: vec![one], on, kept: second });
    }
    met
}

/// What was measured of each model, batch and precision that had an H200 for itself, the host's own aside.
pub fn alone_rows() -> Vec<Alone> {
    let rows = zoo::h200_solo_rows();
    let first = rows.iter().filter(|row| zoo::text(row, "rep") == "1");
    let gpu = first.filter(|row| zoo::text(row, "model") != ON_THE_HOST);
    gpu.map(|row| {
        let entry = (zoo::text(row, "model"), zoo::text(row, "batch"), zoo::text(row, "precision"));
        let features = measured_alone(entry, row, zoo::number(row, "peak_mib"));
        Alone { architecture: entry.0.to_owned(), features }
    })
    .collect()
}

/// The features of a model, batch and precision, from a row that has its utilisation and power.
pub(crate) fn measured_alone(entry: (&str, &str, &str), row: &Row, memory_mib: f64) -> Features {
    let (architecture, batch, precision) = entry;
    let mut features = Features::default()
        .with(Feature::Utilisation, zoo::number(row, "gpu_util") / 100.0)
        .with(Feature::MemoryUtilisation, zoo::number(row, "mem_util") / 100.0)
        .with(Feature::Power, zoo::number(row, "power_w") / POWER_MAX)
        .with(Feature::MemoryMib, memory_mib)
        .with(Feature::HalfPrecision, if precision == "bf16" { 1.0 } else { 0.0 });
    if let Ok(batch) = batch.parse() {
        features.set(Feature::Batch, batch);
    }
    if let Some(parameters) = zoo::parameters(architecture) {
        features.set(Feature::Parameters, parameters);
    }
    for (feature, part) in zoo::operator_mix(architecture) {
        features.set(feature, part);
    }
    features
}

/// All measured pairs of some profiles, on every type on which there are any. Estimates are left out, and so are pairs
/// that do not fit together: a speed of nothing is no slowdown to learn from.
pub fn of_models<'a>(
    models: impl IntoIterator<Item = &'a ModelProfile>,
    sharing: Sharing,
) -> Vec<Met> {
    let models: Vec<&ModelProfile> = models.into_iter().collect();
    let places: BTreeMap<&str, &ModelProfile> =
        models.iter().map(|model| (model.name.as_str(), *model)).collect();
    let mut met = Vec::new();
    for model in &models {
        for pair in model.pairs.iter().filter(|pair| !pair.estimated) {
            let kept = match sharing {
                Sharing::TimeSliced => pair.time_sliced,
                Sharing::Mps => pair.mps,
            };
            let Some(partner) = places.get(pair.partner.as_str()).filter(|_| kept > 0.0) else {
                continue;
            };
            // A pair that holds on any type was measured on the only one that its model was.
            let kind = match pair.kind.as_str() {
                ANY_KIND => model.points.first().map_or("", |point| point.kind.as_str()),
                kind => kind,
            };
            met.push(Met {
                own: alone(model, kind),
                others: vec![alone(partner, kind)],
                on: Machine::of(kind),
                kept,
            });
        }
    }
    met
}

/// What a profile says of its model alone on a type: its features, its memory, its batch where the name tells it, and
/// its speeds.
pub(crate) fn alone(model: &ModelProfile, kind: &str) -> Alone {
    let mut features = model.features;
    let mut add = |feature: Feature, value: Option<f64>| {
        if let (None, Some(value)) = (features.get(feature), value) {
            features.set(feature, value);
        }
    };
    add(Feature::MemoryMib, (model.memory_mib > 0).then_some(f64::from(model.memory_mib)));
    add(Feature::Batch, batch_of(&model.name));
    let on_one = |point: &&crate::Point| point.gpus == 1;
    let rates = || model.points.iter().filter(on_one).map(|point| point.rate);
    let here = model.points.iter().filter(on_one).find(|point| point.kind == kind);
    add(Feature::StepsPerSecond, here.map(|point| point.rate));
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    add(Feature::SpeedUp, (least > 0.0 && most > 0.0).then_some(most / least));
    Alone { architecture: architecture_of(&model.name).to_owned(), features }
}

/// `gavel-resnet18-b64` is of batch 64.
fn batch_of(name: &str) -> Option<f64> {
    name.split('-').find_map(|part| part.strip_prefix('b')?.parse().ok())
}

/// `h200-vit-b-16-b32-bf16` is of the network `h200-vit-b-16`: what stands before the batch.
fn architecture_of(name: &str) -> &str {
    let is_batch = |part: &str| {
        part.strip_prefix("-b").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let ends = name.match_indices("-b").map(|(at, _)| at).find(|at| is_batch(&name[*at..]));
    ends.map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    #[test]
    fn names_tell_batch_and_network() {
        assert_eq!(batch_of("gavel-resnet18-b64"), Some(64.0));
        assert_eq!(architecture_of("gavel-resnet18-b64"), "gavel-resnet18");
        assert_eq!(architecture_of("h200-vit-b-16-b32-bf16"), "h200-vit-b-16");
        assert_eq!((batch_of("our-bert"), architecture_of("our-bert")), (None, "our-bert"));
    }

    #[test]
    fn the_zoo_has_the_pairs_of_the_tables_with_the_same_features() {
        let catalog = Catalog::builtin();
        let by_profile = of_models(catalog.iter().map(|(_, model)| model), Sharing::TimeSliced);
        let by_table = measured(Sharing::TimeSliced);
        // Of a pair with itself the profile has the mean of both sides, and it has the job on the host too.
        assert!(by_profile.len() > 100, "{}", by_profile.len());
        let one = by_profile.iter().find(|met| met.own.architecture == "h200-resnet50").unwrap();
        assert!(one.own.features.tell(&[Feature::Utilisation, Feature::Power, Feature::Matrix]));
        assert!(by_table.iter().all(|met| met.own.features.tell(&[Feature::MemoryMib])));
        assert!(alone_rows().len() > 60);
    }
}
