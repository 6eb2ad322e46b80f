//! Where an attempt goes, in Slurm's words.

use crate::inventory::Inventory;
use std::collections::BTreeMap;
use trainyard_backend::LaunchOrder;

/// Nodes and what each gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Slurm's names of the nodes.
    pub nodes: Vec<String>,
    /// GPUs of each node, as `gpu:v100:2`; nothing for a job without.
    pub gres: Option<String>,
    /// CPUs of each node.
    pub cpus: u64,
    /// Host memory of each node.
    pub memory_mib: u64,
}

/// Where an order goes. What its user did not ask for of CPUs and memory is the share that goes with its GPUs:
/// without a word Slurm would give one CPU, and perhaps all memory.
pub fn spot(order: &LaunchOrder, inventory: &Inventory) -> Result<Spot, String> {
    let mut shares: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    let mut gres_type = None;
    let mut names: Vec<String> = Vec::new();
    for share in &order.nodes {
        let known = inventory.cluster.nodes.iter().zip(&inventory.places);
        let found = known.into_iter().find(|(node, _)| node.name == share.node);
        let Some((node, place)) = found else {
            return Err(format!("node {} is not among Slurm's nodes any more", share.node));
        };
        let of_node = |all: u64| all * share.gpus.len() as u64 / u64::from(node.gpus.max(1));
        let (cpus, memory) = (of_node(u64::from(node.cpus)), of_node(u64::from(node.memory_mib)));
        shares.insert(&place.node, (share.gpus.len(), cpus, memory));
        names.push(place.node.clone());
        // The type is named only where a node has several: Slurm refuses to change a request without a type into one
        // with it, and the node decides anyway.
        let is_mixed = inventory.nodes_of(&place.node).count() > 1;
        gres_type = Some(place.gres_type.as_str()).filter(|_| is_mixed);
    }
    let Some((gpus, cpus, memory_mib)) = shares.values().min().copied() else {
        return Err("the order names no node".to_owned());
    };
    if shares.values().any(|share| share.0 != gpus) {
        let each: Vec<String> = order
            .nodes
            .iter()
            .map(|share| format!("{} on {}", share.gpus.len(), share.node))
            .collect();
        return Err(format!(
            "Slurm gives a job the same number of GPUs on each of its nodes, and this one was placed with {}; let it \
             ask for a number that divides evenly, or for one node at most",
            each.join(" and ")
        ));
    }
    let (count, asked) = (names.len() as u64, order.limits);
    let gres = match gres_type {
        _ if gpus == 0 => None,
        None | Some("") => Some(format!("gpu:{gpus}")),
        Some(kind) => Some(format!("gpu:{kind}:{gpus}")),
    };
    Ok(Spot {
        gres,
        cpus: if asked.cpus > 0 { u64::from(asked.cpus) / count } else { cpus }.max(1),
        memory_mib: if asked.memory_mib > 0 { asked.memory_mib / count } else { memory_mib }.max(1),
        nodes: names,
    })
}

/// The shape in which a job waits: as many GPUs as it asks for, on as few nodes as have them. It is only looked at;
/// where the job runs is decided when it is placed.
pub fn waiting_shape(order: &LaunchOrder, inventory: &Inventory) -> (u32, u32) {
    let most = inventory.cluster.nodes.iter().map(|node| u32::from(node.gpus)).max().unwrap_or(1);
    let gpus = order.gpus_wanted;
    let nodes = gpus.div_ceil(most.max(1)).max(1);
    (nodes, gpus.div_ceil(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::NodeFilter;
    use crate::seen::{SlurmNode, SlurmSeen};
    use trainyard_backend::NodeShare;
    use trainyard_backend::order::Limits;

    fn inventory() -> Inventory {
        let node = |name: &str, gpus: &[(&str, u32)]| SlurmNode {
            name: name.to_owned(),
            state: "IDLE".to_owned(),
            gpus: gpus.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
            cpus: 32,
            memory_mib: 64_000,
            ..SlurmNode::default()
        };
        let nodes = vec![
            node("n1", &[("v100", 4)]),
            node("n2", &[("v100", 4)]),
            node("n3", &[("", 8)]),
            node("n4", &[("a100", 1), ("a100_1g.5gb", 7)]),
        ];
        Inventory::of(&SlurmSeen { nodes, ..SlurmSeen::default() }, &NodeFilter::default())
    }

    fn order(shares: &[(&str, u8)]) -> LaunchOrder {
        let nodes = shares
            .iter()
            .map(|(node, gpus)| NodeShare { node: (*node).to_owned(), gpus: (0..*gpus).collect() });
        LaunchOrder { nodes: nodes.collect(), ..LaunchOrder::default() }
    }

    #[test]
    fn a_gang_gets_the_same_on_each_node_and_the_host_that_goes_with_it() {
        let made = spot(&order(&[("n1", 2), ("n2", 2)]), &inventory()).unwrap();
        assert_eq!((made.cpus, made.memory_mib), (16, 32_000));
        assert_eq!(made.gres.as_deref(), Some("gpu:2"));
        assert_eq!(made.nodes, ["n1", "n2"]);
        let mut asked = order(&[("n3", 8)]);
        asked.limits = Limits { cpus: 4, memory_mib: 1000, ..Limits::default() };
        let made = spot(&asked, &inventory()).unwrap();
        assert_eq!((made.cpus, made.memory_mib, made.gres.as_deref()), (4, 1000, Some("gpu:8")));
    }

    #[test]
    fn a_mig_slice_is_asked_for_by_the_type_that_slurm_reported() {
        let made = spot(&order(&[("n4/a100_1g.5gb", 1)]), &inventory()).unwrap();
        assert_eq!(
            (made.gres.as_deref(), &made.nodes[..]),
            (Some("gpu:a100_1g.5gb:1"), &["n4".to_owned()][..])
        );
    }

    #[test]
    fn what_slurm_cannot_give_is_said_in_words() {
        let error = spot(&order(&[("n1", 4), ("n2", 2)]), &inventory()).unwrap_err();
        assert!(error.contains("4 on n1 and 2 on n2"), "{error}");
        let error = spot(&order(&[("n9", 1)]), &inventory()).unwrap_err();
        assert!(error.contains("node n9 is not among"), "{error}");
    }

    #[test]
    fn a_waiting_job_is_shown_on_as_few_nodes_as_have_its_gpus() {
        let of = |gpus_wanted| {
            waiting_shape(&LaunchOrder { gpus_wanted, ..LaunchOrder::default() }, &inventory())
        };
        assert_eq!([0, 1, 8, 9, 24].map(of), [(1, 0), (1, 1), (1, 8), (2, 5), (3, 8)]);
    }
}
