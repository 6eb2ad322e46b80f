//! Who gets what no lease needs, and who rises and falls between leases.

use super::book::{Facts, INSTANT, Standing};
use super::{Chronus, Rules};
use crate::prelude::*;
use std::cmp::Reverse;

/// The order in which idle GPUs are given out: greatest first.
type Urgency = (bool, u8, Reverse<i128>, Reverse<Time>, Reverse<JobId>);

impl Chronus {
    /// Lets whoever was refused and can end within the present lease hold it to its end, and drops whoever cannot
    /// meet its deadline any more.
    pub(super) fn settle(&mut self, facts: &[Facts<'_>], view: &View<'_>, capacity: u32) {
        let left = self.lease_left(view.now);
        let holds = |one: &&Facts<'_>| self.book.get(one.id()).is_some_and(|it| it.holds);
        let held: u32 = facts.iter().filter(holds).map(|one| one.gpus).sum();
        let mut spare = capacity.saturating_sub(held);
        let waits = |one: &&Facts<'_>| one.job.state.planned.is_none();
        let mut short: Vec<&Facts<'_>> = facts
            .iter()
            .filter(waits)
            .filter(|one| one.left <= left + INSTANT && self.is(one, Standing::Refused))
            .collect();
        short.sort_unstable_by_key(|one| (area(one.left, one.gpus), one.id()));
        for one in short {
            if one.gpus > spare {
                continue;
            }
            spare -= one.gpus;
            let began = Time(view.now.0 - view.now.0 % self.settings.lease.0);
            let record = self.book.get_mut(one.id()).expect("it was refused");
            record.holds = true;
            if one.job.spec.submitted >= began {
                record.standing = Standing::Promised;
            }
        }
        for one in facts.iter().filter(waits) {
            self.drop_if_lost(one, view);
        }
    }

    fn is(&self, one: &Facts<'_>, standing: Standing) -> bool {
        self.book.get(one.id()).is_some_and(|record| record.standing == standing)
    }

    fn drop_if_lost(&mut self, one: &Facts<'_>, view: &View<'_>) {
        let Some(record) = self.book.get_mut(one.id()) else { return };
        let Some(by) = record.by else { return };
        if view.now + one.left > by + INSTANT && !record.holds {
            record.late = (view.now + one.left).since(by);
            record.standing = Standing::Lost;
            record.is_planned = false;
        }
    }

    /// How urgently a job is given what is idle.
    ///
    /// Promised jobs come late: their leases are kept for them in any case.
    fn urgency(&self, one: &Facts<'_>, now: Time) -> Urgency {
        let id = one.id();
        let Some(record) = self.book.get(id) else {
            return (false, 0, Reverse(0), Reverse(Time::NEVER), Reverse(id));
        };
        let size = i128::from(area(one.rest, one.gpus).min(u64::MAX >> 1));
        let slack = record.by.map_or(0, |by| {
            let end = i128::from(now.0) + i128::from(one.rest.0);
            (i128::from(by.0) - end) * i128::from(one.gpus)
        });
        let (class, value) = match record.standing {
            Standing::Refused | Standing::BestEffort => (2, size),
            Standing::Promised => (1, slack),
            Standing::Lost => (0, slack),
        };
        (record.is_overdue, class, Reverse(value), Reverse(one.job.spec.submitted), Reverse(id))
    }

    /// Gives idle GPUs to whoever is most urgent and fits.
    ///
    /// Between slots the authors' program gives to the least urgent first; ours keeps its order.
    pub(super) fn fill(
        &mut self,
        facts: &[Facts<'_>],
        (view, between_slots): (&View<'_>, bool),
        offer: &mut Offer<'_>,
    ) {
        let is_known = |one: &&Facts<'_>| self.book.get(one.id()).is_some();
        let mut waiting: Vec<&Facts<'_>> =
            facts.iter().filter(is_known).filter(|one| offer.plan(one.id()).is_none()).collect();
        waiting.sort_by_cached_key(|one| Reverse(self.urgency(one, view.now)));
        if between_slots && self.settings.rules == Rules::Authors {
            waiting.reverse();
            waiting.sort_by_key(|one| self.is(one, Standing::BestEffort));
        }
        let mut free = offer.free().total() - self.reserved_free(offer);
        let mut chosen = Vec::new();
        for one in waiting {
            if one.gpus > free {
                self.say_why(one, free, offer);
                continue;
            }
            free -= one.gpus;
            chosen.push(*one);
        }
        let mut coming = Vec::new();
        for one in chosen {
            // Whoever ran until now goes on in place.
            let stays = one.job.state.planned.is_some()
                && self.settings.rules == Rules::Ours
                && offer.grant(&wanted(one.job)) == Answer::Taken;
            if !stays {
                coming.push(one);
            }
        }
        self.allocator.grant(&coming, view, offer);
    }

    fn say_why(&self, one: &Facts<'_>, free: u32, offer: &mut Offer<'_>) {
        let most = offer.free().in_service_total();
        let record = self.book.get(one.id());
        let late = record.map_or(Span::ZERO, |record| record.late);
        let reason = match record.map(|record| record.standing) {
            _ if one.gpus > most => Reason::NeverFits { need: one.gpus, most },
            Some(Standing::Lost | Standing::Refused) if late > Span::ZERO => {
                Reason::DeadlineLost { late }
            }
            _ => Reason::NoRoom { need: one.gpus, free },
        };
        offer.note(one.id(), reason);
    }

    /// Makes room, in numbers of GPUs, for whoever comes with a lease: those without one go, least urgent first.
    pub(super) fn displace(
        &self,
        coming: &[Facts<'_>],
        (facts, now): (&[Facts<'_>], Time),
        offer: &mut Offer<'_>,
    ) {
        let need: u32 = coming.iter().map(|one| one.gpus).sum();
        if need == 0 {
            return;
        }
        for victim in self.victims(facts, now, offer) {
            if offer.free().total() >= need {
                return;
            }
            offer.revoke(victim);
        }
    }

    /// One grant at the expense of those without a lease.
    pub(super) fn push_aside(
        &self,
        one: &Facts<'_>,
        (facts, now): (&[Facts<'_>], Time),
        offer: &mut Offer<'_>,
    ) {
        let mut victims = self.victims(facts, now, offer).into_iter();
        offer.instead(&wanted(one.job), &mut victims);
    }

    /// Those that run without a lease, least urgent first.
    fn victims(&self, facts: &[Facts<'_>], now: Time, offer: &Offer<'_>) -> Vec<JobId> {
        let runs = |one: &&Facts<'_>| {
            offer.plan(one.id()).is_some()
                && self.book.get(one.id()).is_some_and(|record| !record.holds)
        };
        let mut running: Vec<&Facts<'_>> = facts.iter().filter(runs).collect();
        running.sort_by_cached_key(|one| self.urgency(one, now));
        running.into_iter().map(Facts::id).collect()
    }
}

/// GPU time.
fn area(time: Span, gpus: u32) -> u64 {
    time.0.saturating_mul(u64::from(gpus))
}
