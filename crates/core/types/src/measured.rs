//! What was measured of a job while it ran.
//!
//! A policy that fits a model to a job fits it to this: nothing else tells how fast *this* job is.
//! It is written by the engine from what the job reports, and outlives restarts of the job.

use crate::{Config, GpuType, Sample, Work};
use serde::{Deserialize, Serialize};

/// Places kept for each job; beyond that the one seen first is forgotten.
const STEPS_MAX: usize = 256;
/// Losses kept for each job; beyond that every other one is forgotten.
const LOSSES_MAX: usize = 256;

/// The time of one pass in one sort of place, with so many samples on each GPU.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSeen {
    /// The type of GPU.
    pub kind: GpuType,
    /// How many.
    pub gpus: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// Samples on one GPU at once.
    pub local: u32,
    /// Seconds of a pass that exchanges gradients; the mean over all reports.
    pub step: f64,
    /// Seconds of it that are spent exchanging them.
    pub sync: f64,
    /// So many reports.
    pub reports: u32,
}

/// Epochs that a job says it has finished.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochsSeen {
    /// How many.
    pub finished: u32,
    /// The work that was done when it first said so.
    pub done: Work,
}

/// What was measured of a job while it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Times of a pass, in the order in which the places were first seen.
    pub steps: Vec<StepSeen>,
    /// The gradient noise scale as last reported: the batch at which noise and signal are alike.
    pub noise: Option<f64>,
    /// Epochs finished and the loss then, in the order in which they were reported.
    pub losses: Vec<(u32, f64)>,
    /// The epochs it has finished, as last reported.
    #[serde(default)]
    pub epochs: Option<EpochsSeen>,
    /// GPUs it last said it would like.
    pub wants_gpus: Option<u32>,
    /// How many places were ever seen for the first time: a fit to [`Measured::steps`] is good while this stays.
    pub places: u32,
}

impl Measured {
    /// Whether a report says anything of this.
    pub fn concerns(sample: &Sample) -> bool {
        sample.step.is_some()
            || sample.noise.is_some()
            || sample.loss.is_some()
            || sample.epoch.is_some()
            || sample.wants_gpus.is_some()
    }

    /// Takes note of how many epochs a job has finished with so much done.
    pub fn note_epochs(&mut self, finished: u32, done: Work) {
        if self.epochs.is_none_or(|seen| seen.finished != finished) {
            self.epochs = Some(EpochsSeen { finished, done });
        }
    }

    /// Takes note of a report of a job that runs on `on`.
    ///
    /// The time of an iteration is taken apart into its passes: those that are accumulated exchange nothing.
    /// A report without GPUs of one type, without a batch or with impossible times tells nothing about speed.
    pub fn note(&mut self, on: Option<&Config>, sample: &Sample) {
        self.noise = sample.noise.filter(|noise| noise.is_finite()).or(self.noise);
        self.wants_gpus = sample.wants_gpus.or(self.wants_gpus);
        if let (Some(epoch), Some(loss)) = (sample.epoch, sample.loss)
            && loss.is_finite()
        {
            self.losses.push((epoch, loss));
            if self.losses.len() > LOSSES_MAX {
                // The first and the newest are both kept: their number is odd here.
                let mut index = 0;
                self.losses.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
            }
        }
        if let Some(seen) = on.and_then(|on| step_seen(on, sample)) {
            self.add(seen);
        }
    }

    fn add(&mut self, seen: StepSeen) {
        let place = |step: &StepSeen| (step.kind, step.gpus, step.nodes, step.local);
        if let Some(known) = self.steps.iter_mut().find(|known| place(known) == place(&seen)) {
            let reports = known.reports.saturating_add(1);
            let part = 1.0 / f64::from(reports);
            known.step += (seen.step - known.step) * part;
            known.sync += (seen.sync - known.sync) * part;
            known.reports = reports;
            return;
        }
        self.places = self.places.saturating_add(1);
        if self.steps.len() == STEPS_MAX {
            self.steps.remove(0);
        }
        self.steps.push(seen);
    }

    /// The most GPUs of a type on which a pass was timed; 0 if none was.
    pub fn gpus_most(&self, kind: GpuType) -> u32 {
        self.steps.iter().filter(|step| step.kind == kind).map(|step| step.gpus).max().unwrap_or(0)
    }
}

fn step_seen(on: &Config, sample: &Sample) -> Option<StepSeen> {
    let [(kind, gpus)] = on.kinds[..] else { return None };
    let iteration = sample.step?.as_secs_f64();
    let sync = sample.sync.map_or(0.0, |sync| sync.as_secs_f64());
    let passes = sample.accumulation.unwrap_or(0).saturating_add(1);
    let local = sample.batch?.div_ceil(gpus.max(1).saturating_mul(passes));
    if gpus == 0 || local == 0 || iteration <= 0.0 || sync >= iteration {
        return None;
    }
    let pass = (iteration - sync) / f64::from(passes);
    Some(StepSeen { kind, gpus, nodes: on.nodes, local, step: pass + sync, sync, reports: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    fn sample(step: f64, sync: f64, batch: u32, accumulation: u32) -> Sample {
        Sample {
            step: Some(Span::from_secs_f64(step)),
            sync: Some(Span::from_secs_f64(sync)),
            batch: Some(batch),
            accumulation: Some(accumulation),
            ..Sample::default()
        }
    }

    #[test]
    fn an_iteration_is_taken_apart_into_passes() {
        let mut measured = Measured::default();
        let on = Config::packed(GpuType(0), 2, 4);
        // Three passes of 0.2 s, the last of which exchanges for 0.1 s.
        measured.note(Some(&on), &sample(0.7, 0.1, 96, 2));
        let seen = measured.steps[0];
        assert_eq!((seen.gpus, seen.nodes, seen.local), (2, 1, 16));
        assert!((seen.step - 0.3).abs() < 1e-9 && (seen.sync - 0.1).abs() < 1e-9);
    }

    #[test]
    fn reports_of_one_place_are_averaged_and_counted_once() {
        let mut measured = Measured::default();
        let on = Config::packed(GpuType(0), 1, 4);
        measured.note(Some(&on), &sample(0.2, 0.0, 32, 0));
        measured.note(Some(&on), &sample(0.4, 0.0, 32, 0));
        assert_eq!((measured.steps.len(), measured.places), (1, 1));
        assert!((measured.steps[0].step - 0.3).abs() < 1e-9);
        assert_eq!(measured.gpus_most(GpuType(0)), 1);
        assert_eq!(measured.gpus_most(GpuType(1)), 0);
    }

    #[test]
    fn impossible_times_tell_nothing() {
        let mut measured = Measured::default();
        let on = Config::packed(GpuType(0), 1, 4);
        measured.note(Some(&on), &sample(0.0, 0.0, 32, 0));
        measured.note(Some(&on), &sample(0.1, 0.2, 32, 0));
        measured.note(None, &sample(0.1, 0.0, 32, 0));
        measured.note(Some(&on), &Sample { noise: Some(f64::NAN), ..Sample::default() });
        assert_eq!(measured, Measured::default());
    }

    #[test]
    fn a_long_list_of_losses_is_thinned() {
        let mut measured = Measured::default();
        for epoch in 0..1000 {
            let sample = Sample { epoch: Some(epoch), loss: Some(1.0), ..Sample::default() };
            measured.note(None, &sample);
        }
        assert!(measured.losses.len() <= LOSSES_MAX + 1);
        assert!(measured.losses.is_sorted_by_key(|loss| loss.0));
        assert_eq!(measured.losses.last().map(|loss| loss.0), Some(999));
    }
}
