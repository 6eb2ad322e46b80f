//! The sizes that an elastic job can have on one type of GPU, and how fast it is at each.

use crate::prelude::*;
use crate::regrant::Wish;
use smallvec::SmallVec;
use trainyard_types::Config;

/// One size.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) gpus: u32,
    /// Work in a second, above zero.
    pub(crate) rate: f64,
}

/// Sizes in ascending order, on one type of GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) kind: GpuType,
    levels: SmallVec<[Level; 8]>,
}

impl Curve {
    /// The sizes of a job on a type that `most` GPUs in service have: its least, and powers of two up to its most, as
    /// far as a speed above zero is known. Empty where the job does not accept the type.
    pub(crate) fn of(job: JobRef<'_>, kind: GpuType, most: u32, view: &View<'_>) -> Curve {
        let want = &job.spec.want;
        let mut levels = SmallVec::new();
        let shape = view.state().shapes.iter().find(|(other, _)| *other == kind);
        if let Some(&(_, per_node)) = shape.filter(|_| want.accepts(kind)) {
            let most = most.min(want.gpus_max);
            let most = if want.nodes_max == 0 {
                most
            } else {
                most.min(per_node * u32::from(want.nodes_max))
            };
            for gpus in sizes(want.gpus_min.max(1), most) {
                let mut config = Config::packed(kind, gpus, per_node);
                config.permille = want.permille;
                let rate = view.rate(job, &config).map_or(0.0, |rate| rate.0);
                if rate > 0.0 {
                    levels.push(Level { gpus, rate });
                }
            }
        }
        Curve { kind, levels }
    }

    #[cfg(test)]
    pub(crate) fn made_of(levels: &[(u32, f64)]) -> Curve {
        let level = |(gpus, rate): &(u32, f64)| Level { gpus: *gpus, rate: *rate };
        Curve { kind: GpuType(0), levels: levels.iter().map(level).collect() }
    }

    /// Without the sizes above the fastest one.
    pub(crate) fn up_to_peak(mut self) -> Curve {
        let faster = |(_, a): &(usize, &Level), (_, b): &(usize, &Level)| a.rate.total_cmp(&b.rate);
        // The smaller of two that are equally fast.
        let peak = self.levels.iter().enumerate().rev().max_by(faster).map(|(index, _)| index);
        self.levels.truncate(peak.map_or(0, |peak| peak + 1));
        self
    }

    /// Without the sizes below the upper concave envelope: taking turns at the sizes beside them is faster for the
    /// same GPU time.
    pub(crate) fn concave(mut self) -> Curve {
        let mut hull: SmallVec<[Level; 8]> = SmallVec::new();
        for level in self.levels.drain(..) {
            while let Some(&last) = hull.last() {
                let before = match hull.len() {
                    1 => Level { gpus: 0, rate: 0.0 },
                    len => hull[len - 2],
                };
                let slope = |a: Level, b: Level| (b.rate - a.rate) / f64::from(b.gpus - a.gpus);
                if slope(before, last) >= slope(last, level) {
                    break;
                }
                hull.pop();
            }
            hull.push(level);
        }
        self.levels = hull;
        self
    }

    /// All sizes.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The largest size of at most so many GPUs.
    pub(crate) fn within(&self, gpus: u32) -> Option<Level> {
        self.levels.iter().rev().find(|level| level.gpus <= gpus).copied()
    }

    /// A wish for a size, and smaller ones if there is no room or right to it after all.
    pub(crate) fn wish(&self, job: JobId, gpus: u32) -> Wish {
        let smaller = self.levels.iter().rev().map(|level| level.gpus).filter(|less| *less < gpus);
        Wish { job, kind: self.kind, gpus, less: smaller.collect() }
    }

    /// The next larger size.
    pub(crate) fn above(&self, gpus: u32) -> Option<Level> {
        self.levels.iter().find(|level| level.gpus > gpus).copied()
    }

    /// The fastest size.
    pub(crate) fn fastest(&self) -> Option<Level> {
        self.levels.iter().copied().max_by(|a, b| a.rate.total_cmp(&b.rate))
    }
}

/// The least and the powers of two between both bounds.
fn sizes(least: u32, most: u32) -> impl Iterator<Item = u32> {
    let powers = (0..32).map(|power| 1u32 << power).filter(move |gpus| *gpus > least);
    std::iter::once(least).chain(powers).take_while(move |gpus| *gpus <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(curve: &Curve) -> Vec<u32> {
        curve.levels().iter().map(|level| level.gpus).collect()
    }

    #[test]
    fn sizes_are_the_least_and_the_powers_of_two_above_it() {
        assert_eq!(sizes(1, 9).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(sizes(6, 6).collect::<Vec<_>>(), [6]);
        assert_eq!(sizes(3, 16).collect::<Vec<_>>(), [3, 4, 8, 16]);
        assert_eq!(sizes(4, 3).count(), 0);
    }

    #[test]
    fn what_lies_above_the_peak_or_below_the_envelope_is_left_out() {
        // BERT at batch 64 on A100s (ElasticFlow's table, rounded): slower beyond 8.
        let bert = Curve::made_of(&[(1, 6.0), (2, 8.6), (4, 10.4), (8, 11.1), (16, 11.0)]);
        assert_eq!(gpus(&bert.clone().up_to_peak()), [1, 2, 4, 8]);
        assert_eq!(gpus(&bert.up_to_peak().concave()), [1, 2, 4, 8]);
        let erratic = Curve::made_of(&[(1, 4.0), (2, 3.0), (4, 9.0), (8, 9.0)]);
        assert_eq!(gpus(&erratic.clone().up_to_peak()), [1, 2, 4]);
        assert_eq!(gpus(&erratic.up_to_peak().concave()), [1, 4]);
        assert_eq!(gpus(&Curve::made_of(&[(1, 1.0), (2, 3.0)]).concave()), [2]);
        assert!(gpus(&Curve::made_of(&[]).up_to_peak().concave()).is_empty());
    }
}
