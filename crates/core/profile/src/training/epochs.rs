//! What each epoch of a training is worth, by batch size.

/// One epoch of a training at one batch size.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct EpochRow {
    /// Progress at its end, in iterations at the first batch size.
    pub progress: f64,
    /// Iterations at this batch size up to its end.
    pub iterations: f64,
    /// The validation metric at its end.
    pub metric: f64,
    /// The squared norm of the gradient.
    pub grad_sqr: f64,
    /// The variance of the gradient at the first batch size.
    pub grad_var: f64,
}

/// All epochs of a training at several batch sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Epochs {
    batches: Vec<u32>,
    rows: Vec<Vec<EpochRow>>,
    /// Progress at the end of each epoch: the least over all batch sizes.
    ends: Vec<f64>,
}

/// What the epochs of a training must be.
pub const EXPECTED: &str = "at least one epoch of each batch size, with progress that grows";

impl Epochs {
    /// Of the measured batch sizes; as many epochs as the shortest of them has.
    ///
    /// `None` where a batch size has no epoch, occurs twice, or does not make progress.
    pub fn new(mut measured: Vec<(u32, Vec<EpochRow>)>) -> Option<Epochs> {
        measured.sort_by_key(|(batch, _)| *batch);
        let distinct = measured.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let grows = |rows: &[EpochRow]| {
            let progress = rows.iter().map(|row| row.progress);
            rows.first().is_some_and(|row| row.progress > 0.0)
                && progress.is_sorted_by(|a, b| a < b)
        };
        if !distinct || !measured.iter().all(|(batch, rows)| *batch > 0 && grows(rows)) {
            return None;
        }
        let count = measured.iter().map(|(_, rows)| rows.len()).min()?;
        let end = |epoch: usize| {
            let progress = measured.iter().map(|(_, rows)| rows[epoch].progress);
            progress.fold(f64::INFINITY, f64::min)
        };
        let ends = (0..count).map(end).collect();
        let (batches, rows) = measured.into_iter().unzip();
        Some(Epochs { batches, rows, ends })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The measured batch sizes, ascending.
    pub fn batches(&self) -> &[u32] {
        &self.batches
    }

    /// The epochs of each measured batch size.
    pub fn measured(&self) -> impl Iterator<Item = (u32, &[EpochRow])> {
        self.batches.iter().copied().zip(self.rows.iter().map(Vec::as_slice))
    }

    /// The epoch in which so much is done; the last one beyond its end.
    pub fn at(&self, done: f64) -> usize {
        self.ends.partition_point(|end| *end <= done).min(self.ends.len() - 1)
    }

    /// Progress at the end of an epoch.
    pub fn end_of(&self, epoch: usize) -> f64 {
        self.ends[epoch]
    }

    /// Progress at the end of the last epoch.
    pub fn end(&self) -> f64 {
        self.ends[self.ends.len() - 1]
    }

    /// Squared norm and variance of the gradient; linear between measured batch sizes, flat beyond them.
    pub fn noise(&self, batch: u32, epoch: usize) -> (f64, f64) {
        let sqr = self.between(batch, |rows| rows[epoch].grad_sqr);
        let var = self.between(batch, |rows| rows[epoch].grad_var);
        (sqr, var)
    }

    /// What one iteration at a batch is worth, in iterations at the first batch size `first`.
    pub fn gain(&self, batch: u32, first: u32, epoch: usize) -> f64 {
        let scale = f64::from(batch) / f64::from(first);
        let (sqr, var) = self.noise(batch, epoch);
        let below = var / scale + sqr;
        // Noise that was measured as nothing says nothing about efficiency.
        if below > 0.0 { (var + sqr) / below } else { 1.0 }
    }

    /// Iterations of a whole training at a batch, by its gain in each epoch.
    pub fn iterations_in_all(&self, batch: u32, first: u32) -> f64 {
        let mut begin = 0.0;
        let mut iterations = 0.0;
        for (epoch, end) in self.ends.iter().enumerate() {
            iterations += (end - begin) / self.gain(batch, first, epoch);
            begin = *end;
        }
        iterations
    }

    /// Iterations at a batch up to the end of an epoch, as measured.
    pub fn iterations(&self, batch: u32, epoch: usize) -> f64 {
        self.between(batch, |rows| rows[epoch].iterations)
    }

    /// Iterations at a batch that are measured after the end of the epoch in which so much is done; 1 in the last.
    pub fn iterations_ahead(&self, batch: u32, done: f64) -> f64 {
        let (epoch, last) = (self.at(done), self.len() - 1);
        if epoch >= last {
            return 1.0;
        }
        self.iterations(batch, last) - self.iterations(batch, epoch)
    }

    /// The best validation metric up to the end of an epoch; whether less is better shows in the smallest batch.
    pub fn best_metric(&self, batch: u32, epoch: usize) -> f64 {
        let first = &self.rows[0];
        let rises = first[0].metric < first[first.len() - 1].metric;
        let best = |a: f64, b: f64| if rises { a.max(b) } else { a.min(b) };
        self.between(batch, |rows| {
            rows[..=epoch].iter().map(|row| row.metric).fold(rows[0].metric, best)
        })
    }

    fn between(&self, batch: u32, value: impl Fn(&[EpochRow]) -> f64) -> f64 {
        let above = self.batches.partition_point(|known| *known < batch);
        let above = above.min(self.batches.len() - 1);
        if above == 0 || self.batches[above] <= batch {
            return value(&self.rows[above]);
        }
        let lower = f64::from(self.batches[above - 1]);
        let (upper, batch) = (f64::from(self.batches[above]), f64::from(batch));
        let (low, high) = (value(&self.rows[above - 1]), value(&self.rows[above]));
        ((batch - lower) * high + (upper - batch) * low) / (upper - lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(progress: f64, grad_sqr: f64, grad_var: f64) -> EpochRow {
        EpochRow { progress, iterations: progress / 2.0, metric: progress, grad_sqr, grad_var }
    }

    fn two() -> Epochs {
        let small = vec![row(100.0, 1.0, 1.0), row(200.0, 1.0, 3.0), row(300.0, 1.0, 3.0)];
        let large = vec![row(99.0, 1.0, 1.0), row(201.0, 1.0, 7.0)];
        Epochs::new(vec![(64, large), (32, small)]).unwrap()
    }

    #[test]
    fn an_epoch_ends_where_the_first_batch_size_reaches_it() {
        let epochs = two();
        assert_eq!((epochs.len(), epochs.end_of(0), epochs.end()), (2, 99.0, 200.0));
        assert_eq!([0.0, 98.9, 99.0, 500.0].map(|done| epochs.at(done)), [0, 0, 1, 1]);
    }

    #[test]
    fn noise_is_linear_between_batches_and_flat_beyond() {
        let epochs = two();
        assert_eq!([16, 32, 48, 64, 99].map(|b| epochs.noise(b, 1).1), [3.0, 3.0, 5.0, 7.0, 7.0]);
        assert_eq!(epochs.gain(32, 32, 0), 1.0);
        assert_eq!(epochs.gain(64, 32, 0), 2.0 / 1.5);
        // 99 at gain 4/3, then 101 at gain 8/4.5.
        let expected = 99.0 * 1.5 / 2.0 + 101.0 * 4.5 / 8.0;
        assert!((epochs.iterations_in_all(64, 32) - expected).abs() < 1e-9);
    }

    #[test]
    fn a_training_that_stands_still_is_refused() {
        assert_eq!(Epochs::new(vec![(32, vec![row(5.0, 1.0, 1.0), row(5.0, 1.0, 1.0)])]), None);
        assert_eq!(Epochs::new(vec![(32, vec![])]), None);
        assert_eq!(Epochs::new(vec![]), None);
    }
}
