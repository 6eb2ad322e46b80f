//! Pods that are bound while the rest of their gang waits.

use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_types::{Allocation, Job};

/// A gang of which some pods are bound: it holds their GPUs and does not run.
#[derive(Clone, Debug)]
pub(super) struct Partial {
    /// The type of its first pod, to which the others keep.
    pub(super) kind: GpuType,
    /// Where pods are bound.
    pub(super) bound: Vec<(NodeId, u64)>,
    /// GPUs of each pod that waits.
    pub(super) rest: Vec<u32>,
    /// When the first of those that are bound was.
    pub(super) since: Time,
}

/// All of them, by job.
#[derive(Default)]
pub(super) struct Book(pub(super) BTreeMap<JobId, Partial>);

/// What pods of a job hold.
pub(super) fn holding(job: &Job, bound: &[(NodeId, u64)]) -> Allocation {
    Allocation {
        host_per_gpu: job.want.host_per_gpu(),
        gpu_memory_mib: job.want.gpu_memory_mib,
        ..Allocation::whole(Placement::from_masks(bound.iter().copied()))
    }
}

impl Book {
    /// Takes what is held off what is free. Jobs that no longer wait are forgotten, and pods whose GPUs are gone wait again.
    /// O(pods that are bound).
    pub(super) fn hold(&mut self, view: &View<'_>, seen: &mut Free) {
        self.0.retain(|id, partial| {
            let waits = view.state().waiting.contains(*id);
            let Some(job) = view.job(*id).filter(|_| waits) else { return false };
            let mut kept = Vec::new();
            for (node, mask) in std::mem::take(&mut partial.bound) {
                let pod = holding(job.spec, &[(node, mask)]);
                if seen.fits(&pod).is_ok() {
                    seen.take(&pod);
                    kept.push((node, mask));
                } else {
                    partial.rest.push(mask.count_ones());
                }
            }
            partial.rest.sort_unstable_by(|a, b| b.cmp(a));
            partial.bound = kept;
            !partial.bound.is_empty()
        });
    }

    /// A gang lets go of all that its pods hold.
    pub(super) fn let_go(&mut self, job: JobRef<'_>, seen: &mut Free) {
        if let Some(partial) = self.0.remove(&job.id()) {
            seen.give(&holding(job.spec, &partial.bound));
        }
    }

    /// Thousandths of GPUs that the jobs of a tenant with bound pods ask for in all: their pods are there and count.
    pub(super) fn asked(&self, tenant: trainyard_types::TenantId, view: &View<'_>) -> u64 {
        let jobs = self.0.keys().filter_map(|id| view.job(*id));
        let own = jobs.filter(|job| job.spec.tenant == tenant);
        own.map(|job| u64::from(job.spec.want.gpus) * 1000).sum()
    }
}
