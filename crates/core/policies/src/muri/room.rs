//! Wholly free GPUs by node, to see whether jobs would fit without asking the placer.

use crate::prelude::*;
use trainyard_types::{PoolId, Want};

/// Wholly free GPUs of every node, in order of their ids.
#[derive(Clone)]
pub(crate) struct Room {
    nodes: Vec<NodeRoom>,
}

#[derive(Clone)]
struct NodeRoom {
    kind: GpuType,
    pool: PoolId,
    /// GPUs in service.
    all: u32,
    free: u32,
}

impl Room {
    /// What is free.
    pub(crate) fn of(free: &Free) -> Room {
        let node = |id: u32| {
            let id = NodeId(id);
            NodeRoom {
                kind: free.kind(id),
                pool: free.pool(id),
                all: free.up(id).count_ones(),
                free: free.mask(id).count_ones(),
            }
        };
        Room { nodes: (0..free.nodes()).map(node).collect() }
    }

    /// GPUs that are free on all nodes.
    pub(crate) fn total(&self) -> u32 {
        self.nodes.iter().map(|node| node.free).sum()
    }

    /// Takes GPUs of one type for a job, if there are enough: those of the first node that has them; for more than a
    /// node holds, whole nodes and what is missing on one more.
    pub(crate) fn take(&mut self, want: &Want) -> bool {
        let need = want.gpus;
        let may = |node: &NodeRoom| {
            want.accepts(node.kind) && want.pool.is_none_or(|pool| node.pool == pool)
        };
        if let Some(node) = self.nodes.iter_mut().find(|node| may(node) && node.free >= need) {
            node.free -= need;
            return true;
        }
        if want.nodes_max == 1 || self.nodes.iter().any(|node| may(node) && node.all >= need) {
            return false;
        }
        let mut kinds: Vec<GpuType> = Vec::new();
        for node in self.nodes.iter().filter(|node| may(node)) {
            if !kinds.contains(&node.kind) {
                kinds.push(node.kind);
            }
        }
        kinds.into_iter().any(|kind| self.take_nodes(need, |node| may(node) && node.kind == kind))
    }

    fn take_nodes(&mut self, need: u32, may: impl Fn(&NodeRoom) -> bool) -> bool {
        let mut rest = need;
        let mut whole = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if may(node) && node.all > 0 && node.free == node.all && node.all <= rest {
                whole.push(index);
                rest -= node.all;
            }
        }
        let last = (0..self.nodes.len()).find(|index| {
            let node = &self.nodes[*index];
            may(node) && node.free >= rest && !whole.contains(index)
        });
        if rest > 0 && last.is_none() {
            return false;
        }
        for index in whole {
            self.nodes[index].free = 0;
        }
        if let Some(last) = last.filter(|_| rest > 0) {
            self.nodes[last].free -= rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Cluster;

    #[test]
    fn small_jobs_go_to_the_first_node_with_room_and_wide_ones_to_whole_nodes() {
        let mut room = Room::of(&Free::new(&Cluster::uniform(3, 4, "v100")));
        assert_eq!(room.total(), 12);
        assert!(room.take(&Want::gpus(3)), "on the first node");
        assert!(room.take(&Want::gpus(2)), "the first has 1 left, the second gives 2");
        assert!(!room.take(&Want::gpus(8)), "one node is whole");
        assert!(room.take(&Want::gpus(6)), "the third node, and 2 of the second");
        assert_eq!(room.total(), 1);
        assert!(!room.take(&Want::gpus(2)));
        assert!(room.take(&Want::gpus(1)));
    }
}
