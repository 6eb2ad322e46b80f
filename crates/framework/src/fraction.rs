//! Placing less than a whole GPU: the rule all placers share unless they have a better one.

use crate::{Ask, Free};
use trainyard_types::placement::bits;
use trainyard_types::{GpuAt, Placement};

/// The GPU already in partial use with the least left that still suffices, else a fresh one on the tightest node.
pub fn tightest(ask: &Ask<'_>, free: &Free) -> Option<Placement> {
    let memory = ask.job.spec.want.gpu_memory_mib;
    let suits = |at: GpuAt| ask.allows(at.node, free) && free.memory_left(at) >= memory;
    free.kinds().into_iter().filter(|kind| ask.accepts(*kind)).find_map(|kind| {
        let partial = free.partial(kind, ask.permille).map(|(_, at)| at);
        let fresh = free.tightest(kind, 1).filter(|node| ask.allows(*node, free)).flat_map(|node| {
            bits(free.mask(node)).map(move |gpu| GpuAt { node, gpu })
        });
        partial.chain(fresh).find(|at| suits(*at)).map(|at| Placement::on(at.node, 1 << at.gpu))
    })
}
