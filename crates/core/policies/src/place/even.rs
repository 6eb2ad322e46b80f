//! Even: the fewest nodes that can hold a gang in equal parts.

use crate::place::fewest_nodes::{fewest_nodes, roomiest};
use crate::place::{CLASS, Nothing, kinds};
use crate::prelude::*;
use smallvec::SmallVec;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "even",
    about: "The fewest nodes that can hold a gang in equal parts, those with the most free GPUs first.",
    paper: "Peng et al., Optimus, EuroSys 2018, section 4.2",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[],
    defaults: toml::Table::new,
    build,
};

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    let Nothing {} = raw.read(ENTRY.name)?;
    Ok(Box::new(Even))
}

/// The placer. O(n) for n nodes with room; a gang that fits one node takes O(1).
pub struct Even;

impl Placer for Even {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        // Where no number of nodes can hold equal parts, unequal ones are better than none.
        kinds(ask, free)
            .find_map(|kind| in_equal_parts(ask, free, kind))
            .or_else(|| fewest_nodes(ask, free))
    }
}

/// The k roomiest nodes for the least k of which each holds its part; parts differ by one GPU at most.
fn in_equal_parts(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    let most = if ask.nodes_max == 0 { u32::MAX } else { u32::from(ask.nodes_max) };
    let mut nodes: SmallVec<[(NodeId, u32); 8]> = SmallVec::new();
    for node in roomiest(ask, free, kind).take(ask.count.min(most) as usize) {
        nodes.push(node);
        let count = nodes.len() as u32;
        let (each, more) = (ask.count / count, ask.count % count);
        let part = |at: usize| each + u32::from((at as u32) < more);
        if nodes.iter().enumerate().all(|(at, (_, usable))| *usable >= part(at)) {
            let parts = nodes.iter().enumerate().map(|(at, (node, _))| {
                (*node, lowest_bits(ask.usable_mask(*node, free), part(at)))
            });
            return Some(Placement::from_masks(parts.collect::<SmallVec<[(NodeId, u64); 8]>>()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_gang_is_cut_into_equal_parts_on_the_fewest_nodes() {
        let yard = Yard::new("3x4 v100");
        assert_eq!(yard.place("even", wants(4)), "n0[0-3]");
        assert_eq!(yard.place("even", wants(6)), "n0[0-2] n1[0-2]");
        assert_eq!(yard.place("even", wants(9)), "n0[0-2] n1[0-2] n2[0-2]");
        assert_eq!(yard.place("even", wants(10)), "n0[0-3] n1[0-2] n2[0-2]");
    }

    #[test]
    fn a_node_with_too_little_room_moves_the_gang_to_more_nodes_or_to_unequal_parts() {
        let yard = Yard::new("3x4 v100").taken("n0[0-1] n1[0-1]");
        assert_eq!(yard.place("even", wants(6)), "n0[2-3] n1[2-3] n2[0-1]");
        assert_eq!(yard.place("even", wants(8)), "n0[2-3] n1[2-3] n2[0-3]");
        assert_eq!(yard.place("even", wants(9)), "-");
    }
}
