//! Fewest nodes: a gang goes to the tightest node that holds it, a larger one to whole nodes and the tightest rest.

use crate::place::{CLASS, Nothing, kinds};
use crate::prelude::*;
use smallvec::SmallVec;
use std::cmp::Reverse;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "fewest-nodes",
    about: "The tightest node that holds the gang; a larger gang takes the roomiest nodes and the tightest rest.",
    paper: "-",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[],
    defaults: toml::Table::new,
    build,
};

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    let Nothing {} = raw.read(ENTRY.name)?;
    Ok(Box::new(FewestNodes))
}

/// The placer. O(1) for a gang that fits a node, else linear in the number of nodes it takes;
/// a limit by pool, host or GPU memory adds the nodes that are passed over.
pub struct FewestNodes;

impl Placer for FewestNodes {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        fewest_nodes(ask, free)
    }
}

/// One node of any acceptable type, or else as few nodes as possible of the first type that has room.
pub(crate) fn fewest_nodes(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    let mut kinds = kinds(ask, free);
    kinds
        .clone()
        .find_map(|kind| on_one_node(ask, free, kind))
        .or_else(|| kinds.find_map(|kind| on_many_nodes(ask, free, kind)))
}

/// The tightest node that holds all of the gang.
pub(crate) fn on_one_node(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    if ask.count > 64 || free.gpus(kind) < ask.count {
        return None;
    }
    let node = free.tightest(kind, ask.count).find(|node| ask.usable(*node, free) >= ask.count)?;
    Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), ask.count)))
}

/// The roomiest nodes, and for what is left of the gang at last the tightest node that holds it.
pub(crate) fn on_many_nodes(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    if free.gpus(kind) < ask.count || ask.nodes_max == 1 {
        return None;
    }
    let mut rest = ask.count;
    let mut parts: SmallVec<[(NodeId, u64); 8]> = SmallVec::new();
    for (node, usable) in roomiest(ask, free, kind) {
        if usable >= rest {
            // This node and roomier ones would do: the tightest of them leaves the least behind.
            let taken = |node: &NodeId| parts.iter().any(|(other, _)| other == node);
            let last = free
                .tightest(kind, rest)
                .find(|node| !taken(node) && ask.usable(*node, free) >= rest)
                .unwrap_or(node);
            parts.push((last, lowest_bits(ask.usable_mask(last, free), rest)));
            rest = 0;
            break;
        }
        parts.push((node, lowest_bits(ask.usable_mask(node, free), usable)));
        rest -= usable;
    }
    let within = ask.nodes_max == 0 || parts.len() <= usize::from(ask.nodes_max);
    (rest == 0 && within).then(|| Placement::from_masks(parts))
}

/// The nodes of a type with the number of their GPUs that the ask may use, most first, then by id.
pub(crate) fn roomiest<'a>(
    ask: &'a Ask<'_>,
    free: &'a Free,
    kind: GpuType,
) -> Box<dyn Iterator<Item = (NodeId, u32)> + 'a> {
    let usable = move |node: NodeId| (node, ask.usable(node, free));
    let nodes = free.roomiest(kind).map(usable);
    if !ask.is_limited(free) {
        return Box::new(nodes);
    }
    // The host or the memory may leave less of a node than its free GPUs, so their number is no order.
    let mut nodes: Vec<(NodeId, u32)> = nodes.filter(|(_, usable)| *usable > 0).collect();
    nodes.sort_unstable_by_key(|(node, usable)| (Reverse(*usable), *node));
    Box::new(nodes.into_iter())
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_gang_goes_to_the_tightest_node_that_holds_it() {
        let yard = Yard::new("3x8 v100").taken("n0[0-1] n1[0-3]");
        assert_eq!(yard.place("fewest-nodes", wants(4)), "n1[4-7]");
        assert_eq!(yard.place("fewest-nodes", wants(5)), "n0[2-6]");
        assert_eq!(yard.place("fewest-nodes", wants(8)), "n2[0-7]");
    }

    #[test]
    fn a_large_gang_takes_roomy_nodes_and_the_tightest_rest() {
        let yard = Yard::new("3x8 v100").taken("n0[0-1] n1[0-3]");
        assert_eq!(yard.place("fewest-nodes", wants(12)), "n1[4-7] n2[0-7]");
        assert_eq!(yard.place("fewest-nodes", wants(19)), "-");
    }

    #[test]
    fn a_node_short_of_cpus_counts_for_what_they_suffice() {
        let mut yard = Yard::new("3x8 v100");
        yard.cluster().nodes[0].cpus = 8;
        yard.cluster().nodes[1].cpus = 16;
        let mut want = wants(12);
        want.cpus_per_gpu = 4;
        assert_eq!(yard.place("fewest-nodes", want), "n1[0-3] n2[0-7]");
    }
}
