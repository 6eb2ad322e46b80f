//! Tenants that are kept apart: no GPU is shared by jobs of two of them unless both allow it.

use super::Offer;
use crate::Ask;
use smallvec::smallvec;
use trainyard_types::{Allocation, JobId, Placement, Share};

/// So many places beside strangers are passed over before a job waits.
const TRIES_MAX: usize = 64;

impl Offer<'_> {
    /// Whether tenants are kept apart and there is more than one.
    pub(super) fn keeps_apart(&self) -> bool {
        let state = self.view.state();
        state.isolates && state.tenants.len() > 1
    }

    /// Whether an allocation would share a GPU with a job of a tenant that it must not share with. Linear in granted
    /// jobs, where any GPU is shared.
    pub(super) fn meets_strangers(&self, job: JobId, allocation: &Allocation) -> bool {
        if !self.keeps_apart() {
            return false;
        }
        let state = self.view.state();
        let others_share = state.sharing > 0
            || self.touched.iter().any(|one| one.plan.as_ref().is_some_and(Allocation::is_shared));
        if !allocation.is_shared() && !others_share {
            return false;
        }
        let granted = state.granted.iter();
        let touched = self.touched.iter().map(|one| one.job);
        let others = granted.chain(touched.filter(|job| !state.granted.contains(*job)));
        state.meets_strangers(job, allocation, &|other| self.plan(other).cloned(), others)
    }

    /// Whether a place that was found for a question has strangers on its GPUs.
    pub(super) fn stands_beside_strangers(&self, ask: &Ask<'_>, found: &Placement) -> bool {
        self.meets_strangers(ask.job.id(), &tried(ask, found.clone()))
    }

    /// Another place: the placer is asked again without the GPUs that have strangers on them.
    pub(super) fn away_from_strangers(
        &mut self,
        ask: &Ask<'_>,
        mut found: Placement,
    ) -> Option<Placement> {
        let mut left = self.free.clone();
        for _ in 0..TRIES_MAX {
            for &(node, mask) in found.masks() {
                left.set_up(node, left.up(node) & !mask);
            }
            found = self.place.try_place(ask, &left, &self.view)?;
            if !self.stands_beside_strangers(ask, &found) {
                return Some(found);
            }
        }
        None
    }
}

/// What a job would hold there.
fn tried(ask: &Ask<'_>, placement: Placement) -> Allocation {
    let share = match ask.permille {
        1000.. => Share::Whole,
        0 => Share::Leftover,
        part => Share::Permille(part),
    };
    Allocation { shares: smallvec![share], ..Allocation::whole(placement) }
}
