//! Pools of nodes that their owners lend, as rows.

use super::DaemonSnapshot;
use trainyard_api::pool::PoolRow;
use trainyard_types::{Node, PoolId};

impl DaemonSnapshot {
    /// Pools, with what their owners need and have.
    pub fn pools(&self) -> Vec<PoolRow> {
        let state = &self.snapshot.state;
        let row = |(name, id): (&String, u16)| {
            let own = state.cluster.nodes.iter().filter(|node| node.pool == PoolId(id));
            let loan = state.loans.iter().find(|loan| loan.pool == PoolId(id));
            let names = |nodes: Vec<&Node>| nodes.iter().map(|node| node.name.clone()).collect();
            let reclaimed = own.clone().filter(|node| self.reclaimed.contains(&node.id));
            PoolRow {
                name: name.clone(),
                reclaimed: names(reclaimed.collect()),
                nodes: names(own.collect()),
                needed: loan.map_or(0, |loan| loan.needed),
                owed: loan.map_or(0, |loan| loan.owed),
            }
        };
        state.cluster.pools.iter().zip(0u16..).map(row).collect()
    }
}
