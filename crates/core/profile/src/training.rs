//! A measured training: how long an iteration takes where, and how much each iteration is worth.
//!
//! Progress is counted in iterations at the first batch size. An iteration at a larger batch is worth more than
//! one of them, by the gain that follows from the measured gradient noise (Pollux, OSDI 2021, section 3.1), and that
//! gain changes from epoch to epoch. So a job's rate is `gain / time of an iteration`, constant within an epoch.
//!
//! - [`StepTimes`]: the time of an iteration by placement and local batch, interpolated.
//! - [`Epochs`]: where epochs end, and the gradient noise, the metric and the iterations in each.
//! - [`Training`]: both, with the limits of the batch, and the [`Pace`] that follows.
//!
//! Deliberately absent: the choice of a batch size by a policy, and models fitted to a few observations.

mod epochs;
mod made;
mod text;
mod times;

pub use epochs::{EXPECTED, EpochRow, Epochs};
pub use made::Made;
pub(crate) use text::{BATCH_MAX, columns, epoch_row, step_time, whole};
pub use times::{MeasuredAt, StepTime, StepTimes, TimePoint};

pub use trainyard_types::{BatchLimits, BatchSplit};
use trainyard_types::{Rate, Work};

/// A measured training.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Times of an iteration.
    pub times: StepTimes,
    /// What each epoch is worth.
    pub epochs: Epochs,
    /// The limits of the batch on each type of [`StepTimes::kinds`].
    pub limits: Vec<BatchLimits>,
    /// Every rate is divided by this: what a testbed takes longer than the sum of its iterations.
    pub slowdown: f64,
    /// The most GPUs that the source of the measurements lets it train on; any number if there is nothing.
    pub gpus_most: Option<u32>,
}

/// A rate, and the work done at which it changes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Pace {
    /// Steps per second.
    pub rate: Rate,
    /// It holds until so much is done; to the end if there is nothing.
    pub until: Option<Work>,
}

/// What a training tells about its iterations.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Iteration {
    /// How its batch is cut.
    pub split: BatchSplit,
    /// The time of one, accumulated passes included.
    pub seconds: f64,
    /// Seconds of it that are spent exchanging gradients.
    pub sync: f64,
    /// The gradient noise scale; nothing where no signal was measured.
    pub noise: Option<f64>,
    /// Epochs finished.
    pub epoch: u32,
}

/// Where a job trains: the type, the time factor for a type that only stands in for it, and GPUs by node.
#[derive(Copy, Clone, Debug)]
pub struct Site<'a> {
    /// The measured type, by its number in [`StepTimes::kinds`].
    pub kind: usize,
    /// Times are multiplied by this.
    pub factor: f64,
    /// GPUs on each node.
    pub shape: &'a [u16],
}

impl Training {
    /// The work of the whole training, in iterations at the first batch size.
    pub fn work(&self) -> Work {
        Work(self.epochs.end())
    }

    /// The time of one iteration in seconds, accumulated passes included; `None` without a GPU.
    pub fn iteration(&self, site: Site<'_>, split: BatchSplit) -> Option<f64> {
        let StepTime { step, sync } = self.times.at(site.kind, site.shape, split.local)?;
        let seconds = step + (step - sync) * f64::from(split.accumulated);
        (seconds > 0.0).then_some(seconds * site.factor * self.slowdown)
    }

    /// What it tells about its iterations with so much work done; without a batch, at the one that is best overall.
    pub fn iteration_at(
        &self,
        site: Site<'_>,
        batch: Option<u32>,
        done: Work,
    ) -> Option<Iteration> {
        let batch = match batch {
            Some(batch) => batch,
            None => self.best_batch(site)?.0,
        };
        let limits = self.limits.get(site.kind)?;
        let split = limits.split(batch, gpus_of(site.shape));
        let epoch = self.epochs.at(done.0);
        let (sqr, var) = self.epochs.noise(split.batch, epoch);
        let noise = (sqr > 0.0).then(|| f64::from(limits.first) * var / sqr);
        let sync = self.times.at(site.kind, site.shape, split.local)?.sync;
        Some(Iteration {
            split,
            seconds: self.iteration(site, split)?,
            sync: sync * site.factor * self.slowdown,
            noise,
            epoch: epoch as u32,
        })
    }

    /// The rate with so much work done, and where it changes; without a batch, at the one that is best overall.
    pub fn pace(&self, site: Site<'_>, batch: Option<u32>, done: Work) -> Option<Pace> {
        let gpus = gpus_of(site.shape);
        let batch = match batch {
            Some(batch) => batch,
            None => self.best_batch(site)?.0,
        };
        let limits = self.limits.get(site.kind)?;
        let split = limits.split(batch, gpus);
        let epoch = self.epochs.at(done.0);
        let gain = self.epochs.gain(split.batch, limits.first, epoch);
        let seconds = self.iteration(site, split)?;
        let until = (epoch + 1 < self.epochs.len()).then(|| Work(self.epochs.end_of(epoch)));
        Some(Pace { rate: Rate(gain / seconds), until })
    }

    /// The mean rate over the whole training; without a batch, at the one that is best.
    pub fn mean_rate(&self, site: Site<'_>, batch: Option<u32>) -> Option<Rate> {
        match batch {
            Some(batch) => self.rate_at(site, batch),
            None => self.best_batch(site).map(|(_, rate)| rate),
        }
    }

    /// The measured batch size with the highest mean rate, the smaller one of equals, and that rate.
    pub fn best_batch(&self, site: Site<'_>) -> Option<(u32, Rate)> {
        let limits = self.limits.get(site.kind)?;
        let mut best: Option<(u32, Rate)> = None;
        for &batch in self.epochs.batches() {
            let fits = batch <= limits.most
                && batch.div_ceil(gpus_of(site.shape).max(1)) >= limits.local_least;
            let Some(rate) = self.rate_at(site, batch) else { continue };
            if best.is_none() || (fits && best.is_some_and(|(_, other)| rate.0 > other.0)) {
                best = Some((batch, rate));
            }
        }
        best
    }

    fn rate_at(&self, site: Site<'_>, batch: u32) -> Option<Rate> {
        let limits = self.limits.get(site.kind)?;
        let split = limits.split(batch, gpus_of(site.shape));
        let iterations = self.epochs.iterations_in_all(split.batch, limits.first);
        Some(Rate(self.epochs.end() / (iterations * self.iteration(site, split)?)))
    }
}

fn gpus_of(shape: &[u16]) -> u32 {
    shape.iter().map(|gpus| u32::from(*gpus)).sum()
}
