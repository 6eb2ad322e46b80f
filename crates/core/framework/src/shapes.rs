//! Placements in shapes that can be launched, for grants whose own shape cannot.

use crate::{Ask, Free};
use smallvec::SmallVec;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Allocation, GpuType, NodeId, Placement, PlacementRules};

/// Whether an allocation can be launched. The job's own GPUs count as free.
pub fn is_allowed(rules: PlacementRules, to: &Allocation, free: &Free) -> bool {
    let masks = to.placement.masks();
    let one_type = || masks.windows(2).all(|two| free.kind(two[0].0) == free.kind(two[1].0));
    rules.keeps_parts(&to.placement)
        && (!rules.equal_per_node || one_type())
        && is_alone(rules, to, free)
}

/// Whether no other job is on its nodes, where that is the rule: a job that stays must keep it too. A job that runs on
/// what others leave is never alone.
pub fn is_alone(rules: PlacementRules, to: &Allocation, free: &Free) -> bool {
    let mut nodes = to.placement.masks().iter();
    let takes_all = |(node, _): &(NodeId, u64)| free.is_untouched(*node);
    !rules.exclusive_nodes || (!to.is_on_leftovers() && nodes.all(takes_all))
}

/// The fewest nodes that hold the gang as the rules ask, the tightest first.
///
/// One pass for each number of nodes that divides the gang: O(nodes used) each, and the nodes that are passed over
/// where CPUs, memory or a pool limit the choice.
pub fn place(rules: PlacementRules, ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    let kinds = free.kinds();
    let kinds = kinds.iter().filter(|kind| ask.accepts(**kind) && free.gpus(**kind) >= ask.count);
    let most = if ask.nodes_max == 0 { ask.count } else { u32::from(ask.nodes_max).min(ask.count) };
    let numbers = (1..=most).filter(|nodes| ask.count.is_multiple_of(*nodes));
    let kinds: SmallVec<[GpuType; 8]> = kinds.copied().collect();
    numbers
        .filter(|nodes| ask.count / nodes <= 64)
        .find_map(|nodes| kinds.iter().find_map(|kind| on_nodes(rules, ask, free, (*kind, nodes))))
}

fn on_nodes(
    rules: PlacementRules,
    ask: &Ask<'_>,
    free: &Free,
    (kind, nodes): (GpuType, u32),
) -> Option<Placement> {
    let part = ask.count / nodes;
    let fits = |node: &NodeId| {
        ask.usable(*node, free) >= part && (!rules.exclusive_nodes || free.is_untouched(*node))
    };
    let found = free.tightest(kind, part).filter(fits).take(nodes as usize);
    let masks: SmallVec<[(NodeId, u64); 8]> =
        found.map(|node| (node, lowest_bits(ask.usable_mask(node, free), part))).collect();
    (masks.len() == nodes as usize).then(|| Placement::from_masks(masks))
}
