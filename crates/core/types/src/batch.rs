//! The limits of a batch that may change, and how a batch is cut over GPUs.

use serde::{Deserialize, Serialize};

/// The limits of the batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchLimits {
    /// The batch size in whose iterations progress is counted.
    pub first: u32,
    /// The largest batch over all GPUs.
    pub most: u32,
    /// The smallest batch on one GPU.
    pub local_least: u32,
    /// The largest batch that one GPU holds at once; more is accumulated over several passes.
    pub local_most: u32,
}

/// How a batch is cut: samples on one GPU at once, and passes that are accumulated before the last one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BatchSplit {
    /// Samples on one GPU at once.
    pub local: u32,
    /// Passes before the one that exchanges gradients.
    pub accumulated: u32,
    /// Samples over all GPUs and passes; rounding may make it larger than what was asked for.
    pub batch: u32,
}

impl BatchLimits {
    /// Whether some batch can be trained with on so many GPUs: each must hold its least, and all together not too much.
    pub fn can_be_met(&self, gpus: u32) -> bool {
        let least = u64::from(self.local_least.max(1)) * u64::from(gpus.max(1));
        self.first > 0
            && self.first <= self.most
            && self.local_least <= self.local_most
            && least <= u64::from(self.most)
    }

    /// Cuts a batch over GPUs, as few passes as memory allows.
    ///
    /// A single GPU that trains beyond the first batch size accumulates at least once: the noise of the gradient is
    /// measured between passes or between GPUs (Pollux's simulator does the same).
    pub fn split(&self, batch: u32, gpus: u32) -> BatchSplit {
        self.split_into(batch, gpus, u32::from(gpus <= 1 && batch > self.first))
    }

    /// The same with at least so many accumulated passes.
    pub fn split_into(&self, batch: u32, gpus: u32, accumulated_least: u32) -> BatchSplit {
        let gpus = gpus.max(1);
        let whole = batch.clamp(1, self.most.max(1)).div_ceil(gpus);
        let accumulated = whole.div_ceil(self.local_most.max(1)).max(1) - 1;
        let accumulated = accumulated.max(accumulated_least);
        let parts = gpus.saturating_mul(accumulated + 1);
        let local = whole.div_ceil(accumulated + 1).min(self.most / parts).max(1);
        BatchSplit { local, accumulated, batch: local.saturating_mul(parts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits =
        BatchLimits { first: 128, most: 4096, local_least: 32, local_most: 1024 };

    fn split(batch: u32, gpus: u32) -> (u32, u32, u32) {
        let BatchSplit { local, accumulated, batch } = LIMITS.split(batch, gpus);
        (local, accumulated, batch)
    }

    #[test]
    fn a_batch_is_cut_evenly_and_never_passes_the_largest() {
        assert_eq!(split(2048, 6), (342, 0, 2052));
        assert_eq!(split(4096, 6), (682, 0, 4092));
        assert_eq!(split(4096, 2), (1024, 1, 4096));
        assert_eq!(split(9999, 4), (1024, 0, 4096));
    }

    #[test]
    fn one_gpu_beyond_the_first_batch_accumulates() {
        assert_eq!(split(128, 1), (128, 0, 128));
        assert_eq!(split(256, 1), (128, 1, 256));
        assert_eq!(split(4096, 1), (1024, 3, 4096));
        assert_eq!(LIMITS.split_into(128, 1, 1).local, 64);
    }

    #[test]
    fn limits_that_contradict_each_other_cannot_be_met() {
        assert!(LIMITS.can_be_met(1) && LIMITS.can_be_met(128));
        assert!(!LIMITS.can_be_met(129), "129 GPUs with 32 samples each pass 4096");
        assert!(!BatchLimits { most: 64, ..LIMITS }.can_be_met(1));
        assert!(!BatchLimits { local_least: 2048, ..LIMITS }.can_be_met(1));
    }
}
