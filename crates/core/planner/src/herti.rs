//! HERTI: real-time inference on the unequal devices of one chip, with the least energy before a deadline (PACT 2021).
//!
//! Each segment of a network runs on a device at one of its clock rates. An estimator says how long that takes; a learner
//! tries mappings in the estimator instead of on the chip. A chain has an exact answer too, by a dynamic program over the
//! mappings of which none is better in both time and energy; and beside it segments may be split over two devices.

mod estimator;
mod exact;
mod learner;

pub use estimator::{Estimator, Timing};
pub use exact::{exact, greedy};
pub use learner::{Learning, learn};

use crate::PlanError;
use crate::registry::{Level, PlannerEntry, Problem};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "herti",
    about: "inference before a deadline on unequal devices of one chip, at the least energy: learnt and exact",
    paper: "HERTI: A Reinforcement Learning-Augmented System for Efficient Real-Time Inference on Heterogeneous Embedded Systems, PACT 2021",
    level: Level::OperatorSet,
    partial: "chains of segments; rewards and states of the learner are ours, the paper's are not known to us",
    problem: Problem::Stated {
        what: "inference before a deadline on one chip",
        solve: crate::stated::solve_herti,
        example: crate::stated::HERTI,
    },
};

/// A way to run a segment: a device at a clock rate, or two devices that share it.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// What it is called, such as `big@1800`.
    pub name: String,
    /// The device that has the output; other segments get it from there.
    pub device: usize,
    /// Seconds of each segment; infinite where the device cannot run it.
    pub seconds: Vec<f64>,
    /// Joules of each segment.
    pub joules: Vec<f64>,
}

/// A chain of segments, the ways to run them, and what it costs to go from one device to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// Names of the segments.
    pub segments: Vec<String>,
    /// Bytes that each segment hands on.
    pub out_bytes: Vec<f64>,
    /// Ways to run a segment.
    pub ways: Vec<Way>,
    /// Seconds before the first byte reaches another device.
    pub latency: f64,
    /// Bytes in a second between devices.
    pub bytes_per_second: f64,
    /// Joules for each byte that goes to another device.
    pub joules_per_byte: f64,
}

/// A way for each segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The way of each segment, by index.
    pub ways: Vec<usize>,
    /// Seconds of the whole.
    pub seconds: f64,
    /// Joules of the whole.
    pub joules: f64,
}

impl Chip {
    /// Refuses segments that no device can run and figures that are none, by the segment's name.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.segments.is_empty() || self.ways.is_empty() {
            return Err(PlanError::Empty("the chip".to_owned()));
        }
        for (at, name) in self.segments.iter().enumerate() {
            let figure =
                |field, value: f64| PlanError::Figure { operator: name.clone(), field, value };
            for way in &self.ways {
                if way.seconds.len() != self.segments.len()
                    || way.joules.len() != self.segments.len()
                {
                    return Err(figure("seconds", way.seconds.len() as f64));
                }
                if way.seconds[at].is_nan() || way.seconds[at] < 0.0 {
                    return Err(figure("seconds", way.seconds[at]));
                }
                if !way.joules[at].is_finite() || way.joules[at] < 0.0 {
                    return Err(figure("joules", way.joules[at]));
                }
            }
            if self.ways.iter().all(|way| way.seconds[at].is_infinite()) {
                let operator = format!("segment `{name}` runs on no device");
                return Err(PlanError::NotFor { planner: ENTRY.name, reason: operator });
            }
        }
        Ok(())
    }

    /// Seconds and joules of a segment in one way, after the one before it in another.
    pub fn step(&self, segment: usize, before: Option<usize>, way: usize) -> (f64, f64) {
        let own = (self.ways[way].seconds[segment], self.ways[way].joules[segment]);
        match before {
            Some(other) if self.ways[other].device != self.ways[way].device => {
                let bytes = self.out_bytes[segment - 1];
                let seconds = self.latency + bytes / self.bytes_per_second;
                (own.0 + seconds, own.1 + bytes * self.joules_per_byte)
            }
            _ => own,
        }
    }

    /// What a mapping costs.
    pub fn cost(&self, ways: Vec<usize>) -> Mapping {
        let (mut seconds, mut joules) = (0.0, 0.0);
        for (at, way) in ways.iter().enumerate() {
            let before = at.checked_sub(1).map(|one| ways[one]);
            let (own, energy) = self.step(at, before, *way);
            (seconds, joules) = (seconds + own, joules + energy);
        }
        Mapping { ways, seconds, joules }
    }

    /// The same with segments that two ways on different devices may share, in so many parts.
    ///
    /// Each computes its part of the output at once; the smaller part travels to the device of the larger one.
    pub fn with_splits(&self, parts: u32) -> Chip {
        let mut chip = self.clone();
        for (a, first) in self.ways.iter().enumerate() {
            for (b, second) in self.ways.iter().enumerate() {
                if first.device == second.device || a == b {
                    continue;
                }
                for part in parts / 2 + parts % 2..parts {
                    let share = f64::from(part) / f64::from(parts);
                    let each = (0..self.segments.len()).map(|at| {
                        let moved = self.out_bytes[at] * (1.0 - share);
                        let travel = self.latency + moved / self.bytes_per_second;
                        let seconds = (share * first.seconds[at])
                            .max((1.0 - share) * second.seconds[at] + travel);
                        let joules = share * first.joules[at]
                            + (1.0 - share) * second.joules[at]
                            + moved * self.joules_per_byte;
                        (seconds, joules)
                    });
                    let (seconds, joules) = each.unzip();
                    let name = format!("{}+{} {part}/{parts}", first.name, second.name);
                    chip.ways.push(Way { name, device: first.device, seconds, joules });
                }
            }
        }
        chip
    }
}

#[cfg(test)]
mod tests;
