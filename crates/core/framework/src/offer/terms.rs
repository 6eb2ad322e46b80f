//! The terms on which a job has the GPUs where it is: its share, its limits and the memory that is counted for it.

use super::Offer;
use smallvec::smallvec;
use trainyard_types::{Allocation, JobId, Knobs, Share};

/// On which terms a job has its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Its share of each.
    pub share: Share,
    /// Its limits and the rest that does not move it.
    pub knobs: Knobs,
    /// Memory that is counted for it on each.
    pub gpu_memory_mib: u32,
}

impl Offer<'_> {
    /// Gives a job that has a plan other terms where it is. That is no restart, so that it may be said again of a job
    /// that was granted something in this offer; a share is not lowered for a job that may not be stopped.
    /// False, and nothing is changed, if its GPUs have not that much left.
    pub fn set_terms(&mut self, job: JobId, terms: Terms) -> bool {
        let Some(old) = self.plan(job).cloned() else { return false };
        let Terms { share, knobs, gpu_memory_mib } = terms;
        let new = Allocation { shares: smallvec![share], knobs, gpu_memory_mib, ..old.clone() };
        if new == old {
            return true;
        }
        let held = self.view.job(job).filter(|job| job.state.planned.is_some());
        let is_less = !old.is_kept_in(&new);
        if is_less && held.is_some_and(|job| !self.view.may_stop(job)) {
            return false;
        }
        self.lift(job);
        let fits = self.free.fits_again(&new).is_ok() && self.over_ceiling(job, &new).is_none();
        self.put(job, if fits { new } else { old });
        fits
    }
}
