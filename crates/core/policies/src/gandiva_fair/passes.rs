//! Passes: how far each tenant and each of its jobs have come, measured in GPU time over tickets.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_types::TenantId;

/// Stride scheduling in two steps: of each type of GPU, the tenant with the lowest pass is next, and of its jobs the
/// one with the lowest. A job that runs is charged for what it really held, so that no job is charged for being
/// skipped.
#[derive(Default)]
pub(crate) struct Passes {
    /// By tenant, then by type: GPU-seconds over what the tenant is entitled to.
    tenants: Vec<Vec<f64>>,
    /// Entitlements in force, by which the next use is charged.
    entitled: Vec<Vec<f64>>,
    jobs: BTreeMap<JobId, Seat>,
}

#[derive(Copy, Clone)]
struct Seat {
    tenant: TenantId,
    weight: f64,
    /// GPU-seconds over the job's weight among those of its tenant.
    pass: f64,
    /// Service attained when it was last looked at, and when that was.
    seen: Span,
    at: Time,
    /// What it held then.
    on: Option<Held>,
}

/// What a job holds.
#[derive(Copy, Clone)]
struct Held {
    kind: GpuType,
    gpus: f64,
}

impl Passes {
    /// Charges all for the use since the last call, and lets newcomers in at the level of those that are there.
    pub fn charge(&mut self, view: &View<'_>, active: &[JobRef<'_>]) {
        let gone: Vec<JobId> =
            self.jobs.keys().copied().filter(|job| view.job(*job).is_none()).collect();
        for job in gone {
            let Some(seat) = self.jobs.remove(&job) else { continue };
            // Its end is the event of this decision, so it ran until now.
            if let Some(Held { kind, gpus }) = seat.on {
                self.add(seat.tenant, kind, gpus * view.now.since(seat.at).as_secs_f64());
            }
        }
        let mut lowest: BTreeMap<TenantId, f64> = BTreeMap::new();
        for seat in self.jobs.values() {
            let pass = lowest.entry(seat.tenant).or_insert(seat.pass);
            *pass = pass.min(seat.pass);
        }
        for job in active {
            let attained = job.state.attained(view.now);
            let tenant = job.spec.tenant;
            let mut seat = self.jobs.get(&job.id()).copied().unwrap_or(Seat {
                tenant,
                weight: if job.spec.weight > 0.0 { job.spec.weight } else { 1.0 },
                pass: lowest.get(&tenant).copied().unwrap_or(0.0),
                seen: attained,
                at: view.now,
                on: None,
            });
            let on = holding(*job, view);
            let used = Span(attained.0.saturating_sub(seat.seen.0)).as_secs_f64();
            if let Some(held) = on.or(seat.on) {
                self.add(tenant, held.kind, used);
            }
            // pass += stride x gang size, with stride 1 / tickets, for the time it really held its GPUs.
            seat.pass += used / seat.weight;
            (seat.seen, seat.at, seat.on) = (attained, view.now, on);
            self.jobs.insert(job.id(), seat);
        }
    }

    fn add(&mut self, tenant: TenantId, kind: GpuType, gpu_seconds: f64) {
        let entitled = self.entitled.get(tenant.index()).map_or(0.0, |row| row[kind.index()]);
        if entitled > 0.0 {
            self.tenants[tenant.index()][kind.index()] += gpu_seconds / entitled;
        }
    }

    /// Puts new entitlements in force. A tenant that was entitled to nothing of a type comes in at the level of the
    /// others: no tenant saves up while it is away.
    pub fn entitle(&mut self, entitled: Vec<Vec<f64>>) {
        let types = entitled.first().map_or(0, Vec::len);
        self.tenants.resize(entitled.len(), vec![0.0; types]);
        self.entitled.resize(entitled.len(), vec![0.0; types]);
        for kind in 0..types {
            let there = (0..entitled.len()).filter(|u| self.entitled[*u][kind] > 0.0);
            let level = there.map(|u| self.tenants[u][kind]).min_by(f64::total_cmp);
            for (u, row) in entitled.iter().enumerate() {
                if self.entitled[u][kind] <= 0.0 && row[kind] > 0.0 {
                    let pass = &mut self.tenants[u][kind];
                    *pass = pass.max(level.unwrap_or(0.0));
                }
            }
        }
        self.entitled = entitled;
    }

    /// What a tenant is entitled to of a type.
    pub fn entitled(&self, tenant: TenantId, kind: GpuType) -> f64 {
        self.entitled.get(tenant.index()).map_or(0.0, |row| row[kind.index()])
    }

    /// How far a tenant is on a type.
    pub fn tenant(&self, tenant: TenantId, kind: GpuType) -> f64 {
        self.tenants.get(tenant.index()).map_or(0.0, |row| row[kind.index()])
    }

    /// How far a job is.
    pub fn job(&self, job: JobId) -> f64 {
        self.jobs.get(&job).map_or(0.0, |seat| seat.pass)
    }

    /// Forgets everything: all are level.
    pub fn forget(&mut self) {
        *self = Passes::default();
    }
}

/// The type and the GPUs that a job holds.
fn holding(job: JobRef<'_>, view: &View<'_>) -> Option<Held> {
    let held = job.state.held.as_ref()?;
    let (node, _) = held.placement.masks().first()?;
    let kind = view.cluster().node(*node).kind;
    Some(Held { kind, gpus: f64::from(held.placement.gpus()) })
}
