//! Live resizing: workers join and leave while a job runs, around those that stay.
//!
//! KungFu changes the members of a job between two steps: the workers that stay hand the model to those that come, and
//! nothing is saved or started anew. So a job keeps as many of its GPUs as it can.

use crate::prelude::*;
use std::cmp::Reverse;
use trainyard_types::Want;
use trainyard_types::placement::lowest_bits;

/// GPUs for a job that has some and is to have another number of the same type: as many of its own as it can keep, and the
/// nearest free ones. Nothing if there are too few, or if it may not span so many nodes. O(n log n) for n nodes.
pub(super) fn resized(held: &Placement, gpus: u32, want: &Want, free: &Free) -> Option<Placement> {
    let mut own: Vec<(NodeId, u64)> = held.masks().to_vec();
    // A node with many of its GPUs is the last it leaves and the first it grows on.
    own.sort_by_key(|(node, mask)| (Reverse(mask.count_ones()), *node));
    let mut masks: Vec<(NodeId, u64)> = Vec::new();
    let mut rest = gpus;
    for (node, mask) in &own {
        let kept = lowest_bits(*mask, mask.count_ones().min(rest));
        rest -= kept.count_ones();
        if kept != 0 {
            masks.push((*node, kept));
        }
    }
    if rest > 0 {
        let kind = free.kind(own.first()?.0);
        let usable = |node: &NodeId| {
            free.kind(*node) == kind && want.pool.is_none_or(|pool| free.pool(*node) == pool)
        };
        let mut others: Vec<NodeId> = (0..free.nodes()).map(NodeId).filter(usable).collect();
        others.retain(|node| held.mask(*node) == 0);
        others.sort_by_key(|node| (Reverse(free.mask(*node).count_ones()), *node));
        for node in own.iter().map(|(node, _)| *node).chain(others) {
            let room = free.mask(node) & !held.mask(node);
            let taken = lowest_bits(room, room.count_ones().min(rest));
            rest -= taken.count_ones();
            if taken != 0 {
                masks.push((node, taken));
            }
        }
    }
    let placement = Placement::from_masks(masks);
    let nodes_max = if want.nodes_max == 0 { u32::MAX } else { u32::from(want.nodes_max) };
    (rest == 0 && placement.nodes() <= nodes_max).then_some(placement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Cluster;

    fn free(nodes: u32, gpus: u8) -> Free {
        Free::new(&Cluster::uniform(nodes, gpus, "v100"))
    }

    #[test]
    fn a_job_grows_on_its_own_nodes_first_and_then_on_the_emptiest() {
        let held = Placement::on(NodeId(1), 0b0011);
        let mut free = free(3, 4);
        free.take(&trainyard_types::Allocation::whole(held.clone()));
        free.take(&trainyard_types::Allocation::whole(Placement::on(NodeId(0), 0b1)));
        let want = Want { gpus_max: 12, ..Want::gpus(2) };
        let at = |gpus: u32| resized(&held, gpus, &want, &free);
        assert_eq!(at(3), Some(Placement::on(NodeId(1), 0b0111)));
        let wide = Placement::from_masks([(NodeId(1), 0b1111), (NodeId(2), 0b11)]);
        assert_eq!(at(6), Some(wide));
        assert_eq!(at(12), None, "one GPU belongs to another job");
        let narrow = Want { nodes_max: 1, ..want.clone() };
        assert_eq!(resized(&held, 6, &narrow, &free), None);
    }

    #[test]
    fn a_job_that_shrinks_leaves_the_node_where_it_has_least() {
        let held = Placement::from_masks([(NodeId(0), 0b0001), (NodeId(2), 0b0111)]);
        let want = Want { gpus_max: 8, ..Want::gpus(2) };
        let at = |gpus: u32| resized(&held, gpus, &want, &free(3, 4));
        assert_eq!(at(3), Some(Placement::on(NodeId(2), 0b0111)));
        assert_eq!(at(1), Some(Placement::on(NodeId(2), 0b0001)));
    }
}
