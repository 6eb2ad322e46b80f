//! Which jobs get what no lease needs, and which rise and fall between leases.

use super::book::{Facts, INSTANT, PromiseState};
use super::{Chronus, Moment};
use crate::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use trainyard_types::{Grant, Shape};

/// The order in which idle GPUs are given out, greatest first: the authors' `best_func` by field.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Urgency {
    /// Whether it has used up what it was allowed (`fake_force_guarantee`).
    is_overdue: bool,
    /// By standing, best effort and refused jobs first (`queue_priority`).
    class: u8,
    /// GPU time that is left, or slack (`emergence`).
    pub(super) value: Reverse<i128>,
    submitted: Reverse<Time>,
    id: Reverse<JobId>,
}

impl Chronus {
    /// Lets a job that was refused and can end within the present lease hold it to its end, and drops jobs that cannot
    /// meet their deadline any more.
    pub(super) fn settle(&mut self, moment: &Moment<'_, '_>) {
        let &Moment { facts, view, capacity, .. } = moment;
        let left = self.lease_left(view.now);
        let holds = |one: &&Facts<'_>| self.book.get(one.id()).is_some_and(|it| it.holds);
        let held: u32 = facts.iter().filter(holds).map(|one| one.gpus).sum();
        let mut spare = capacity.saturating_sub(held);
        let waits = |one: &&Facts<'_>| one.job.state.planned.is_none();
        let mut short: Vec<&Facts<'_>> = facts
            .iter()
            .filter(waits)
            .filter(|one| one.left <= left + INSTANT && self.is(one, PromiseState::Refused))
            .collect();
        short.sort_unstable_by_key(|one| (area(one.left, one.gpus), one.id()));
        for one in short {
            if one.gpus > spare {
                continue;
            }
            spare -= one.gpus;
            let began = Time(view.now.0 - view.now.0 % self.settings.lease().0);
            let record = self.book.get_mut(one.id()).expect("it was refused");
            record.holds = true;
            if one.job.spec.submitted >= began {
                record.standing = PromiseState::Promised;
            }
        }
        for one in facts.iter().filter(waits) {
            self.drop_if_lost(one, view);
        }
    }

    /// Whether a job stands so.
    pub(super) fn is(&self, one: &Facts<'_>, standing: PromiseState) -> bool {
        self.book.get(one.id()).is_some_and(|record| record.standing == standing)
    }

    fn drop_if_lost(&mut self, one: &Facts<'_>, view: &View<'_>) {
        let Some(record) = self.book.get_mut(one.id()) else { return };
        let Some(by) = record.by else { return };
        if view.now + one.left > by + INSTANT && !record.holds {
            record.late = (view.now + one.left).since(by);
            record.standing = PromiseState::Lost;
            record.is_planned = false;
        }
    }

    /// How urgently a job is given what is idle.
    ///
    /// Promised jobs come late: their leases are kept for them in any case.
    pub(super) fn urgency(&self, one: &Facts<'_>, now: Time) -> Urgency {
        let id = one.id();
        let Some(record) = self.book.get(id) else {
            return Urgency {
                is_overdue: false,
                class: 0,
                value: Reverse(0),
                submitted: Reverse(Time::NEVER),
                id: Reverse(id),
            };
        };
        let size = i128::from(area(one.rest, one.gpus).min(u64::MAX >> 1));
        let slack = record.by.map_or(0, |by| {
            let end = i128::from(now.0) + i128::from(one.rest.0);
            (i128::from(by.0) - end) * i128::from(one.gpus)
        });
        let (class, value) = match record.standing {
            PromiseState::Refused | PromiseState::BestEffort => (2, size),
            PromiseState::Promised => (1, slack),
            PromiseState::Lost => (0, slack),
        };
        Urgency {
            is_overdue: record.is_overdue,
            class,
            value: Reverse(value),
            submitted: Reverse(one.job.spec.submitted),
            id: Reverse(id),
        }
    }

    /// Gives idle GPUs to the most urgent jobs that fit; what runs goes on first, unless all are chosen anew.
    pub(super) fn fill(&self, moment: &Moment<'_, '_>, anew: bool, offer: &mut Offer<'_>) {
        let mut coming = Vec::new();
        let now = moment.view.now;
        let key = |one: &Facts<'_>| {
            let goes_on = !anew && one.job.state.planned.is_some();
            (goes_on, self.urgency(one, now))
        };
        let waiting = self.first_served(self.without(moment, offer), key, offer);
        for one in self.fitting(waiting, offer) {
            // A job that ran until now goes on in place.
            let stays = one.job.state.planned.is_some()
                && offer.grant(&wanted(one.job)) == GrantOutcome::Taken;
            if !stays {
                coming.push(one);
            }
        }
        self.allocator.grant(&coming, moment.view, offer);
    }

    /// Those without GPUs, by id.
    fn without<'m, 'v>(&self, moment: &Moment<'m, 'v>, offer: &Offer<'_>) -> Vec<&'m Facts<'v>> {
        let is_known = |one: &&Facts<'_>| self.book.get(one.id()).is_some();
        let known = moment.facts.iter().filter(is_known);
        known.filter(|one| offer.plan(one.id()).is_none()).collect()
    }

    /// Those without GPUs, most urgent first as it was at a moment.
    pub(super) fn waiting<'m, 'v>(
        &self,
        moment: &Moment<'m, 'v>,
        at: Time,
        offer: &Offer<'_>,
    ) -> Vec<&'m Facts<'v>> {
        let mut waiting = self.without(moment, offer);
        waiting.sort_by_cached_key(|one| Reverse(self.urgency(one, at)));
        waiting
    }

    /// Jobs with the greatest keys first, as far as they could use up what is idle; the rest in any order.
    ///
    /// O(n) and O(log n) for each that is looked at before nothing is idle, for a long queue is not put in order each
    /// time. No two keys are equal.
    fn first_served<'m, 'v, K: Ord>(
        &self,
        waiting: Vec<&'m Facts<'v>>,
        key: impl Fn(&Facts<'_>) -> K,
        offer: &Offer<'_>,
    ) -> Vec<&'m Facts<'v>> {
        let mut free = self.idle(offer);
        if free == 0 {
            return waiting;
        }
        let keyed = waiting.iter().enumerate().map(|(at, one)| (key(one), at));
        let mut heap: BinaryHeap<(K, usize)> = keyed.collect();
        let mut served = Vec::with_capacity(waiting.len());
        while free > 0
            && let Some((_, at)) = heap.pop()
        {
            let one = waiting[at];
            free -= if one.gpus <= free { one.gpus } else { 0 };
            served.push(one);
        }
        served.extend(heap.into_iter().map(|(_, at)| waiting[at]));
        served
    }

    /// GPUs that leases leave and no profile is kept for.
    fn idle(&self, offer: &Offer<'_>) -> u32 {
        offer.free().total() - self.reserved_free(offer)
    }

    /// Those that what is idle is enough for, in the order given; the others are told why not.
    pub(super) fn fitting<'v>(
        &self,
        waiting: Vec<&Facts<'v>>,
        offer: &mut Offer<'_>,
    ) -> Vec<Facts<'v>> {
        let mut free = self.idle(offer);
        let mut chosen = Vec::new();
        for one in waiting {
            if one.gpus > free {
                self.say_why(one, free, offer);
                continue;
            }
            free -= one.gpus;
            // What is idle is of use on any type.
            chosen.push(Facts { kind: None, ..*one });
        }
        chosen
    }

    fn say_why(&self, one: &Facts<'_>, free: u32, offer: &mut Offer<'_>) {
        let most = offer.free().in_service_total();
        let record = self.book.get(one.id());
        let late = record.map_or(Span::ZERO, |record| record.late);
        let reason = match record.map(|record| record.standing) {
            _ if one.gpus > most => Reason::NeverFits { need: one.gpus, most },
            Some(PromiseState::Lost | PromiseState::Refused) if late > Span::ZERO => {
                Reason::DeadlineLost { late }
            }
            _ => Reason::NoRoom { need: one.gpus, free },
        };
        offer.note(one.id(), reason);
    }

    /// Makes room, in numbers of GPUs of a type, for jobs that come with a lease: those without one go, least urgent
    /// first.
    pub(super) fn displace(
        &self,
        kind: GpuType,
        coming: &[Facts<'_>],
        moment: &Moment<'_, '_>,
        offer: &mut Offer<'_>,
    ) {
        let is_single = moment.kinds.len() == 1;
        let own = coming.iter().filter(|one| is_single || one.kind == Some(kind));
        let need: u32 = own.map(|one| one.gpus).sum();
        if need == 0 {
            return;
        }
        for victim in self.victims(moment, offer) {
            if offer.free().gpus(kind) >= need {
                return;
            }
            let planned = offer.plan(victim).map(|plan| plan.placement.masks());
            let on = planned.and_then(|masks| Some(offer.free().kind(masks.first()?.0)));
            if on == Some(kind) {
                offer.revoke(victim);
            }
        }
    }

    /// One grant at the expense of those without a lease.
    pub(super) fn push_aside(
        &self,
        one: &Facts<'_>,
        moment: &Moment<'_, '_>,
        offer: &mut Offer<'_>,
    ) {
        let mut victims = self.victims(moment, offer).into_iter();
        offer.instead(&asked(one), &mut victims);
    }

    /// Those that run without a lease, least urgent first.
    fn victims(&self, moment: &Moment<'_, '_>, offer: &Offer<'_>) -> Vec<JobId> {
        let runs = |one: &&Facts<'_>| {
            offer.plan(one.id()).is_some()
                && self.book.get(one.id()).is_some_and(|record| !record.holds)
        };
        let mut running: Vec<&Facts<'_>> = moment.facts.iter().filter(runs).collect();
        running.sort_by_cached_key(|one| self.urgency(one, moment.view.now));
        running.into_iter().map(Facts::id).collect()
    }
}

/// What a job asks for, on the type that its leases are on.
pub(super) fn asked(one: &Facts<'_>) -> Grant {
    let mut grant = wanted(one.job);
    if let Shape::Gpus { kind, .. } = &mut grant.shape {
        *kind = one.kind;
    }
    grant
}

/// GPU time.
fn area(time: Span, gpus: u32) -> u64 {
    time.0.saturating_mul(u64::from(gpus))
}
