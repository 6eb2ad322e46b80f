//! Skew: a model dominated by one tensor is consolidated or waits, any other fills the gaps that others leave.

use crate::place::fewest_nodes::{fewest_nodes, on_many_nodes, on_one_node};
use crate::place::{CLASS, kinds};
use crate::prelude::*;
use smallvec::SmallVec;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "skew",
    about: "A model dominated by one tensor gets the fewest possible nodes or waits; any other fills gaps.",
    paper: "Gu et al., Tiresias, NSDI 2019",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[
        (
            "threshold",
            "the share of the largest tensor in the model above which it must be consolidated",
        ),
        ("consolidate_unknown", "whether a model of unknown skew must be consolidated too"),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    #[serde(deserialize_with = "crate::place::part")]
    threshold: f64,
    consolidate_unknown: bool,
}

impl Default for Settings {
    /// The models of Tiresias' own table have a skew of at most 0.1 or at least 0.6.
    fn default() -> Settings {
        Settings { threshold: 0.5, consolidate_unknown: false }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    Ok(Box::new(Skew { settings: raw.read(ENTRY.name)? }))
}

/// The placer. O(1) where one node in use holds the gang; else the partly used nodes are walked over for a model
/// that may be spread, and all nodes for one that may not.
pub(crate) struct Skew {
    settings: Settings,
}

impl Skew {
    /// No model has to be consolidated: every gang fills gaps where no node in use holds it.
    pub(crate) fn relaxed() -> Skew {
        Skew { settings: Settings { threshold: 1.0, consolidate_unknown: false } }
    }
}

impl Placer for Skew {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let skew = view.skew(ask.job);
        let skewed =
            skew.map_or(self.settings.consolidate_unknown, |skew| skew > self.settings.threshold);
        if skewed && ask.count > 1 {
            consolidated(ask, free, view)
        } else {
            filling(ask, free, view)
        }
    }
}

/// As few nodes of a type as would do if all in service were idle, or nothing.
fn consolidated(ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
    if let Some(found) = kinds(ask, free).find_map(|kind| on_one_node(ask, free, kind)) {
        return Some(found);
    }
    kinds(ask, free).find_map(|kind| {
        let fewest = fewest_possible(ask, free, view, kind)?;
        let nodes_max = match ask.nodes_max {
            0 => fewest,
            limit => limit.min(fewest),
        };
        on_many_nodes(&Ask { nodes_max, ..ask.clone() }, free, kind)
    })
}

/// How many nodes the gang needs when all that is in service is idle.
fn fewest_possible(ask: &Ask<'_>, free: &Free, view: &View<'_>, kind: GpuType) -> Option<u16> {
    let mut nodes_with = [0u32; 65];
    for node in view.cluster().nodes.iter().filter(|node| node.kind == kind) {
        nodes_with[capacity(ask, free, view, node.id) as usize] += 1;
    }
    let mut rest = ask.count;
    let mut nodes = 0;
    for gpus in (1..=64).rev() {
        let taken = nodes_with[gpus as usize].min(rest.div_ceil(gpus));
        nodes += taken;
        rest = rest.saturating_sub(taken * gpus);
        if rest == 0 {
            return Some(nodes.min(u32::from(u16::MAX)) as u16);
        }
    }
    None
}

/// How many GPUs of the gang a node holds when it is idle.
fn capacity(ask: &Ask<'_>, free: &Free, view: &View<'_>, id: NodeId) -> u32 {
    let node = view.cluster().node(id);
    let want = &ask.job.spec.want;
    let by = |stated: u32, per_gpu: u32| match (stated, per_gpu) {
        (0, _) | (_, 0) => u32::MAX,
        (stated, per_gpu) => stated / per_gpu,
    };
    let memory = view.cluster().kinds[node.kind.index()].memory_mib;
    if ask.pool.is_some_and(|pool| free.pool(id) != pool) || by(memory, want.gpu_memory_mib) == 0 {
        return 0;
    }
    let host = ask.host_per_gpu;
    let memory_mib = host.memory_mib.min(u64::from(u32::MAX)) as u32;
    let by_cpus = by(u32::from(node.cpus), host.cpus);
    let by_memory = by(node.memory_mib, memory_mib);
    free.up(id).count_ones().min(by_cpus).min(by_memory)
}

/// A node in use that holds the gang, else what is left of nodes in use, else as few nodes as possible.
fn filling(ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
    let on_one = kinds(ask, free).find_map(|kind| on_one_node(ask, free, kind));
    if let Some(found) = &on_one
        && in_use(free, found.masks()[0].0)
    {
        return on_one;
    }
    kinds(ask, free)
        .find_map(|kind| in_gaps(ask, free, view, kind))
        .or(on_one)
        .or_else(|| fewest_nodes(ask, free))
}

/// The roomiest gaps: free GPUs of nodes in use.
fn in_gaps(ask: &Ask<'_>, free: &Free, view: &View<'_>, kind: GpuType) -> Option<Placement> {
    // A node with as many free GPUs as the largest has is idle, so that those need not be looked at.
    let (_, largest) = *view.state().shapes.iter().find(|(other, _)| *other == kind)?;
    let nodes_max = if ask.nodes_max == 0 { usize::MAX } else { usize::from(ask.nodes_max) };
    let nodes = (1..largest).rev().flat_map(|count| free.nodes_with(kind, count).iter());
    let gaps = nodes.filter(|node| in_use(free, *node)).map(|node| (node, ask.usable(node, free)));
    let mut rest = ask.count;
    let mut parts: SmallVec<[(NodeId, u64); 8]> = SmallVec::new();
    for (node, usable) in gaps.filter(|(_, usable)| *usable > 0).take(nodes_max) {
        let count = usable.min(rest);
        parts.push((node, lowest_bits(ask.usable_mask(node, free), count)));
        rest -= count;
        if rest == 0 {
            return Some(Placement::from_masks(parts));
        }
    }
    None
}

fn in_use(free: &Free, node: NodeId) -> bool {
    free.mask(node) != free.up(node)
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_skewed_gang_waits_where_another_fills_gaps() {
        let yard = Yard::new("2x8 v100").taken("n0[0-4] n1[0-4]");
        assert_eq!(yard.clone().skewed(0.74).place("skew", wants(4)), "-");
        assert_eq!(yard.clone().skewed(0.09).place("skew", wants(4)), "n0[5-7] n1[5]");
        assert_eq!(yard.place("skew", wants(4)), "n0[5-7] n1[5]");
        assert_eq!(yard.place("skew consolidate_unknown=true", wants(4)), "-");
        assert_eq!(yard.skewed(0.74).place("skew threshold=0.8", wants(4)), "n0[5-7] n1[5]");
    }

    #[test]
    fn a_skewed_gang_larger_than_a_node_gets_the_fewest_possible_nodes() {
        let yard = Yard::new("3x8 v100").skewed(0.74);
        assert_eq!(yard.place("skew", wants(12)), "n0[0-7] n1[0-3]");
        let yard = yard.taken("n0[0-3] n1[0-3]");
        assert_eq!(yard.place("skew", wants(12)), "n0[4-7] n2[0-7]");
        assert_eq!(yard.place("skew", wants(14)), "-");
    }

    #[test]
    fn a_node_that_lost_gpus_counts_for_what_it_has() {
        let yard = Yard::new("2x8 v100").skewed(0.74).down("n0[0]").down("n1[0]");
        assert_eq!(yard.place("skew", wants(8)), "n0[1-7] n1[1]");
    }

    #[test]
    fn gaps_are_filled_before_an_idle_node_is_opened() {
        let yard = Yard::new("3x4 v100").taken("n0[0-1] n1[0]");
        assert_eq!(yard.place("skew", wants(2)), "n0[2-3]");
        assert_eq!(yard.place("skew", wants(4)), "n0[2] n1[1-3]");
        assert_eq!(yard.place("skew", wants(6)), "n0[2-3] n2[0-3]");
    }
}
