//! What one scheduling session sees of queues: shares by weight, and what each has, asks for and may still take.

use crate::admit::quota::parts;
use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_types::TenantId;

/// Thousandths of GPUs that a job asks for.
pub(super) fn need(job: JobRef<'_>) -> f64 {
    f64::from(job.spec.want.gpus) * f64::from(job.spec.want.permille) / 1000.0
}

/// A queue: a tenant with jobs. All in GPUs.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// Its weight: the part of the cluster that the tenant has along the tree.
    pub(super) weight: f64,
    /// The most it may have (`capability`).
    pub(super) capability: f64,
    /// What its jobs have.
    pub(super) allocated: f64,
    /// What they have and ask for.
    pub(super) request: f64,
    /// Its share by weight of what is asked for.
    pub(super) deserved: f64,
}

/// By tenant, ascending.
pub(super) type Queues = BTreeMap<TenantId, Queue>;

/// The queues of all admitted jobs. O(admitted jobs + tenants).
pub(super) fn queues(view: &View<'_>, total: f64) -> Queues {
    let parts = parts(view.tenants());
    let mut queues = Queues::new();
    for job in view.granted().chain(view.waiting()) {
        let tenant = job.spec.tenant;
        let queue = queues.entry(tenant).or_insert_with(|| Queue {
            weight: parts.get(tenant.index()).copied().unwrap_or(0.0),
            capability: view.tenants().get(tenant).ceiling.map_or(total, f64::from).min(total),
            allocated: 0.0,
            request: 0.0,
            deserved: 0.0,
        });
        queue.request += need(job);
        if job.state.planned.is_some() {
            queue.allocated += need(job);
        }
    }
    share_out(&mut queues, total);
    queues
}

/// What each deserves (`proportion`): what is left goes round by weight, and a queue that has what it asks for, or the
/// most it may have, is out of the next round. At most as many rounds as queues.
fn share_out(queues: &mut Queues, total: f64) {
    let mut met: Vec<TenantId> = Vec::new();
    let mut left = total;
    for _ in 0..=queues.len() {
        let open = |id: &TenantId| !met.contains(id);
        let weights: f64 = queues.iter().filter(|(id, _)| open(id)).map(|(_, q)| q.weight).sum();
        if weights <= 0.0 || left <= 1e-9 {
            return;
        }
        let mut given = 0.0;
        let mut full = Vec::new();
        for (id, queue) in queues.iter_mut().filter(|(id, _)| !met.contains(id)) {
            let before = queue.deserved;
            let most = queue.request.min(queue.capability);
            queue.deserved = (before + left * queue.weight / weights).min(most);
            given += queue.deserved - before;
            if queue.deserved >= most {
                full.push(*id);
            }
        }
        left -= given;
        if full.is_empty() {
            return;
        }
        met.extend(full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(weight: f64, request: f64) -> Queue {
        Queue { weight, capability: 100.0, allocated: 0.0, request, deserved: 0.0 }
    }

    #[test]
    fn what_one_queue_leaves_goes_to_the_others_by_weight() {
        let mut queues: Queues = [
            (TenantId(0), queue(1.0, 2.0)),
            (TenantId(1), queue(1.0, 50.0)),
            (TenantId(2), queue(3.0, 50.0)),
        ]
        .into_iter()
        .collect();
        share_out(&mut queues, 22.0);
        let deserved: Vec<f64> = queues.values().map(|queue| queue.deserved).collect();
        assert!((deserved[0] - 2.0).abs() < 1e-9, "{deserved:?}");
        assert!((deserved[1] - 5.0).abs() < 1e-9, "{deserved:?}");
        assert!((deserved[2] - 15.0).abs() < 1e-9, "{deserved:?}");
    }

    #[test]
    fn no_queue_deserves_more_than_it_asks_for_or_may_have() {
        let capped = Queue { capability: 3.0, ..queue(9.0, 50.0) };
        let mut queues: Queues =
            [(TenantId(0), capped), (TenantId(1), queue(1.0, 4.0))].into_iter().collect();
        share_out(&mut queues, 20.0);
        assert!((queues[&TenantId(0)].deserved - 3.0).abs() < 1e-9);
        assert!((queues[&TenantId(1)].deserved - 4.0).abs() < 1e-9);
    }
}
