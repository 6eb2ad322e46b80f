//! Where a choice of rules decides: the questions, and our own answers. The authors' are in `authors`.

use super::authors::Authors;
use super::book::Facts;
use super::{Chronus, Moment, Turn};
use crate::prelude::*;

/// Whose rules are followed where we and the authors' program differ.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rules {
    /// Newcomers are answered at once, and a job that goes on after a boundary was never stopped.
    #[default]
    Ours,
    /// Newcomers are answered at slots, and every job without a lease is stopped at a boundary.
    Authors,
}

impl Rules {
    /// The answers that follow from the choice.
    pub(super) fn set(self) -> &'static dyn RuleSet {
        match self {
            Rules::Ours => &Ours,
            Rules::Authors => &Authors,
        }
    }
}

/// What we and the authors' program answer differently.
pub(super) trait RuleSet: Sync {
    /// The duration that a job is allowed, of the one that was reckoned.
    fn allowed(&self, reckoned: Span) -> Span;

    /// How many of a newcomer's steps are tried, soonest first.
    fn steps_tried(&self, steps: usize) -> usize;

    /// By when a promised job must be over, given its last deadline.
    fn promised_by(&self, last: Time, lease: Span) -> Time;

    /// What begins at a moment.
    fn begins(&self, chronus: &mut Chronus, now: Time) -> Turn;

    /// Whether a slot could be of use to any job.
    fn is_slot_of_use(&self, chronus: &Chronus, moment: &Moment<'_, '_>) -> bool;

    /// One decision.
    fn decide(
        &self,
        chronus: &mut Chronus,
        moment: &Moment<'_, '_>,
        begins: Turn,
        offer: &mut Offer<'_>,
    );
}

/// Trainyard's rules.
struct Ours;

impl RuleSet for Ours {
    fn allowed(&self, reckoned: Span) -> Span {
        reckoned
    }

    fn steps_tried(&self, steps: usize) -> usize {
        steps
    }

    fn promised_by(&self, last: Time, _lease: Span) -> Time {
        last
    }

    fn begins(&self, chronus: &mut Chronus, now: Time) -> Turn {
        let (lease, slot) = (chronus.enters_lease(now), chronus.enters_slot(now));
        let best_effort = if chronus.chooses() { chronus.enters_turn(now) } else { lease };
        Turn { lease, slot, best_effort }
    }

    fn is_slot_of_use(&self, chronus: &Chronus, moment: &Moment<'_, '_>) -> bool {
        let waits = |one: &Facts<'_>| moment.fits(one) && one.job.state.planned.is_none();
        chronus.profiles() || moment.facts.iter().any(waits)
    }

    fn decide(
        &self,
        chronus: &mut Chronus,
        moment: &Moment<'_, '_>,
        begins: Turn,
        offer: &mut Offer<'_>,
    ) {
        if begins.lease {
            chronus.choose_lease(moment);
        }
        // Newcomers take part in the plan of a lease that begins with them.
        chronus.admit(moment, u64::from(!begins.lease));
        if begins.lease {
            chronus.begin_lease(moment);
        }
        if begins.best_effort {
            chronus.choose_turn(moment);
        }
        if begins.lease || begins.best_effort {
            offer.everything();
            chronus.restore_profiles(moment.view, offer);
        }
        chronus.settle(moment);
        chronus.grant_leases(moment, offer);
        chronus.fill(moment, begins.best_effort, offer);
        chronus.wake(moment, offer);
    }
}
