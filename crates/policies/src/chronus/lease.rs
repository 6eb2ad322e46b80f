//! Who holds the lease that begins now.

use super::book::{Facts, INSTANT, Standing};
use super::{Chronus, Goal};
use crate::prelude::*;
use trainyard_solver::leases::{Demand, Now, Program, Step};

impl Chronus {
    /// Ends the leases of before and plans those to come.
    pub(super) fn begin_lease(&mut self, facts: &[Facts<'_>], view: &View<'_>, capacity: u32) {
        for record in self.book.records_mut() {
            record.holds = false;
        }
        self.let_finish(facts);
        self.put_overdue_aside(facts, view);
        let planned: Vec<&Facts<'_>> = facts.iter().filter(|one| self.takes_part(one)).collect();
        let now = match self.settings.objective {
            Goal::Maximise => Now::Most,
            Goal::Minimise => Now::Least,
            Goal::Adaptive if self.refused => Now::Least,
            Goal::Adaptive => Now::Most,
        };
        let demands = planned.iter().map(|one| self.demand(one, view)).collect();
        let program = Program { demands, capacity: vec![capacity], now };
        let plan = program.solve(self.settings.work);
        for (index, one) in planned.iter().enumerate() {
            let record = self.book.get_mut(one.id()).expect("it takes part");
            match plan.steps[index] {
                Some(step) => record.step = step,
                // What was promised cannot be kept: it ran slower than believed, or GPUs went away.
                None => {
                    record.standing = Standing::Refused;
                    record.is_planned = false;
                }
            }
            record.holds |= plan.runs_now(index);
        }
        let is_refused = |one: &Facts<'_>| {
            self.book.get(one.id()).is_some_and(|record| record.standing == Standing::Refused)
        };
        self.refused = facts.iter().any(is_refused);
    }

    /// Whoever is over in an instant is not stopped for the sake of the clock.
    fn let_finish(&mut self, facts: &[Facts<'_>]) {
        for one in facts.iter().filter(|one| one.job.state.planned.is_some()) {
            if let Some(record) = self.book.get_mut(one.id()) {
                record.holds = one.left <= INSTANT;
            }
        }
    }

    fn takes_part(&self, one: &Facts<'_>) -> bool {
        let record = self.book.get(one.id());
        record.is_some_and(|it| it.standing == Standing::Promised && it.is_planned)
    }

    /// Whoever has used up what it was allowed is no part of plans any more, and first to get what is left over.
    fn put_overdue_aside(&mut self, facts: &[Facts<'_>], view: &View<'_>) {
        for one in facts {
            let ran = one.job.state.ran(view.now);
            if let Some(record) = self.book.get_mut(one.id())
                && record.standing == Standing::Promised
                && ran >= record.allowed
            {
                record.standing = Standing::Refused;
                record.is_planned = false;
                record.is_overdue = true;
            }
        }
    }

    fn demand(&self, one: &Facts<'_>, view: &View<'_>) -> Demand {
        let record = self.book.get(one.id()).expect("it takes part");
        let lease = self.settings.lease.0;
        let current = view.now.0 / lease;
        let step = |&(deadline, value): &(Time, f64)| Step {
            before: (deadline.0 / lease).saturating_sub(current).min(u64::from(u32::MAX)) as u32,
            value,
        };
        Demand {
            gpus: one.gpus,
            leases: self.leases(one.rest).max(1),
            steps: record.steps.iter().map(step).collect(),
            prefers: one.job.state.planned.is_some(),
        }
    }

    /// Grants the lease to whoever holds it; whoever runs stays in place.
    pub(super) fn grant_leases(
        &mut self,
        facts: &[Facts<'_>],
        view: &View<'_>,
        offer: &mut Offer<'_>,
    ) {
        let holds = |one: &&Facts<'_>| {
            self.book.get(one.id()).is_some_and(|it| it.holds)
                && self.profiler.as_ref().is_none_or(|profiler| !profiler.has(one.id()))
        };
        let holders: Vec<&Facts<'_>> = facts.iter().filter(holds).collect();
        let mut coming = Vec::new();
        for one in holders {
            if offer.plan(one.id()).is_some() {
                continue;
            }
            if one.job.state.planned.is_none() || offer.grant(&wanted(one.job)) != Answer::Taken {
                coming.push(*one);
            }
        }
        self.displace(&coming, (facts, view.now), offer);
        let left = self.allocator.grant(&coming, view, offer);
        // Where places are short, single grants may still push others aside.
        for one in left {
            self.push_aside(&one, (facts, view.now), offer);
        }
    }
}
