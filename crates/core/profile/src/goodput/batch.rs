//! The batch size of the highest goodput, within limits.

use super::{Efficiency, IterationTime, Size};
use crate::training::{BatchLimits, BatchSplit};

/// Batch sizes that are tried, from the smallest to the largest by equal factors (the authors' number).
pub const BATCHES_TRIED: u32 = 50;

/// The batch growth limit.
///
/// Efficiency only says how much a larger batch is worth while training goes well; a batch far beyond the first can
/// end at a worse model, and one that jumps can diverge. So a user may bound both.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Guard {
    /// At most so many times the first batch.
    pub growth_max: f64,
    /// At most so many times the present batch at one change.
    pub step_max: f64,
    /// The present batch; nothing before the first start, which counts as the first batch.
    pub present: Option<u32>,
}

impl Guard {
    /// No guard but the job's own limits.
    pub const NONE: Guard =
        Guard { growth_max: f64::INFINITY, step_max: f64::INFINITY, present: None };

    /// The largest batch it lets pass for a job that began with `first`.
    pub fn most(&self, first: u32) -> f64 {
        let first = f64::from(first);
        let present = self.present.map_or(first, f64::from).max(first);
        (first * self.growth_max).min(present * self.step_max)
    }
}

/// A batch and what it gives.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct BatchChoice {
    /// How it is cut over the GPUs.
    pub split: BatchSplit,
    /// Samples per second, each counted for what it is worth at the first batch.
    pub goodput: f64,
    /// By how much the learning rate grows (AdaScale).
    pub gain: f64,
}

/// Why no batch will do.
#[derive(Copy, Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoBatch {
    /// The smallest one is above the largest.
    #[error(
        "{gpus} GPUs need a batch of at least {least}, but the largest allowed is {most}; \
         fewer GPUs or a larger limit would do"
    )]
    OverLimit {
        /// GPUs.
        gpus: u32,
        /// The smallest batch on them.
        least: u32,
        /// The largest batch allowed.
        most: u32,
    },
    /// The smallest one is above what the guard lets pass.
    #[error("{gpus} GPUs need a batch of at least {least}, but its growth is held to {most}")]
    Guarded {
        /// GPUs.
        gpus: u32,
        /// The smallest batch on them.
        least: u32,
        /// The largest batch that the guard lets pass.
        most: u32,
    },
    /// No batch can be cut so that each GPU gets enough and not too much.
    #[error("no batch cut over {gpus} GPUs has between {least} and {most} samples on each")]
    NoCut {
        /// GPUs.
        gpus: u32,
        /// The smallest batch on one GPU.
        least: u32,
        /// The largest batch on one GPU.
        most: u32,
    },
}

/// The batches that are tried on so many GPUs, with their times: good as long as the speeds are, whatever the noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Menu(Vec<Entry>);

/// A batch that is tried.
#[derive(Copy, Clone, Debug, PartialEq)]
struct Entry {
    split: BatchSplit,
    /// The time of an iteration.
    seconds: f64,
}

impl Menu {
    /// Batches by equal factors from the smallest to the largest that limits and guard allow.
    pub fn new(
        speed: &impl IterationTime,
        limits: &BatchLimits,
        guard: Guard,
        size: Size,
    ) -> Result<Menu, NoBatch> {
        let Range { least, most } = Range::new(limits, guard, size.gpus)?;
        let grow = libm::exp(libm::log(most / least) / f64::from(BATCHES_TRIED - 1));
        let mut entries: Vec<Entry> = Vec::with_capacity(BATCHES_TRIED as usize);
        let mut asked = least;
        for number in 0..BATCHES_TRIED {
            let batch = if number + 1 == BATCHES_TRIED { most } else { asked };
            asked *= grow;
            // Rounding up must not turn a batch into the next one because of its last bits.
            let split = limits.split((batch - 1e-6).ceil() as u32, size.gpus);
            let fits = (limits.local_least..=limits.local_most).contains(&split.local);
            if !fits || entries.last().is_some_and(|last| last.split == split) {
                continue;
            }
            let seconds = speed.seconds(size, split.local, split.accumulated);
            if seconds.is_finite() && seconds > 0.0 {
                entries.push(Entry { split, seconds });
            }
        }
        let (least, most) = (limits.local_least, limits.local_most);
        match entries.is_empty() {
            true => Err(NoBatch::NoCut { gpus: size.gpus, least, most }),
            false => Ok(Menu(entries)),
        }
    }

    /// The smallest batch of at least so many samples, or else the largest.
    pub fn at_least(&self, samples: f64) -> BatchSplit {
        let enough = self.0.iter().find(|entry| f64::from(entry.split.batch) >= samples);
        enough.or(self.0.last()).expect("a menu is never empty").split
    }

    /// The batch of the highest goodput, the smallest one of equals (Pollux, equation 13).
    pub fn best(&self, efficiency: &Efficiency) -> BatchChoice {
        let choice = |&Entry { split, seconds }: &Entry| {
            let gain = efficiency.gain(f64::from(split.batch));
            BatchChoice { split, goodput: gain * efficiency.first() / seconds, gain }
        };
        let mut best = choice(&self.0[0]);
        for entry in &self.0[1..] {
            let next = choice(entry);
            if next.goodput > best.goodput {
                best = next;
            }
        }
        best
    }
}

/// The batch of the highest goodput on so many GPUs.
pub fn best_batch(
    speed: &impl IterationTime,
    efficiency: &Efficiency,
    limits: &BatchLimits,
    guard: Guard,
    size: Size,
) -> Result<BatchChoice, NoBatch> {
    Ok(Menu::new(speed, limits, guard, size)?.best(efficiency))
}

/// The smallest and the largest batch on so many GPUs.
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    fn new(limits: &BatchLimits, guard: Guard, gpus: u32) -> Result<Range, NoBatch> {
        let least = limits.first.max(limits.local_least.saturating_mul(gpus)).max(1);
        if least > limits.most {
            return Err(NoBatch::OverLimit { gpus, least, most: limits.most });
        }
        let most = guard.most(limits.first).floor().min(f64::from(limits.most));
        if f64::from(least) > most {
            return Err(NoBatch::Guarded { gpus, least, most: most as u32 });
        }
        Ok(Range { least: f64::from(least), most })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Noise, Throughput};
    use super::*;

    const LIMITS: BatchLimits =
        BatchLimits { first: 128, most: 4096, local_least: 32, local_most: 1024 };
    const MODEL: Throughput = Throughput {
        alpha_c: 0.02,
        beta_c: 0.0005,
        alpha_n: 0.2,
        beta_n: 0.01,
        alpha_r: 0.05,
        beta_r: 0.002,
        gamma: 1.6,
    };

    fn noise(var: f64) -> Efficiency {
        Efficiency::new(128, Some(Noise { sqr: 1.0, var }))
    }

    fn batch(var: f64, guard: Guard, size: Size) -> u32 {
        best_batch(&MODEL, &noise(var), &LIMITS, guard, size).unwrap().split.batch
    }

    #[test]
    fn the_batch_is_the_best_of_all_that_are_tried() {
        let (size, efficiency) = (Size { nodes: 2, gpus: 8 }, noise(9.0));
        let choice = best_batch(&MODEL, &efficiency, &LIMITS, Guard::NONE, size).unwrap();
        for batch in LIMITS.first..=LIMITS.most {
            let split = LIMITS.split(batch, size.gpus);
            let throughput = MODEL.throughput(size, split.local, split.accumulated);
            let goodput = throughput * efficiency.at(f64::from(split.batch));
            assert!(goodput <= choice.goodput * 1.002, "{batch}: {goodput} {}", choice.goodput);
        }
        assert_eq!(choice.gain, efficiency.gain(f64::from(choice.split.batch)));
    }

    #[test]
    fn more_noise_and_more_gpus_want_a_larger_batch() {
        let (one, many) = (Size::on_one_node(1), Size { nodes: 4, gpus: 16 });
        assert_eq!(batch(0.0, Guard::NONE, one), 128);
        assert!(batch(10.0, Guard::NONE, many) > batch(1.0, Guard::NONE, many));
        assert!(batch(10.0, Guard::NONE, many) > batch(10.0, Guard::NONE, Size::on_one_node(2)));
        assert_eq!(batch(0.0, Guard::NONE, many), 512);
    }

    #[test]
    fn memory_is_kept_by_accumulating() {
        let limits = BatchLimits { local_most: 64, ..LIMITS };
        let size = Size { nodes: 4, gpus: 16 };
        let choice = best_batch(&MODEL, &noise(1e6), &limits, Guard::NONE, size).unwrap();
        assert!(choice.split.local <= 64 && choice.split.accumulated > 0, "{:?}", choice.split);
    }

    #[test]
    fn the_guard_bounds_growth_in_all_and_at_once() {
        let size = Size { nodes: 4, gpus: 16 };
        let all = Guard { growth_max: 8.0, ..Guard::NONE };
        assert!(batch(1e6, Guard::NONE, size) > 1024);
        assert_eq!(batch(1e6, all, size), 1024);
        let step = Guard { step_max: 1.5, present: Some(512), ..Guard::NONE };
        assert_eq!(batch(1e6, step, size), 768);
        let first = Guard { present: None, ..step };
        assert_eq!(
            best_batch(&MODEL, &noise(1e6), &LIMITS, first, size),
            Err(NoBatch::Guarded { gpus: 16, least: 512, most: 192 })
        );
    }

    #[test]
    fn limits_that_cannot_be_met_are_told() {
        let size = Size { nodes: 64, gpus: 256 };
        let verdict = best_batch(&MODEL, &noise(1.0), &LIMITS, Guard::NONE, size).unwrap_err();
        assert_eq!(verdict, NoBatch::OverLimit { gpus: 256, least: 8192, most: 4096 });
        assert!(verdict.to_string().contains("256 GPUs need a batch of at least 8192"));
        let narrow = BatchLimits { first: 128, most: 128, local_least: 100, local_most: 50 };
        let one = Size::on_one_node(1);
        let verdict = best_batch(&MODEL, &noise(1.0), &narrow, Guard::NONE, one);
        assert_eq!(verdict, Err(NoBatch::NoCut { gpus: 1, least: 100, most: 50 }));
    }
}
