//! The tree of quotas: cluster queues as leaves, cohorts above them; how much each may still use, borrow and lend.

use crate::admit::quota::parts;
use crate::prelude::*;
use trainyard_types::{TenantId, Tenants};

/// Limits that all queues have, as multiples of their own quota.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// The most that a queue may borrow; below 0 for any amount.
    pub(super) borrowing: f64,
    /// The part of its quota that a queue lends.
    pub(super) lending: f64,
}

/// A cluster queue or a cohort. Amounts are thousandths of GPUs, by type.
#[derive(Clone, Debug)]
struct Node {
    parent: Option<usize>,
    weight: f64,
    /// Its own quota.
    nominal: Vec<i64>,
    /// What of its quota and that of those below it may be used (`SubtreeQuota`).
    subtree: Vec<i64>,
    /// What is not lent (`guaranteedQuota`).
    guaranteed: Vec<i64>,
    /// The most it may borrow.
    borrowing: Vec<Option<i64>>,
    /// What is used of it: of a cohort, what its children use beyond what they do not lend.
    usage: Vec<i64>,
}

/// All quotas of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Quotas {
    nodes: Vec<Node>,
    /// The queue of each tenant.
    queues: Vec<usize>,
}

/// A queue, as an index.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueueId(usize);

impl Quotas {
    /// The quotas of tenants over so many thousandths of GPUs of each type: by weight among siblings, from the top down.
    /// A tenant with others below it is their cohort; its own jobs have a queue in it without a quota, which borrows.
    /// All at the top are one cohort.
    pub(super) fn new(tenants: &Tenants, capacity: &[i64], limits: Limits) -> Quotas {
        let kinds = capacity.len();
        let empty = |parent, weight| Node {
            parent,
            weight,
            nominal: vec![0; kinds],
            subtree: vec![0; kinds],
            guaranteed: vec![0; kinds],
            borrowing: vec![None; kinds],
            usage: vec![0; kinds],
        };
        let mut quotas = Quotas { nodes: vec![empty(None, 1.0)], queues: Vec::new() };
        let mut is_parent = vec![false; tenants.len()];
        for (_, tenant) in tenants.iter() {
            if let Some(parent) = tenant.parent {
                is_parent[parent.index()] = true;
            }
        }
        let parts = parts(tenants);
        // Quotas are rounded so that they add up to the cluster.
        let leaves = || (0..tenants.len()).filter(|index| !is_parent[*index]);
        let total: f64 = leaves().map(|index| parts[index]).sum();
        let mut before = 0.0;
        let mut cohorts: Vec<usize> = vec![0; tenants.len()];
        for (id, tenant) in tenants.iter() {
            let above = tenant.parent.map_or(0, |parent| cohorts[parent.index()]);
            let mut parent = above;
            if is_parent[id.index()] {
                quotas.nodes.push(empty(Some(above), tenant.weight));
                parent = quotas.nodes.len() - 1;
                cohorts[id.index()] = parent;
            }
            let mut node = empty(Some(parent), tenant.weight);
            if !is_parent[id.index()] {
                let after = before + if total > 0.0 { parts[id.index()] / total } else { 0.0 };
                for (kind, all) in capacity.iter().enumerate() {
                    let up_to = |part: f64| (part * *all as f64 + 0.5) as i64;
                    node.fill(kind, up_to(after) - up_to(before), limits);
                }
                before = after;
            }
            quotas.queues.push(quotas.nodes.len());
            quotas.nodes.push(node);
        }
        quotas.accumulate();
        quotas
    }

    /// Cohorts have what their children lend; children come after their parents.
    fn accumulate(&mut self) {
        for index in (1..self.nodes.len()).rev() {
            let child = self.nodes[index].clone();
            let Some(parent) = child.parent else { continue };
            for (kind, all) in self.nodes[parent].subtree.iter_mut().enumerate() {
                *all += child.subtree[kind] - child.guaranteed[kind];
            }
        }
    }

    /// The queue of a tenant.
    pub(super) fn queue(&self, tenant: TenantId) -> QueueId {
        QueueId(self.queues[tenant.index()])
    }

    /// How much more a queue may use of a type (`available`). O(depth).
    pub(super) fn available(&self, queue: QueueId, kind: GpuType) -> i64 {
        self.available_at(queue.0, kind.index())
    }

    fn available_at(&self, index: usize, kind: usize) -> i64 {
        let node = &self.nodes[index];
        let Some(parent) = node.parent else { return node.subtree[kind] - node.usage[kind] };
        let mut above = self.available_at(parent, kind);
        if let Some(limit) = node.borrowing[kind] {
            let stored = node.subtree[kind] - node.guaranteed[kind];
            let used = (node.usage[kind] - node.guaranteed[kind]).max(0);
            above = above.min(stored - used + limit);
        }
        self.local(index, kind) + above
    }

    /// What is not lent and not used.
    fn local(&self, index: usize, kind: usize) -> i64 {
        let node = &self.nodes[index];
        (node.guaranteed[kind] - node.usage[kind]).max(0)
    }

    /// A queue uses more. O(depth).
    pub(super) fn add(&mut self, queue: QueueId, kind: GpuType, amount: i64) {
        let (mut index, kind, mut amount) = (queue.0, kind.index(), amount);
        loop {
            let local = self.local(index, kind);
            self.nodes[index].usage[kind] += amount;
            let Some(parent) = self.nodes[index].parent.filter(|_| amount > local) else { return };
            (index, amount) = (parent, amount - local);
        }
    }

    /// A queue uses less. O(depth).
    pub(super) fn remove(&mut self, queue: QueueId, kind: GpuType, amount: i64) {
        let (mut index, kind, mut amount) = (queue.0, kind.index(), amount);
        loop {
            let node = &mut self.nodes[index];
            let above = node.usage[kind] - node.guaranteed[kind];
            node.usage[kind] -= amount;
            let Some(parent) = node.parent.filter(|_| above > 0) else { return };
            (index, amount) = (parent, amount.min(above));
        }
    }

    /// Whether a queue would use more than its own quota of a type with so much more.
    pub(super) fn borrows(&self, queue: QueueId, kind: GpuType, more: i64) -> bool {
        let node = &self.nodes[queue.0];
        node.usage[kind.index()] + more > node.nominal[kind.index()]
    }

    /// The dominant resource share of a queue with so much more: what it borrows, of what its cohort can lend, in
    /// thousandths by its weight.
    pub(super) fn share(&self, queue: QueueId, kind: GpuType, more: i64) -> f64 {
        let node = &self.nodes[queue.0];
        let each = node.usage.iter().zip(&node.nominal).enumerate();
        let borrowed: i64 = each
            .map(|(index, (used, own))| used + if index == kind.index() { more } else { 0 } - own)
            .map(|over| over.max(0))
            .sum();
        let above = node.parent.map_or(&node.subtree, |parent| &self.nodes[parent].subtree);
        let lendable: i64 = above.iter().sum();
        match (borrowed, node.weight) {
            (0, _) => 0.0,
            (_, weight) if weight > 0.0 && lendable > 0 => {
                borrowed as f64 * 1000.0 / lendable as f64 / weight
            }
            _ => f64::INFINITY,
        }
    }
}

impl Node {
    fn fill(&mut self, kind: usize, quota: i64, limits: Limits) {
        let times = |factor: f64| (quota as f64 * factor + 0.5) as i64;
        self.nominal[kind] = quota;
        self.subtree[kind] = quota;
        self.guaranteed[kind] = quota - times(limits.lending).min(quota);
        self.borrowing[kind] = (limits.borrowing >= 0.0).then(|| times(limits.borrowing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Tenant;

    const V100: GpuType = GpuType(0);

    fn two(limits: Limits) -> (Quotas, QueueId, QueueId) {
        let tenants = Tenants::new(vec![Tenant::named("a"), Tenant::named("b")]);
        let quotas = Quotas::new(&tenants, &[8000], limits);
        let (a, b) = (quotas.queue(TenantId(0)), quotas.queue(TenantId(1)));
        (quotas, a, b)
    }

    #[test]
    fn a_queue_borrows_what_the_others_leave() {
        let (mut quotas, a, b) = two(Limits { borrowing: -1.0, lending: 1.0 });
        assert_eq!(quotas.available(a, V100), 8000);
        quotas.add(a, V100, 6000);
        assert!(quotas.borrows(a, V100, 0) && !quotas.borrows(b, V100, 2000));
        assert_eq!((quotas.available(a, V100), quotas.available(b, V100)), (2000, 2000));
        assert!((quotas.share(a, V100, 0) - 250.0).abs() < 1e-9);
        quotas.remove(a, V100, 6000);
        assert_eq!(quotas.available(b, V100), 8000);
    }

    #[test]
    fn limits_bound_what_is_borrowed_and_lent() {
        let (quotas, a, _) = two(Limits { borrowing: 0.5, lending: 1.0 });
        assert_eq!(quotas.available(a, V100), 6000);
        let (mut quotas, a, b) = two(Limits { borrowing: -1.0, lending: 0.25 });
        assert_eq!(quotas.available(a, V100), 5000);
        quotas.add(a, V100, 5000);
        assert_eq!((quotas.available(a, V100), quotas.available(b, V100)), (0, 3000));
    }

    #[test]
    fn quotas_follow_the_tree_and_add_up() {
        let mut tenants = Tenants::new(vec![Tenant::named("lab"), Tenant::named("guest")]);
        let lab = Some(TenantId(0));
        let x = tenants.insert(Tenant { parent: lab, ..Tenant::named("x") });
        let y = tenants.insert(Tenant { parent: lab, ..Tenant::named("y") });
        let z = tenants.insert(Tenant { parent: lab, ..Tenant::named("z") });
        let quotas = Quotas::new(&tenants, &[7000], Limits { borrowing: 0.0, lending: 1.0 });
        let own = [x, y, z, TenantId(1)].map(|id| quotas.available(quotas.queue(id), V100));
        assert_eq!(own.iter().sum::<i64>(), 7000);
        assert_eq!(own[3], 3500);
    }
}
