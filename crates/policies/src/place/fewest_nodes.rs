//! Fewest nodes: a gang goes to the tightest node that holds it, a larger one to whole nodes and the tightest rest.

use crate::prelude::*;
use smallvec::SmallVec;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;

/// The row in the registry.
pub const ENTRY: PlaceEntry = Entry {
    name: "fewest-nodes",
    about: "The tightest node that holds the gang; a larger gang takes the roomiest nodes and the tightest rest.",
    paper: "-",
    needs: Needs::NOTHING,
    class: Taxonomy {
        objective: Objective::Locality,
        elastic: false,
        heterogeneous: false,
        preemptive: false,
        level: Level::Instance,
        family: Family::Placer,
    },
    settings: &[],
    defaults: toml::Table::new,
    build,
};

fn build(raw: &RawSettings) -> Result<Box<dyn Place>, ConfigError> {
    let Nothing {} = raw.read(ENTRY.name)?;
    Ok(Box::new(FewestNodes))
}

#[derive(Default, Serialize, Deserialize)]
struct Nothing {}

/// The placer. O(1) for a gang that fits a node, else linear in the number of nodes it takes.
pub struct FewestNodes;

impl Place for FewestNodes {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        let kinds = free.kinds();
        let mut kinds = kinds.iter().copied().filter(|kind| ask.accepts(*kind));
        kinds.clone().find_map(|kind| on_one_node(ask, free, kind)).or_else(|| {
            kinds.find_map(|kind| on_many_nodes(ask, free, kind))
        })
    }
}

/// The tightest node that holds all of the gang.
pub(crate) fn on_one_node(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    if ask.count > 64 || free.gpus(kind) < ask.count {
        return None;
    }
    let node = free.tightest(kind, ask.count).find(|node| ask.usable(*node, free) >= ask.count)?;
    Some(Placement::on(node, lowest_bits(free.mask(node), ask.count)))
}

/// The roomiest nodes, and for what is left of the gang at last the tightest node that holds it.
pub(crate) fn on_many_nodes(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    if free.gpus(kind) < ask.count || ask.nodes_max == 1 {
        return None;
    }
    let mut rest = ask.count;
    let mut parts: SmallVec<[(NodeId, u64); 8]> = SmallVec::new();
    for node in free.roomiest(kind) {
        let usable = ask.usable(node, free);
        if usable >= rest {
            // This node and roomier ones would do: the tightest of them leaves the least behind.
            let taken = |node: &NodeId| parts.iter().any(|(other, _)| other == node);
            let last = free
                .tightest(kind, rest)
                .find(|node| !taken(node) && ask.usable(*node, free) >= rest)
                .unwrap_or(node);
            parts.push((last, lowest_bits(free.mask(last), rest)));
            rest = 0;
            break;
        }
        if usable > 0 {
            parts.push((node, lowest_bits(free.mask(node), usable)));
            rest -= usable;
        }
    }
    let within = ask.nodes_max == 0 || parts.len() <= usize::from(ask.nodes_max);
    (rest == 0 && within).then(|| Placement::from_masks(parts))
}
