//! A training that was not measured but made: its times follow the throughput model, its noise is stated by epoch.
//!
//! For scenarios and tests, in which every number should be one that their author wrote down.

use super::{BatchLimits, EpochRow, Epochs, MeasuredAt, StepTime, StepTimes, TimePoint, Training};
use crate::ModelProfile;
use crate::goodput::{Size, Throughput};
use crate::import::pollux::mean_rates;
use crate::model::SizeCost;
use std::sync::Arc;
use trainyard_diagnostic::InputError;
use trainyard_types::Span;

/// What a training is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// How long its iterations take, on every type of GPU.
    pub throughput: Throughput,
    /// The limits of its batch.
    pub limits: BatchLimits,
    /// The gradient noise scale in each epoch.
    pub noise: Vec<f64>,
    /// Iterations at the first batch in each epoch.
    pub epoch: f64,
}

/// GPUs of one node, and nodes, for which times are worked out; between them they are interpolated.
const GPUS_MOST: u16 = 16;
const NODES_MOST: u16 = 16;

impl Made {
    /// The model, on types of GPU that are all alike.
    pub fn model(&self, kinds: &[String]) -> Result<ModelProfile, InputError> {
        let fault = |field: &str, expected: &str| InputError::wrong(0, field, &self.name, expected);
        if !self.limits.can_be_met(1) {
            return Err(fault("batch", "limits that a batch on one GPU can meet"));
        }
        let points = kinds.iter().flat_map(|kind| self.points(kind)).collect();
        let rows = |scale: f64| EpochRow {
            progress: 0.0,
            iterations: 0.0,
            metric: 0.0,
            grad_sqr: 1.0,
            grad_var: scale / f64::from(self.limits.first),
        };
        let all: Vec<EpochRow> = (1..)
            .zip(&self.noise)
            .map(|(number, scale)| {
                let progress = self.epoch * f64::from(number);
                EpochRow { progress, iterations: progress, ..rows(*scale) }
            })
            .collect();
        let mut measured = vec![(self.limits.first, all.clone())];
        if self.limits.most > self.limits.first {
            measured.push((self.limits.most, all));
        }
        let epochs = Epochs::new(measured).ok_or_else(|| fault("epoch", super::EXPECTED))?;
        let times = StepTimes::new(points);
        let limits = vec![self.limits; times.kinds().len()];
        let training = Training { times, epochs, limits, slowdown: 1.0, gpus_most: None };
        let mut model = ModelProfile::named(&self.name, "made: times follow the throughput model");
        model.save = SizeCost::flat(Span::ZERO);
        model.start = SizeCost::flat(Span::secs(30));
        model.points = mean_rates(&training);
        model.training = Some(Arc::new(training));
        Ok(model)
    }

    fn points(&self, kind: &str) -> Vec<TimePoint> {
        let mut places: Vec<MeasuredAt> =
            (1..=GPUS_MOST).map(|gpus| MeasuredAt::Ring(vec![gpus])).collect();
        for nodes in 2..=NODES_MOST {
            let sizes =
                [1, 2, 3, 4, 8, 16].map(|each| MeasuredAt::Size { nodes, gpus: nodes * each });
            places.extend(sizes);
        }
        let doubled =
            |local: &u32| local.checked_mul(2).filter(|next| *next < self.limits.local_most);
        let mut locals: Vec<u32> =
            std::iter::successors(Some(self.limits.local_least.max(1)), doubled).collect();
        locals.push(self.limits.local_most);
        locals.dedup();
        let point = |place: &MeasuredAt, local: u32| {
            let (nodes, gpus) = place.size();
            let step = self.throughput.iteration(Size { nodes, gpus }, local);
            let sync = (step - self.throughput.gradient(local)).max(0.0);
            let time = StepTime { step, sync };
            TimePoint { kind: kind.to_owned(), place: place.clone(), local, time, recorded: false }
        };
        places
            .iter()
            .flat_map(|place| locals.iter().map(move |local| point(place, *local)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::Site;
    use trainyard_types::Work;

    #[test]
    fn a_made_training_tells_what_it_was_made_of() {
        let throughput = Throughput {
            alpha_c: 0.1,
            beta_c: 0.001,
            alpha_n: 0.4,
            beta_n: 0.01,
            alpha_r: 0.1,
            beta_r: 0.005,
            gamma: 2.0,
        };
        let limits = BatchLimits { first: 128, most: 4096, local_least: 32, local_most: 512 };
        let noise = vec![100.0, 900.0];
        let made = Made { name: "made".to_owned(), throughput, limits, noise, epoch: 50.0 };
        let model = made.model(&["v100".to_owned()]).unwrap();
        let training = model.training.unwrap();
        for (shape, batch) in [(vec![1], 128), (vec![4], 256), (vec![4, 4], 1024)] {
            let gpus: u32 = shape.iter().map(|part| u32::from(*part)).sum();
            let size = Size { nodes: shape.len() as u32, gpus };
            let site = Site { kind: 0, factor: 1.0, shape: &shape };
            let told = training.iteration_at(site, Some(batch), Work(60.0)).unwrap();
            let expected = throughput.iteration(size, batch / gpus);
            assert!((told.seconds / expected - 1.0).abs() < 0.01, "{told:?} {expected}");
            assert!((told.noise.unwrap() - 900.0).abs() < 1e-6 && told.epoch == 1);
        }
        let wrong = Made { limits: BatchLimits { most: 64, ..limits }, ..made };
        assert!(wrong.model(&["v100".to_owned()]).is_err());
    }
}
