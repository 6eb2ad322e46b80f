//! The scores of version 2.0: GPUs are the leaves of a hierarchy of cells, opportunistic jobs fill them up and guaranteed
//! ones keep apart, near their group.

use super::devices::{nodes, rooms};
use crate::prelude::*;
use trainyard_types::GpuAt;
use trainyard_types::placement::bits;

/// The weight of the whole of a GPU, and of a step between cells.
const WEIGHT: i64 = 100;

/// The node whose GPUs are used most, and the GPU there that is used most.
pub(super) fn pack(
    job: JobRef<'_>,
    open: &dyn Fn(GpuAt) -> bool,
    (view, free): (&View<'_>, &Free),
) -> Option<GpuAt> {
    let score = |node: NodeId| {
        let gpus: Vec<GpuAt> = bits(free.up(node)).map(|gpu| GpuAt { node, gpu }).collect();
        let count = gpus.len().max(1) as i64;
        let partly = gpus.iter().map(|gpu| free.left(*gpu)).filter(|left| *left < 1000);
        let used: i64 = partly.map(|left| WEIGHT * (1000 - i64::from(left))).sum();
        let idle = gpus.iter().filter(|gpu| free.left(**gpu) == 1000).count() as i64;
        (used - WEIGHT * 1000 * idle / count) / count
    };
    let best = nodes(job, (view, free))
        .filter(|node| rooms(job, *node, open, free).next().is_some())
        .max_by_key(|node| (score(*node), std::cmp::Reverse(*node)))?;
    rooms(job, best, open, free).min_by_key(|gpu| (free.left(*gpu), *gpu))
}

/// The node with the most unused GPUs that are near the GPUs of the job's group, and the best of them.
pub(super) fn spread(
    job: JobRef<'_>,
    open: &dyn Fn(GpuAt) -> bool,
    near: &[GpuAt],
    (view, free): (&View<'_>, &Free),
) -> Option<GpuAt> {
    let leaf = |gpu: GpuAt| {
        let used = WEIGHT * (1000 - i64::from(free.left(gpu)));
        let steps: i64 = near.iter().map(|mate| steps(gpu, *mate, view)).sum();
        -used - WEIGHT * 1000 * steps / near.len().max(1) as i64
    };
    let score = |node: NodeId| {
        let gpus = bits(free.up(node)).map(|gpu| leaf(GpuAt { node, gpu }));
        let count = free.up(node).count_ones().max(1);
        gpus.sum::<i64>() / i64::from(count)
    };
    let best = nodes(job, (view, free))
        .filter(|node| rooms(job, *node, open, free).next().is_some())
        .max_by_key(|node| (score(*node), std::cmp::Reverse(*node)))?;
    let gpus = rooms(job, best, open, free);
    gpus.max_by_key(|gpu| (leaf(*gpu), std::cmp::Reverse(*gpu)))
}

/// Steps between two cells: 0 on the same GPU, 1 in the same node, 2 in the same rack, 3 beyond.
fn steps(one: GpuAt, other: GpuAt, view: &View<'_>) -> i64 {
    let rack = |gpu: GpuAt| view.cluster().node(gpu.node).rack;
    if one == other {
        0
    } else if one.node == other.node {
        1
    } else {
        2 + i64::from(rack(one) != rack(other))
    }
}
