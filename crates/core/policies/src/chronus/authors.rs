//! The authors' program: `time_aware_with_lease.py` of S-Lab-System-Group/ChronusArtifact, so that its runs can be met.
//!
//! Its clock ticks in minutes, newcomers wait for a slot (`BEST_SLOT`), and at the end of a lease every job is stopped
//! that the new plan does not name.

use super::book::{Facts, PromiseState};
use super::rules::RuleSet;
use super::{Chronus, Moment, Turn};
use crate::prelude::*;

/// The unit of time of the program.
const MINUTE: Span = Span::secs(60);

/// The rules of the program.
pub(super) struct Authors;

impl RuleSet for Authors {
    /// `estimate_duration` is cut to whole minutes.
    fn allowed(&self, reckoned: Span) -> Span {
        Span(reckoned.0 / MINUTE.0 * MINUTE.0)
    }

    /// The check of a newcomer only ever looks at its tightest deadline.
    fn steps_tried(&self, _steps: usize) -> usize {
        1
    }

    /// From the promise on only ends of leases are known.
    fn promised_by(&self, last: Time, lease: Span) -> Time {
        Time(last.0 / lease.0 * lease.0)
    }

    /// A slot that no job waited for does not count, so that the job that comes first waits for the next.
    fn begins(&self, chronus: &mut Chronus, now: Time) -> Turn {
        if chronus.due.is_none_or(|due| now < due) {
            return Turn { lease: false, slot: false, best_effort: false };
        }
        let lease = chronus.enters_lease(now);
        // The rest of a boundary follows when every job has stopped.
        Turn { lease, slot: !lease && chronus.enters_slot(now), best_effort: lease }
    }

    fn is_slot_of_use(&self, _chronus: &Chronus, moment: &Moment<'_, '_>) -> bool {
        moment.facts.iter().any(|one| moment.fits(one))
    }

    fn decide(
        &self,
        chronus: &mut Chronus,
        moment: &Moment<'_, '_>,
        begins: Turn,
        offer: &mut Offer<'_>,
    ) {
        if begins.lease {
            chronus.begin_lease(moment);
            offer.everything();
            offer.leave_idle();
            chronus.restore_profiles(moment.view, offer);
            chronus.grant_leases(moment, offer);
            offer.wake_at(Time(moment.view.now.0 + 1));
            return;
        }
        if begins.slot {
            chronus.admit(moment, 1);
            chronus.settle(moment);
        }
        chronus.grant_leases(moment, offer);
        if begins.slot {
            let waiting = chronus.waiting(moment, moment.view.now, offer);
            fill(chronus, waiting, moment, offer);
        } else if is_odd_minute(moment.view.now) {
            let waiting = least_urgent_first(chronus, moment, offer);
            fill(chronus, waiting, moment, offer);
        } else {
            offer.wake_at(next_odd_minute(moment.view.now));
        }
        chronus.wake(moment, offer);
    }
}

/// Gives idle GPUs in an order; a job that ran before the boundary was stopped, and has no place to go on in.
fn fill(
    chronus: &Chronus,
    waiting: Vec<&Facts<'_>>,
    moment: &Moment<'_, '_>,
    offer: &mut Offer<'_>,
) {
    let coming = chronus.fitting(waiting, offer);
    chronus.allocator.grant(&coming, moment.view, offer);
}

/// The order between slots (`filling_jobs`): by standing, those that are lost first and best effort last, and of equal
/// standing the least urgent first. Urgency is that of the last slot, and what has used up its time is not preferred.
fn least_urgent_first<'m, 'v>(
    chronus: &Chronus,
    moment: &Moment<'m, 'v>,
    offer: &Offer<'_>,
) -> Vec<&'m Facts<'v>> {
    let now = moment.view.now.0;
    let slot = Time(now - now % chronus.settings.slot().0);
    let mut waiting = chronus.waiting(moment, slot, offer);
    waiting.reverse();
    waiting.sort_by_cached_key(|one| {
        let standing = chronus.book.get(one.id()).map(|record| match record.standing {
            PromiseState::Lost => 0,
            PromiseState::Promised => 1,
            PromiseState::Refused => 2,
            PromiseState::BestEffort => 3,
        });
        (standing, chronus.urgency(one, slot).value)
    });
    waiting
}

/// Between slots the program looks for idle GPUs every other minute.
fn is_odd_minute(now: Time) -> bool {
    now.0.is_multiple_of(MINUTE.0) && now.0 / MINUTE.0 % 2 == 1
}

fn next_odd_minute(now: Time) -> Time {
    let minute = now.0 / MINUTE.0 + 1;
    Time(minute.saturating_add(1 - minute % 2).saturating_mul(MINUTE.0))
}
