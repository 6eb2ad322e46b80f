//! The summary of a placement that a speed model needs.

use crate::{GpuType, HostShare, ModelId};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// How far apart the GPUs of a placement are.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// One GPU alone.
    #[default]
    Gpu,
    /// Several in one node.
    Node,
    /// Several nodes of one rack.
    Rack,
    /// Several racks.
    Core,
}

/// One of the jobs on a GPU, as far as the speed of the others depends on it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Occupant {
    /// Its model.
    pub model: ModelId,
    /// The part of the GPU's time that it has a right to, in thousandths; 0 if it lives on what others leave.
    pub request: u16,
    /// The part that it may have at most, in thousandths.
    pub limit: u16,
    /// How many GPUs it has in all; 0 if as many as the job that sees it.
    pub gpus: u32,
    /// Those of the same lane take turns with it, an iteration each.
    pub lane: Option<u16>,
}

impl Occupant {
    /// A job that may use all that the others leave.
    pub fn unlimited(model: ModelId) -> Occupant {
        Occupant { model, request: 0, limit: 1000, gpus: 0, lane: None }
    }

    /// What another keeps beside it that would keep `kept` beside it without a limit: one that may use a part of the
    /// GPU's time is in the way for that part of it.
    pub fn lessened(&self, kept: f64) -> f64 {
        match self.limit {
            1000.. => kept,
            limit => 1.0 - (1.0 - kept) * f64::from(limit) / 1000.0,
        }
    }
}

/// What a job meets on some of its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Beside {
    /// Its own share there, in thousandths; 0 stands for what others leave.
    pub request: u16,
    /// The other jobs there, ascending.
    pub others: SmallVec<[Occupant; 2]>,
}

/// What a job's speed depends on. Small enough to be built without a heap allocation in the usual case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    /// GPUs of each type.
    pub kinds: SmallVec<[(GpuType, u32); 2]>,
    /// GPUs on each node, largest first.
    pub shape: SmallVec<[u16; 8]>,
    /// GPUs in all.
    pub gpus: u32,
    /// Nodes spanned.
    pub nodes: u32,
    /// Racks spanned.
    pub racks: u32,
    /// The slowest link.
    pub tier: Tier,
    /// The share of each GPU, in thousandths; 0 stands for what others leave.
    pub permille: u16,
    /// Host CPUs and memory.
    pub host: HostShare,
    /// Batch size, when it is not that of the profile: chosen by the policy, by the user or by the job itself.
    pub batch: Option<u32>,
    /// The most of a GPU's time that it may use where it has a share, in thousandths; nothing if its share is the limit.
    pub limit: Option<u16>,
    /// The lane in which it takes turns, if it has one.
    pub lane: Option<u16>,
    /// Memory that it needs on each GPU, where its wish states that; 0 leaves it to its profile.
    pub memory_mib: u32,
    /// The most memory that it may take on each GPU; what it needs beyond lies in the host's memory.
    pub memory_mib_max: Option<u32>,
    /// What it meets on GPUs that it does not have for itself, each different situation once; the slowest counts.
    pub beside: SmallVec<[Beside; 1]>,
}

impl Config {
    /// `gpus` whole GPUs of one type, packed on as few nodes of `per_node` GPUs as possible.
    pub fn packed(kind: GpuType, gpus: u32, per_node: u32) -> Config {
        let per_node = per_node.max(1);
        let nodes = gpus.div_ceil(per_node);
        let mut shape = SmallVec::new();
        let mut rest = gpus;
        while rest > 0 {
            let here = rest.min(per_node);
            shape.push(here as u16);
            rest -= here;
        }
        Config {
            kinds: SmallVec::from_elem((kind, gpus), 1),
            shape,
            gpus,
            nodes,
            racks: 1,
            tier: match (gpus, nodes) {
                (0 | 1, _) => Tier::Gpu,
                (_, 1) => Tier::Node,
                _ => Tier::Rack,
            },
            permille: 1000,
            ..Config::default()
        }
    }

    /// The same with other models on all its GPUs, which may use all that it leaves.
    pub fn with_partners(mut self, models: impl IntoIterator<Item = ModelId>) -> Config {
        let mut others: SmallVec<[Occupant; 2]> =
            models.into_iter().map(Occupant::unlimited).collect();
        others.sort_unstable();
        self.beside.clear();
        if !others.is_empty() {
            self.beside.push(Beside { request: self.permille, others });
        }
        self
    }

    /// The type most of its GPUs have; ties go to the lower id.
    pub fn kind(&self) -> Option<GpuType> {
        self.kinds
            .iter()
            .max_by_key(|(kind, count)| (*count, std::cmp::Reverse(*kind)))
            .map(|x| x.0)
    }
}
