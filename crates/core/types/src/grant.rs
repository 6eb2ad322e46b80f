//! How much, of what, for which jobs; and what one job holds.

use crate::{
    Cluster, Config, GpuType, JobId, ModelId, NodeId, Occupant, Placement, PoolId, Span, Tier, Time,
};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

/// How much of each GPU a job may use.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// All of it.
    #[default]
    Whole,
    /// So many thousandths.
    Permille(u16),
    /// What every other share leaves.
    Leftover,
}

impl Share {
    /// Thousandths that this share takes away from others.
    #[inline]
    pub fn permille(self) -> u16 {
        match self {
            Share::Whole => 1000,
            Share::Permille(share) => share,
            Share::Leftover => 0,
        }
    }
}

/// Everything tunable that does not move a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knobs {
    /// Batch size over all GPUs.
    pub batch: Option<u32>,
    /// How long the job delays its iterations, to keep out of another's way on the network.
    pub shift: Span,
    /// How far apart its iterations begin where it keeps to a time shift: at the shift, counted from when all began, and
    /// at every whole number of these spans later. Without it the shift says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Span>,
    /// The most GPU memory it may take on each GPU; what it needs beyond that lies in the host's memory.
    pub memory_mib_max: Option<u32>,
    /// The most GPU time it may take where it has a share, in thousandths; without it the share is the limit.
    pub compute_permille_max: Option<u16>,
    /// Jobs on the same GPU that have the same lane take turns there, an iteration each; lanes run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<u16>,
}

/// Host CPUs and memory on all nodes together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostShare {
    /// CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u64,
}

impl HostShare {
    /// The larger of both in CPUs and in memory.
    pub fn at_least(self, other: HostShare) -> HostShare {
        HostShare {
            cpus: self.cpus.max(other.cpus),
            memory_mib: self.memory_mib.max(other.memory_mib),
        }
    }

    /// Whether it has no more CPUs and no more memory than another.
    pub fn is_within(self, other: HostShare) -> bool {
        self.cpus <= other.cpus && self.memory_mib <= other.memory_mib
    }
}

/// What one job holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Which GPUs.
    pub placement: Placement,
    /// One entry for every GPU in order, or one that stands for all: a job may own one GPU and share another.
    pub shares: SmallVec<[Share; 1]>,
    /// Host CPUs and memory for each of its GPUs.
    pub host_per_gpu: HostShare,
    /// GPU memory it may count on, for each of its GPUs; 0 means not stated.
    pub gpu_memory_mib: u32,
    /// Tunable settings.
    pub knobs: Knobs,
    /// Until when it may not be taken away.
    pub lease_until: Option<Time>,
}

impl Clone for Allocation {
    /// As a whole: the derived one would copy share by share, and this happens at every event.
    #[inline]
    fn clone(&self) -> Allocation {
        Allocation {
            placement: self.placement.clone(),
            shares: SmallVec::from_slice(&self.shares),
            host_per_gpu: self.host_per_gpu,
            gpu_memory_mib: self.gpu_memory_mib,
            knobs: self.knobs.clone(),
            lease_until: self.lease_until,
        }
    }
}

impl Allocation {
    /// Whole GPUs, no lease, nothing tuned.
    pub fn whole(placement: Placement) -> Allocation {
        Allocation {
            placement,
            shares: smallvec![Share::Whole],
            host_per_gpu: HostShare::default(),
            gpu_memory_mib: 0,
            knobs: Knobs::default(),
            lease_until: None,
        }
    }

    /// The share of its GPU number `index`, counted over the whole placement.
    #[inline]
    pub fn share(&self, index: usize) -> Share {
        if self.shares.len() == 1 { self.shares[0] } else { self.shares[index] }
    }

    /// Whether any of its GPUs is not wholly its own.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shares.iter().any(|share| share.permille() < 1000)
    }

    /// Whether it takes only what other jobs leave of a GPU.
    #[inline]
    pub fn is_on_leftovers(&self) -> bool {
        self.shares.iter().any(|share| share.permille() == 0)
    }

    /// Whether `other` needs no restart: the same GPUs, whatever the shares of them, the host's part, the lease and the knobs.
    #[inline]
    pub fn same_place(&self, other: &Allocation) -> bool {
        self.placement == other.placement
    }

    /// Whether nothing is taken away where it becomes `other`: the same GPUs, and no less of any of them.
    pub fn is_kept_in(&self, other: &Allocation) -> bool {
        let no_less = || match (&self.shares[..], &other.shares[..]) {
            ([own], [others]) => others.permille() >= own.permille(),
            _ => (0..self.placement.gpus() as usize)
                .all(|index| other.share(index).permille() >= self.share(index).permille()),
        };
        self.placement == other.placement && (self.shares == other.shares || no_less())
    }

    /// What others on one of its GPUs see of it: its GPU number `index`, counted over the whole placement.
    pub fn occupant(&self, model: ModelId, index: usize) -> Occupant {
        let request = self.share(index).permille();
        let limit = match (self.knobs.compute_permille_max, request) {
            (Some(limit), _) => limit,
            (None, 0) => 1000,
            (None, share) => share,
        };
        let lane = self.knobs.lane;
        Occupant { model, request, limit, gpus: self.placement.gpus(), lane }
    }

    /// The summary a speed model needs, the other jobs on its GPUs aside.
    pub fn config(&self, cluster: &Cluster) -> Config {
        let mut config = self.placement.config(cluster);
        config.permille = self.shares.iter().map(|share| share.permille()).min().unwrap_or(1000);
        config.host = HostShare {
            cpus: self.host_per_gpu.cpus * config.gpus,
            memory_mib: self.host_per_gpu.memory_mib * u64::from(config.gpus),
        };
        config.batch = self.knobs.batch;
        config.limit = self.knobs.compute_permille_max;
        config.lane = self.knobs.lane;
        config.memory_mib_max = self.knobs.memory_mib_max;
        config
    }
}

/// One of the jobs that a grant is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The job.
    pub job: JobId,
    /// Its share of each GPU.
    pub share: Share,
}

/// What sort of placement is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// So many GPUs, of one type if given, on at most so many nodes (0: any); the placer chooses.
    Gpus {
        /// How many.
        count: u32,
        /// Of which type.
        kind: Option<GpuType>,
        /// On at most so many nodes.
        nodes_max: u16,
    },
    /// So many of each of several types, for a job that spans them.
    PerKind(SmallVec<[(GpuType, u32); 2]>),
    /// So many on each of these nodes; the placer chooses GPUs within them.
    PerNode(SmallVec<[(NodeId, u32); 2]>),
    /// Exactly these.
    Exact(Placement),
}

/// How much, of what, for which jobs. Several members share the same GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The jobs it is for.
    pub members: SmallVec<[Member; 1]>,
    /// How much of what.
    pub shape: Shape,
    /// Only in this pool.
    pub pool: Option<PoolId>,
    /// Until when it may not be taken away.
    pub lease_until: Option<Time>,
    /// Settings chosen together with the amount, such as a batch size.
    pub knobs: Option<Box<Knobs>>,
    /// Host CPUs and memory for each GPU of each member, where they are not what it wishes for; never less than that.
    #[serde(default)]
    pub host_per_gpu: Option<HostShare>,
    /// No farther apart than this; without it any distance is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_max: Option<Tier>,
    /// Its share of each GPU in ascending order, for one job on GPUs that the grant names: it may own some of them and
    /// share the others. Empty where the share of the member holds for all.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub shares: SmallVec<[Share; 4]>,
    /// Memory counted for it on each GPU, where that is not what it wishes for: less for a job that takes turns with others
    /// in memory that is counted once for all of them, or that lends some to the host.
    #[serde(default)]
    pub gpu_memory_mib: Option<u32>,
}

impl Grant {
    /// `count` whole GPUs of any acceptable type for one job.
    pub fn gpus(job: JobId, count: u32) -> Grant {
        Grant {
            members: smallvec![Member { job, share: Share::Whole }],
            shape: Shape::Gpus { count, kind: None, nodes_max: 0 },
            pool: None,
            lease_until: None,
            knobs: None,
            host_per_gpu: None,
            tier_max: None,
            shares: SmallVec::new(),
            gpu_memory_mib: None,
        }
    }

    /// The same grant, with GPUs no farther apart than a tier.
    pub fn within(mut self, tier: Tier) -> Grant {
        self.tier_max = (tier < Tier::Core).then_some(tier);
        self
    }

    /// The same grant with so much of the host for each GPU.
    pub fn host(mut self, per_gpu: HostShare) -> Grant {
        self.host_per_gpu = Some(per_gpu);
        self
    }

    /// The same grant, limited to one type.
    pub fn of(mut self, wanted: GpuType) -> Grant {
        if let Shape::Gpus { kind, .. } = &mut self.shape {
            *kind = Some(wanted);
        }
        self
    }

    /// The same grant with a share of each GPU instead of all of it.
    pub fn share(mut self, share: Share) -> Grant {
        for member in &mut self.members {
            member.share = share;
        }
        self
    }

    /// The share of its GPU number `index` that a member gets.
    pub fn share_of(&self, member: &Member, index: usize) -> Share {
        self.shares.get(index).copied().unwrap_or(member.share)
    }

    /// How many GPUs it asks for.
    pub fn count(&self) -> u32 {
        match &self.shape {
            Shape::Gpus { count, .. } => *count,
            Shape::PerKind(parts) => parts.iter().map(|(_, count)| count).sum(),
            Shape::PerNode(parts) => parts.iter().map(|(_, count)| count).sum(),
            Shape::Exact(placement) => placement.gpus(),
        }
    }
}
