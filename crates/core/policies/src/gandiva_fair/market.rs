//! Which tenants take part at a moment: tickets along the tree of tenants, and what each type is worth to each tenant.

use super::trade::{Holdings, Stake, shares, trade};
use crate::prelude::*;
use trainyard_types::{Config, TenantId};

/// A moment as tenants see it.
pub(crate) struct Market {
    /// By tenant; those without jobs have no tickets.
    pub stakes: Vec<Stake>,
    /// GPUs in service, by type.
    capacity: Vec<u32>,
    /// By place in the list of active jobs, then by type: the speed relative to the type that suits the job best.
    pub worth: Vec<Vec<f64>>,
    /// Types that have nodes, the most valued first.
    pub kinds: Vec<GpuType>,
    /// Tickets behind each GPU that a job of a tenant asks for.
    pub per_gpu: Vec<f64>,
}

impl Market {
    pub fn new(view: &View<'_>, free: &Free, active: &[JobRef<'_>]) -> Market {
        let types = view.cluster().kinds.len();
        let capacity = (0..types).map(|kind| free.in_service(GpuType(kind as u8))).collect();
        let none = Stake { tickets: 0.0, demand: 0.0, worth: vec![0.0; types] };
        let mut stakes = vec![none; view.tenants().len()];
        let mut jobs = vec![0.0; stakes.len()];
        let worth: Vec<Vec<f64>> = active.iter().map(|job| worth(*job, view)).collect();
        for (job, worth) in active.iter().zip(&worth) {
            let stake = &mut stakes[job.spec.tenant.index()];
            stake.demand += size(*job);
            // A tenant's tickets are split over its jobs, so each counts alike whatever its size.
            jobs[job.spec.tenant.index()] += 1.0;
            for (sum, worth) in stake.worth.iter_mut().zip(worth) {
                *sum += worth;
            }
        }
        let tickets = tickets(view, &stakes);
        for ((stake, tickets), jobs) in stakes.iter_mut().zip(tickets).zip(jobs) {
            stake.tickets = tickets;
            stake.worth.iter_mut().filter(|_| jobs > 0.0).for_each(|sum| *sum /= jobs);
        }
        let mut kinds: Vec<GpuType> = view.state().shapes.iter().map(|(kind, _)| *kind).collect();
        let valued = |kind: &GpuType| -> f64 {
            stakes.iter().map(|stake| stake.tickets * stake.worth[kind.index()]).sum()
        };
        kinds.sort_by(|a, b| valued(b).total_cmp(&valued(a)).then(a.cmp(b)));
        let per_gpu = |stake: &Stake| stake.tickets / stake.demand.max(1e-3);
        let per_gpu = stakes.iter().map(per_gpu).collect();
        Market { stakes, capacity, worth, kinds, per_gpu }
    }

    /// What each tenant is entitled to, by tenant and type.
    pub fn entitled(&self, trading: bool) -> Holdings {
        let mut held = shares(&self.stakes, &self.capacity);
        if trading {
            trade(&self.stakes, &mut held);
        }
        held
    }
}

/// GPUs that a job asks for, parts of one included.
pub(crate) fn size(job: JobRef<'_>) -> f64 {
    f64::from(job.spec.want.gpus) * f64::from(job.spec.want.permille) / 1000.0
}

/// The speed of a job on each type at its own size, relative to the best. An unknown speed counts as the best; one that
/// is no number or below zero, like a type that the job does not accept, as none.
fn worth(job: JobRef<'_>, view: &View<'_>) -> Vec<f64> {
    let want = &job.spec.want;
    let mut rates = vec![0.0; view.cluster().kinds.len()];
    for &(kind, per_node) in &view.state().shapes {
        if !want.accepts(kind) {
            continue;
        }
        let mut config = Config::packed(kind, want.gpus, per_node);
        config.permille = want.permille;
        let rate = view.rate(job, &config).map_or(f64::INFINITY, |rate| rate.0);
        rates[kind.index()] = if rate > 0.0 { rate } else { 0.0 };
    }
    let known = rates.iter().copied().filter(|rate| rate.is_finite());
    let best = known.fold(0.0, f64::max);
    let relative = |rate: f64| match rate.is_finite() {
        true if best > 0.0 => rate / best,
        true => 0.0,
        false => 1.0,
    };
    rates.into_iter().map(relative).collect()
}

/// The part of all tickets that each tenant with jobs holds: weights among siblings with jobs below them, multiplied
/// along the tree. The own jobs of a tenant with children count as one more child of weight 1.
fn tickets(view: &View<'_>, stakes: &[Stake]) -> Vec<f64> {
    let tenants = view.tenants();
    let own = |id: TenantId| stakes[id.index()].demand > 0.0;
    let mut below = vec![false; tenants.len()];
    for (id, _) in tenants.iter().filter(|(id, _)| own(*id)) {
        tenants.path(id).for_each(|above| below[above.index()] = true);
    }
    let weight = |id: TenantId| match tenants.get(id).weight {
        weight if weight.is_finite() && weight > 0.0 && below[id.index()] => weight,
        _ => 0.0,
    };
    let slot = |parent: Option<TenantId>| parent.map_or(tenants.len(), TenantId::index);
    let mut among = vec![0.0; tenants.len() + 1];
    for (id, tenant) in tenants.iter() {
        among[slot(tenant.parent)] += weight(id);
    }
    let mut branch = vec![0.0; tenants.len()];
    let mut tickets = vec![0.0; tenants.len()];
    for (id, tenant) in tenants.iter() {
        let above = tenant.parent.map_or(1.0, |parent| {
            let own = if own(parent) { 1.0 } else { 0.0 };
            let among = among[parent.index()];
            branch[parent.index()] * among / (among + own)
        });
        let sum = among[slot(tenant.parent)];
        branch[id.index()] = if sum > 0.0 { above * weight(id) / sum } else { 0.0 };
        if own(id) {
            tickets[id.index()] = branch[id.index()] / (among[id.index()] + 1.0);
        }
    }
    tickets
}
