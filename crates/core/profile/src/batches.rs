//! One training at several batch sizes.
//!
//! A profile counts steps of its *own* batch. The same training at another batch is another profile, named here.
//! One step there does as much as several here: an epoch is the same work in fewer steps. With the samples of an
//! epoch known that is exact, with the last batch of an epoch as short as it is; otherwise it is the ratio of batches.
//! Between two known batches the logarithm of the speed is linear in the logarithm of the batch; beyond them the
//! nearest one's speed holds.

/// The batch of a profile's own steps, and the profiles of the same training at others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// The batch of this profile's own steps.
    pub own: u32,
    /// Samples of an epoch; 0 means not known.
    pub epoch_samples: u64,
    /// Other batches, ascending, and the model whose steps these are.
    pub others: Vec<(u32, String)>,
}

impl Batches {
    /// Own steps that one step at another batch is worth.
    pub fn worth(&self, batch: u32) -> f64 {
        let (own, batch) = (u64::from(self.own.max(1)), u64::from(batch.max(1)));
        match self.epoch_samples {
            0 => batch as f64 / own as f64,
            samples => samples.div_ceil(own) as f64 / samples.div_ceil(batch) as f64,
        }
    }
}

/// A rate at a batch from the rates at some batches, ascending and above 0.
pub(crate) fn rate_at(known: &[(u32, f64)], batch: u32) -> Option<f64> {
    let next = known.partition_point(|(size, _)| *size <= batch);
    let (Some(below), Some(above)) =
        (next.checked_sub(1).and_then(|at| known.get(at)), known.get(next))
    else {
        return if next == 0 { known.first() } else { known.last() }.map(|(_, rate)| *rate);
    };
    if below.0 == batch {
        return Some(below.1);
    }
    let along = |size: u32| libm::log(f64::from(size) / f64::from(below.0));
    let part = along(batch) / along(above.0);
    Some(below.1 * libm::pow(above.1 / below.1, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_step_is_worth_several_own_ones() {
        let batches = Batches { own: 512, epoch_samples: 0, others: Vec::new() };
        assert_eq!((batches.worth(512), batches.worth(8192)), (1.0, 16.0));
        // 117,907 samples are 231 steps of 512, and 15 of 8,192.
        let exact = Batches { epoch_samples: 117_907, ..batches };
        assert_eq!((exact.worth(512), exact.worth(8192)), (1.0, 231.0 / 15.0));
    }

    #[test]
    fn between_batches_the_logarithm_is_linear_and_beyond_the_edge_holds() {
        let known = [(16, 1.0), (64, 4.0)];
        let rates = [8, 16, 32, 64, 256].map(|batch| rate_at(&known, batch).unwrap());
        assert!((rates[2] - 2.0).abs() < 1e-12, "{rates:?}");
        assert_eq!([rates[0], rates[1], rates[3], rates[4]], [1.0, 1.0, 4.0, 4.0]);
        assert_eq!(rate_at(&[], 8), None);
    }
}
