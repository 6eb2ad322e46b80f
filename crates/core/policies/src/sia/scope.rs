//! Which jobs a round takes away from first, and when the rounds to come are known to change nothing.

use super::Contender;
use crate::prelude::*;
use trainyard_framework::Free;
use trainyard_types::{Phase, Want};

/// What a round takes away before it chooses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every grant that may be lifted.
    Everything,
    /// Only the grants of jobs that are to have something else: those that stay are left alone, which is most of them.
    Changes,
}

impl Scope {
    /// Where numbers of whole GPUs alone decide, a job that stays need not be lifted and granted again to find that it
    /// may stay.
    pub fn of(view: &View<'_>, free: &Free) -> Scope {
        let numbers_decide = !view.state().has_ceilings
            && view.cluster().rules.is_none()
            && free.windows().is_empty()
            && view.waiting().chain(view.granted()).all(|job| !is_special(&job.spec.want));
        if numbers_decide { Scope::Changes } else { Scope::Everything }
    }

    /// GPUs of a type that a round can give out: those that are free, and those of jobs that it may move.
    pub fn capacity(self, kind: GpuType, players: &[Contender<'_>], free: &Free) -> u32 {
        let there = free.gpus(kind);
        match self {
            Scope::Everything => there,
            Scope::Changes => {
                let masks = players.iter().filter_map(|player| player.job.state.planned.as_ref());
                let masks = masks.flat_map(|planned| planned.placement.masks());
                let of_kind = masks.filter(|(node, _)| free.kind(*node) == kind);
                there
                    + of_kind.map(|(node, mask)| (mask & free.up(*node)).count_ones()).sum::<u32>()
            }
        }
    }
}

/// Whether more than the number of GPUs decides where a job fits.
pub fn is_special(want: &Want) -> bool {
    want.permille < 1000
        || want.cpus_per_gpu > 0
        || want.memory_mib_per_gpu > 0
        || want.gpu_memory_mib > 0
        || want.nodes_max > 0
        || want.pool.is_some()
}

/// Whether a round that changed nothing is followed by rounds that change nothing either, until something happens.
///
/// A program of the same numbers has the same answer, and of its numbers time alone changes one: the price of a restart,
/// which a job pays that has GPUs and could have others. Where each job is rigid, is where it can be or waits, and
/// nothing is learnt meanwhile, no number changes.
pub fn stays_so(players: &[Contender<'_>], view: &View<'_>, offer: &Offer<'_>) -> bool {
    let is_steady = |player: &Contender<'_>| {
        let state = &player.job.state;
        let moves = matches!(state.phase, Phase::Starting | Phase::Saving);
        let chooses = state.planned.is_some() && player.row.options.len() != 1;
        !moves && !chooses && player.row.options.iter().all(|option| option.batch.is_none())
    };
    let planned = players.iter().filter(|player| player.job.state.planned.is_some()).count();
    !view.learns()
        && planned == view.granted_len()
        && players.iter().all(is_steady)
        && players
            .iter()
            .all(|player| offer.plan(player.job.id()) == player.job.state.planned.as_ref())
}
