//! What predicts how much two jobs slow each other on one GPU.
//!
//! The pairs measured on an H200, each seen from both sides, with what is known of both jobs alone; predictors of the
//! part of its speed that a job keeps; and how far each is off for models that it has not seen.

pub mod predictor;
pub mod study;

pub use predictor::{Prediction, Predictor};
pub use study::{PredictorErrors, Study, study};

use crate::Sharing;
use crate::zoo::{self, Row};

/// What is known of a job that has a GPU for itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The network, whatever its batch and precision.
    pub architecture: String,
    /// The part of the time in which any kernel ran, as `nvidia-smi` tells.
    pub utilisation: f64,
    /// The part of the time in which memory was read or written, likewise.
    pub memory_utilisation: f64,
    /// Power drawn, as a part of what the GPU may draw.
    pub power: f64,
}

/// One job beside another.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    /// The job.
    pub own: Alone,
    /// The one beside it.
    pub other: Alone,
    /// The part of its speed that it kept.
    pub kept: f64,
}

/// What an H200 may draw, in watts.
const POWER_MAX: f64 = 700.0;
/// Its speed is the host's, not the GPU's.
const ON_THE_HOST: &str = "a3c_cpu";

/// All measured pairs of one way of sharing, seen from both sides. A job that computes on the host is left out.
pub fn measured(sharing: Sharing) -> Vec<Met> {
    let rows = zoo::h200_pair_rows(sharing);
    let solo = zoo::h200_pair_rows(Sharing::TimeSliced);
    let alone = |row: &Row, side: u8| -> Option<Alone> {
        let entry = zoo::side(row, side);
        let found = solo
            .iter()
            .find(|row| zoo::text(row, "mode").ends_with("-solo") && zoo::side(row, 1) == entry)?;
        Some(Alone {
            architecture: entry.0.to_owned(),
            utilisation: zoo::number(found, "gpu_util") / 100.0,
            memory_utilisation: zoo::number(found, "mem_util") / 100.0,
            power: zoo::number(found, "power_w") / POWER_MAX,
        })
    };
    let mut met = Vec::new();
    for row in rows.iter().filter(|row| !zoo::text(row, "norm1").is_empty()) {
        let (Some(one), Some(two)) = (alone(row, 1), alone(row, 2)) else { continue };
        if one.architecture == ON_THE_HOST || two.architecture == ON_THE_HOST {
            continue;
        }
        let (first, second) = (zoo::number(row, "norm1"), zoo::number(row, "norm2"));
        met.push(Met { own: one.clone(), other: two.clone(), kept: first });
        met.push(Met { own: two, other: one, kept: second });
    }
    met
}
