//! GPUs that a waiting job could use if they were there: nodes out of service, and GPUs that no job can get.

use super::DaemonSnapshot;
use crate::messages;
use trainyard_types::{Node, Want};

/// Nodes that are told of by name.
const TOLD_MAX: usize = 4;

impl DaemonSnapshot {
    /// What is missing that a job could use, one sentence for each node, and how many more there are. Linear in nodes.
    pub(crate) fn absent(&self, want: &Want) -> Vec<String> {
        let cluster = &self.snapshot.state.cluster;
        let usable = |node: &&Node| {
            let memory = cluster.kinds[node.kind.index()].memory_mib;
            want.accepts(node.kind) && (memory == 0 || memory >= want.gpu_memory_mib)
        };
        let nodes = cluster.nodes.iter().filter(usable);
        let mut told: Vec<String> = nodes.filter_map(|node| self.absence(node)).collect();
        let more = told.len().saturating_sub(TOLD_MAX);
        told.truncate(TOLD_MAX);
        if more > 0 {
            told.push(format!("{more} more nodes are out of service or have GPUs set aside"));
        }
        told
    }

    fn absence(&self, node: &Node) -> Option<String> {
        let (name, seen) = (&node.name, self.nodes.get(&node.name));
        let drained = self.drained.get(name).or_else(|| seen?.drained.as_ref());
        if seen.is_some_and(|seen| !seen.up) {
            return Some(format!("node {name} is lost"));
        }
        if let Some(reason) = drained {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            return Some(format!("node {name} is drained{reason}"));
        }
        if let Some(until) = self.quarantined.get(&node.id) {
            let seconds = until.since(self.snapshot.now).as_secs_f64();
            return Some(format!("node {name} failed too often; back in {seconds:.0} s"));
        }
        if self.reclaimed.contains(&node.id) {
            let pool = &self.snapshot.state.cluster.pools[node.pool.index()];
            return Some(format!("node {name} is reclaimed by its pool {pool}"));
        }
        let gone = seen.map_or(0, |seen| seen.unaccounted);
        (gone > 0).then(|| format!("node {name} has {}", messages::unaccounted(gone)))
    }
}
