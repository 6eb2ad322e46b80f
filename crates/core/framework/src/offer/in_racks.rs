//! Gangs on several nodes: in one rack where one has room, or else in the fewest.

use super::Offer;
use crate::Ask;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_types::{NodeId, Placement};

impl Offer<'_> {
    /// Asks the placer again where its answer lies in more racks than needed: in the tightest rack that has room for the
    /// gang, or else in the fewest, roomiest first. Its first answer stands where it finds nothing there.
    ///
    /// Linear in the nodes, and only where a gang would lie across racks.
    pub(super) fn in_fewest_racks(&mut self, ask: &Ask<'_>, found: Placement) -> Placement {
        let cluster = self.view.cluster();
        let mut racks: SmallVec<[u16; 8]> =
            found.masks().iter().map(|(node, _)| cluster.node(*node).rack).collect();
        racks.sort_unstable();
        racks.dedup();
        if racks.len() < 2 || !ask.racks.is_empty() {
            return found;
        }
        let Some(first) = found.masks().first() else { return found };
        let kind = self.free.kind(first.0);
        let mut room: BTreeMap<u16, u32> = BTreeMap::new();
        for node in (0..self.free.nodes()).map(NodeId).filter(|node| self.free.kind(*node) == kind)
        {
            *room.entry(self.free.rack(node)).or_default() += ask.usable(node, self.free);
        }
        let mut whole: Vec<(u32, u16)> = room
            .iter()
            .filter(|(_, gpus)| **gpus >= ask.count)
            .map(|(r, gpus)| (*gpus, *r))
            .collect();
        whole.sort_unstable();
        for (_, rack) in &whole {
            if let Some(better) = self.within(ask, &[*rack]) {
                return better;
            }
        }
        if whole.is_empty() {
            let mut roomiest: Vec<(Reverse<u32>, u16)> =
                room.into_iter().map(|(rack, gpus)| (Reverse(gpus), rack)).collect();
            roomiest.sort_unstable();
            let mut rest = ask.count;
            let mut fewest: SmallVec<[u16; 4]> = SmallVec::new();
            for (Reverse(gpus), rack) in roomiest {
                fewest.push(rack);
                rest = rest.saturating_sub(gpus);
                if rest == 0 {
                    break;
                }
            }
            if fewest.len() < racks.len()
                && let Some(better) = self.within(ask, &fewest)
            {
                return better;
            }
        }
        found
    }

    fn within(&mut self, ask: &Ask<'_>, racks: &[u16]) -> Option<Placement> {
        self.anywhere(&Ask { racks: SmallVec::from_slice(racks), ..ask.clone() })
    }
}
