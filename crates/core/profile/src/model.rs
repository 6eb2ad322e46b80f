//! What is known about one training job: its speed, its memory, what moving it costs.

use crate::Training;
use crate::batches::Batches;
use crate::features::Features;
use crate::host::HostTable;
use crate::phases::Phase;
use crate::spill::MemoryPoint;
use crate::traffic::ModelTraffic;
use std::sync::Arc;
use trainyard_planner::Described;
use trainyard_types::Span;

/// The type name of a point that holds on every type of GPU alike.
pub const ANY_KIND: &str = "any";

/// One training job of the zoo, or of a user's own file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProfile {
    /// Its name.
    pub name: String,
    /// Where its figures come from.
    pub source: String,
    /// Measured speeds.
    pub points: Vec<Point>,
    /// Memory it needs on each GPU; 0 means not known.
    pub memory_mib: u32,
    /// The part of its speed that it keeps with a part of that memory, the rest being in the host's memory; by the part,
    /// ascending. Empty: as PCIe lets it.
    pub spill: Vec<MemoryPoint>,
    /// Speed grows as GPUs to this power where nothing was measured: 1 is perfect, 0 is not at all.
    pub scaling: f64,
    /// The part of its speed it keeps each time the number of nodes doubles beyond what was measured.
    pub spread: f64,
    /// The share of its largest tensor in all its parameters, by which Tiresias judges whether it may be spread.
    pub skew: Option<f64>,
    /// What saving its state costs.
    pub save: SizeCost,
    /// What starting it costs: process, state and first step.
    pub start: SizeCost,
    /// Whether it cuts its batch by the speed of each GPU where its GPUs are of several types, instead of evenly.
    pub splits_by_speed: bool,
    /// Whether it can change its number of GPUs without a new start.
    pub resizes_in_place: bool,
    /// Its speed beside others on the same GPU.
    pub pairs: Vec<Pair>,
    /// Types and numbers of GPUs on which it was tried and does not fit.
    pub unfit: Vec<(String, u32)>,
    /// A measured training, whose speed follows its batch size and changes by epoch; the points are then its means.
    pub training: Option<Arc<Training>>,
    /// Its speed by host CPUs and memory, by number of GPUs, ascending.
    pub host: Vec<HostTable>,
    /// What an iteration takes of each resource, by number of GPUs, ascending.
    pub stages: Vec<StageTimes>,
    /// The same training at other batch sizes.
    pub batches: Option<Batches>,
    /// What an iteration moves over links, if that is known.
    pub traffic: Option<ModelTraffic>,
    /// What it does to a GPU that it has for itself, and what its program is made of; what interference is predicted
    /// from.
    pub features: Features,
    /// How it uses its GPU over time: a cycle that repeats while it runs.
    pub phases: Vec<Phase>,
    /// A model that was described instead of measured: its speed on any GPUs is that of its best division over them,
    /// and the points are not asked.
    pub described: Option<Arc<Described>>,
}

impl ModelProfile {
    /// A model with no measured point and the costs used when none are known: 5 s to save, 25 s to start.
    pub fn named(name: &str, source: &str) -> ModelProfile {
        ModelProfile {
            name: name.to_owned(),
            source: source.to_owned(),
            points: Vec::new(),
            memory_mib: 0,
            spill: Vec::new(),
            scaling: 0.9,
            spread: 0.9,
            skew: None,
            save: SizeCost::flat(SAVE_DEFAULT),
            start: SizeCost::flat(START_DEFAULT),
            splits_by_speed: false,
            resizes_in_place: false,
            pairs: Vec::new(),
            unfit: Vec::new(),
            training: None,
            host: Vec::new(),
            stages: Vec::new(),
            batches: None,
            traffic: None,
            features: Features::default(),
            phases: Vec::new(),
            described: None,
        }
    }

    /// A model that was described instead of measured; see [`crate::planned`] for what moving it costs.
    pub fn described(described: Described) -> ModelProfile {
        let source = "described: planned, not measured";
        let (save, start) = crate::planned::costs(&described);
        ModelProfile {
            save,
            start,
            described: Some(Arc::new(described.clone())),
            ..ModelProfile::named(&described.text, source)
        }
    }

    /// A model that does `rate` steps each second whatever it runs on, and however many GPUs it has.
    pub fn steady(name: &str, source: &str, rate: f64) -> ModelProfile {
        ModelProfile {
            points: vec![Point { kind: ANY_KIND.to_owned(), gpus: 1, nodes: 1, rate }],
            scaling: 0.0,
            spread: 1.0,
            ..ModelProfile::named(name, source)
        }
    }
}

/// The time to save a model's state when its profile does not say.
pub const SAVE_DEFAULT: Span = Span::secs(5);
/// The time to start a model when its profile does not say.
pub const START_DEFAULT: Span = Span::secs(25);

/// One measured speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The type of GPU, or [`ANY_KIND`].
    pub kind: String,
    /// On how many GPUs.
    pub gpus: u32,
    /// On how many nodes.
    pub nodes: u32,
    /// Steps per second.
    pub rate: f64,
}

/// A model's speed beside one other on the same GPU, as a part of its speed alone; 0 if they do not fit together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The other's name.
    pub partner: String,
    /// The type of GPU, or [`ANY_KIND`] for those that have no pair of their own.
    pub kind: String,
    /// When both take turns.
    pub time_sliced: f64,
    /// When both run at once under MPS.
    pub mps: f64,
    /// Whether it was estimated from other pairs ([`crate::complete`]) instead of measured.
    pub estimated: bool,
}

impl Pair {
    /// What was measured beside a partner, on whatever type: under time slicing, and under MPS.
    pub fn measured(partner: &str, time_sliced: f64, mps: f64) -> Pair {
        let (partner, kind) = (partner.to_owned(), ANY_KIND.to_owned());
        Pair { partner, kind, time_sliced, mps, estimated: false }
    }
}

/// How long one iteration keeps each resource busy, for policies that let jobs take turns on them.
///
/// Stages may overlap, so that their sum can be above the time of an iteration.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// On how many GPUs.
    pub gpus: u32,
    /// Reading samples from storage.
    pub storage: Span,
    /// Preparing them on the CPU.
    pub cpu: Span,
    /// Computing on the GPU.
    pub gpu: Span,
    /// Exchanging gradients.
    pub network: Span,
}

/// A time that may grow with the number of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeCost {
    /// On one GPU.
    pub base: Span,
    /// More for each further GPU.
    pub per_gpu: Span,
    /// More each time the number of GPUs doubles.
    pub per_doubling: Span,
    /// Measured times by number of GPUs, ascending; when there are any, the rest is not used.
    pub at: Vec<(u32, Span)>,
}

impl SizeCost {
    /// The same for every size.
    pub fn flat(base: Span) -> SizeCost {
        SizeCost { base, ..SizeCost::default() }
    }

    /// Measured times by number of GPUs, ascending.
    pub fn table(at: Vec<(u32, Span)>) -> SizeCost {
        debug_assert!(at.is_sorted_by_key(|(gpus, _)| *gpus));
        SizeCost { at, ..SizeCost::default() }
    }

    /// The time on `gpus` GPUs; between measured sizes, that of the next smaller one.
    pub fn on(&self, gpus: u32) -> Span {
        if let Some(first) = self.at.first() {
            let next = self.at.partition_point(|(size, _)| *size <= gpus);
            return if next == 0 { first.1 } else { self.at[next - 1].1 };
        }
        let gpus = gpus.max(1);
        let mut time = self.base + self.per_gpu.times(u64::from(gpus - 1));
        if self.per_doubling > Span::ZERO {
            time += self.per_doubling.scaled(libm::log2(f64::from(gpus)));
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_grows_as_its_terms_say() {
        let cost = SizeCost {
            base: Span::secs(10),
            per_gpu: Span::secs(1),
            per_doubling: Span::secs(2),
            at: Vec::new(),
        };
        assert_eq!(cost.on(0), Span::secs(10));
        assert_eq!(cost.on(1), Span::secs(10));
        assert_eq!(cost.on(8), Span::secs(10 + 7 + 6));
    }

    #[test]
    fn a_measured_cost_is_that_of_the_next_smaller_size() {
        let cost = SizeCost::table(vec![(2, Span::secs(3)), (8, Span::secs(9))]);
        let times: Vec<u64> = [1, 2, 7, 8, 99].iter().map(|g| cost.on(*g).0 / 1_000_000).collect();
        assert_eq!(times, [3, 3, 3, 9, 9]);
    }
}
