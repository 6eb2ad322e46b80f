//! Models that were described instead of measured: how fast they are on GPUs that a policy thinks of.
//!
//! The speed of a configuration is that of the best division of the model over it, found once and kept by what the
//! division depends on: GPUs of each type, GPUs on each node, and how far apart they are. The world and beliefs ask the
//! same; no policy knows that a job is divided.

use crate::kinds;
use crate::model::{ModelProfile, SizeCost};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use trainyard_planner::described::{Chosen, Described, Site, SiteGroup};
use trainyard_types::{Cluster, Config, GpuType, Span, Tier};

/// Bytes a second that each GPU saves, loads or cuts anew of the state of a model; ours, for a shared file system.
pub const STATE_BYTES_PER_SECOND: f64 = 1e9;
/// Bytes a second between a GPU and the memory of its host: 16 lanes of PCIe 3.
const HOST_BYTES_PER_SECOND: f64 = 12e9;
/// Starting processes and their connections, without the state.
const START_PROCESSES: Span = Span::secs(25);
/// Sizes up to this have costs of their own; larger ones cost what it does.
const COST_GPUS_MAX: u32 = 1 << 14;

/// What saving and starting a described model costs: each GPU writes and reads its part of the state.
pub fn costs(described: &Described) -> (SizeCost, SizeCost) {
    let part = described.state_bytes() / STATE_BYTES_PER_SECOND;
    let sizes = (0..).map(|power| 1u32 << power).take_while(|gpus| *gpus <= COST_GPUS_MAX);
    let each = |gpus: u32| Span::from_secs_f64(part / f64::from(gpus));
    let (mut save, mut start) = (Vec::new(), Vec::new());
    for gpus in sizes {
        save.push((gpus, each(gpus)));
        start.push((gpus, START_PROCESSES + each(gpus)));
    }
    (SizeCost::table(save), SizeCost::table(start))
}

/// What a division depends on.
type Key = (SmallVec<[(GpuType, u32); 2]>, SmallVec<[u16; 8]>, Tier);

/// A described model on one cluster.
#[derive(Debug)]
pub struct Plans {
    described: Arc<Described>,
    /// By type: its name and its memory.
    kinds: Vec<(String, f64)>,
    /// By type: bytes a second of one direction of a port inside a node.
    inside: Vec<f64>,
    rack: f64,
    core: f64,
    /// GPUs of the largest node.
    per_node: u32,
    /// What was asked so far. A pure function of the key, so that neither order nor threads change an answer.
    known: RwLock<BTreeMap<Key, Arc<Result<Chosen, String>>>>,
}

impl Plans {
    /// A model on a cluster; nothing for one that was not described.
    pub(crate) fn new(model: &ModelProfile, cluster: &Cluster) -> Option<Arc<Plans>> {
        let described = Arc::clone(model.described.as_ref()?);
        let kinds = cluster.kinds.iter().map(|kind| {
            let known = kinds::facts(&kind.name).map_or(0, |facts| facts.memory_gib * 1024);
            let memory = if kind.memory_mib > 0 { kind.memory_mib } else { known };
            (kind.name.clone(), f64::from(memory) * f64::from(1u32 << 20))
        });
        let bytes = |mbps: u64| mbps as f64 * 1e6 / 8.0;
        // A tier's bandwidth is that of both directions together; a port carries half of it each way.
        let mut inside = vec![bytes(cluster.links.node_mbps) / 2.0; cluster.kinds.len()];
        let (mut rack, mut core) = (bytes(cluster.links.rack_mbps), bytes(cluster.links.core_mbps));
        if let Some(links) = crate::speeds::LinkClasses::of(cluster) {
            for (index, own) in inside.iter_mut().enumerate() {
                *own = links.inside_mbps(index) * 1e6 / 8.0 / 2.0;
            }
            (rack, core) = (links.rack_mbps * 1e6 / 8.0, links.core_mbps * 1e6 / 8.0);
        }
        Some(Arc::new(Plans {
            described,
            kinds: kinds.collect(),
            inside,
            rack,
            core,
            per_node: cluster.nodes.iter().map(|node| u32::from(node.gpus)).max().unwrap_or(1),
            known: RwLock::default(),
        }))
    }

    /// The model.
    pub fn described(&self) -> &Described {
        &self.described
    }

    /// The best division over a configuration, or why there is none. Found at the first question, looked up after it.
    pub fn answer(&self, config: &Config) -> Arc<Result<Chosen, String>> {
        let key: Key = (config.kinds.clone(), config.shape.clone(), config.tier);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = known.get(&key) {
            return Arc::clone(answer);
        }
        drop(known);
        let found = self.described.best(&self.site(config)).map_err(|error| error.to_string());
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(key).or_insert_with(|| Arc::new(found)))
    }

    /// Iterations a second; where the model does not fit, with its weights going through the memory of the hosts.
    pub(crate) fn rate_or_swapped(&self, config: &Config) -> Option<f64> {
        match &*self.answer(config) {
            Ok(chosen) => Some(1.0 / chosen.seconds),
            Err(_) => {
                let seconds = self.described.seconds_by_swaps(&self.site(config)).ok()?;
                Some(1.0 / seconds)
            }
        }
    }

    /// Seconds to cut the saved state anew where a division over other GPUs needs it: all of it is read, put together
    /// and cut by the GPUs that are there before and after. Nothing where only the number of copies changes.
    pub(crate) fn recut(&self, from: &Config, to: &Config) -> Span {
        match (&*self.answer(from), &*self.answer(to)) {
            (Ok(before), Ok(after)) if before.cut != after.cut => {
                let gpus = f64::from(before.gpus.min(after.gpus).max(1));
                let bytes = 2.0 * self.described.state_bytes();
                Span::from_secs_f64(bytes / (gpus * STATE_BYTES_PER_SECOND))
            }
            _ => Span::ZERO,
        }
    }

    fn site(&self, config: &Config) -> Site {
        let divisor = |sum: u32, here: u16| common_divisor(sum, u32::from(here));
        let mut together = config.shape.iter().copied().fold(0, divisor);
        if config.kinds.len() > 1 {
            // Which node has which type is not told, so only what divides all of them is taken to be together.
            together = config.kinds.iter().fold(together, |sum, kind| common_divisor(sum, kind.1));
        }
        let groups = config.kinds.iter().filter(|kind| kind.1 > 0).filter_map(|(kind, gpus)| {
            let (name, memory_bytes) = self.kinds.get(kind.index())?.clone();
            let inside = self.inside[kind.index()];
            Some(SiteGroup { kind: name, gpus: *gpus, memory_bytes, inside })
        });
        let most = config.shape.first().copied().map_or(1, u32::from);
        Site {
            groups: groups.collect(),
            together: together.max(1),
            sharing: most.min(self.per_node).max(1),
            network: if config.tier == Tier::Core { self.core } else { self.rack },
            host: HOST_BYTES_PER_SECOND,
        }
    }
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
