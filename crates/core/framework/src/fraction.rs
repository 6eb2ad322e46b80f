//! Placing less than a whole GPU: the rule all placers share unless they have a better one.

use crate::{Ask, Free};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, GpuType, NodeId, Placement};

/// The GPU already in partial use with the least left that still suffices, else a fresh one on the tightest node.
/// Shares of several GPUs go to the nodes with the most fitting ones, tightest GPUs first.
pub fn tightest(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    free.kinds().into_iter().filter(|kind| ask.accepts(*kind)).find_map(|kind| {
        if ask.count > 1 {
            return several(ask, free, kind);
        }
        fitting(ask, free, kind).next().map(|at| Placement::on(at.node, 1 << at.gpu))
    })
}

/// GPUs of a type with enough left, those in partial use first, least left first.
fn fitting<'a>(
    ask: &'a Ask<'_>,
    free: &'a Free,
    kind: GpuType,
) -> impl Iterator<Item = GpuAt> + 'a {
    let memory = ask.job.spec.want.gpu_memory_mib;
    let partial = free.partial(kind, ask.permille).map(|(_, at)| at);
    let partial = partial.filter(move |at| free.memory_left(*at) >= memory);
    let fresh = free.tightest(kind, 1).flat_map(move |node| {
        bits(ask.usable_mask(node, free)).map(move |gpu| GpuAt { node, gpu })
    });
    partial.chain(fresh).filter(move |at| ask.allows(at.node, free))
}

/// Linear in the number of fitting GPUs: shares of several GPUs at once are rare.
fn several(ask: &Ask<'_>, free: &Free, kind: GpuType) -> Option<Placement> {
    let mut nodes: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    for at in fitting(ask, free, kind) {
        let gpus = nodes.entry(at.node).or_default();
        if (gpus.len() as u32) < ask.gpus_by_host(at.node, free) {
            gpus.push(at.gpu);
        }
    }
    let mut nodes: Vec<(NodeId, Vec<u8>)> = nodes.into_iter().collect();
    nodes.sort_by_key(|(_, gpus)| Reverse(gpus.len()));
    let mut rest = ask.count as usize;
    let masks = nodes.into_iter().map_while(|(node, gpus)| {
        let mask = gpus.iter().take(rest).fold(0, |mask, gpu| mask | 1 << gpu);
        rest -= gpus.len().min(rest);
        (mask != 0).then_some((node, mask))
    });
    let placement = Placement::from_masks(masks);
    let within = ask.nodes_max == 0 || placement.nodes() <= u32::from(ask.nodes_max);
    (placement.gpus() == ask.count && within).then_some(placement)
}
