//! What must always hold. Asserted in release builds: on what changed at every decision, on everything on a schedule.

use crate::engine::Engine;
use crate::occupancy::Occupancy;
use trainyard_framework::used_permille;
use trainyard_types::{JobId, Phase, TenantId, Time};

impl Engine {
    /// Checks everything, in time linear in jobs and GPUs.
    ///
    /// # Panics
    /// When an invariant is broken: a bug of the engine, never of a policy.
    pub fn assert_invariants(&self) {
        let free = self.free_by_plan();
        assert!(free == self.free, "what is free by the plan does not match the plan");
        let mut real = Occupancy::new(&self.state.cluster);
        let mut used = vec![0u64; self.state.tenants.len()];
        let mut demand = 0;
        for live in self.state.jobs.values() {
            let (id, state) = (live.spec.id, &live.state);
            assert_eq!(
                state.planned.is_some(),
                self.state.granted.contains(id),
                "{id} is granted exactly if it has a plan"
            );
            assert!(
                !(self.state.waiting.contains(id) && self.state.granted.contains(id)),
                "{id} both waits and holds a grant"
            );
            assert_eq!(
                state.held.is_some(),
                state.is_placed(),
                "{id} holds GPUs exactly if placed"
            );
            if let Some(held) = &state.held {
                let gpus = held.placement.gpus();
                let want = &live.spec.want;
                assert!((want.gpus_min..=want.gpus_max).contains(&gpus), "{id} is a partial gang");
                real.take(held);
            }
            if let Some(planned) = &state.planned {
                for tenant in self.state.tenants.path(live.spec.tenant) {
                    used[tenant.index()] += used_permille(planned);
                }
            }
            if state.admitted {
                demand += u64::from(live.spec.want.gpus);
            }
            let settled = state.phase != Phase::Running || state.planned == state.held;
            self.assert_aside(live);
            assert!(
                settled || self.dirty.contains(id),
                "{id} runs otherwise than planned and is not marked for reconciliation"
            );
        }
        assert!(real == self.real, "what is really in use does not match what jobs hold");
        assert_eq!(used, self.state.used_permille, "quota is counted wrongly");
        assert_eq!(demand, self.state.demand, "demand is counted wrongly");
        self.assert_apart();
        self.assert_out_of_windows();
    }

    /// Shared GPUs are counted, and no two jobs of tenants that are kept apart are planned on the same one.
    fn assert_apart(&self) {
        let planned = |job| self.state.live(job).and_then(|live| live.state.planned.as_ref());
        let shares = self
            .state
            .granted
            .iter()
            .filter(|job| planned(*job).is_some_and(trainyard_types::Allocation::is_shared));
        assert_eq!(shares.count() as u32, self.state.sharing, "shared grants are counted wrongly");
    }

    /// A job that is stopped for another, or moved, has no lease, is past its minimum run time, and allows it.
    ///
    /// # Panics
    /// When a decision was adopted that takes from it all the same.
    pub(crate) fn assert_stoppable(&self, at: Time, job: JobId) {
        let live = self.state.live(job).expect("only live jobs are stopped");
        let lease = live.state.held.as_ref().and_then(|held| held.lease_until);
        let fresh = live.state.last_start.is_some_and(|start| start + live.spec.min_run > at);
        assert!(live.spec.preemptible, "{job} may not be stopped");
        assert!(lease.is_none_or(|until| until <= at), "{job} loses its GPUs within its lease");
        assert!(!fresh, "{job} is stopped within its minimum run time");
    }

    /// What was just granted keeps every ceiling on the way to the top.
    ///
    /// # Panics
    /// When it does not.
    pub(crate) fn assert_within_ceilings(&self, tenant: TenantId) {
        let passed = self.state.ceiling_passed(tenant, 0);
        assert!(passed.is_none(), "the ceiling of {tenant} or above it is passed");
    }
}
