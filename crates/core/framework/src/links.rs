//! Jobs that share links: how much of them each gets.

use rustc_hash::FxHashMap;
use trainyard_network::max_min_capped;
use trainyard_types::{LinkId, Load, Topology};

/// The bandwidth of a unit of each load where all of them are on their links at once, by max-min fairness.
///
/// A collective goes at the pace of its slowest link and takes no more of the others, so each load is one flow over all
/// its links. What a load has inside nodes is its own.
pub fn shares(topology: &Topology, loads: &[&Load]) -> Vec<f64> {
    if let [load] = loads {
        return vec![load.alone_mbps(topology)];
    }
    let mut places: FxHashMap<LinkId, LinkId> = FxHashMap::default();
    let mut capacities = Vec::new();
    let mut flows = Vec::with_capacity(loads.len());
    for load in loads {
        let place = |link: &LinkId| {
            *places.entry(*link).or_insert_with(|| {
                capacities.push(topology.mbps(*link) as f64);
                LinkId(capacities.len() as u32 - 1)
            })
        };
        flows.push(load.links.iter().map(place).collect::<Vec<LinkId>>());
    }
    let caps: Vec<f64> = loads.iter().map(|load| load.inside_mbps as f64).collect();
    max_min_capped(&capacities, &flows, &caps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::topology::presets::{LeafSpine, leaf_spine};
    use trainyard_types::{Cluster, NodeId, Pattern, Placement};

    #[test]
    fn two_jobs_on_an_uplink_halve_it_and_a_third_beside_them_has_its_own() {
        let mut cluster = Cluster::uniform(8, 8, "h100");
        let shape = LeafSpine { racks: Some(2), mbps: 100_000, oversubscription: 4.0, spines: 1 };
        let topology = Topology::new(leaf_spine(&mut cluster, shape, "")).unwrap();
        let load = |nodes: [u32; 2]| {
            let place = Placement::from_masks(nodes.map(|node| (NodeId(node), 0xff)));
            topology.load(&place, Pattern::Ring)
        };
        let loads = [load([0, 4]), load([1, 5]), load([2, 3])];
        let together = shares(&topology, &loads.iter().collect::<Vec<_>>());
        assert_eq!(together, [50_000.0, 50_000.0, 100_000.0]);
        assert_eq!(shares(&topology, &[&loads[0]]), [100_000.0]);
    }
}
