//! Speeds that were measured where a job ran, and what they say of other numbers of GPUs.

use serde::{Deserialize, Serialize};
use trainyard_types::GpuType;

/// More points than this are not kept; the one that was measured longest ago goes first.
const POINTS_MAX: usize = 32;

/// Measured speeds by GPU type and number of GPUs, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSpeeds(Vec<SpeedPoint>);

/// The speed on so many GPUs of one type.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SpeedPoint {
    kind: GpuType,
    gpus: u32,
    rate: f64,
}

impl MeasuredSpeeds {
    /// Takes a new figure in: `blend` says what becomes of the one before it.
    pub fn note(
        &mut self,
        (kind, gpus): (GpuType, u32),
        rate: f64,
        blend: fn(Option<f64>, f64) -> f64,
    ) {
        let same = |point: &SpeedPoint| (point.kind, point.gpus) == (kind, gpus);
        let old = self.0.iter().position(same).map(|at| self.0.remove(at).rate);
        if self.0.len() == POINTS_MAX {
            self.0.remove(0);
        }
        self.0.push(SpeedPoint { kind, gpus, rate: blend(old, rate) });
    }

    /// What was measured on exactly that.
    pub fn exactly(&self, kind: GpuType, gpus: u32) -> Option<f64> {
        self.0.iter().find(|point| (point.kind, point.gpus) == (kind, gpus)).map(|point| point.rate)
    }

    /// The speed on so many GPUs of a type: as measured; between two measured numbers the logarithm of the speed is
    /// linear in that of the GPUs, beyond them the nearest slope goes on. With one number it goes as GPUs to the power
    /// of `slope`. A type that was never measured is taken for the one that was measured last.
    pub fn rate(&self, kind: GpuType, gpus: u32, slope: f64) -> Option<f64> {
        let last = self.0.last()?;
        let known = self.0.iter().any(|point| point.kind == kind);
        let curve = self.curve(if known { kind } else { last.kind });
        let at = f64::from(gpus.max(1));
        let above = curve.partition_point(|(gpus, _)| *gpus < at).min(curve.len() - 1);
        let (near, slope) = match curve.get(above.saturating_sub(1)..=above.max(1)) {
            Some([low, high]) => (if at > high.0 { high } else { low }, slope_of(*low, *high)),
            _ => (&curve[0], slope),
        };
        Some(near.1 * libm::pow(at / near.0, slope))
    }

    /// How speed grows with GPUs, from the newest type on which two numbers were measured.
    pub fn slope(&self) -> Option<f64> {
        let curves = self.0.iter().rev().map(|point| self.curve(point.kind));
        let curve = curves.into_iter().find(|curve| curve.len() > 1)?;
        Some(slope_of(curve[0], curve[curve.len() - 1]))
    }

    /// GPUs and speeds on one type, by GPUs.
    fn curve(&self, kind: GpuType) -> Vec<(f64, f64)> {
        let own = self.0.iter().filter(|point| point.kind == kind);
        let mut curve: Vec<(f64, f64)> =
            own.map(|point| (f64::from(point.gpus), point.rate)).collect();
        curve.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        curve
    }
}

/// The power of the GPUs by which speed grows from one point to the other. More than linear is noise, and less than
/// nothing is kept: a job may well be slower on more GPUs.
fn slope_of(low: (f64, f64), high: (f64, f64)) -> f64 {
    (libm::log(high.1 / low.1) / libm::log(high.0 / low.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: GpuType = GpuType(0);
    const B: GpuType = GpuType(1);

    fn newest(_: Option<f64>, new: f64) -> f64 {
        new
    }

    fn measured(points: &[(GpuType, u32, f64)]) -> MeasuredSpeeds {
        let mut speeds = MeasuredSpeeds::default();
        for (kind, gpus, rate) in points {
            speeds.note((*kind, *gpus), *rate, newest);
        }
        speeds
    }

    fn near(one: Option<f64>, other: f64) {
        assert!(one.is_some_and(|one| (one - other).abs() < 1e-9 * other), "{one:?} and {other}");
    }

    #[test]
    fn one_number_grows_by_the_slope_that_is_given() {
        let speeds = measured(&[(A, 2, 10.0)]);
        near(speeds.rate(A, 2, 1.0), 10.0);
        near(speeds.rate(A, 8, 1.0), 40.0);
        near(speeds.rate(A, 8, 0.5), 20.0);
        near(speeds.rate(A, 1, 0.5), 10.0 / libm::sqrt(2.0));
        assert_eq!(speeds.slope(), None);
        assert_eq!(MeasuredSpeeds::default().rate(A, 1, 1.0), None);
    }

    #[test]
    fn several_numbers_are_a_curve_through_all_of_them_and_beyond() {
        // Twice as fast from 1 to 4, and no faster from 4 to 8.
        let speeds = measured(&[(A, 4, 20.0), (A, 1, 10.0), (A, 8, 20.0)]);
        for (gpus, rate) in [(1, 10.0), (4, 20.0), (8, 20.0)] {
            near(speeds.rate(A, gpus, 1.0), rate);
        }
        near(speeds.rate(A, 2, 1.0), 10.0 * libm::sqrt(2.0));
        near(speeds.rate(A, 16, 1.0), 20.0);
        near(speeds.slope(), libm::log(2.0) / libm::log(8.0));
    }

    #[test]
    fn more_than_linear_is_noise_and_slower_on_more_is_not() {
        near(measured(&[(A, 1, 10.0), (A, 2, 30.0)]).rate(A, 4, 1.0), 60.0);
        near(measured(&[(A, 1, 10.0), (A, 2, 5.0)]).rate(A, 4, 1.0), 2.5);
    }

    #[test]
    fn types_are_apart_and_one_that_was_never_measured_is_like_the_last() {
        let speeds = measured(&[(A, 1, 10.0), (B, 1, 25.0)]);
        near(speeds.rate(A, 1, 1.0), 10.0);
        near(speeds.rate(B, 1, 1.0), 25.0);
        near(speeds.rate(GpuType(7), 1, 1.0), 25.0);
        assert_eq!(speeds.exactly(A, 2), None);
    }

    #[test]
    fn what_was_measured_longest_ago_is_forgotten_first() {
        let many: Vec<_> = (1..=POINTS_MAX as u32 + 1).map(|gpus| (A, gpus, 1.0)).collect();
        let speeds = measured(&many);
        assert_eq!((speeds.exactly(A, 1), speeds.exactly(A, 2)), (None, Some(1.0)));
    }
}
