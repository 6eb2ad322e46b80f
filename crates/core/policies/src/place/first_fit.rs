//! First fit: the node with the lowest id that holds the gang; a larger gang takes the first free GPUs there are.

use crate::place::{CLASS, fewest_nodes, kinds};
use crate::prelude::*;
use smallvec::SmallVec;
use trainyard_framework::fraction;
use trainyard_types::IdSet;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "first-fit",
    about: "The node with the lowest id that holds the gang; a larger gang takes the first free GPUs there are.",
    paper: "-",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[(
        "one_node_first",
        "whether a gang looks for one node that holds it before it takes the first free GPUs of any",
    )],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    one_node_first: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { one_node_first: true }
    }
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    Ok(Box::new(FirstFit { settings: raw.read(ENTRY.name)? }))
}

/// The placer. One step for each different number of free GPUs and each node passed over.
struct FirstFit {
    settings: Settings,
}

impl Placer for FirstFit {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let whole = if self.settings.one_node_first || ask.nodes_max == 1 {
            on_first_node(ask, free)
        } else {
            None
        };
        whole.or_else(|| kinds(ask, free).find_map(|kind| on_first_gpus(ask, free, kind)))
    }
}

/// The node with the lowest id of any acceptable type that holds all of the gang.
fn on_first_node(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    let firsts = kinds(ask, free).filter_map(|kind| {
        by_id(free, kind, ask.count).find(|node| ask.usable(*node, free) >= ask.count)
    });
    let node = firsts.min()?;
    Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), ask.count)))
}

/// The first free GPUs of a type; as few nodes as possible where the first ones are too many.
fn on_first_gpus(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    if ask.nodes_max == 1 {
        return None;
    }
    let mut rest = ask.count;
    let mut parts: SmallVec<[(NodeId, u64); 8]> = SmallVec::new();
    for node in by_id(free, kind, 1) {
        let count = ask.usable(node, free).min(rest);
        if count > 0 {
            parts.push((node, lowest_bits(ask.usable_mask(node, free), count)));
            rest -= count;
        }
        if rest == 0 {
            break;
        }
    }
    if ask.nodes_max > 0 && parts.len() > usize::from(ask.nodes_max) {
        return fewest_nodes::on_many_nodes(ask, free, kind);
    }
    (rest == 0).then(|| Placement::from_masks(parts))
}

/// The nodes of a type with at least `count` wholly free GPUs, lowest id first.
fn by_id(free: &Free, kind: GpuType, count: u32) -> impl Iterator<Item = NodeId> + '_ {
    let buckets: SmallVec<[&IdSet<NodeId>; 16]> = (count.max(1)..=64)
        .map(|count| free.nodes_with(kind, count))
        .filter(|bucket| !bucket.is_empty())
        .collect();
    let mut from = NodeId(0);
    std::iter::from_fn(move || {
        let node = buckets.iter().filter_map(|bucket| bucket.at_least(from)).min()?;
        from = NodeId(node.0 + 1);
        Some(node)
    })
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_gang_goes_to_the_lowest_node_that_holds_it() {
        let yard = Yard::new("3x8 v100").taken("n0[0-3] n2[0-5]");
        assert_eq!(yard.place("first-fit", wants(2)), "n0[4-5]");
        assert_eq!(yard.place("first-fit", wants(5)), "n1[0-4]");
        assert_eq!(yard.place("first-fit", wants(9)), "n0[4-7] n1[0-4]");
    }

    #[test]
    fn a_gang_may_take_the_first_gpus_wherever_they_are() {
        let yard = Yard::new("3x8 v100").taken("n0[0-3]");
        assert_eq!(yard.place("first-fit one_node_first=false", wants(6)), "n0[4-7] n1[0-1]");
        let mut narrow = wants(6);
        narrow.nodes_max = 1;
        assert_eq!(yard.place("first-fit one_node_first=false", narrow), "n1[0-5]");
    }

    #[test]
    fn the_first_gpus_give_way_to_fewer_nodes_where_their_number_is_limited() {
        let yard = Yard::new("3x4 v100").taken("n0[0-2]");
        let mut want = wants(8);
        assert_eq!(yard.place("first-fit", want.clone()), "n0[3] n1[0-3] n2[0-2]");
        want.nodes_max = 2;
        assert_eq!(yard.place("first-fit", want), "n1[0-3] n2[0-3]");
    }
}
