//! Which GPUs an opportunistic job may use: idle ones first, then those of guaranteed jobs that it was not seen to harm.

use crate::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, IdSet};

/// Who is on the GPUs by the plan.
#[derive(Default)]
pub(super) struct Seats {
    /// Guaranteed jobs that have a GPU whole.
    host: FxHashMap<GpuAt, JobId>,
    /// Opportunistic jobs, ascending.
    guest: FxHashMap<GpuAt, SmallVec<[JobId; 1]>>,
}

/// What an opportunistic job asks of a GPU.
pub(super) struct Wish<'a> {
    /// How many opportunistic jobs there may be on a GPU.
    pub(super) guests_max: usize,
    /// The least memory that it can do with.
    pub(super) least_mib: u32,
    /// Whether it may be beside a guaranteed job.
    pub(super) welcome: &'a dyn Fn(JobId) -> bool,
    /// Memory that another opportunistic job could give up.
    pub(super) yields: &'a dyn Fn(JobId) -> u32,
    /// How busy a guaranteed job keeps its GPUs, in thousandths; nothing where it keeps them too busy to be joined.
    pub(super) busy: &'a dyn Fn(JobId) -> Option<u16>,
}

/// How busy a GPU is taken to be of which that is not known, in thousandths.
pub(super) const BUSY_UNKNOWN: u16 = 1000;

/// The GPUs of a node that an opportunistic job may have.
#[derive(Copy, Clone)]
struct Open {
    node: NodeId,
    idle: u64,
    /// With all the memory that it needs.
    roomy: u64,
    /// With less.
    tight: u64,
    /// How busy each GPU is, in thousandths.
    busy: [u16; 64],
}

impl Seats {
    /// A job takes its seats.
    pub(super) fn sit(&mut self, job: JobId, place: &Placement, is_guest: bool) {
        for gpu in place.each_gpu() {
            if is_guest {
                let here = self.guest.entry(gpu).or_default();
                if let Err(index) = here.binary_search(&job) {
                    here.insert(index, job);
                }
            } else {
                self.host.insert(gpu, job);
            }
        }
    }

    /// An opportunistic job leaves them.
    pub(super) fn leave(&mut self, job: JobId, place: &Placement) {
        for gpu in place.each_gpu() {
            if let Some(here) = self.guest.get_mut(&gpu) {
                here.retain(|other| *other != job);
            }
        }
    }

    /// The guaranteed jobs on some GPUs, ascending.
    pub(super) fn hosts(&self, place: &Placement) -> Vec<JobId> {
        let hosts = place.each_gpu().filter_map(|gpu| self.host.get(&gpu).copied());
        hosts.collect::<IdSet<JobId>>().iter().collect()
    }

    /// The opportunistic jobs on some GPUs, ascending.
    pub(super) fn guests(&self, place: &Placement) -> Vec<JobId> {
        let guests = place.each_gpu().flat_map(|gpu| self.on(gpu).iter().copied());
        guests.collect::<IdSet<JobId>>().iter().collect()
    }

    /// The opportunistic jobs on a GPU, ascending.
    fn on(&self, gpu: GpuAt) -> &[JobId] {
        self.guest.get(&gpu).map_or(&[], |jobs| jobs.as_slice())
    }

    /// GPUs for an opportunistic job, of one type: on the node with most idle ones that holds it, else over several. Where
    /// it joins guaranteed jobs it takes the least used GPUs. O(GPUs log GPUs of a node).
    pub(super) fn find(
        &self,
        job: JobRef<'_>,
        (view, free): (&View<'_>, &Free),
        wish: &Wish<'_>,
    ) -> Option<Placement> {
        let want = &job.spec.want;
        let kinds = free.kinds();
        kinds.into_iter().filter(|kind| want.accepts(*kind)).find_map(|kind| {
            let nodes = view.cluster().nodes.iter().filter(|node| {
                node.kind == kind
                    && want.pool.is_none_or(|pool| node.pool == pool)
                    && free.shut(node.id, job).is_none()
            });
            let mut open: Vec<Open> = nodes
                .map(|node| self.open(node.id, job, free, wish))
                .filter(|open| open.all() != 0)
                .collect();
            open.sort_by_cached_key(|open| {
                (std::cmp::Reverse(open.idle.count_ones()), open.cost(want.gpus), open.node)
            });
            pick(&open, want.gpus, want.nodes_max)
        })
    }

    /// The GPUs of a node that are idle, and those that a guaranteed job has which it may join.
    fn open(&self, node: NodeId, job: JobRef<'_>, free: &Free, wish: &Wish<'_>) -> Open {
        let mut open = Open { node, idle: 0, roomy: 0, tight: 0, busy: [0; 64] };
        for gpu in bits(free.up(node)) {
            let at = GpuAt { node, gpu };
            let guests = self.on(at);
            let left = free.memory_left(at);
            let enough = left >= job.spec.want.gpu_memory_mib;
            let could = || guests.iter().map(|guest| (wish.yields)(*guest)).sum::<u32>();
            if guests.len() >= wish.guests_max
                || (!enough && left.saturating_add(could()) < wish.least_mib)
            {
                continue;
            }
            let host = self.host.get(&at);
            let busy = host.map_or(Some(0), |host| (wish.busy)(*host));
            let Some(busy) = busy else { continue };
            open.busy[usize::from(gpu)] = busy;
            match host {
                None if free.left(at) == 1000 && enough && guests.is_empty() => {
                    open.idle |= 1 << gpu
                }
                None if free.left(at) < 1000 => {}
                Some(host) if !(wish.welcome)(*host) => {}
                _ if enough => open.roomy |= 1 << gpu,
                _ => open.tight |= 1 << gpu,
            }
        }
        open
    }
}

impl Open {
    fn all(&self) -> u64 {
        self.idle | self.roomy | self.tight
    }

    /// At most so many GPUs: idle ones first, then those with memory for all of it, the least used first.
    fn take(&self, most: u32) -> (NodeId, u64) {
        let mut taken = 0u64;
        for mask in [self.idle, self.roomy, self.tight] {
            let rest = most - taken.count_ones();
            if rest >= mask.count_ones() {
                taken |= mask;
                continue;
            }
            let mut gpus: SmallVec<[u8; 8]> = bits(mask).collect();
            gpus.sort_by_key(|gpu| (self.busy[usize::from(*gpu)], *gpu));
            taken |= gpus.iter().take(rest as usize).fold(0, |all, gpu| all | 1 << gpu);
        }
        (self.node, taken)
    }

    /// How busy the GPUs are that a job would take here, all together; one that is missing counts as one of which nothing is
    /// known.
    fn cost(&self, gpus: u32) -> u64 {
        let (_, mask) = self.take(gpus);
        let busy: u64 = bits(mask).map(|gpu| u64::from(self.busy[usize::from(gpu)])).sum();
        busy + u64::from(gpus - mask.count_ones()) * u64::from(BUSY_UNKNOWN)
    }
}

/// So many GPUs: on the first node that holds them all, one where no memory is short before others, else over several in
/// order.
fn pick(open: &[Open], gpus: u32, nodes_max: u16) -> Option<Placement> {
    let amply = |open: &&Open| (open.idle | open.roomy).count_ones() >= gpus;
    let holds = |open: &&Open| open.all().count_ones() >= gpus;
    if let Some(open) = open.iter().find(amply).or_else(|| open.iter().find(holds)) {
        return Some(Placement::from_masks([open.take(gpus)]));
    }
    let most = if nodes_max == 0 { usize::MAX } else { usize::from(nodes_max) };
    let mut masks = Vec::new();
    let mut rest = gpus;
    for open in open.iter().take(most) {
        let part = open.take(rest.min(open.all().count_ones()));
        rest -= part.1.count_ones();
        masks.push(part);
    }
    (rest == 0).then(|| Placement::from_masks(masks))
}
