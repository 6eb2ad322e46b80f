//! Which GPUs an opportunistic job may use: idle ones first, then those of guaranteed jobs that it was not seen to harm.

use crate::prelude::*;
use rustc_hash::FxHashMap;
use trainyard_types::placement::{bits, lowest_bits};
use trainyard_types::{GpuAt, IdSet};

/// Who is on the GPUs by the plan.
#[derive(Default)]
pub(super) struct Seats {
    /// Guaranteed jobs that have a GPU whole.
    pub(super) host: FxHashMap<GpuAt, JobId>,
    /// Opportunistic jobs; one on each GPU.
    pub(super) guest: FxHashMap<GpuAt, JobId>,
}

impl Seats {
    /// A job takes its seats.
    pub(super) fn sit(&mut self, job: JobId, place: &Placement, is_guest: bool) {
        let seats = if is_guest { &mut self.guest } else { &mut self.host };
        seats.extend(place.each_gpu().map(|gpu| (gpu, job)));
    }

    /// It leaves them.
    pub(super) fn leave(&mut self, place: &Placement) {
        for gpu in place.each_gpu() {
            self.guest.remove(&gpu);
        }
    }

    /// The guaranteed jobs on some GPUs, ascending.
    pub(super) fn hosts(&self, place: &Placement) -> Vec<JobId> {
        distinct(place, &self.host)
    }

    /// The opportunistic jobs on some GPUs, ascending.
    pub(super) fn guests(&self, place: &Placement) -> Vec<JobId> {
        distinct(place, &self.guest)
    }

    /// GPUs for an opportunistic job, of one type: on the node with most idle ones that holds it, else over several.
    /// O(GPUs).
    pub(super) fn find(
        &self,
        job: JobRef<'_>,
        (view, free): (&View<'_>, &Free),
        welcome: &dyn Fn(JobId) -> bool,
    ) -> Option<Placement> {
        let want = &job.spec.want;
        let kinds = free.kinds();
        kinds.into_iter().filter(|kind| want.accepts(*kind)).find_map(|kind| {
            let nodes = view.cluster().nodes.iter().filter(|node| {
                node.kind == kind
                    && want.pool.is_none_or(|pool| node.pool == pool)
                    && free.shut(node.id, job).is_none()
            });
            let mut open: Vec<(NodeId, u64, u64)> = nodes
                .map(|node| self.open(node.id, job, free, welcome))
                .filter(|(_, idle, shared)| idle | shared != 0)
                .collect();
            open.sort_by_key(|(node, idle, _)| (std::cmp::Reverse(idle.count_ones()), *node));
            pick(&open, want.gpus, want.nodes_max)
        })
    }

    /// The GPUs of a node that are idle, and those that a guaranteed job has which it may join.
    fn open(
        &self,
        node: NodeId,
        job: JobRef<'_>,
        free: &Free,
        welcome: &dyn Fn(JobId) -> bool,
    ) -> (NodeId, u64, u64) {
        let (mut idle, mut shared) = (0, 0);
        for gpu in bits(free.up(node)) {
            let at = GpuAt { node, gpu };
            let room = free.memory_left(at) >= job.spec.want.gpu_memory_mib;
            if self.guest.contains_key(&at) || !room {
                continue;
            }
            match self.host.get(&at) {
                None if free.left(at) == 1000 => idle |= 1 << gpu,
                Some(host) if welcome(*host) => shared |= 1 << gpu,
                _ => {}
            }
        }
        (node, idle, shared)
    }
}

fn distinct(place: &Placement, seats: &FxHashMap<GpuAt, JobId>) -> Vec<JobId> {
    let found: IdSet<JobId> = place.each_gpu().filter_map(|gpu| seats.get(&gpu).copied()).collect();
    found.iter().collect()
}

/// So many GPUs: on the first node that holds them all, else over several in order; idle ones first on each.
fn pick(open: &[(NodeId, u64, u64)], gpus: u32, nodes_max: u16) -> Option<Placement> {
    let take = |&(node, idle, shared): &(NodeId, u64, u64), most: u32| {
        let first = lowest_bits(idle, most.min(idle.count_ones()));
        let rest = most.saturating_sub(first.count_ones()).min(shared.count_ones());
        (node, first | lowest_bits(shared, rest))
    };
    let holds = |node: &&(NodeId, u64, u64)| (node.1 | node.2).count_ones() >= gpus;
    if let Some(node) = open.iter().find(holds) {
        return Some(Placement::from_masks([take(node, gpus)]));
    }
    let most = if nodes_max == 0 { usize::MAX } else { usize::from(nodes_max) };
    let mut masks = Vec::new();
    let mut rest = gpus;
    for node in open.iter().take(most) {
        let part = take(node, rest);
        rest -= part.1.count_ones();
        masks.push(part);
    }
    (rest == 0).then(|| Placement::from_masks(masks))
}
