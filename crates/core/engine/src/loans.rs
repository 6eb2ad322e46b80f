//! Pools that are lent: their owner takes back what it needs, and the policy says which jobs must leave.
//!
//! An owner says how many nodes of its pool it needs ([`Event::Needed`](trainyard_types::Event::Needed)). Nodes that no
//! job has go back at once; how many more are owed stands in the view of the next decision, which may name them
//! ([`Offer::give_back`](trainyard_framework::Offer::give_back)). What a policy that knows nothing of loans leaves owed
//! is taken by a plain rule: from the fewest jobs. A job that may not be stopped is waited for.

use crate::engine::Engine;
use trainyard_framework::Loan;
use trainyard_types::{GpuAt, JobId, NodeId, PoolId, Time};

impl Engine {
    /// The owner of a pool needs so many of its nodes.
    pub(crate) fn needed(&mut self, pool: PoolId, nodes: u32) {
        let state = self.state_mut();
        state.recalls += 1;
        match state.loans.binary_search_by_key(&pool, |loan| loan.pool) {
            Ok(index) => state.loans[index].needed = nodes,
            Err(index) => state.loans.insert(index, Loan { pool, needed: nodes, owed: 0 }),
        }
        self.settle_loans();
        self.wants_decision = true;
    }

    /// Lends what is not needed, gives back what no job has, and takes down what is owed.
    pub(crate) fn settle_loans(&mut self) {
        for index in 0..self.state.loans.len() {
            let Loan { pool, needed, .. } = self.state.loans[index];
            let nodes = self.nodes_of(pool);
            let stands: Vec<(bool, bool)> =
                nodes.iter().map(|node| self.machines.stand(*node)).collect();
            let mut kept = stands.iter().filter(|stand| **stand == (true, true)).count() as u32;
            for (node, stand) in nodes.iter().zip(&stands) {
                // One that broke while its owner had it is no longer of use there.
                let broken = *stand == (false, true);
                if broken || (stand.1 && kept > needed) {
                    kept -= u32::from(!broken);
                    self.keep_node(*node, false);
                }
            }
            for (node, stand) in nodes.iter().zip(&stands).rev() {
                if kept < needed && *stand == (true, false) && self.is_unplanned(*node) {
                    kept += 1;
                    self.keep_node(*node, true);
                }
            }
            let serve = stands.iter().filter(|(serves, _)| *serves).count() as u32;
            let owed = needed.min(serve).saturating_sub(kept);
            if self.state.loans[index].owed != owed {
                self.state_mut().loans[index].owed = owed;
            }
        }
    }

    /// Gives a node back that a policy named, if that much is owed and no job there may stay.
    pub(crate) fn take_back(&mut self, at: Time, node: NodeId) {
        if node.index() >= self.state.cluster.nodes.len() {
            return;
        }
        let pool = self.free.pool(node);
        let owed = self.state.loans.iter().position(|loan| loan.pool == pool && loan.owed > 0);
        let (Some(index), (true, false)) = (owed, self.machines.stand(node)) else { return };
        if self.clear(at, node) {
            self.keep_node(node, true);
            self.state_mut().loans[index].owed -= 1;
        }
    }

    /// After a decision: takes what is still owed, from the fewest jobs. True if a job lost GPUs by it.
    pub(crate) fn recall(&mut self, at: Time) -> bool {
        self.settle_loans();
        let mut displaced = false;
        for index in 0..self.state.loans.len() {
            let Loan { pool, owed, .. } = self.state.loans[index];
            let mut nodes: Vec<(usize, NodeId)> = self
                .nodes_of(pool)
                .into_iter()
                .rev()
                .filter(|node| owed > 0 && self.machines.stand(*node) == (true, false))
                .map(|node| (self.planned_on(node, u64::MAX).len(), node))
                .collect();
            nodes.sort_by_key(|(jobs, _)| *jobs);
            for (jobs, node) in nodes {
                if self.state.loans[index].owed > 0 {
                    self.take_back(at, node);
                    displaced |= jobs > 0 && self.machines.stand(node).1;
                }
            }
        }
        displaced
    }

    /// Takes the grants of all jobs on a node away; false, and no job loses one, if one of them may not be stopped.
    fn clear(&mut self, at: Time, node: NodeId) -> bool {
        let here: Vec<JobId> = self.planned_on(node, u64::MAX);
        if here.iter().any(|job| self.unchangeable(at, *job, None).is_some()) {
            return false;
        }
        for job in here {
            self.unplan(at, job);
        }
        true
    }

    fn nodes_of(&self, pool: PoolId) -> Vec<NodeId> {
        let nodes = self.state.cluster.nodes.iter().map(|node| node.id);
        nodes.filter(|node| self.free.pool(*node) == pool).collect()
    }

    /// Whether no job is planned on any GPU of a node.
    fn is_unplanned(&self, node: NodeId) -> bool {
        let gpus = self.state.cluster.node(node).gpus;
        (0..gpus).all(|gpu| self.free.left(GpuAt { node, gpu }) == 1000)
    }
}
