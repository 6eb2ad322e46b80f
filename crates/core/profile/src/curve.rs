//! One model on one type of GPU: measured points, and what lies between and beyond them.
//!
//! - Of several points with the same number of GPUs the one on the fewest nodes is the *packed* one.
//! - Between packed points the logarithm of the speed is linear in the logarithm of the GPUs.
//! - Above the largest, the last slope goes on, but never steeper than one; with a single point, and below the
//!   smallest, speed goes as GPUs to the power of the model's `scaling`.
//! - A point on more nodes gives the loss by spreading; between the packed number of nodes and that one the loss
//!   is geometric, and beyond it (or without any such point) each doubling of nodes keeps the model's `spread`.

use crate::kinds;
use crate::model::{ANY_KIND, ModelProfile, Point};

impl ModelProfile {
    /// Steps per second on `gpus` GPUs of a type on as few nodes as was measured, and those nodes, for each size;
    /// `None` if the model has no point at all.
    pub fn packed(&self, kind: &str, sizes: &[u32]) -> Option<Vec<(f64, u32)>> {
        let curve = Curve::new(self, kind)?;
        Some(sizes.iter().map(|gpus| curve.packed_at((*gpus).max(1))).collect())
    }
}

/// The speed at one number of GPUs.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Steps per second on the fewest nodes.
    pub rate: f64,
    /// Those nodes.
    pub nodes: u32,
    /// A larger number of nodes with a measured loss; 0 if there is none.
    pub far_nodes: u32,
    /// The part of the speed kept there.
    pub far: f64,
}

/// GPUs of a node where nothing says otherwise.
const NODE_GPUS_USUAL: u32 = 8;

/// A measured point: GPUs, nodes, steps per second.
type Measured = (u32, u32, f64);

/// One model on one type of GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Curve {
    scaling: f64,
    packed: Vec<Measured>,
    /// GPUs, nodes, logarithm of the part of the speed kept.
    far: Vec<Measured>,
    /// All points that are not packed, ascending, for exact answers.
    pub spread_points: Vec<Measured>,
}

impl Curve {
    /// The curve of a model on a type; `None` if the model has no point at all.
    pub fn new(model: &ModelProfile, kind: &str) -> Option<Curve> {
        let (source, factor) = source_kind(model, kind)?;
        let mut points: Vec<Measured> = model
            .points
            .iter()
            .filter(|point| point.kind.eq_ignore_ascii_case(source))
            .map(|point| (point.gpus.max(1), point.nodes.max(1), point.rate * factor))
            .collect();
        points.sort_by_key(|point| (point.0, point.1));
        points.dedup_by_key(|point| (point.0, point.1));
        let mut packed: Vec<Measured> = Vec::new();
        let mut far: Vec<Measured> = Vec::new();
        let mut spread_points = Vec::new();
        for point in points {
            match packed.last() {
                Some(&(gpus, _, rate)) if gpus == point.0 => {
                    far.retain(|other| other.0 != gpus);
                    far.push((gpus, point.1, libm::log(point.2 / rate)));
                    spread_points.push(point);
                }
                _ => packed.push(point),
            }
        }
        Some(Curve { scaling: model.scaling, packed, far, spread_points })
    }

    /// The speed at one number of GPUs.
    pub fn cell(&self, gpus: u32) -> Cell {
        let (rate, nodes) = self.packed_at(gpus.max(1));
        let (far_nodes, far) = self.far_at(gpus.max(1), nodes);
        Cell { rate, nodes, far_nodes, far }
    }

    /// The power of GPUs by which speed grows beyond the largest point.
    pub fn tail(&self) -> f64 {
        match self.packed.as_slice() {
            [.., a, b] => slope(a, b).clamp(-1.0, 1.0),
            _ => self.scaling,
        }
    }

    fn packed_at(&self, gpus: u32) -> (f64, u32) {
        let next = self.packed.partition_point(|point| point.0 <= gpus);
        let nodes = gpus.div_ceil(self.per_node());
        if next == 0 {
            let first = &self.packed[0];
            return (first.2 * power_of(gpus, first.0, self.scaling), nodes);
        }
        let below = &self.packed[next - 1];
        if below.0 == gpus {
            return (below.2, below.1);
        }
        let power = match self.packed.get(next) {
            Some(above) => slope(below, above),
            None => self.tail(),
        };
        (below.2 * power_of(gpus, below.0, power), nodes)
    }

    /// GPUs that were measured together on one node; usual nodes where only single GPUs were measured.
    fn per_node(&self) -> u32 {
        let gangs = self.packed.iter().filter(|point| point.0 > 1);
        gangs.map(|point| point.0.div_ceil(point.1)).max().unwrap_or(NODE_GPUS_USUAL)
    }

    /// The loss by spreading, taken from the nearest measured sizes on both sides.
    fn far_at(&self, gpus: u32, nodes: u32) -> (u32, f64) {
        let next = self.far.partition_point(|point| point.0 <= gpus);
        let (far_nodes, kept) =
            match (next.checked_sub(1).map(|at| self.far[at]), self.far.get(next)) {
                (None, None) => return (0, 1.0),
                (Some(below), None) => (below.1, below.2),
                (None, Some(above)) => (above.1, above.2),
                (Some(below), Some(above)) => {
                    let part = log_ratio(gpus, below.0) / log_ratio(above.0, below.0);
                    (below.1, below.2 + part * (above.2 - below.2))
                }
            };
        (far_nodes.max(nodes + 1), libm::exp(kept))
    }
}

/// The type whose points are used, and the factor to apply to them.
///
/// First the type itself, then its family (`a100` for `a100-80gb`), then points that hold everywhere, then the
/// measured type with the most similar speed, scaled by the ratio of the two in the table of types.
pub(crate) fn source_kind<'a>(model: &'a ModelProfile, kind: &str) -> Option<(&'a str, f64)> {
    let find = |fits: &dyn Fn(&Point) -> bool| {
        model.points.iter().find(|point| fits(point)).map(|point| point.kind.as_str())
    };
    let family = kinds::facts(kind).map(|facts| facts.name);
    if let Some(same) = find(&|point| point.kind.eq_ignore_ascii_case(kind))
        .or_else(|| find(&|point| family.is_some_and(|name| point.kind.eq_ignore_ascii_case(name))))
        .or_else(|| find(&|point| point.kind == ANY_KIND))
    {
        return Some((same, 1.0));
    }
    let speed = kinds::speed(kind);
    let distance = |point: &Point| libm::fabs(libm::log(kinds::speed(&point.kind) / speed));
    let near = model.points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some((near.kind.as_str(), speed / kinds::speed(&near.kind)))
}

fn slope(a: &Measured, b: &Measured) -> f64 {
    libm::log(b.2 / a.2) / log_ratio(b.0, a.0)
}

fn log_ratio(gpus: u32, base: u32) -> f64 {
    libm::log(f64::from(gpus) / f64::from(base))
}

/// `(gpus / base) ^ power`.
pub(crate) fn power_of(gpus: u32, base: u32, power: f64) -> f64 {
    libm::pow(f64::from(gpus) / f64::from(base), power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(points: &[(&str, u32, u32, f64)]) -> ModelProfile {
        let points = points.iter().map(|(kind, gpus, nodes, rate)| Point {
            kind: (*kind).to_owned(),
            gpus: *gpus,
            nodes: *nodes,
            rate: *rate,
        });
        ModelProfile { points: points.collect(), ..ModelProfile::named("m", "test") }
    }

    #[test]
    fn a_measured_point_is_answered_exactly() {
        let curve =
            Curve::new(&model(&[("v100", 1, 1, 3.7), ("v100", 4, 1, 11.3)]), "v100").unwrap();
        assert_eq!(curve.cell(1).rate, 3.7);
        assert_eq!(curve.cell(4).rate, 11.3);
    }

    #[test]
    fn between_points_the_logarithm_is_linear_and_beyond_the_slope_goes_on() {
        let curve =
            Curve::new(&model(&[("v100", 1, 1, 1.0), ("v100", 4, 1, 2.0)]), "v100").unwrap();
        assert!((curve.cell(2).rate - 2f64.sqrt()).abs() < 1e-12);
        assert!((curve.cell(16).rate - 4.0).abs() < 1e-12);
        let steep =
            Curve::new(&model(&[("v100", 1, 1, 1.0), ("v100", 2, 1, 9.0)]), "v100").unwrap();
        assert!((steep.cell(4).rate - 18.0).abs() < 1e-12, "no faster than linear");
    }

    #[test]
    fn the_nearest_type_stands_in_with_the_ratio_of_speeds() {
        let zoo = model(&[("k80", 1, 1, 1.0), ("v100", 1, 1, 10.0)]);
        let ratio = kinds::speed("a100") / kinds::speed("v100");
        assert_eq!(Curve::new(&zoo, "a100-80gb").unwrap().cell(1).rate, 10.0 * ratio);
        assert_eq!(Curve::new(&zoo, "V100").unwrap().cell(1).rate, 10.0);
        assert!(Curve::new(&model(&[]), "v100").is_none());
    }

    #[test]
    fn a_gang_smaller_than_a_measured_node_is_packed_on_one() {
        let curve = |points: &[(&str, u32, u32, f64)]| Curve::new(&model(points), "v100").unwrap();
        let measured = curve(&[("v100", 1, 1, 1.0), ("v100", 4, 1, 2.0)]);
        assert_eq!([2, 4, 6].map(|gpus| measured.cell(gpus).nodes), [1, 1, 2]);
        let single = curve(&[("v100", 1, 1, 1.0)]);
        assert_eq!([1, 8, 9].map(|gpus| single.cell(gpus).nodes), [1, 1, 2]);
    }

    #[test]
    fn a_spread_point_gives_the_loss_also_at_sizes_between() {
        let points =
            [("v100", 2, 1, 2.0), ("v100", 2, 2, 1.0), ("v100", 8, 1, 8.0), ("v100", 8, 2, 4.0)];
        let cell = Curve::new(&model(&points), "v100").unwrap().cell(4);
        assert_eq!(
            (cell.nodes, cell.far_nodes),
            (1, 2),
            "eight were packed on one node, so four are"
        );
        assert!((cell.far - 0.5).abs() < 1e-12);
    }
}
