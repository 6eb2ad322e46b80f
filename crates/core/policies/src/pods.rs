//! Jobs as pods: a gang is cut into pods, and each is put on the node with the best score, as schedulers of Kubernetes do.

use crate::prelude::*;
use smallvec::smallvec;
use trainyard_framework::fraction;
use trainyard_types::placement::lowest_bits;
use trainyard_types::{Grant, Want};

/// Scores of nodes go up to this and are whole numbers (`framework.MaxNodeScore`).
const SCORE_MAX: u32 = 100;

/// Which nodes are preferred (`NodeResourcesFit`, `scoringStrategy.type`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeScore {
    /// Those with the largest part of their GPUs free.
    #[default]
    LeastAllocated,
    /// Those with the smallest.
    MostAllocated,
}

/// How jobs become pods, and where those go.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Pods {
    /// GPUs of a pod; 0 for as many as the largest node has.
    pub(crate) gpus: u32,
    /// Which nodes are preferred.
    pub(crate) score: NodeScore,
}

/// A node for a pod, and how good it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) node: NodeId,
    pub(crate) mask: u64,
    pub(crate) score: u32,
}

impl Pods {
    /// GPUs of each pod of a job on a type: as many as were set, or fewer where pods of that size could never all find
    /// a node. Nothing if the type could never hold the job. O(nodes x GPUs of a node).
    pub(crate) fn sizes(&self, want: &Want, kind: GpuType, view: &View<'_>) -> Option<Vec<u32>> {
        let count = want.gpus;
        let nodes = view
            .cluster()
            .nodes
            .iter()
            .filter(|node| node.kind == kind && want.pool.is_none_or(|pool| node.pool == pool));
        let room: Vec<u32> = nodes.map(|node| node.gpus_for(want)).collect();
        let largest = room.iter().copied().max()?.min(count);
        // A job on few nodes is cut into as few pods, one for each node.
        let least = match want.nodes_max {
            0 => 1,
            nodes => count.div_ceil(u32::from(nodes)),
        };
        let set = if self.gpus == 0 { largest } else { self.gpus.min(largest) };
        let most = set.max(least);
        (1..=most).rev().take_while(|size| *size >= least).find_map(|size| {
            let seats: u32 = room.iter().map(|gpus| gpus / size).sum();
            let (whole, rest) = (count / size, count % size);
            // What is left over by whole pods may be large enough for the last one.
            let fits = seats >= count.div_ceil(size)
                || (rest > 0 && seats == whole && room.iter().any(|gpus| gpus % size >= rest));
            let mut sizes = vec![size; whole as usize];
            sizes.extend((rest > 0).then_some(rest));
            fits.then_some(sizes)
        })
    }

    /// The best node for a pod of whole GPUs besides what its gang has there; of equals the first. Where several are best
    /// kube-scheduler draws one. O(nodes with room).
    pub(crate) fn seat(
        &self,
        (ask, gpus): (&Ask<'_>, u32),
        kind: GpuType,
        (view, free): (&View<'_>, &Free),
        own: &[(NodeId, u64)],
    ) -> Option<Seat> {
        let mut best: Option<Seat> = None;
        for node in free.roomiest(kind) {
            // The roomiest come first, and the others have too little.
            if free.mask(node).count_ones() < gpus {
                break;
            }
            let taken = own.iter().filter(|(other, _)| *other == node);
            let taken = taken.fold(0, |all, (_, mask)| all | mask);
            let usable = ask.usable_mask(node, free) & !taken;
            let by_host = ask.gpus_by_host(node, free).saturating_sub(taken.count_ones());
            if usable.count_ones().min(by_host) < gpus {
                continue;
            }
            let left = (free.mask(node) & !taken).count_ones() - gpus;
            let all = u32::from(view.cluster().node(node).gpus).max(1);
            let score = match self.score {
                NodeScore::LeastAllocated => left * SCORE_MAX / all,
                NodeScore::MostAllocated => (all - left) * SCORE_MAX / all,
            };
            let better = best
                .is_none_or(|seat| score > seat.score || (score == seat.score && node < seat.node));
            if better {
                best = Some(Seat { node, mask: lowest_bits(usable, gpus), score });
            }
        }
        best
    }

    /// The types a job may have, the one with the best node for its first pod first.
    pub(crate) fn kinds(
        &self,
        ask: &Ask<'_>,
        (view, free): (&View<'_>, &Free),
    ) -> Vec<(GpuType, Vec<u32>)> {
        let mut kinds: Vec<(u32, GpuType, Vec<u32>)> = Vec::new();
        for kind in free.kinds().into_iter().filter(|kind| ask.accepts(*kind)) {
            let Some(sizes) = self.sizes(&ask.job.spec.want, kind, view) else { continue };
            let seat = self.seat((ask, sizes[0]), kind, (view, free), &[]);
            kinds.extend(seat.map(|seat| (seat.score, kind, sizes)));
        }
        // Of equals the first type.
        kinds.sort_by_key(|(score, kind, _)| (std::cmp::Reverse(*score), *kind));
        kinds.into_iter().map(|(_, kind, sizes)| (kind, sizes)).collect()
    }
}

/// The question that a grant of what a job wants amounts to, on one type where one is given.
pub(crate) fn asked<'a>(job: JobRef<'a>, grant: &Grant, kind: Option<GpuType>) -> Ask<'a> {
    let kinds = match kind {
        Some(kind) => smallvec![kind],
        None => job.spec.want.kinds.clone(),
    };
    Ask::new(job, grant, grant.count(), kinds)
}

/// Whole gangs, pod by pod: for schedulers that bind all pods of a gang or none.
#[derive(Default)]
pub(crate) struct PodByPod(pub(crate) Pods);

impl Placer for PodByPod {
    /// O(pods x nodes with room) for each type.
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        // Racks and tiers are asked for by the house alone, and so are other sizes than the job's own.
        let plain = ask.racks.is_empty() && !ask.one_rack && ask.count == ask.job.spec.want.gpus;
        if plain {
            for (kind, sizes) in self.0.kinds(ask, (view, free)) {
                let mut parts: Vec<(NodeId, u64)> = Vec::new();
                for size in &sizes {
                    let seat = self.0.seat((ask, *size), kind, (view, free), &parts);
                    parts.extend(seat.map(|seat| (seat.node, seat.mask)));
                }
                if parts.len() == sizes.len() {
                    return Some(Placement::from_masks(parts));
                }
            }
            return None;
        }
        FewestNodes.try_place(ask, free, view)
    }
}
