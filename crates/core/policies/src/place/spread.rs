//! Spread: the least loaded nodes first, at most so many GPUs of a gang on each.

use crate::place::fewest_nodes::roomiest;
use crate::place::{CLASS, kinds};
use crate::prelude::*;
use smallvec::SmallVec;
use std::cmp::Reverse;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "spread",
    about: "The nodes with the most free GPUs first, at most `per_node_max` GPUs of a gang on each.",
    paper: "-",
    needs: Needs::NOTHING,
    class: CLASS,
    settings: &[
        ("per_node_max", "the most GPUs of a gang on one node; 0 for any number"),
        (
            "strict",
            "whether a gang waits when the limit cannot be kept now; else the limit is doubled until it fits",
        ),
    ],
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    per_node_max: u8,
    strict: bool,
}

fn build(raw: &RawSettings) -> Result<Box<dyn Placer>, ConfigError> {
    Ok(Box::new(Spread { settings: raw.read(ENTRY.name)? }))
}

/// The placer. O(nodes taken), and the nodes passed over for pool, host or memory.
#[derive(Default)]
pub(crate) struct Spread {
    settings: Settings,
}

impl Placer for Spread {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction_apart(ask, free);
        }
        let mut limit = match self.settings.per_node_max {
            0 => 64,
            limit => u32::from(limit),
        };
        loop {
            let found = kinds(ask, free).find_map(|kind| on_kind(ask, free, kind, limit));
            if found.is_some() || self.settings.strict || limit >= 64 {
                return found;
            }
            limit *= 2;
        }
    }
}

/// The least loaded node if the limit lets it hold the gang, else the least loaded nodes up to the limit.
fn on_kind(ask: &Ask<'_>, free: &Free, kind: GpuType, limit: u32) -> Option<Placement> {
    if ask.count <= limit {
        let holding =
            free.roomiest(kind).take_while(|node| free.mask(*node).count_ones() >= ask.count);
        let node = holding.into_iter().find(|node| ask.usable(*node, free) >= ask.count);
        if let Some(node) = node {
            return Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), ask.count)));
        }
    }
    let nodes_max = if ask.nodes_max == 0 { usize::MAX } else { usize::from(ask.nodes_max) };
    let mut rest = ask.count;
    let mut parts: SmallVec<[(NodeId, u64); 8]> = SmallVec::new();
    for (node, usable) in roomiest(ask, free, kind).take(nodes_max) {
        let count = usable.min(limit).min(rest);
        parts.push((node, lowest_bits(ask.usable_mask(node, free), count)));
        rest -= count;
        if rest == 0 {
            return Some(Placement::from_masks(parts));
        }
    }
    None
}

/// A share of a GPU that no job uses on the least loaded node, else of the GPU with the most left.
fn fraction_apart(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    if ask.count > 1 {
        return fraction::tightest(ask, free);
    }
    let memory = ask.job.spec.want.gpu_memory_mib;
    free.kinds().into_iter().filter(|kind| ask.accepts(*kind)).find_map(|kind| {
        if let Some(node) = free.roomiest(kind).find(|node| ask.usable(*node, free) > 0) {
            return Some(Placement::on(node, lowest_bits(ask.usable_mask(node, free), 1)));
        }
        let partial = free
            .partial(kind, ask.permille)
            .filter(|(_, at)| ask.allows(at.node, free) && free.memory_left(*at) >= memory);
        let (_, at) = partial.min_by_key(|(left, at)| (Reverse(*left), *at))?;
        Some(Placement::on(at.node, 1 << at.gpu))
    })
}

#[cfg(test)]
mod tests {
    use crate::place::tests::{Yard, wants};

    #[test]
    fn a_gang_goes_to_the_least_loaded_node() {
        let yard = Yard::new("3x8 v100").taken("n0[0-1] n1[0]");
        assert_eq!(yard.place("spread", wants(4)), "n2[0-3]");
        assert_eq!(yard.place("spread", wants(10)), "n1[1-2] n2[0-7]");
    }

    #[test]
    fn a_limit_puts_few_gpus_on_each_node() {
        let yard = Yard::new("3x8 v100").taken("n0[0-1]");
        assert_eq!(yard.place("spread per_node_max=2", wants(5)), "n0[2] n1[0-1] n2[0-1]");
        assert_eq!(yard.place("spread per_node_max=1", wants(3)), "n0[2] n1[0] n2[0]");
    }

    #[test]
    fn a_limit_that_cannot_be_kept_gives_way_unless_it_is_strict() {
        let yard = Yard::new("3x8 v100");
        assert_eq!(yard.place("spread per_node_max=1", wants(5)), "n0[0-1] n1[0-1] n2[0]");
        assert_eq!(yard.place("spread per_node_max=1 strict=true", wants(5)), "-");
    }

    #[test]
    fn a_share_goes_to_an_unused_gpu_and_then_to_the_least_used() {
        let yard = Yard::new("1x3 v100").shared("n0[0]", 300).shared("n0[1]", 600);
        let mut want = wants(1);
        want.permille = 200;
        assert_eq!(yard.place("spread", want.clone()), "n0[2]");
        assert_eq!(yard.taken("n0[2]").place("spread", want), "n0[0]");
    }
}
