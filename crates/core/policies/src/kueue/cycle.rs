//! Scheduling cycles: the heads of all queues are nominated with a type of GPU, put in order and admitted.

use super::preemption::{Asked, targets};
use super::quota::Quotas;
use super::{Queueing, Settings, Turn, WhenBorrowing, WhenPreempting, kind_of, need, turn};
use crate::alike::Classes;
use crate::prelude::*;
use crate::turns::could_hold;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, VecDeque};
use trainyard_types::TenantId;

/// A head that could be admitted.
pub(super) struct Entry<'v> {
    pub(super) job: JobRef<'v>,
    /// The type of GPU that it gets quota of.
    pub(super) kind: GpuType,
    /// Whether its queue borrows for it.
    borrows: bool,
    /// What its queue would borrow of what its cohort can lend, by weight.
    share: f64,
    /// Jobs that must go for it.
    pub(super) victims: Vec<JobId>,
}

/// The cycles of one decision.
pub(super) struct Cycle<'m, 'v, 'o> {
    settings: &'m Settings,
    view: &'m View<'v>,
    offer: &'m mut Offer<'o>,
    quotas: Quotas,
    lines: BTreeMap<TenantId, VecDeque<Turn>>,
    classes: Classes,
    /// Classes that cannot be admitted; of each queue the most important come first.
    failed: FxHashSet<usize>,
}

impl<'m, 'v, 'o> Cycle<'m, 'v, 'o> {
    /// Jobs that were not admitted yet stand in the line of their queue.
    pub(super) fn new(
        settings: &'m Settings,
        (view, offer): (&'m View<'v>, &'m mut Offer<'o>),
        quotas: Quotas,
        admitted: &BTreeMap<JobId, GpuType>,
    ) -> Cycle<'m, 'v, 'o> {
        let mut lines: BTreeMap<TenantId, Vec<Turn>> = BTreeMap::new();
        for job in view.waiting().filter(|job| offer.plan(job.id()).is_none()) {
            if !admitted.contains_key(&job.id()) {
                lines.entry(job.spec.tenant).or_default().push(turn(job));
            }
        }
        let sorted = |(tenant, mut line): (TenantId, Vec<Turn>)| {
            line.sort_unstable();
            (tenant, VecDeque::from(line))
        };
        let lines = lines.into_iter().map(sorted).collect();
        let (classes, failed) = (Classes::default(), FxHashSet::default());
        Cycle { settings, view, offer, quotas, lines, classes, failed }
    }

    /// The heads that could be admitted, in the order in which they are; nothing where there is none any more.
    pub(super) fn heads(&mut self) -> Option<Vec<Entry<'v>>> {
        let mut heads: Vec<Entry<'v>> = Vec::new();
        for (tenant, mut line) in std::mem::take(&mut self.lines) {
            while let Some((_, _, _, id)) = line.pop_front() {
                let Some(job) = self.view.job(id) else { continue };
                let class = self.classes.number(job, self.view, true);
                if !self.failed.contains(&class) {
                    if let Some(entry) = self.nominate(job) {
                        heads.push(entry);
                        break;
                    }
                    self.failed.insert(class);
                }
                if self.settings.queueing == Queueing::StrictFifo {
                    line.clear();
                }
            }
            if !line.is_empty() {
                self.lines.insert(tenant, line);
            }
        }
        let fair = self.settings.fair_sharing;
        heads.sort_by(|a, b| {
            let by_share =
                if fair { a.share.total_cmp(&b.share) } else { a.borrows.cmp(&b.borrows) };
            by_share.then(turn(a.job).cmp(&turn(b.job)))
        });
        // A line whose rest cannot be admitted is empty by now.
        (!heads.is_empty()).then_some(heads)
    }

    /// The type of GPU on which a job could be admitted: in the order of the cluster, which is that of the flavors.
    fn nominate(&mut self, job: JobRef<'v>) -> Option<Entry<'v>> {
        if self.offer.ceiling_passed(job, need(job) as u64).is_some() {
            return None;
        }
        let (queue, amount) = (self.quotas.queue(job.spec.tenant), need(job));
        let mut by_borrowing = None;
        let mut by_preempting = None;
        for kind in self.offer.free().kinds() {
            if !could_hold(&job.spec.want, kind, self.view, self.offer.free()) {
                continue;
            }
            let borrows = self.quotas.borrows(queue, kind, amount);
            let share = self.quotas.share(queue, kind, amount);
            let entry = |victims| Entry { job, kind, borrows, share, victims };
            if amount <= self.quotas.available(queue, kind) {
                if !borrows || self.settings.when_can_borrow == WhenBorrowing::Borrow {
                    return Some(entry(Vec::new()));
                }
                by_borrowing = by_borrowing.or(Some(entry(Vec::new())));
                continue;
            }
            if by_preempting.is_some() {
                continue;
            }
            let asked = Asked { job, kind, queue, amount };
            let found = targets(self.settings, &asked, &self.quotas, (self.view, self.offer));
            if let Some(victims) = found {
                if self.settings.when_can_preempt == WhenPreempting::Preempt {
                    return Some(entry(victims));
                }
                by_preempting = Some(entry(victims));
            }
        }
        by_borrowing.or(by_preempting)
    }

    /// Admits a job, at the expense of others where it must; true if it has quota and no GPUs yet.
    pub(super) fn admit(&mut self, job: JobRef<'v>, kind: GpuType, victims: Vec<JobId>) -> bool {
        let (queue, amount) = (self.quotas.queue(job.spec.tenant), need(job));
        for victim in victims.into_iter().filter_map(|id| self.view.job(id)) {
            if let Some(of) = kind_of(victim, self.offer) {
                // Evicted for quota: whether its GPUs are those that the other gets is the placer's to find out.
                self.offer.leave_idle();
                self.offer.revoke(victim.id());
                self.quotas.remove(self.quotas.queue(victim.spec.tenant), of, need(victim));
            }
        }
        if amount > self.quotas.available(queue, kind) {
            // Another head of this cycle took it; it is looked at again in the next.
            self.lines.entry(job.spec.tenant).or_default().push_front(turn(job));
            return false;
        }
        self.quotas.add(queue, kind, amount);
        self.offer.grant(&wanted(job).of(kind)) != GrantOutcome::Taken
    }
}
