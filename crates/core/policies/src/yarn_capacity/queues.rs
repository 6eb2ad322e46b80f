//! The tree of queues: what each is guaranteed, what it may have at most, and what its jobs have and ask for.

use crate::prelude::*;
use trainyard_types::{TenantId, Tenants};

/// Thousandths of GPUs that a job asks for.
pub(super) fn need(job: JobRef<'_>) -> u64 {
    u64::from(job.spec.want.gpus) * u64::from(job.spec.want.permille)
}

/// A queue, in thousandths of GPUs.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) parent: Option<usize>,
    /// What it has a right to (`capacity`).
    pub(super) guaranteed: f64,
    /// What it may have where others leave it (`maximum-capacity`).
    pub(super) most: f64,
    /// What its jobs and those below it have.
    pub(super) used: u64,
}

/// All queues, parents before children; the first is the root.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    pub(super) list: Vec<Queue>,
    /// The queue that the jobs of each tenant are in.
    pub(super) of: Vec<usize>,
}

impl Queues {
    /// The queues of tenants over so many thousandths of GPUs. Tenants are queues, and have their weight among siblings of
    /// what their parent has. Jobs of a tenant with others below it are in a queue of their own under it that is guaranteed
    /// nothing. Where leaves are users, a tenant that has a parent and none below it is one of the users of that.
    pub(super) fn new(tenants: &Tenants, total: f64, (maximum, users): (f64, bool)) -> Queues {
        let mut is_parent = vec![false; tenants.len()];
        for parent in tenants.iter().filter_map(|(_, tenant)| tenant.parent) {
            is_parent[parent.index()] = true;
        }
        let is_user =
            |id: TenantId| users && tenants.get(id).parent.is_some() && !is_parent[id.index()];
        let mut siblings = vec![0.0; tenants.len() + 1];
        let slot = |parent: Option<TenantId>| parent.map_or(tenants.len(), TenantId::index);
        for (_, tenant) in tenants.iter().filter(|(id, _)| !is_user(*id)) {
            siblings[slot(tenant.parent)] += tenant.weight.max(0.0);
        }
        let root = Queue { parent: None, guaranteed: total, most: total, used: 0 };
        let mut queues = Queues { list: vec![root], of: vec![0; tenants.len()] };
        for (id, tenant) in tenants.iter() {
            let above = tenant.parent.map_or(0, |parent| queues.of[parent.index()]);
            if is_user(id) {
                queues.of[id.index()] = above;
                continue;
            }
            let all = siblings[slot(tenant.parent)];
            let part = if all > 0.0 { tenant.weight.max(0.0) / all } else { 0.0 };
            let (whole, most) = (queues.list[above].guaranteed, queues.list[above].most);
            let ceiling = tenant.ceiling.map_or(f64::INFINITY, |gpus| f64::from(gpus) * 1000.0);
            let most = (most * maximum).max(whole * part).min(ceiling);
            queues.list.push(Queue {
                parent: Some(above),
                guaranteed: whole * part,
                most,
                used: 0,
            });
            queues.of[id.index()] = queues.list.len() - 1;
        }
        queues.add_default_queues(tenants, |id| is_parent[id.index()] && !is_user(id));
        queues
    }

    /// A queue takes jobs or has queues below it, never both.
    fn add_default_queues(&mut self, tenants: &Tenants, has_below: impl Fn(TenantId) -> bool) {
        for (id, _) in tenants.iter().filter(|(id, _)| has_below(*id)) {
            let own = self.of[id.index()];
            if self.list.iter().any(|queue| queue.parent == Some(own)) {
                let most = self.list[own].most;
                self.list.push(Queue { parent: Some(own), guaranteed: 0.0, most, used: 0 });
                self.of[id.index()] = self.list.len() - 1;
            }
        }
    }

    /// From a queue to the root.
    pub(super) fn path(&self, queue: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(queue), |queue| self.list[*queue].parent)
    }

    /// A job gets GPUs. O(depth).
    pub(super) fn add(&mut self, queue: usize, need: u64) {
        self.change(queue, |used| used + need);
    }

    /// A job loses its GPUs. O(depth).
    pub(super) fn remove(&mut self, queue: usize, need: u64) {
        self.change(queue, |used| used.saturating_sub(need));
    }

    fn change(&mut self, queue: usize, change: impl Fn(u64) -> u64) {
        let mut at = Some(queue);
        while let Some(index) = at {
            self.list[index].used = change(self.list[index].used);
            at = self.list[index].parent;
        }
    }

    /// Whether a queue and all above it may have so much more.
    pub(super) fn may_have(&self, queue: usize, need: u64) -> bool {
        let fits = |index| {
            let queue: &Queue = &self.list[index];
            (queue.used + need) as f64 <= queue.most + 0.5
        };
        self.path(queue).all(fits)
    }

    /// How far each queue on the way from the root down to one is served: what it uses of what it is guaranteed. Queues are
    /// served in the order of these lists, the least first; one that is guaranteed nothing comes last.
    pub(super) fn service(&self, queue: usize) -> Vec<(f64, usize)> {
        let mut path: Vec<usize> = self.path(queue).collect();
        path.reverse();
        let ratio = |index: usize| {
            let queue = &self.list[index];
            match queue.guaranteed > 0.0 {
                true => queue.used as f64 / queue.guaranteed,
                false => f64::INFINITY,
            }
        };
        path.into_iter().map(|index| (ratio(index), index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trainyard_types::Tenant;

    fn tree(users: bool) -> Queues {
        let named = |name: &str, weight| Tenant { weight, ..Tenant::named(name) };
        let mut tenants = Tenants::new(vec![named("lab", 3.0), named("guest", 1.0)]);
        for name in ["x", "y"] {
            tenants.insert(Tenant { parent: Some(TenantId(0)), ..named(name, 1.0) });
        }
        Queues::new(&tenants, 8000.0, (1.0, users))
    }

    #[test]
    fn queues_have_their_part_of_their_parent() {
        let queues = tree(false);
        let guaranteed = |tenant: usize| queues.list[queues.of[tenant]].guaranteed;
        assert_eq!([guaranteed(1), guaranteed(2), guaranteed(3)], [2000.0, 3000.0, 3000.0]);
        assert_eq!(guaranteed(0), 0.0, "jobs of the lab itself are guaranteed nothing");
    }

    #[test]
    fn leaves_are_users_of_their_parent_where_that_is_asked_for() {
        let queues = tree(true);
        assert_eq!((queues.of[2], queues.of[3]), (queues.of[0], queues.of[0]));
        assert_eq!(queues.list[queues.of[0]].guaranteed, 6000.0);
    }

    #[test]
    fn what_is_used_counts_up_to_the_root() {
        let mut queues = tree(false);
        queues.add(queues.of[2], 5000);
        assert_eq!((queues.list[0].used, queues.list[queues.of[3]].used), (5000, 0));
        assert!(queues.may_have(queues.of[3], 3000) && !queues.may_have(queues.of[3], 3001));
    }
}
