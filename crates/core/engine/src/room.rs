//! GPUs in service and free at a moment, and what they make of a reason.

use trainyard_framework::Free;
use trainyard_types::{Cluster, GpuType, Reason, Want};

/// GPUs in service and free, by type.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    kinds: Vec<(GpuType, Count)>,
}

/// GPUs of a type.
#[derive(Copy, Clone, Debug)]
struct Count {
    in_service: u32,
    free: u32,
}

impl Room {
    pub(crate) fn of(free: &Free) -> Room {
        let count = |kind: &GpuType| {
            (*kind, Count { in_service: free.in_service(*kind), free: free.gpus(*kind) })
        };
        Room { kinds: free.kinds().iter().map(count).collect() }
    }

    /// A reason as it is where GPUs are out of service: a policy sees what is there, and takes a job for which too little
    /// is left for one that fits nowhere or has no speed.
    pub(crate) fn corrected(&self, reason: Reason, want: &Want, cluster: &Cluster) -> Reason {
        let need = match reason {
            Reason::NeverFits { need, .. } => need,
            Reason::NoSpeed | Reason::Undecided => want.gpus_min.max(1),
            _ => return reason,
        };
        let declared = |kind: GpuType| -> u32 {
            let own = cluster.nodes.iter().filter(|node| node.kind == kind);
            own.map(|node| u32::from(node.gpus)).sum()
        };
        let most = self.most(want, cluster, |(_, count)| count.in_service);
        if most < need && need <= self.most(want, cluster, |(kind, _)| declared(*kind)) {
            let free = self.most(want, cluster, |(_, count)| count.free);
            return Reason::NoRoom { need, free };
        }
        reason
    }

    /// Why a job waits of which the last decision said nothing, if there are too few free GPUs for it.
    pub(crate) fn lack(&self, want: &Want, cluster: &Cluster) -> Option<Reason> {
        let free = self.most(want, cluster, |(_, count)| count.free);
        let need = want.gpus_min.max(1);
        (want.permille >= 1000 && free < need).then_some(Reason::NoRoom { need, free })
    }

    /// The most of anything that a type has which a job could use.
    fn most(&self, want: &Want, cluster: &Cluster, of: impl Fn(&(GpuType, Count)) -> u32) -> u32 {
        let usable = |(kind, _): &&(GpuType, Count)| {
            let memory = cluster.kinds[kind.index()].memory_mib;
            want.accepts(*kind) && (memory == 0 || memory >= want.gpu_memory_mib)
        };
        self.kinds.iter().filter(usable).map(of).max().unwrap_or(0)
    }
}
