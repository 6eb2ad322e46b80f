//! Buddy: gangs take aligned blocks of a power of two, within a node or of whole nodes.

use crate::place::{CLASS, fewest_nodes, kinds};
use crate::prelude::*;
use trainyard_framework::fraction;
use trainyard_types::cluster::mask_of;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "buddy",
    about: "Aligned blocks of a power of two, in a node or of whole nodes; the smallest that suffices is split.",
    paper: "Zhao et al., HiveD, OSDI 2020; Gu et al., ElasticFlow, ASPLOS 2023",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[(
        "strict",
        "whether a gang waits when no aligned block is free; else it takes as few nodes as possible",
    )],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    strict: bool,
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    Ok(Box::new(Buddy { settings: raw.read(ENTRY.name)? }))
}

/// The placer. Blocks are read off the masks of free GPUs, so that a release merges them by itself.
/// Linear in the partly used nodes with room for a gang that fits a node, in the nodes of its type for a larger one.
pub(crate) struct Buddy {
    settings: Settings,
}

impl Buddy {
    /// One that takes as few nodes as possible where no aligned block is free.
    pub(crate) fn lenient() -> Buddy {
        Buddy { settings: Settings { strict: false } }
    }
}

impl Placer for Buddy {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let found = kinds(ask, free).find_map(|kind| {
            let &(_, largest) = view.state().shapes.iter().find(|(other, _)| *other == kind)?;
            if ask.count <= largest {
                in_node(ask, free, view, Chain { kind, size: largest })
            } else {
                let mut sizes = sizes(view, kind);
                sizes.find_map(|size| of_nodes(ask, free, view, Chain { kind, size }))
            }
        });
        match found {
            None if !self.settings.strict => fewest_nodes::fewest_nodes(ask, free),
            found => found,
        }
    }
}

/// Nodes of one type and, if they are to be buddies, of one size.
#[derive(Copy, Clone)]
struct Chain {
    kind: GpuType,
    size: u32,
}

/// The sizes of nodes of a type, largest first.
fn sizes(view: &View<'_>, kind: GpuType) -> impl Iterator<Item = u32> {
    let nodes = view.cluster().nodes.iter().filter(|node| node.kind == kind);
    let seen = nodes.fold(0u64, |seen, node| seen | 1 << (node.gpus - 1));
    (1..=64).rev().filter(move |size| seen >> (size - 1) & 1 == 1)
}

/// The smallest free block of one node that suffices; among equals on the tightest node, then the lowest.
fn in_node(ask: &Ask<'_>, free: &Free, view: &View<'_>, chain: Chain) -> Option<Placement> {
    let order = order_of(ask.count);
    let mut best: Option<(u32, NodeId, u64)> = None;
    for count in ask.count..=chain.size {
        for node in free.nodes_with(chain.kind, count).iter() {
            if ask.usable(node, free) < ask.count {
                continue;
            }
            let there = view.cluster().node(node).mask();
            let line = Line { free: ask.usable_mask(node, free), there };
            if let Some((found, mask)) = line.smallest(order, ask.count)
                && best.is_none_or(|(other, _, _)| found < other)
            {
                best = Some((found, node, mask));
            }
            // Those with as many free GPUs as the largest node has are idle and alike.
            if count == chain.size || best.is_some_and(|(found, _, _)| found == order) {
                break;
            }
        }
        if best.is_some_and(|(found, _, _)| found == order) {
            break;
        }
    }
    best.map(|(_, node, mask)| Placement::on(node, mask))
}

/// The smallest free aligned group of whole nodes that suffices; the gang takes its lowest nodes.
fn of_nodes(ask: &Ask<'_>, free: &Free, view: &View<'_>, chain: Chain) -> Option<Placement> {
    let Chain { kind, size } = chain;
    let needed = ask.count.div_ceil(size);
    if ask.nodes_max > 0 && needed > u32::from(ask.nodes_max) {
        return None;
    }
    let nodes = view.cluster().nodes.iter();
    let nodes = nodes.filter(|node| node.kind == kind && u32::from(node.gpus) == size);
    let idle: Vec<(NodeId, bool)> =
        nodes.map(|node| (node.id, ask.usable(node.id, free) == size)).collect();
    let first = smallest_group(&idle, order_of(needed), needed as usize)?;
    let mut rest = ask.count;
    let masks = idle[first..first + needed as usize].iter().map(|(node, _)| {
        let count = rest.min(size);
        rest -= count;
        (*node, lowest_bits(ask.usable_mask(*node, free), count))
    });
    Some(Placement::from_masks(masks))
}

/// Where the smallest maximal run of idle nodes of at least this order starts; nodes beyond the last count as idle.
fn smallest_group(idle: &[(NodeId, bool)], order: u32, needed: usize) -> Option<usize> {
    let is_free = |order: u32, first: usize| {
        let last = idle.len().min(first + (1 << order));
        first < idle.len() && idle[first..last].iter().all(|(_, idle)| *idle)
    };
    let highest = order_of(idle.len() as u32);
    (order..=highest).find_map(|order| {
        let starts = (0..idle.len()).step_by(1 << order);
        let parent = |first: usize| first & !(1 << order);
        starts.into_iter().find(|&first| {
            let maximal = order == highest || !is_free(order + 1, parent(first));
            first + needed <= idle.len() && is_free(order, first) && maximal
        })
    })
}

/// The least power of two that is not less, as an exponent.
fn order_of(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// The GPUs of one node as the leaves of a binary tree.
struct Line {
    /// Free ones.
    free: u64,
    /// Those the node was built with; others count as free, so that a node of 6 is a block of 8 with 6 GPUs.
    there: u64,
}

impl Line {
    /// The order of the smallest maximal free block that suffices, and the lowest `count` GPUs of its lowest part.
    fn smallest(&self, order: u32, count: u32) -> Option<(u32, u64)> {
        (order..=6).find_map(|found| {
            let size = 1u32 << found;
            let starts = (0..64 / size).map(|index| index * size);
            starts.into_iter().find_map(|start| {
                let part = block(start, order) & self.there;
                let maximal = found == 6 || !self.is_free(start & !size, found + 1);
                let suits = self.is_free(start, found) && maximal && part.count_ones() >= count;
                suits.then(|| (found, lowest_bits(part, count)))
            })
        })
    }

    fn is_free(&self, start: u32, order: u32) -> bool {
        let there = block(start, order) & self.there;
        there != 0 && there & !self.free == 0
    }
}

fn block(start: u32, order: u32) -> u64 {
    mask_of(1 << order) << start
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn the_smallest_sufficient_block_is_split() {
        // Node 0 has a pair and a quad free, node 1 is idle.
        let yard = Yard::new("2x8 v100").taken("n0[0-1]");
        assert_eq!(yard.place("buddy", wants(1)), "n0[2]");
        assert_eq!(yard.place("buddy", wants(2)), "n0[2-3]");
        assert_eq!(yard.place("buddy", wants(3)), "n0[4-6]");
        assert_eq!(yard.place("buddy", wants(8)), "n1[0-7]");
        let yard = Yard::new("1x8 v100").taken("n0[5]");
        assert_eq!(yard.place("buddy", wants(1)), "n0[4]");
        assert_eq!(yard.place("buddy", wants(2)), "n0[6-7]");
    }

    #[test]
    fn the_rest_of_a_rounded_block_serves_smaller_gangs() {
        let yard = Yard::new("1x8 v100").taken("n0[0-2]");
        assert_eq!(yard.place("buddy", wants(1)), "n0[3]");
        assert_eq!(yard.place("buddy", wants(4)), "n0[4-7]");
    }

    #[test]
    fn a_strict_gang_waits_for_an_aligned_block() {
        let yard = Yard::new("1x8 v100").taken("n0[0] n0[5]");
        assert_eq!(yard.place("buddy strict=true", wants(4)), "-");
        assert_eq!(yard.place("buddy", wants(4)), "n0[1-4]");
        assert_eq!(yard.place("buddy strict=true", wants(2)), "n0[2-3]");
    }

    #[test]
    fn a_large_gang_takes_an_aligned_group_of_idle_nodes() {
        let yard = Yard::new("8x4 v100").taken("n1[0]");
        // Nodes 2-3 are the smallest free group of two, nodes 4-7 the one of four.
        assert_eq!(yard.place("buddy", wants(8)), "n2[0-3] n3[0-3]");
        assert_eq!(yard.place("buddy", wants(12)), "n4[0-3] n5[0-3] n6[0-3]");
        assert_eq!(yard.clone().taken("n5[0]").place("buddy", wants(8)), "n2[0-3] n3[0-3]");
        assert_eq!(
            Yard::new("8x4 v100").taken("n5[0]").place("buddy", wants(8)),
            "n6[0-3] n7[0-3]"
        );
        assert_eq!(yard.place("buddy strict=true", wants(20)), "-");
        assert_eq!(yard.place("buddy", wants(20)), "n0[0-3] n2[0-3] n3[0-3] n4[0-3] n5[0-3]");
    }

    #[test]
    fn a_node_of_six_is_a_block_of_eight() {
        let yard = Yard::new("2x6 v100");
        assert_eq!(yard.place("buddy strict=true", wants(6)), "n0[0-5]");
        assert_eq!(
            yard.clone().taken("n0[0] n0[2]").place("buddy strict=true", wants(2)),
            "n0[4-5]"
        );
        assert_eq!(yard.place("buddy strict=true", wants(9)), "n0[0-5] n1[0-2]");
    }
}
