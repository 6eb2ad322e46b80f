//! How long an inference takes: by batch alone, and beside others on the same GPU.

use std::collections::BTreeMap;
use trainyard_types::Span;

/// One measured batch.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Measured {
    /// Samples in the batch.
    pub batch: u32,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
}

/// A model as a server knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Latency by batch, ascending.
    measured: Vec<Measured>,
    /// What it holds on a GPU.
    pub memory_mib: u64,
    /// Pieces that can run one after the other, all of one cost.
    pub segments: u32,
    /// For every batch up to the largest measured one, so that a lookup is one read.
    dense: Vec<(f64, f64)>,
}

/// Batches above this are not looked up densely; no measured model has them.
const BATCH_MAX: u32 = 4096;
/// The 99th percentile of the normal distribution.
const Z99: f64 = 2.326_347_874;

impl Model {
    /// A model with these points; sorted by batch, of which one at least is needed, from 1 to 4096.
    pub fn new(
        name: &str,
        mut measured: Vec<Measured>,
        memory_mib: u64,
        segments: u32,
    ) -> Option<Model> {
        measured.sort_by_key(|one| one.batch);
        measured.dedup_by_key(|one| one.batch);
        let is_sound = |one: &Measured| {
            one.p50_us > 0.0 && one.p99_us.is_finite() && (1..=BATCH_MAX).contains(&one.batch)
        };
        if measured.is_empty() || !measured.iter().all(is_sound) {
            return None;
        }
        let largest = measured[measured.len() - 1].batch;
        let dense = (1..=largest).map(|batch| between(&measured, batch)).collect();
        let segments = segments.max(1);
        Some(Model { name: name.to_owned(), measured, memory_mib, segments, dense })
    }

    /// The largest batch that was measured; a larger one is never formed.
    pub fn batch_max(&self) -> u32 {
        self.dense.len() as u32
    }

    /// The batches that were measured, ascending.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.measured.iter().map(|one| one.batch)
    }

    /// Median microseconds of a batch, between measured ones on the line that joins them.
    pub fn micros(&self, batch: u32) -> f64 {
        self.dense[self.place(batch)].0
    }

    /// The median as a length of time.
    pub fn span(&self, batch: u32) -> Span {
        Span((self.micros(batch) + 0.5) as u64)
    }

    /// The 99th percentile as a length of time.
    pub fn span_p99(&self, batch: u32) -> Span {
        let (p50, sigma) = self.dense[self.place(batch)];
        Span((p50 * libm::exp(sigma * Z99) + 0.5) as u64)
    }

    /// The spread of the logarithm of a latency that has the measured median and 99th percentile.
    pub fn sigma(&self, batch: u32) -> f64 {
        self.dense[self.place(batch)].1
    }

    /// Samples in a second with batches of this size.
    pub fn throughput(&self, batch: u32) -> f64 {
        f64::from(batch) * 1e6 / self.micros(batch)
    }

    /// The largest batch that takes no longer than this, if a single request does.
    pub fn batch_within(&self, span: Span) -> Option<u32> {
        // Measured latencies need not grow with the batch, so all are looked at from above: O(largest batch).
        (1..=self.batch_max()).rev().find(|batch| self.span(*batch) <= span)
    }

    fn place(&self, batch: u32) -> usize {
        (batch.max(1) as usize - 1).min(self.dense.len() - 1)
    }
}

/// Median and spread of the logarithm at a batch that may lie between measured ones.
fn between(measured: &[Measured], batch: u32) -> (f64, f64) {
    let above = measured.partition_point(|one| one.batch < batch).min(measured.len() - 1);
    let (low, high) = (&measured[above.saturating_sub(1)], &measured[above]);
    let part = match high.batch - low.batch {
        0 => 0.0,
        width => (f64::from(batch) - f64::from(low.batch)).max(0.0) / f64::from(width),
    };
    let at = |low: f64, high: f64| low + (high - low) * part;
    let (p50, p99) = (at(low.p50_us, high.p50_us), at(low.p99_us, high.p99_us));
    (p50, (libm::log(p99 / p50) / Z99).max(0.0))
}

/// The number of a model and a batch of it.
pub type ModelBatch = (u32, u32);

/// What two inferences on one GPU do to each other: how many times as long each takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowdowns {
    /// By the number of a model, its batch, and the same of the one beside it.
    factors: BTreeMap<(u32, u32, u32, u32), f64>,
    /// The mean over batches of a pair of models.
    means: BTreeMap<(u32, u32), f64>,
    /// For models that were never measured beside each other.
    otherwise: f64,
}

impl Slowdowns {
    /// From factors of (model, batch) beside (model, batch), and what any other pair has.
    pub fn new(measured: &[(ModelBatch, ModelBatch, f64)], otherwise: f64) -> Slowdowns {
        let mut sums: BTreeMap<(u32, u32), (f64, f64)> = BTreeMap::new();
        let mut factors = BTreeMap::new();
        for ((model, batch), (other, other_batch), factor) in measured {
            // Beside another nothing is faster: what seems so is noise.
            let factor = factor.max(1.0);
            factors.insert((*model, *batch, *other, *other_batch), factor);
            let sum = sums.entry((*model, *other)).or_default();
            *sum = (sum.0 + factor, sum.1 + 1.0);
        }
        let means = sums.into_iter().map(|(pair, (sum, count))| (pair, sum / count)).collect();
        Slowdowns { factors, means, otherwise: otherwise.max(1.0) }
    }

    /// Every pair takes this many times as long.
    pub fn all(factor: f64) -> Slowdowns {
        Slowdowns::new(&[], factor)
    }

    /// How many times as long the first takes beside the second.
    pub fn pair(&self, one: (u32, u32), other: (u32, u32)) -> f64 {
        let exact = self.factors.get(&(one.0, one.1, other.0, other.1));
        let mean = || self.means.get(&(one.0, other.0)).copied();
        exact.copied().or_else(mean).unwrap_or(self.otherwise)
    }

    /// How many times as long one takes beside all of these: what each pair adds is summed, which is our assumption.
    pub fn beside(&self, one: (u32, u32), others: impl Iterator<Item = (u32, u32)>) -> f64 {
        1.0 + others.map(|other| self.pair(one, other) - 1.0).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let point = |batch, p50_us| Measured { batch, p50_us, p99_us: p50_us * 1.1 };
        Model::new("m", vec![point(4, 1600.0), point(1, 1000.0)], 10, 4).unwrap()
    }

    #[test]
    fn between_measured_batches_latency_is_a_line() {
        let model = model();
        assert_eq!(
            [1, 2, 3, 4, 9].map(|batch| model.span(batch).0),
            [1000, 1200, 1400, 1600, 1600]
        );
        assert_eq!(model.batch_max(), 4);
        assert_eq!(model.span_p99(4), Span(1760));
        assert_eq!(model.batch_within(Span(1250)), Some(2));
        assert_eq!(model.batch_within(Span(900)), None);
    }

    #[test]
    fn points_that_are_no_latency_make_no_model() {
        assert_eq!(Model::new("m", Vec::new(), 1, 1), None);
        let wrong = Measured { batch: 0, p50_us: 1.0, p99_us: 1.0 };
        assert_eq!(Model::new("m", vec![wrong], 1, 1), None);
    }

    #[test]
    fn a_pair_that_was_not_measured_takes_the_mean_of_its_models_and_then_the_mean_of_all() {
        let slow = Slowdowns::new(&[((0, 4), (1, 4), 1.5), ((0, 8), (1, 4), 0.9)], 2.0);
        assert_eq!(slow.pair((0, 4), (1, 4)), 1.5);
        assert_eq!(slow.pair((0, 1), (1, 4)), 1.25);
        assert_eq!(slow.pair((1, 1), (0, 4)), 2.0);
        assert_eq!(slow.beside((0, 4), [(1, 4), (2, 1)].into_iter()), 2.5);
    }
}
