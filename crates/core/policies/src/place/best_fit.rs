//! Best fit: the node that is left with the least; a gang too large for one takes the nodes that leave the least over.

use crate::place::{CLASS, kinds};
use crate::prelude::*;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "best-fit",
    about: "The node left with the fewest GPUs, CPUs and memory; a larger gang leaves as few over as it can.",
    paper: "-",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[(
        "scan_max",
        "how many nodes with equally many free GPUs are compared by CPUs and memory, at least 1",
    )],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    scan_max: std::num::NonZeroU16,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { scan_max: std::num::NonZeroU16::MIN.saturating_add(63) }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    let Settings { scan_max } = raw.read(ENTRY.name)?;
    Ok(Box::new(BestFit { scan_max: usize::from(scan_max.get()) }))
}

/// The placer. A gang that fits a node costs at most `scan_max` comparisons and the nodes passed over;
/// a larger one the nodes with room and a table of (its GPUs + 64) x (classes of room x log of their nodes).
struct BestFit {
    scan_max: usize,
}

impl Placer for BestFit {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        self.on_one_node(ask, free).or_else(|| on_many_nodes(ask, free))
    }
}

impl BestFit {
    fn on_one_node(&self, ask: &Ask<'_>, free: &Free) -> Option<Placement> {
        let best = kinds(ask, free).filter_map(|kind| self.tightest(ask, free, kind)).min()?;
        let node = best.node;
        Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), ask.count)))
    }

    /// The tightest node of a type: of those with the fewest free GPUs the one with the fewest CPUs and least memory.
    fn tightest(&self, ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Fit> {
        (ask.count..=64).find_map(|count| {
            let nodes = free.nodes_with(kind, count).iter();
            let holding = nodes.filter(|node| ask.usable(*node, free) >= ask.count);
            let fit = |node| Fit {
                gpus: count,
                cpus: free.cpus_left(node).unwrap_or(u32::MAX),
                memory_mib: free.host_memory_left(node).unwrap_or(u64::MAX),
                node,
            };
            holding.take(self.scan_max).map(fit).min()
        })
    }
}

/// What is free on a node; the order of the fields is the order of preference.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    gpus: u32,
    cpus: u32,
    memory_mib: u64,
    node: NodeId,
}

/// Of all types the combination of nodes that leaves the fewest GPUs over, then the one of fewest nodes.
fn on_many_nodes(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    if ask.nodes_max == 1 {
        return None;
    }
    let combinations = kinds(ask, free).filter_map(|kind| Combination::find(ask, free, kind));
    let best = combinations.min_by_key(|found| (found.left_over, found.nodes.len()))?;
    let mut left_over = best.left_over;
    let masks = best.nodes.into_iter().map(|(node, usable)| {
        // The roomiest comes first, and no smaller node is spared, so it can leave all that is left over.
        let count = usable - std::mem::take(&mut left_over);
        (node, lowest_bits(ask.usable_mask(node, free), count))
    });
    Some(Placement::from_masks(masks))
}

/// Nodes whose usable GPUs together are at least those of the gang.
struct Combination {
    /// Usable GPUs of these nodes that the gang does not need.
    left_over: u32,
    /// Nodes with their usable GPUs, most first.
    nodes: Vec<(NodeId, u32)>,
}

impl Combination {
    /// A subset sum: `fewest[s]` is the least number of nodes with exactly `s` usable GPUs together.
    fn find(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Combination> {
        let mut rooms: Vec<Vec<NodeId>> = vec![Vec::new(); 65];
        for node in free.tightest(kind, 1) {
            rooms[ask.usable(node, free) as usize].push(node);
        }
        let most = (1..=64).rev().find(|usable| !rooms[*usable as usize].is_empty())?;
        let limit = (ask.count + most - 1) as usize;
        let bundles = bundles(&rooms, limit);
        let mut fewest = vec![u32::MAX; limit + 1];
        fewest[0] = 0;
        let mut taken = vec![false; bundles.len() * (limit + 1)];
        for (index, bundle) in bundles.iter().enumerate() {
            let gpus = (bundle.usable * bundle.nodes) as usize;
            for sum in (gpus..=limit).rev() {
                let nodes = fewest[sum - gpus].saturating_add(bundle.nodes);
                if nodes < fewest[sum] {
                    fewest[sum] = nodes;
                    taken[index * (limit + 1) + sum] = true;
                }
            }
        }
        let nodes_max = if ask.nodes_max == 0 { u32::MAX - 1 } else { u32::from(ask.nodes_max) };
        let sum = (ask.count as usize..=limit).find(|sum| fewest[*sum] <= nodes_max)?;
        let left_over = sum as u32 - ask.count;
        let mut nodes = Vec::with_capacity(fewest[sum] as usize);
        let mut sum = sum;
        for (index, bundle) in bundles.iter().enumerate().rev() {
            if taken[index * (limit + 1) + sum] {
                let room = &mut rooms[bundle.usable as usize];
                nodes.extend(room.drain(..bundle.nodes as usize).map(|node| (node, bundle.usable)));
                sum -= (bundle.usable * bundle.nodes) as usize;
            }
        }
        Some(Combination { left_over, nodes })
    }
}

/// Some nodes with equally many usable GPUs, taken together or not at all.
struct Bundle {
    usable: u32,
    nodes: u32,
}

/// Nodes of each class in bundles of 1, 2, 4, ... so that any number of them is a sum of few bundles.
fn bundles(rooms: &[Vec<NodeId>], limit: usize) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    for (usable, room) in rooms.iter().enumerate().skip(1) {
        let mut rest = room.len().min(limit / usable) as u32;
        let mut size = 1;
        while rest > 0 {
            let nodes = size.min(rest);
            bundles.push(Bundle { usable: usable as u32, nodes });
            rest -= nodes;
            size *= 2;
        }
    }
    bundles
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_gang_goes_to_the_node_left_with_the_fewest_gpus() {
        let yard = Yard::new("3x8 v100").taken("n0[0-1] n2[0-3]");
        assert_eq!(yard.place("best-fit", wants(3)), "n2[4-6]");
        assert_eq!(yard.place("best-fit", wants(6)), "n0[2-7]");
    }

    #[test]
    fn of_nodes_with_equal_gpus_the_one_with_the_fewest_cpus_is_taken() {
        let mut yard = Yard::new("3x8 v100");
        yard.cluster().nodes[0].cpus = 64;
        yard.cluster().nodes[1].cpus = 32;
        yard.cluster().nodes[2].cpus = 48;
        assert_eq!(yard.place("best-fit", wants(2)), "n1[0-1]");
        let mut want = wants(8);
        want.cpus_per_gpu = 6;
        assert_eq!(yard.place("best-fit", want), "n2[0-7]");
        assert_eq!(yard.place("best-fit scan_max=1", wants(2)), "n0[0-1]");
    }

    #[test]
    fn a_large_gang_takes_nodes_that_leave_nothing_over() {
        // Free: 8, 5, 4, 3. Fewest nodes would strand GPUs: 8 + 4 does not.
        let yard = Yard::new("4x8 v100").taken("n1[0-2] n2[0-3] n3[0-4]");
        assert_eq!(yard.place("best-fit", wants(12)), "n0[0-7] n2[4-7]");
        assert_eq!(yard.place("best-fit", wants(9)), "n1[3-7] n2[4-7]");
    }

    #[test]
    fn what_cannot_be_helped_is_left_on_the_roomiest_node() {
        let yard = Yard::new("2x8 v100").taken("n1[0-2]");
        assert_eq!(yard.place("best-fit", wants(12)), "n0[0-6] n1[3-7]");
        // Another type may leave nothing over, on more nodes.
        let yard = Yard::new("2x8 v100, 3x4 t4").taken("n1[0-2]");
        assert_eq!(yard.place("best-fit", wants(12)), "n2[0-3] n3[0-3] n4[0-3]");
    }
}
