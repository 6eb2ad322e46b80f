//! The sizes at which a job is known to run, and how fast it is at each.

use crate::prelude::*;
use smallvec::smallvec;
use trainyard_types::{Config, Want};

/// More sizes of one job on one type than this are not looked at; in between, sizes are left out evenly.
const SIZES_MAX: u32 = 64;

/// A number of GPUs and the speed on them, packed.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Size {
    /// How many GPUs.
    pub gpus: u32,
    /// Steps in a second.
    pub rate: f64,
}

/// Sizes of a job on one type, ascending, at most `most`: those from its least to its most at which a speed above zero
/// is known. Empty if it cannot run there; speeds need not grow with size.
pub(crate) fn sizes(
    job: JobRef<'_>,
    (kind, per_node): (GpuType, u32),
    most: u32,
    view: &View<'_>,
) -> Vec<Size> {
    let want = &job.spec.want;
    let (least, most) = (want.gpus_min.max(1), want.gpus_max.min(most).min(ever(want, kind, view)));
    let memory = view.cluster().kinds[kind.index()].memory_mib;
    if !want.accepts(kind) || least > most || (memory > 0 && memory < want.gpu_memory_mib) {
        return Vec::new();
    }
    let step = (most - least).div_ceil(SIZES_MAX).max(1);
    let counts = (least..most).step_by(step as usize).chain([most]);
    let size = |gpus| {
        let rate = view.rate(job, &Config::packed(kind, gpus, per_node))?.0;
        (rate > 0.0 && rate.is_finite()).then_some(Size { gpus, rate })
    };
    counts.filter_map(size).collect()
}

/// The most GPUs of a type that a job could ever be given; only asked of the cluster where something limits it, which takes
/// time linear in the nodes.
fn ever(want: &Want, kind: GpuType, view: &View<'_>) -> u32 {
    let host = want.cpus_per_gpu > 0 || want.memory_mib_per_gpu > 0;
    let limited = want.nodes_max > 0 || want.pool.is_some() || host;
    if !limited && view.cluster().rules.is_none() {
        return u32::MAX;
    }
    view.cluster().largest_size(&Want { kinds: smallvec![kind], ..want.clone() }, want.gpus_max)
}

/// The work left of each job; one of unknown size counts as the longest there is.
pub(crate) fn work_left(jobs: &[JobRef<'_>], view: &View<'_>) -> Vec<f64> {
    let left = |job: &JobRef<'_>| view.work_left(*job).map(|work| work.0).filter(|x| x.is_finite());
    let known: Vec<Option<f64>> = jobs.iter().map(left).collect();
    let longest = known.iter().flatten().copied().fold(1.0, f64::max);
    known.into_iter().map(|left| left.unwrap_or(longest)).collect()
}
