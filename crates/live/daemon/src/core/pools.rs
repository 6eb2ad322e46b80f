//! Pools that are lent: what their owners need, kept by name.

use super::{Core, Said};
use crate::access::{self, Caller, Right};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use trainyard_api::{Code, Problem};
use trainyard_types::{Event, NodeId, PoolId};

/// What owners of pools need and have, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptPools {
    /// How many nodes the owner of each pool needs, by name.
    pub needed: BTreeMap<String, u32>,
    /// Names of the nodes that they have; after a restart they have the same ones.
    pub reclaimed: BTreeSet<String>,
}

impl Core {
    /// The owner of a pool needs so many of its nodes; jobs leave those, and the others are lent.
    pub(super) fn need_nodes(
        &mut self,
        caller: &Caller,
        name: &str,
        needed: u32,
    ) -> Result<Said, Problem> {
        let allowed = access::check(caller, Right::RuleNodes, None);
        self.audit(&caller.user, "pool need", name, allowed.is_ok());
        allowed?;
        let Some(pool) = self.pool(name) else {
            let names = self.options.cluster.pools.join(", ");
            let detail = format!("there is no pool `{name}`; pools are {names}");
            return Err(Problem::field(Code::NotFound, "name", detail));
        };
        let nodes = self.options.cluster.nodes.iter().filter(|node| node.pool == pool).count();
        if needed as usize > nodes {
            let detail = format!("pool `{name}` has {nodes} nodes, and {needed} cannot be needed");
            return Err(Problem::field(Code::BadInput, "needed", detail));
        }
        if self.pools.needed.get(name) == Some(&needed) {
            return Ok(Said::Done);
        }
        self.pools.needed.insert(name.to_owned(), needed);
        self.keep_pools();
        let sentence = format!("{}: pool {name} needs {needed} of {nodes} nodes", caller.user);
        self.event("pool", None, &sentence, json!({ "pool": name, "needed": needed }));
        self.apply(Event::Needed(pool, needed));
        Ok(Said::Done)
    }

    /// What the owners of pools need, of pools that are still there.
    pub(super) fn loans(&self) -> Vec<(PoolId, u32)> {
        let pools = self.pools.needed.iter();
        pools.filter_map(|(name, needed)| Some((self.pool(name)?, *needed))).collect()
    }

    /// Writes down which nodes the owners of pools have, and tells of those that changed hands.
    pub(super) fn note_reclaimed(&mut self) {
        if self.pools.needed.is_empty() {
            return;
        }
        let nodes = self.options.cluster.nodes.iter();
        let now: BTreeSet<String> = nodes
            .filter(|node| self.engine.is_reclaimed(node.id))
            .map(|node| node.name.clone())
            .collect();
        let before = std::mem::replace(&mut self.pools.reclaimed, now);
        if before == self.pools.reclaimed {
            return;
        }
        self.keep_pools();
        let now = self.pools.reclaimed.clone();
        for name in now.difference(&before) {
            self.event("pool", None, &format!("node {name} goes to its pool"), Value::Null);
        }
        for name in before.difference(&now) {
            self.event("pool", None, &format!("node {name} is lent"), Value::Null);
        }
    }

    /// The nodes that the owners of pools have.
    pub(super) fn reclaimed_nodes(&self) -> Vec<NodeId> {
        self.pools.reclaimed.iter().filter_map(|name| self.node(name).ok()).collect()
    }

    fn keep_pools(&mut self) {
        let kept = json!(self.pools);
        self.meta("pools", &kept);
    }

    fn pool(&self, name: &str) -> Option<PoolId> {
        let mut pools = self.options.cluster.pools.iter().zip(0u16..);
        pools.find(|(own, _)| *own == name).map(|(_, id)| PoolId(id))
    }
}
