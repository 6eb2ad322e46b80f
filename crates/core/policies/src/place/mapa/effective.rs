//! Effective bandwidth of a ring by its wires: the published regression, and one that never falls for a faster wire.

use super::matching::{Matches, Used};
use serde::{Deserialize, Serialize};

/// Which effective bandwidth counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// The regression as it was published, over all matchings of a set of GPUs.
    #[default]
    Published,
    /// Between its greatest monotone lower and its least monotone upper bound, over the matching with the most bandwidth.
    Monotone,
}

/// The regression of MAPA (SC 2021) in GB/s: 14 terms of the numbers of double NVLinks, single NVLinks and PCIe wires.
/// The coefficients are those of the authors' repository, socal-ucr/MAPA.
pub fn published(used: Used) -> f64 {
    let (x, y, z) = (f64::from(used.double), f64::from(used.single), f64::from(used.pcie));
    16.39670455 * x + 4.536821878 * y + 1.55623404 * z
        - 20.69484581 / (x + 1.0)
        - 9.467461958 / (y + 1.0)
        + 7.615106783 / (z + 1.0)
        - 7.973335727 * x * y
        + 12.73323772 * y * z
        - 4.195655221 * x * z
        - 8.413419363 / (x * y + 1.0)
        + 62.85125807 / (y * z + 1.0)
        + 27.41832588 / (x * z + 1.0)
        - 5.114108079 * x * y * z
        - 46.97390071 / (x * y * z + 1.0)
}

/// Corrected values, kept by number of wires.
#[derive(Clone, Debug, Default)]
pub struct Effective {
    /// By number of wires, then by double and single ones, row by row.
    tables: Vec<Vec<f64>>,
}

impl Effective {
    /// The best effective bandwidth among the matchings of a set of GPUs.
    pub fn best(&mut self, correction: Correction, matches: &Matches, used: &[Used]) -> f64 {
        match correction {
            Correction::Published => {
                used.iter().map(|used| published(*used)).fold(f64::NEG_INFINITY, f64::max)
            }
            Correction::Monotone => {
                let by_sum =
                    |a: &&Used, b: &&Used| matches.gbytes(**a).total_cmp(&matches.gbytes(**b));
                used.iter().max_by(by_sum).map_or(0.0, |used| self.monotone(*used))
            }
        }
    }

    /// The corrected effective bandwidth. Of two rings with as many wires, one that comes from the other by faster wires
    /// never has less.
    pub fn monotone(&mut self, used: Used) -> f64 {
        let wires = usize::from(used.double) + usize::from(used.single) + usize::from(used.pcie);
        while self.tables.len() <= wires {
            self.tables.push(corrected(self.tables.len() as u8));
        }
        self.tables[wires][usize::from(used.double) * (wires + 1) + usize::from(used.single)]
    }
}

/// For so many wires, the mean of the greatest value below or at each place of the order and the least above or at it.
fn corrected(wires: u8) -> Vec<f64> {
    let side = usize::from(wires) + 1;
    let places = move || {
        (0..=wires).flat_map(move |double| (0..=wires - double).map(move |single| (double, single)))
    };
    let value = |(double, single): (u8, u8)| {
        published(Used { double, single, pcie: wires - double - single })
    };
    // One ring is no better than another where it has no more double wires and no more NVLinks of either sort.
    let no_better = |a: (u8, u8), b: (u8, u8)| a.0 <= b.0 && a.0 + a.1 <= b.0 + b.1;
    let mut table = vec![0.0; side * side];
    for place in places() {
        let below = places().filter(|other| no_better(*other, place)).map(value);
        let above = places().filter(|other| no_better(place, *other)).map(value);
        let (upper, lower) =
            (below.fold(f64::NEG_INFINITY, f64::max), above.fold(f64::INFINITY, f64::min));
        table[usize::from(place.0) * side + usize::from(place.1)] = (upper + lower) / 2.0;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(double: u8, single: u8, pcie: u8) -> Used {
        Used { double, single, pcie }
    }

    #[test]
    fn the_published_regression_gives_the_published_values() {
        for (ring, gbytes) in [
            (used(2, 0, 0), 58.93),
            (used(0, 2, 0), 27.72),
            (used(0, 0, 2), 10.37),
            (used(2, 1, 0), 57.86),
            (used(3, 1, 0), 68.71),
            (used(4, 0, 1), 53.51),
            (used(5, 1, 0), 87.98),
            (used(8, 0, 0), 161.90),
        ] {
            assert!((published(ring) - gbytes).abs() < 0.006, "{ring:?}: {}", published(ring));
        }
    }

    #[test]
    fn the_corrected_one_never_falls_for_a_faster_wire_and_the_published_one_does() {
        let mut effective = Effective::default();
        let mut falls = 0;
        for wires in 1..=8u8 {
            for double in 0..=wires {
                for single in 0..=wires - double {
                    let here = used(double, single, wires - double - single);
                    let faster = [
                        (here.pcie > 0)
                            .then(|| used(double, single + 1, here.pcie.saturating_sub(1))),
                        (single > 0).then(|| used(double + 1, single - single.min(1), here.pcie)),
                    ];
                    for faster in faster.into_iter().flatten() {
                        assert!(
                            effective.monotone(faster) >= effective.monotone(here),
                            "{here:?} to {faster:?}"
                        );
                        falls += u32::from(published(faster) < published(here));
                    }
                }
            }
        }
        assert!(falls > 20, "the control: the published one falls {falls} times");
    }
}
