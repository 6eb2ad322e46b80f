//! What stopping, starting and moving a job costs in a run.

use crate::model::{SAVE_DEFAULT, START_DEFAULT};
use std::fmt;
use std::str::FromStr;
use trainyard_types::Span;

/// The price of changing what a job holds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeCost {
    /// Time to save its state while it still holds the old GPUs.
    pub save: Span,
    /// Time from getting the new GPUs to the first step.
    pub start: Span,
    /// Whether it keeps running instead of being stopped and started.
    pub in_place: bool,
}

/// The price of putting a job aside in host memory and bringing it back on the same GPU.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspendCost {
    /// From the request until its GPU is free.
    pub out: Span,
    /// From getting the GPU again until it runs.
    pub back: Span,
}

/// Seconds out and back by MiB in the memory of the GPU: a constant and a slope, fitted by least squares to the twelve
/// rows of `data/h200/suspend_driver.csv` (lock with suspend, resume with unlock; 1.7 to 63 GB, NVIDIA H200, driver 580).
/// About 2 GB/s out and 5 GB/s in.
const DRIVER_OUT: (f64, f64) = (0.359, 4.977e-4);
const DRIVER_BACK: (f64, f64) = (0.164, 1.820e-4);

impl SuspendCost {
    /// What the driver takes for a process with so much in the memory of its GPU.
    pub fn by_driver(memory_mib: u64) -> SuspendCost {
        let line =
            |(fixed, each): (f64, f64)| Span::from_secs_f64(fixed + each * memory_mib as f64);
        SuspendCost { out: line(DRIVER_OUT), back: line(DRIVER_BACK) }
    }

    /// Both times, by a cost model: its factor counts, and where changes are free this is too.
    pub fn by_model(costs: CostModel, memory_mib: u64) -> SuspendCost {
        let SuspendCost { out, back } = SuspendCost::by_driver(memory_mib);
        match costs {
            CostModel::Free => SuspendCost::default(),
            CostModel::Scaled(factor) => {
                SuspendCost { out: out.scaled(factor), back: back.scaled(factor) }
            }
            CostModel::Profile | CostModel::Flat { .. } | CostModel::ByGpus { .. } => {
                SuspendCost { out, back }
            }
        }
    }
}

/// Where the costs of a run come from.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub enum CostModel {
    /// From each model's profile.
    #[default]
    Profile,
    /// From each model's profile, times a factor.
    Scaled(f64),
    /// No cost at all.
    Free,
    /// The same for every job.
    Flat {
        /// Time to save.
        save: Span,
        /// Time to start.
        start: Span,
    },
    /// The same for every job of one size: times 1 + log2 of its GPUs, as in Chronus' own simulator.
    ByGpus {
        /// Time to save on one GPU.
        save: Span,
        /// Time to start on one GPU.
        start: Span,
    },
}

impl CostModel {
    /// The factor of [`CostModel::ByGpus`]: 1 + log2 of a number of GPUs.
    pub fn by_gpus(gpus: u32) -> f64 {
        1.0 + libm::log2(f64::from(gpus.max(1)))
    }
}

/// Why a cost model could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is no cost model: expected `profile`, `profile x2`, `free`, `flat save=5s start=25s` or `by-gpus save=6s start=24s`"
)]
pub struct CostModelError {
    /// The part that was not understood.
    pub found: String,
}

impl FromStr for CostModel {
    type Err = CostModelError;

    /// Reads `profile`, `profile x0.5`, `free`, `flat`, `flat save=5s start=25s`, `by-gpus save=6s start=24s`.
    fn from_str(text: &str) -> Result<CostModel, CostModelError> {
        let refuse = |found: &str| CostModelError { found: found.to_owned() };
        let mut words = text.split_whitespace();
        match words.next() {
            Some("free") => match words.next() {
                None => Ok(CostModel::Free),
                Some(word) => Err(refuse(word)),
            },
            Some("profile") => match (words.next(), words.next()) {
                (None, _) => Ok(CostModel::Profile),
                (Some(word), None) => factor(word).map(CostModel::Scaled).ok_or(refuse(word)),
                (Some(_), Some(word)) => Err(refuse(word)),
            },
            Some("flat") => {
                let (save, start) = save_and_start(words)?;
                Ok(CostModel::Flat { save, start })
            }
            Some("by-gpus") => {
                let (save, start) = save_and_start(words)?;
                Ok(CostModel::ByGpus { save, start })
            }
            _ => Err(refuse(text)),
        }
    }
}

/// The words after `flat` and `by-gpus`.
fn save_and_start<'a>(
    words: impl Iterator<Item = &'a str>,
) -> Result<(Span, Span), CostModelError> {
    let refuse = |found: &str| CostModelError { found: found.to_owned() };
    let (mut save, mut start) = (SAVE_DEFAULT, START_DEFAULT);
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| refuse(word))?;
        let span = value.parse().map_err(|_| refuse(word))?;
        match key {
            "save" => save = span,
            "start" => start = span,
            _ => return Err(refuse(word)),
        }
    }
    Ok((save, start))
}

fn factor(word: &str) -> Option<f64> {
    let factor: f64 = word.strip_prefix('x')?.parse().ok()?;
    (0.0..=1e6).contains(&factor).then_some(factor)
}

impl fmt::Display for CostModel {
    /// The form that [`FromStr`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CostModel::Profile => write!(f, "profile"),
            CostModel::Scaled(factor) => write!(f, "profile x{factor}"),
            CostModel::Free => write!(f, "free"),
            CostModel::Flat { save, start } => write!(f, "flat save={save} start={start}"),
            CostModel::ByGpus { save, start } => write!(f, "by-gpus save={save} start={start}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_model_reads_back_what_it_prints() {
        for text in [
            "profile",
            "profile x0.5",
            "free",
            "flat save=1s start=1m30s",
            "by-gpus save=6s start=24s",
        ] {
            assert_eq!(text.parse::<CostModel>().unwrap().to_string(), text);
        }
        assert_eq!(
            "flat".parse(),
            Ok(CostModel::Flat { save: Span::secs(5), start: Span::secs(25) })
        );
        for text in
            ["", "cheap", "free 1", "flat stop=1s", "flat save=x", "profile x-1", "profile xnan"]
        {
            assert!(text.parse::<CostModel>().is_err(), "{text}");
        }
    }
}
