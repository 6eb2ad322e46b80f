//! What a placer is asked for, and the queue that admission answers.

use crate::JobRef;
use smallvec::SmallVec;
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, GpuType, Grant, HostShare, NodeId, PoolId, Shape, Tier};

/// A number of GPUs of one type for one grant. The placer chooses the type among the acceptable ones.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The first member of the grant.
    pub job: JobRef<'a>,
    /// How many GPUs.
    pub count: u32,
    /// Thousandths of each GPU; 1000 for whole ones.
    pub permille: u16,
    /// Acceptable types; empty means any.
    pub kinds: SmallVec<[GpuType; 4]>,
    /// At most so many nodes; 0 means any number.
    pub nodes_max: u16,
    /// Only in this pool.
    pub pool: Option<PoolId>,
    /// Only in these racks; empty means any.
    pub racks: SmallVec<[u16; 4]>,
    /// Whether all GPUs must be in one rack.
    pub one_rack: bool,
    /// Host CPUs and memory beside each GPU; 0 means not stated.
    pub host_per_gpu: HostShare,
}

impl<'a> Ask<'a> {
    /// The question that a grant amounts to.
    pub fn new(
        job: JobRef<'a>,
        grant: &Grant,
        count: u32,
        kinds: SmallVec<[GpuType; 4]>,
    ) -> Ask<'a> {
        let limit = match grant.shape {
            Shape::Gpus { nodes_max, .. } => nodes_max,
            _ => 0,
        };
        let nodes_max = match (limit, job.spec.want.nodes_max) {
            (0, own) => own,
            (limit, 0) => limit,
            (limit, own) => limit.min(own),
        };
        let nodes_max = match grant.tier_max {
            Some(Tier::Gpu | Tier::Node) => 1,
            Some(Tier::Rack | Tier::Core) | None => nodes_max,
        };
        Ask {
            job,
            count,
            permille: grant.members.iter().map(|member| member.share.permille()).sum(),
            kinds,
            nodes_max,
            pool: grant.pool.or(job.spec.want.pool),
            racks: SmallVec::new(),
            one_rack: grant.tier_max.is_some_and(|tier| tier <= Tier::Rack),
            host_per_gpu: crate::offer::host_per_gpu(grant, &job.spec.want),
        }
    }

    /// Whether a type is acceptable.
    pub fn accepts(&self, kind: GpuType) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Whether a node may be used at all, by pool, windows and host resources for one GPU.
    pub fn allows(&self, node: NodeId, free: &crate::Free) -> bool {
        self.is_open(node, free) && self.gpus_by_host(node, free) > 0
    }

    /// Whether a node is in the right pool and rack and no window keeps the job from it.
    fn is_open(&self, node: NodeId, free: &crate::Free) -> bool {
        let here = self.pool.is_none_or(|pool| free.pool(node) == pool)
            && (self.racks.is_empty() || self.racks.contains(&free.rack(node)));
        here && free.shut(node, self.job).is_none()
    }

    /// How many GPUs the node's CPUs and memory suffice for.
    pub fn gpus_by_host(&self, node: NodeId, free: &crate::Free) -> u32 {
        let by_cpus = match (self.host_per_gpu.cpus, free.cpus_left(node)) {
            (0, _) | (_, None) => u32::MAX,
            (per_gpu, Some(left)) => left / per_gpu,
        };
        let by_memory = match (self.host_per_gpu.memory_mib, free.host_memory_left(node)) {
            (0, _) | (_, None) => u32::MAX,
            (per_gpu, Some(left)) => (left / per_gpu).min(u64::from(u32::MAX)) as u32,
        };
        by_cpus.min(by_memory)
    }

    /// Wholly free GPUs of a node with enough memory, in the right pool and open to the job; its host may suffice for
    /// fewer.
    pub fn usable_mask(&self, node: NodeId, free: &crate::Free) -> u64 {
        if !self.is_open(node, free) {
            return 0;
        }
        let (mask, memory) = (free.mask(node), self.job.spec.want.gpu_memory_mib);
        if memory == 0 {
            return mask;
        }
        // A job that lives on leftovers takes memory of a GPU that counts as wholly free.
        let enough = |gpu: &u8| free.memory_left(GpuAt { node, gpu: *gpu }) >= memory;
        bits(mask).filter(enough).fold(0, |kept, gpu| kept | 1 << gpu)
    }

    /// How many wholly free GPUs of a node this ask may use.
    pub fn usable(&self, node: NodeId, free: &crate::Free) -> u32 {
        self.usable_mask(node, free).count_ones().min(self.gpus_by_host(node, free))
    }

    /// Whether more than the number of wholly free GPUs decides which nodes may be used.
    pub fn is_limited(&self, free: &crate::Free) -> bool {
        let want = &self.job.spec.want;
        let host = self.host_per_gpu != HostShare::default();
        let windows = !free.windows().is_empty();
        let racks = !self.racks.is_empty();
        host || want.gpu_memory_mib > 0 || self.pool.is_some() || windows || racks
    }
}
