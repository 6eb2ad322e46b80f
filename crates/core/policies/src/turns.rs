//! Turns on the same GPUs: when they end, how long they must be to pay, and which nodes a job could take one on.

use crate::prelude::*;
use trainyard_types::{Allocation, Want};

/// How long turns are. All of them end at multiples of the quantum, so that a gang finds its GPUs free at once.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Turns {
    /// The length of a turn.
    pub quantum: Span,
    /// The largest part of a turn that stopping and starting may take.
    pub overhead: f64,
}

impl Turns {
    /// How long a turn lasts at least, so that the change pays; for ever if the job may not be stopped.
    pub fn least(&self, job: JobRef<'_>, planned: &Allocation, view: &View<'_>) -> Span {
        if !job.spec.preemptible {
            return Span::MAX;
        }
        let cost = view.preemption(job, planned);
        let pays = (cost.save + cost.start).scaled(1.0 / self.overhead);
        Span(self.quantum.0 / 2).max(pays).max(job.spec.min_run)
    }

    /// The next multiple of the quantum; never if there is none.
    pub fn multiple_after(&self, time: Time) -> Time {
        let turns = time.0.div_ceil(self.quantum.0);
        turns.checked_mul(self.quantum.0).map_or(Time::NEVER, Time)
    }
}

/// GPUs of a node in service that a job could use, were it alone there.
pub(crate) fn able(want: &Want, id: NodeId, view: &View<'_>, free: &Free) -> u32 {
    let node = view.cluster().node(id);
    let memory = view.cluster().kinds[node.kind.index()].memory_mib;
    let wrong_pool = want.pool.is_some_and(|pool| free.pool(id) != pool);
    if !want.accepts(node.kind) || wrong_pool || (memory > 0 && memory < want.gpu_memory_mib) {
        return 0;
    }
    let by_host = |has: u32, each: u32| if has == 0 || each == 0 { u32::MAX } else { has / each };
    let by_cpus = by_host(u32::from(node.cpus), u32::from(want.cpus_per_gpu));
    let by_memory = by_host(node.memory_mib, want.memory_mib_per_gpu);
    free.up(id).count_ones().min(by_cpus).min(by_memory)
}

/// Whether nodes of a type in service could hold a job, were it alone there.
pub(crate) fn could_hold(want: &Want, kind: GpuType, view: &View<'_>, free: &Free) -> bool {
    if !want.accepts(kind) || free.in_service(kind) < want.gpus {
        return false;
    }
    let host = want.cpus_per_gpu > 0 || want.memory_mib_per_gpu > 0;
    if want.nodes_max == 0 && want.pool.is_none() && want.gpu_memory_mib == 0 && !host {
        return true;
    }
    let nodes = (0..free.nodes()).map(NodeId).filter(|node| free.kind(*node) == kind);
    let mut gpus: Vec<u32> = nodes.map(|node| able(want, node, view, free)).collect();
    gpus.sort_unstable_by(|a, b| b.cmp(a));
    let most = if want.nodes_max == 0 { gpus.len() } else { usize::from(want.nodes_max) };
    gpus.iter().take(most).sum::<u32>() >= want.gpus
}
