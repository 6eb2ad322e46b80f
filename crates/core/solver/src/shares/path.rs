//! How much each job needs at a level.
//!
//! A path gives every job a rate that never falls when the level rises. The highest level that the GPUs can pay for is
//! the optimum of max-min fairness, of makespan and of finish-time fairness: these differ in their paths alone.

/// Needs that rise with a level.
pub(super) trait Path {
    /// The level at which every job that still rises has its fastest rate, or the first of them where none may stop.
    fn ceiling(&self) -> f64;
    /// The need of each job at a level, and how it grows there.
    fn needs(&self, level: f64, need: &mut [f64], slope: &mut [f64]);
}

/// Needs in proportion to the level, until the first job has its fastest rate.
pub(super) struct Straight<'a> {
    pub parts: &'a [f64],
    pub ceiling: f64,
}

impl Path for Straight<'_> {
    fn ceiling(&self) -> f64 {
        self.ceiling
    }

    fn needs(&self, level: f64, need: &mut [f64], slope: &mut [f64]) {
        for ((need, slope), part) in need.iter_mut().zip(slope).zip(self.parts) {
            (*need, *slope) = (part * level, *part);
        }
    }
}

/// Where a job stands against the time it would take alone.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Clock {
    /// Seconds since it came.
    pub since: f64,
    /// Work left.
    pub left: f64,
    /// Seconds it would take in all with its own part of the cluster.
    pub alone: f64,
}

/// Needs that finish every job within the same multiple of its time alone; the level is one over that multiple.
pub(super) struct Deadlines<'a> {
    pub clocks: &'a [Clock],
    pub ceiling: f64,
}

impl Path for Deadlines<'_> {
    fn ceiling(&self) -> f64 {
        self.ceiling
    }

    fn needs(&self, level: f64, need: &mut [f64], slope: &mut [f64]) {
        for ((need, slope), clock) in need.iter_mut().zip(slope).zip(self.clocks) {
            // (since + left / rate) / alone = 1 / level
            let time = clock.alone - clock.since * level;
            (*need, *slope) = match clock.left > 0.0 && level > 0.0 {
                true if time > 0.0 => {
                    (clock.left * level / time, clock.left * clock.alone / (time * time))
                }
                true => (f64::MAX, 0.0),
                false => (0.0, 0.0),
            };
        }
    }
}
