//! Host CPUs and memory that a policy gives a job, where they are not what the job wishes for.

use super::Offer;
use trainyard_types::{Allocation, Grant, HostShare, JobId, Want};

/// Host CPUs and memory for each GPU by a grant: what it says, and never less than what the job wishes for.
pub(crate) fn host_per_gpu(grant: &Grant, want: &Want) -> HostShare {
    want.host_per_gpu().at_least(grant.host_per_gpu.unwrap_or_default())
}

impl Offer<'_> {
    /// Gives a job that has a plan other host CPUs and memory where it is, though never less than it wishes for. That is
    /// no restart, so that it may be said of any job, and again of one that was granted something in this offer.
    /// False, and nothing is changed, if its nodes have not that much left.
    pub fn set_host(&mut self, job: JobId, per_gpu: HostShare) -> bool {
        let Some(spec) = self.view.job(job).map(|job| job.spec) else { return false };
        let Some(old) = self.plan(job).cloned() else { return false };
        let host_per_gpu = spec.want.host_per_gpu().at_least(per_gpu);
        if host_per_gpu == old.host_per_gpu {
            return true;
        }
        self.lift(job);
        let new = Allocation { host_per_gpu, ..old.clone() };
        let fits = self.free.fits_again(&new).is_ok();
        self.put(job, if fits { new } else { old });
        fits
    }
}
