//! Slurm's nodes as a cluster of ours.
//!
//! A node of ours has GPUs of one type.
//! A node of Slurm with two types becomes two of ours: the first under its own name, the others as `name/type`, each
//! with a share of CPUs and memory by its GPUs; [`NodeBehind`] says which node of Slurm stands behind each.
//! Nodes without GPUs are left out, and so are those that Slurm only plans for (`FUTURE`).
//! Nodes that are down or drained are in: the cluster is what there is, and which of it is up at the moment is a question of its own.

use crate::seen::{SlurmNode, SlurmSeen};
use serde::{Deserialize, Serialize};
use trainyard_types::{Cluster, GpuType, Node, NodeId, PoolId};

/// The most GPUs of one of our nodes.
const GPUS_MAX: u32 = 64;
/// The most types of GPU in a cluster.
const KINDS_MAX: usize = 64;
/// What GPUs are called where GRES names no type.
const UNTYPED: &str = "gpu";

/// Which of Slurm's nodes are ours to look at.
#[derive(Clone, Debug, Default)]
pub struct NodeFilter {
    /// Only nodes of these partitions; all nodes where it is empty.
    pub partitions: Vec<String>,
}

/// The node of Slurm behind one of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBehind {
    /// Its name in Slurm.
    pub node: String,
    /// The type in its GRES; empty where GRES names none.
    pub gres_type: String,
}

/// A cluster made of Slurm's nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inventory {
    /// The cluster; memory and prices of GPUs are not known to Slurm and stay 0.
    pub cluster: Cluster,
    /// What stands behind each node of the cluster, by its id.
    pub places: Vec<NodeBehind>,
    /// What could not be taken as it is.
    pub warnings: Vec<String>,
}

impl Inventory {
    /// The cluster that Slurm's nodes make.
    pub fn of(seen: &SlurmSeen, filter: &NodeFilter) -> Inventory {
        let mut made = Inventory::default();
        made.cluster.pools.push("default".to_owned());
        // What is asked for of each node is one number.
        made.cluster.rules.equal_per_node = true;
        for wanted in &filter.partitions {
            if !seen.nodes.iter().any(|node| node.partitions.contains(wanted)) {
                let known = partitions(seen).join(", ");
                made.warnings
                    .push(format!("no node is in partition `{wanted}`; there are {known}"));
            }
        }
        for node in &seen.nodes {
            let wanted = filter.partitions.is_empty()
                || node.partitions.iter().any(|one| filter.partitions.contains(one));
            if wanted && !node.is("FUTURE") && !made.has(&node.name) {
                made.add(node);
            }
        }
        if made.cluster.nodes.is_empty() {
            made.warnings.push(format!("none of {} nodes has GPUs in its Gres", seen.nodes.len()));
        }
        made
    }

    /// What is seen now, in the order in which it was known before: ids of nodes and types stay what they were, what is
    /// new comes after, and a node that is gone stays, for a job may still be thought to run there.
    pub fn continued(self, before: Inventory) -> Inventory {
        let mut all = before;
        all.warnings = self.warnings;
        all.cluster.rules = self.cluster.rules;
        let names: Vec<String> = self.cluster.kinds.iter().map(|kind| kind.name.clone()).collect();
        for (node, place) in self.cluster.nodes.into_iter().zip(self.places) {
            let kind = all.cluster.add_kind(&names[node.kind.index()]);
            let known = all.cluster.nodes.iter_mut().find(|known| known.name == node.name);
            match known {
                Some(known) => {
                    *known = Node { id: known.id, kind, ..node };
                    all.places[known.id.index()] = place;
                }
                None => {
                    let id = NodeId(all.cluster.nodes.len() as u32);
                    all.cluster.nodes.push(Node { id, kind, ..node });
                    all.places.push(place);
                }
            }
        }
        all
    }

    /// The nodes of ours that stand for a node of Slurm.
    pub fn nodes_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = NodeId> + 'a {
        let all = self.places.iter().enumerate();
        all.filter(move |(_, place)| place.node == name).map(|(index, _)| NodeId(index as u32))
    }

    fn has(&self, name: &str) -> bool {
        // Slurm lists nodes once; an answer that does not is no reason to have GPUs twice.
        self.places.last().is_some_and(|place| place.node == name)
            || self.places.iter().any(|place| place.node == name)
    }

    fn add(&mut self, node: &SlurmNode) {
        let all: u32 = node.gpus.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count));
        for (index, (gres_type, count)) in node.gpus.iter().filter(|(_, c)| *c > 0).enumerate() {
            if *count > GPUS_MAX {
                self.warnings.push(format!(
                    "node {} has {count} GPUs; only the first {GPUS_MAX} are used",
                    node.name
                ));
            }
            let Some(kind) = self.kind(gres_type, &node.name) else { continue };
            let name = match index {
                0 => node.name.clone(),
                _ => format!("{}/{gres_type}", node.name),
            };
            if index == 1 {
                self.warnings.push(format!(
                    "node {} has GPUs of several types; each type is a node of its own here",
                    node.name
                ));
            }
            let share = |of: u64| of * u64::from(*count) / u64::from(all.max(1));
            self.cluster.nodes.push(Node {
                id: NodeId(self.cluster.nodes.len() as u32),
                name,
                kind,
                gpus: (*count).min(GPUS_MAX) as u8,
                cpus: share(u64::from(node.cpus)).min(u64::from(u16::MAX)) as u16,
                memory_mib: share(node.memory_mib.min(1 << 40)).min(u64::from(u32::MAX)) as u32,
                rack: 0,
                pool: PoolId(0),
            });
            let gres_type = gres_type.clone();
            self.places.push(NodeBehind { node: node.name.clone(), gres_type });
        }
    }

    fn kind(&mut self, gres_type: &str, node: &str) -> Option<GpuType> {
        let name = if gres_type.is_empty() { UNTYPED } else { gres_type };
        let known = self.cluster.kind(name);
        if known.is_none() && self.cluster.kinds.len() >= KINDS_MAX {
            self.warnings.push(format!(
                "node {node}: more than {KINDS_MAX} types of GPU; `{name}` is left out"
            ));
            return None;
        }
        Some(self.cluster.add_kind(name))
    }
}

impl SlurmNode {
    /// Whether this is its state or one of its flags.
    pub fn is(&self, word: &str) -> bool {
        self.state == word || self.flags.iter().any(|flag| flag == word)
    }

    /// Whether it can run new jobs: up, answering and not drained.
    pub fn is_usable(&self) -> bool {
        let out = [
            "DOWN",
            "ERROR",
            "FUTURE",
            "UNKNOWN",
            "INVAL",
            "DRAIN",
            "FAIL",
            "NOT_RESPONDING",
            "INVALID_REG",
            "POWERING_DOWN",
            "REBOOT_ISSUED",
            "MAINTENANCE",
            "PERFCTRS",
        ];
        !out.iter().any(|word| self.is(word))
    }
}

fn partitions(seen: &SlurmSeen) -> Vec<&str> {
    let mut names: Vec<&str> =
        seen.nodes.iter().flat_map(|node| node.partitions.iter().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::{Inventory, NodeFilter};
    use crate::seen::{SlurmNode, SlurmSeen};

    fn node(name: &str, gpus: &[(&str, u32)], partition: &str) -> SlurmNode {
        SlurmNode {
            name: name.to_owned(),
            state: "IDLE".to_owned(),
            gpus: gpus.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
            cpus: 96,
            memory_mib: 1000,
            partitions: vec![partition.to_owned()],
            ..SlurmNode::default()
        }
    }

    fn told(nodes: Vec<SlurmNode>, partitions: &[&str]) -> String {
        let seen = SlurmSeen { nodes, ..SlurmSeen::default() };
        let partitions = partitions.iter().map(|name| (*name).to_owned()).collect();
        let made = Inventory::of(&seen, &NodeFilter { partitions });
        let mut lines: Vec<String> = Vec::new();
        for (node, place) in made.cluster.nodes.iter().zip(&made.places) {
            let kind = &made.cluster.kinds[usize::from(node.kind.0)].name;
            let (name, cpus) = (&node.name, node.cpus);
            lines.push(format!("{name} {}x{kind} {cpus} on {}", node.gpus, place.node));
        }
        lines.extend(made.warnings);
        lines.join("\n")
    }

    #[test]
    fn a_node_is_taken_with_its_gpus_and_one_without_is_left_out() {
        let nodes = vec![node("a", &[("a100", 8)], "gpu"), node("login", &[], "gpu")];
        assert_eq!(told(nodes, &[]), "a 8xa100 96 on a");
    }

    #[test]
    fn a_node_with_two_types_is_two_nodes() {
        let nodes =
            vec![node("a", &[("v100", 6), ("k80", 2)], "gpu"), node("b", &[("", 4)], "gpu")];
        assert_eq!(
            told(nodes, &[]),
            "a 6xv100 72 on a\na/k80 2xk80 24 on a\nb 4xgpu 96 on b\n\
             node a has GPUs of several types; each type is a node of its own here"
        );
    }

    #[test]
    fn mig_slices_are_types_of_their_own_as_slurm_names_them() {
        let nodes = vec![node("a", &[("a100", 1), ("a100_1g.5gb", 7)], "gpu")];
        let told = told(nodes, &[]);
        assert!(told.contains("a 1xa100 12 on a"), "{told}");
        assert!(told.contains("a/a100_1g.5gb 7xa100_1g.5gb 84 on a"), "{told}");
    }

    #[test]
    fn a_partition_chooses_its_nodes_and_a_wrong_one_is_named() {
        let nodes = || vec![node("a", &[("v100", 2)], "gpu"), node("b", &[("v100", 4)], "dev")];
        assert_eq!(told(nodes(), &["dev"]), "b 4xv100 96 on b");
        assert_eq!(
            told(nodes(), &["gpus"]),
            "no node is in partition `gpus`; there are dev, gpu\nnone of 2 nodes has GPUs in its Gres"
        );
    }

    #[test]
    fn more_gpus_than_a_node_can_have_are_cut_with_a_word() {
        let told = told(vec![node("a", &[("v100", 99)], "gpu")], &[]);
        assert!(told.contains("64xv100") && told.contains("only the first 64"), "{told}");
    }

    #[test]
    fn nodes_keep_their_places_when_others_come_and_go() {
        let of = |nodes: Vec<SlurmNode>| {
            Inventory::of(&SlurmSeen { nodes, ..SlurmSeen::default() }, &NodeFilter::default())
        };
        let before = of(vec![node("b", &[("v100", 2)], "gpu"), node("c", &[("k80", 4)], "gpu")]);
        let now = of(vec![node("a", &[("k80", 1)], "gpu"), node("c", &[("k80", 8)], "gpu")]);
        let all = now.continued(before);
        let told: Vec<String> = (all.cluster.nodes.iter().zip(&all.places))
            .map(|(node, place)| {
                let kind = &all.cluster.kinds[node.kind.index()].name;
                format!("{} {} {}x{kind} {}", node.id.0, node.name, node.gpus, place.node)
            })
            .collect();
        assert_eq!(told, ["0 b 2xv100 b", "1 c 8xk80 c", "2 a 1xk80 a"]);
    }

    #[test]
    fn a_drained_node_is_there_and_not_usable() {
        let mut drained = node("a", &[("v100", 2)], "gpu");
        assert!(drained.is_usable());
        drained.flags.push("DRAIN".to_owned());
        assert!(!drained.is_usable());
        assert!(told(vec![drained], &[]).contains("2xv100"));
    }
}
