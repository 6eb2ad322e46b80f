//! What a model moves over links in one iteration, and over which links its speed was measured.

use trainyard_types::{Inside, Links, Pattern, Traffic};

/// The traffic of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelTraffic {
    /// What one iteration moves.
    pub moves: Traffic,
    /// Bandwidth between GPUs of a node where the model was measured; nothing for that of the vendor's machine of the
    /// type.
    pub inside_mbps: Option<u64>,
    /// Bandwidth between nodes where it was measured.
    pub across_mbps: u64,
}

/// Parameters in millions, counted from the layers of the published architectures.
const PARAMETERS: [(&str, f64); 17] = [
    ("vgg11", 132.86),
    ("vgg16", 138.36),
    ("vgg19", 143.67),
    ("alexnet", 61.10),
    ("resnet18", 11.69),
    ("resnet50", 25.56),
    ("resnet101", 44.55),
    ("resnet152", 60.19),
    ("inception3", 27.16),
    ("inception4", 42.68),
    ("googlenet", 6.62),
    ("caffenet", 60.97),
    ("shufflenet", 2.28),
    ("mobilenet_v3_large", 5.48),
    ("vit_b_16", 86.57),
    ("bert", 109.48),
    ("gpt2", 124.44),
];

impl ModelTraffic {
    /// Data parallel training of so many parameters along a ring, four bytes for each gradient, nothing hidden, measured
    /// at the usual 100 Gbit/s between nodes.
    pub fn gradients(parameters: f64) -> ModelTraffic {
        let moves = Traffic { bytes: 4.0 * parameters, pattern: Pattern::Ring, overlap: 0.0 };
        ModelTraffic { moves, inside_mbps: None, across_mbps: Links::default().rack_mbps }
    }

    /// That of a published architecture, if its parameters are counted here.
    pub fn of(architecture: &str) -> Option<ModelTraffic> {
        let found = PARAMETERS.iter().find(|(name, _)| *name == architecture);
        found.map(|(_, millions)| ModelTraffic::gradients(millions * 1e6))
    }

    /// Seconds in which its communication is done where the slowest link gives it so much bandwidth.
    pub fn seconds(&self, gpus: u32, mbps: f64) -> f64 {
        if gpus < 2 {
            return 0.0;
        }
        self.moves.pattern.unit(self.moves.bytes, gpus) * 8.0 / (mbps.max(1e-6) * 1e6)
    }

    /// The part of its measured speed that a job keeps: it was measured at one bandwidth and has another.
    ///
    /// What communication does not hide behind computation makes an iteration longer, what is saved makes it shorter;
    /// a tenth of the measured time is left at least.
    pub fn kept(&self, gpus: u32, rate: f64, (measured, mbps): (f64, f64)) -> f64 {
        if gpus < 2 || rate <= 0.0 {
            return 1.0;
        }
        let step = 1.0 / rate;
        let hidden = self.moves.overlap * step;
        let shown = |mbps: f64| (self.seconds(gpus, mbps) - hidden).max(0.0);
        let changed = step + shown(mbps) - shown(measured);
        step / changed.max(step * 0.1)
    }
}

/// By number of GPUs, the bandwidth inside the vendor's machine with that type, over the best GPUs of it.
pub(crate) fn usual_inside(kind: &str) -> Vec<u64> {
    let family = kind.split(['-', '_']).next().unwrap_or(kind);
    let inside = Inside::usual(family, 8);
    (0..=8).map(|gpus| inside.best_ring_mbps(gpus)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_link_lengthens_an_iteration_by_what_it_takes_longer() {
        let traffic = ModelTraffic::gradients(25e6);
        // 100 MB over two GPUs: 100 MB each way, 8 ms at 100 Gbit/s.
        assert!((traffic.seconds(2, 100_000.0) - 0.008).abs() < 1e-12);
        let kept = traffic.kept(2, 10.0, (100_000.0, 50_000.0));
        assert!((kept - 0.1 / 0.108).abs() < 1e-12, "{kept}");
        assert!(traffic.kept(2, 10.0, (100_000.0, 400_000.0)) > 1.0);
        assert_eq!(traffic.kept(1, 10.0, (100_000.0, 1.0)), 1.0);
    }

    #[test]
    fn what_is_hidden_behind_computation_costs_nothing() {
        let mut traffic = ModelTraffic::gradients(25e6);
        traffic.moves.overlap = 0.5;
        assert_eq!(traffic.kept(2, 10.0, (100_000.0, 20_000.0)), 1.0);
        assert!(traffic.kept(2, 10.0, (100_000.0, 10_000.0)) < 1.0);
    }
}
