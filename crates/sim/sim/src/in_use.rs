//! GPUs that jobs hold, each counted once however many jobs share it.

use std::collections::BTreeMap;
use trainyard_types::{NodeId, Placement};

/// GPUs in use.
#[derive(Default)]
pub(crate) struct InUse {
    /// GPUs that jobs have as a whole, and which they are, by node.
    whole: u32,
    masks: Vec<u64>,
    /// Jobs with a share, or with what another one leaves, on each GPU that has such jobs.
    shared: BTreeMap<(NodeId, u32), u32>,
    /// Whether any job ever had less than the whole of a GPU.
    pub(crate) was_shared: bool,
}

impl InUse {
    /// How many. O(1) while no job shares.
    pub(crate) fn gpus(&self) -> u32 {
        let is_whole = |(node, bit): &(NodeId, u32)| {
            self.masks.get(node.index()).is_some_and(|mask| mask >> bit & 1 == 1)
        };
        self.whole + self.shared.keys().filter(|gpu| !is_whole(gpu)).count() as u32
    }

    /// A job takes GPUs, for itself or a share of each.
    pub(crate) fn add(&mut self, gpus: u32, place: &Placement, shares: bool) {
        if shares {
            self.was_shared = true;
            each_gpu(place).for_each(|gpu| *self.shared.entry(gpu).or_default() += 1);
            return;
        }
        self.whole += gpus;
        for (node, mask) in place.masks() {
            if node.index() >= self.masks.len() {
                self.masks.resize(node.index() + 1, 0);
            }
            self.masks[node.index()] |= mask;
        }
    }

    /// It gives them back.
    pub(crate) fn remove(&mut self, gpus: u32, place: &Placement, shares: bool) {
        if !shares {
            self.whole -= gpus;
            for (node, mask) in place.masks() {
                self.masks[node.index()] &= !mask;
            }
            return;
        }
        for gpu in each_gpu(place) {
            let jobs = self.shared.get_mut(&gpu).expect("what was added is there");
            *jobs -= 1;
            if *jobs == 0 {
                self.shared.remove(&gpu);
            }
        }
    }
}

fn each_gpu(place: &Placement) -> impl Iterator<Item = (NodeId, u32)> + '_ {
    let bits = |mask: u64| (0..u64::BITS).filter(move |bit| mask >> bit & 1 == 1);
    place.masks().iter().flat_map(move |(node, mask)| bits(*mask).map(move |bit| (*node, bit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_two_share_is_one_gpu_until_both_have_left() {
        let place = Placement::from_masks([(NodeId(0), 0b11u64)]);
        let mut used = InUse::default();
        used.add(2, &place, false);
        assert_eq!((used.gpus(), used.was_shared), (2, false));
        used.add(2, &place, true);
        assert_eq!(
            (used.gpus(), used.was_shared),
            (2, true),
            "the second has what the first leaves"
        );
        used.remove(2, &place, false);
        assert_eq!(used.gpus(), 2, "the second is still there");
        used.add(2, &place, true);
        used.remove(2, &place, true);
        assert_eq!(used.gpus(), 2);
        used.remove(2, &place, true);
        assert_eq!(used.gpus(), 0);
    }
}
