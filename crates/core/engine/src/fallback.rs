//! The fallback order that takes over while a policy fails: jobs in order of arrival, any that fits, wherever there is
//! room.

use trainyard_framework::{
    Ask, Fill, Free, JobRef, Key, Needs, Pipeline, Placer, Rank, Ranked, View, fraction,
};
use trainyard_types::Placement;
use trainyard_types::placement::lowest_bits;

struct Arrival;

impl Rank for Arrival {
    fn rank(&mut self, job: JobRef<'_>, _view: &View<'_>) -> Key {
        Key::at(job.spec.submitted)
    }
}

struct Anywhere;

impl Placer for Anywhere {
    fn try_place(&mut self, ask: &Ask<'_>, free: &Free, _view: &View<'_>) -> Option<Placement> {
        if ask.permille < 1000 {
            return fraction::tightest(ask, free);
        }
        free.kinds().into_iter().filter(|kind| ask.accepts(*kind)).find_map(|kind| {
            let mut rest = ask.count;
            let mut masks = Vec::new();
            for node in free.roomiest(kind) {
                let count = ask.usable(node, free).min(rest);
                if count > 0 {
                    masks.push((node, lowest_bits(free.mask(node), count)));
                    rest -= count;
                }
                if rest == 0 {
                    break;
                }
            }
            let within = ask.nodes_max == 0 || masks.len() <= usize::from(ask.nodes_max);
            (rest == 0 && within).then(|| Placement::from_masks(masks))
        })
    }
}

/// The fallback order.
pub(crate) fn pipeline() -> Pipeline {
    let policy = Ranked::new(Arrival).no_preemption().fill(Fill::Backfill);
    Pipeline::new(policy, Anywhere, Needs::NOTHING)
}
