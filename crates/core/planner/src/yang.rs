//! Yang et al.: inference of a convolutional network by unequal devices together, as a pipeline (ICDCS 2021).
//!
//! A stage is consecutive layers on some devices. Each device of a stage computes a strip of rows of the stage's output,
//! and of every layer before it the rows that the strip needs, so neighbours compute the halo between them twice. The
//! paper's dynamic program takes all devices as equal and hands out the real ones afterwards; ours counts each type.

mod load;
mod program;

pub use load::{Scheme, Window, choose_by_formula, choose_by_replay, waits};
pub use program::{exact_by_type, one_device, paper_plan, whole_as_one};

use crate::PlanError;
use crate::cnn::{Cnn, Kind, volume};
use crate::registry::{Level, PlannerEntry, Problem};

/// The row in the table of planners.
pub const ENTRY: PlannerEntry = PlannerEntry {
    name: "yang",
    about: "a pipeline of strips of a convolutional network over unequal edge devices, and the scheme by load",
    paper: "Yang et al., Cooperative pipelined inference of CNNs on heterogeneous edge devices (PICO), ICDCS 2021, arXiv 2206.08662",
    level: Level::OperatorSet,
    partial: "chains of layers; a network without branches",
    problem: Problem::Stated {
        what: "inference of a CNN on edge devices",
        solve: crate::stated::solve_yang,
        example: crate::stated::YANG,
    },
};

/// One edge device.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeDevice {
    /// Its name.
    pub name: String,
    /// Operations in a second.
    pub flops: f64,
}

/// A network on devices that share one wireless channel.
#[derive(Clone, Debug)]
pub struct Edge<'a> {
    /// The network.
    pub cnn: &'a Cnn,
    /// The devices.
    pub devices: &'a [EdgeDevice],
    /// Bytes in a second between any two devices.
    pub bytes_per_second: f64,
}

/// Layers on devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Strips {
    /// The first layer.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// The devices, ascending.
    pub devices: Vec<usize>,
    /// Seconds for one image: the slowest strip, with what is sent to it and back.
    pub seconds: f64,
}

/// Stages that work on several images at once.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgePlan {
    /// The stages.
    pub stages: Vec<Strips>,
}

impl EdgePlan {
    /// Seconds from one result to the next.
    pub fn period(&self) -> f64 {
        self.stages.iter().map(|one| one.seconds).fold(0.0, f64::max)
    }

    /// Seconds that one image takes.
    pub fn latency(&self) -> f64 {
        self.stages.iter().map(|one| one.seconds).sum()
    }
}

impl<'a> Edge<'a> {
    /// Refuses devices without speed and a network without layers, by name.
    pub fn new(
        cnn: &'a Cnn,
        devices: &'a [EdgeDevice],
        bytes_per_second: f64,
    ) -> Result<Edge<'a>, PlanError> {
        if devices.is_empty() || cnn.layers.is_empty() {
            return Err(PlanError::Empty(cnn.name.clone()));
        }
        let figure = |operator: &str, field, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(PlanError::Figure { operator: operator.to_owned(), field, value }),
        };
        devices.iter().try_for_each(|one| figure(&one.name, "flops", one.flops))?;
        figure("channel", "bytes_per_second", bytes_per_second)?;
        Ok(Edge { cnn, devices, bytes_per_second })
    }

    /// Whether rows of its output can be computed apart.
    fn is_by_rows(&self, layer: usize) -> bool {
        !matches!(self.cnn.layers[layer].kind, Kind::Full { .. })
    }

    /// Seconds of layers on devices of these speeds, for one image.
    ///
    /// Layers that need all of their input cannot be cut in strips, so a stage with one runs on one device.
    pub fn stage_seconds(&self, (from, to): (usize, usize), speeds: &[f64]) -> f64 {
        let can_split = (from..to).all(|layer| self.is_by_rows(layer));
        if speeds.len() > 1 && !can_split {
            return f64::INFINITY;
        }
        // The fastest has the first strip, so that the order in which devices are named changes nothing.
        let mut speeds = speeds.to_vec();
        speeds.sort_by(|a, b| b.total_cmp(a));
        let rows = self.cnn.layers[to - 1].output.0;
        let all: f64 = speeds.iter().sum();
        let (mut compute, mut bytes) = (0.0f64, 0.0);
        let (mut done, mut passed) = (0u32, 0.0);
        for (at, speed) in speeds.iter().enumerate() {
            passed += speed / all;
            let is_last = at + 1 == speeds.len();
            let end = if is_last { rows } else { libm::round(passed * f64::from(rows)) as u32 };
            if end > done {
                let (flops, own_bytes) = self.strip((from, to), (done, end));
                compute = compute.max(flops / speed);
                bytes += own_bytes;
            }
            done = end.max(done);
        }
        // The channel is one for all, so strips are sent one after the other.
        compute + bytes / self.bytes_per_second
    }

    /// Operations of a strip of rows of the last layer's output, halo included, and the bytes sent to it and back.
    fn strip(&self, (from, to): (usize, usize), rows: (u32, u32)) -> (f64, f64) {
        let last = &self.cnn.layers[to - 1];
        let share = |rows: (u32, u32), height: u32| f64::from(rows.1 - rows.0) / f64::from(height);
        let mut bytes = 4.0 * volume(last.output) * share(rows, last.output.0);
        let (mut flops, mut rows) = (0.0, rows);
        for layer in self.cnn.layers[from..to].iter().rev() {
            flops += layer.flops() * share(rows, layer.output.0);
            let height = layer.input.0;
            rows = match layer.kind {
                Kind::Full { .. } => (0, height),
                Kind::Convolution { .. } | Kind::Pooling => {
                    // The receptive field: (out - 1) * stride + kernel rows, less what is padding.
                    let first = (rows.0 * layer.stride).saturating_sub(layer.padding);
                    let end = (rows.1 - 1) * layer.stride + layer.kernel;
                    (first.min(height - 1), end.saturating_sub(layer.padding).clamp(1, height))
                }
            };
        }
        let first = &self.cnn.layers[from];
        bytes += 4.0 * volume(first.input) * share(rows, first.input.0);
        (flops, bytes)
    }

    /// A stage on these devices.
    pub fn stage(&self, (from, to): (usize, usize), devices: Vec<usize>) -> Strips {
        let speeds: Vec<f64> = devices.iter().map(|one| self.devices[*one].flops).collect();
        Strips { from, to, seconds: self.stage_seconds((from, to), &speeds), devices }
    }
}

#[cfg(test)]
mod tests;
