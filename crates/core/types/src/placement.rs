//! Which GPUs.

use crate::{Cluster, Config, GpuAt, NodeId, Tier};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;

/// Which GPUs: a mask for each node. Nodes ascend, no mask is empty.
#[derive(Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placement(SmallVec<[(NodeId, u64); 2]>);

impl Clone for Placement {
    /// As a whole: the derived one would copy mask by mask, and this happens at every event.
    #[inline]
    fn clone(&self) -> Placement {
        Placement(SmallVec::from_slice(&self.0))
    }
}

impl Placement {
    /// Some GPUs of one node.
    pub fn on(node: NodeId, mask: u64) -> Placement {
        assert!(mask != 0, "a placement on {node} has no GPU");
        Placement(SmallVec::from_elem((node, mask), 1))
    }

    /// Sorted by node, masks of one node joined, empty ones dropped.
    pub fn from_masks(masks: impl IntoIterator<Item = (NodeId, u64)>) -> Placement {
        let mut parts: SmallVec<[(NodeId, u64); 2]> =
            masks.into_iter().filter(|(_, mask)| *mask != 0).collect();
        parts.sort_unstable_by_key(|(node, _)| *node);
        parts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 |= next.1;
            }
            same
        });
        Placement(parts)
    }

    /// The node masks, nodes ascending.
    #[inline]
    pub fn masks(&self) -> &[(NodeId, u64)] {
        &self.0
    }

    /// How many GPUs.
    #[inline]
    pub fn gpus(&self) -> u32 {
        self.0.iter().map(|(_, mask)| mask.count_ones()).sum()
    }

    /// How many nodes.
    #[inline]
    pub fn nodes(&self) -> u32 {
        self.0.len() as u32
    }

    /// Whether there is no GPU in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each GPU, ascending.
    pub fn each_gpu(&self) -> impl Iterator<Item = GpuAt> + '_ {
        self.0.iter().flat_map(|&(node, mask)| bits(mask).map(move |gpu| GpuAt { node, gpu }))
    }

    /// Whether both name a common GPU.
    pub fn overlaps(&self, other: &Placement) -> bool {
        self.0.iter().any(|(node, mask)| other.mask(*node) & mask != 0)
    }

    /// Whether all its GPUs are among those of the other.
    pub fn is_within(&self, other: &Placement) -> bool {
        self.0.iter().all(|(node, mask)| mask & !other.mask(*node) == 0)
    }

    /// Its GPUs on one node.
    #[inline]
    pub fn mask(&self, node: NodeId) -> u64 {
        match self.0.binary_search_by_key(&node, |(id, _)| *id) {
            Ok(index) => self.0[index].1,
            Err(_) => 0,
        }
    }

    /// The summary of this placement that a speed model needs.
    pub fn config(&self, cluster: &Cluster) -> Config {
        let mut config = Config::default();
        let mut racks: SmallVec<[u16; 8]> = SmallVec::new();
        for &(id, mask) in &self.0 {
            let node = cluster.node(id);
            let count = mask.count_ones();
            config.gpus += count;
            config.shape.push(count as u16);
            if !racks.contains(&node.rack) {
                racks.push(node.rack);
            }
            match config.kinds.iter_mut().find(|(kind, _)| *kind == node.kind) {
                Some((_, total)) => *total += count,
                None => config.kinds.push((node.kind, count)),
            }
        }
        config.shape.sort_unstable_by(|a, b| b.cmp(a));
        config.nodes = self.nodes();
        config.racks = racks.len() as u32;
        config.tier = match (config.gpus, config.nodes, config.racks) {
            (0 | 1, _, _) => Tier::Gpu,
            (_, 1, _) => Tier::Node,
            (_, _, 1) => Tier::Rack,
            _ => Tier::Core,
        };
        config
    }
}

/// The positions of the set bits, ascending.
#[inline]
pub fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros() as u8;
        mask &= mask - 1;
        Some(bit)
    })
}

/// The lowest `count` set bits of `mask`.
#[inline]
pub fn lowest_bits(mask: u64, count: u32) -> u64 {
    let mut rest = mask;
    for _ in 0..count {
        rest &= rest.wrapping_sub(1);
    }
    mask & !rest
}

impl fmt::Display for Placement {
    /// `n0[0-3] n2[5]`, with node numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (node, mask)) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}n{}[{}]", node.0, ranges(*mask))?;
        }
        Ok(())
    }
}

fn ranges(mask: u64) -> String {
    let mut text = String::new();
    let mut bit = 0u32;
    while bit < 64 {
        if mask >> bit & 1 == 0 {
            bit += 1;
            continue;
        }
        let start = bit;
        while bit < 64 && mask >> bit & 1 == 1 {
            bit += 1;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&start.to_string());
        if bit - start > 1 {
            text.push('-');
            text.push_str(&(bit - 1).to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_prints_ranges_and_joins_masks() {
        let placement = Placement::from_masks([
            (NodeId(2), 0b100000),
            (NodeId(0), 0b0011),
            (NodeId(0), 0b1100),
        ]);
        assert_eq!(placement.to_string(), "n0[0-3] n2[5]");
        assert_eq!((placement.gpus(), placement.nodes()), (5, 2));
        assert!(placement.overlaps(&Placement::on(NodeId(2), 0b100000)));
        assert!(!placement.overlaps(&Placement::on(NodeId(1), 0b1)));
    }

    #[test]
    fn lowest_bits_takes_from_the_bottom() {
        assert_eq!(lowest_bits(0b1011_0100, 2), 0b0001_0100);
        assert_eq!(lowest_bits(u64::MAX, 64), u64::MAX);
        assert_eq!(lowest_bits(0b1, 0), 0);
    }
}
