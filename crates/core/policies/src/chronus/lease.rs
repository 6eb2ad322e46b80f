//! Which jobs hold the lease that begins now.

use super::book::{Facts, INSTANT, PromiseState, stretched};
use super::{Chronus, Goal, Moment};
use crate::prelude::*;
use trainyard_solver::leases::{Demand, Now, Program, Step};

impl Chronus {
    /// Ends the leases of before and plans those to come: the authors' program at a boundary, in which X[j, t] says
    /// whether job j has lease t, and S[j] which of its deadlines is planned for.
    pub(super) fn begin_lease(&mut self, moment: &Moment<'_, '_>) {
        let &Moment { facts, view, .. } = moment;
        self.book.end_leases();
        self.let_finish(facts);
        self.put_overdue_aside(facts, view);
        // The sign of the second part of the objective, the GPUs of X[j, 0].
        let now = match self.settings.objective {
            Goal::Maximise => Now::Most,
            Goal::Minimise => Now::Least,
            Goal::Adaptive if self.refused => Now::Least,
            Goal::Adaptive => Now::Most,
        };
        for &(kind, gpus) in moment.kinds {
            self.plan_leases((kind, gpus), now, moment);
        }
        let is_refused = |one: &Facts<'_>| {
            self.book.get(one.id()).is_some_and(|record| record.standing == PromiseState::Refused)
        };
        self.refused = facts.iter().any(is_refused);
    }

    /// Plans the leases of one type of GPU.
    fn plan_leases(&mut self, (kind, gpus): (GpuType, u32), now: Now, moment: &Moment<'_, '_>) {
        let own = |one: &&Facts<'_>| self.takes_part(one) && self.lane(one).kind == Some(kind);
        let planned: Vec<&Facts<'_>> = moment.facts.iter().filter(own).collect();
        if planned.is_empty() {
            return;
        }
        let demands = planned.iter().map(|one| self.demand(one, moment.view)).collect();
        let program = Program { demands, capacity: vec![gpus], now };
        let plan = program.solve(self.settings.work);
        for (index, one) in planned.iter().enumerate() {
            let record = self.book.get_mut(one.id()).expect("it takes part");
            match plan.steps[index] {
                Some(step) => record.step = step,
                // What was promised cannot be kept: it ran slower than believed, or GPUs went away.
                None => {
                    record.standing = PromiseState::Refused;
                    record.is_planned = false;
                }
            }
            record.holds |= plan.runs_now(index);
        }
    }

    /// A job that ends in an instant is not stopped for the sake of the clock.
    fn let_finish(&mut self, facts: &[Facts<'_>]) {
        for one in facts.iter().filter(|one| one.job.state.planned.is_some()) {
            if let Some(record) = self.book.get_mut(one.id()) {
                record.holds = one.left <= INSTANT;
            }
        }
    }

    fn takes_part(&self, one: &Facts<'_>) -> bool {
        let record = self.book.get(one.id());
        record.is_some_and(|it| it.standing == PromiseState::Promised && it.is_planned)
    }

    /// A job that has used up what it was allowed is no part of plans any more, and first to get what is left over.
    fn put_overdue_aside(&mut self, facts: &[Facts<'_>], view: &View<'_>) {
        for one in facts {
            let ran = one.job.state.ran(view.now);
            if let Some(record) = self.book.get_mut(one.id())
                && record.standing == PromiseState::Promised
                && ran
                    >= record
                        .lane
                        .map_or(record.allowed, |lane| stretched(record.allowed, lane.slowest))
            {
                record.standing = PromiseState::Refused;
                record.is_planned = false;
                record.is_overdue = true;
            }
        }
    }

    fn demand(&self, one: &Facts<'_>, view: &View<'_>) -> Demand {
        let record = self.book.get(one.id()).expect("it takes part");
        let lease = self.settings.lease().0;
        let current = view.now.0 / lease;
        let step = |&(deadline, value): &(Time, f64)| Step {
            before: (deadline.0 / lease).saturating_sub(current).min(u64::from(u32::MAX)) as u32,
            value,
        };
        Demand {
            gpus: one.gpus,
            leases: self.leases(self.lane(one).rest).max(1),
            steps: record.steps.iter().map(step).collect(),
            prefers: one.job.state.planned.is_some(),
        }
    }

    /// A job on the type that its leases are on, also in the moment in which they were promised.
    fn lane<'a>(&self, one: &Facts<'a>) -> Facts<'a> {
        match self.book.get(one.id()).and_then(|record| record.lane) {
            Some(lane) if one.kind.is_none() => {
                Facts { kind: Some(lane.kind), rest: stretched(one.rest, lane.slowness), ..*one }
            }
            _ => *one,
        }
    }

    /// Grants the lease to the jobs that hold it; those that run stay in place.
    pub(super) fn grant_leases(&mut self, moment: &Moment<'_, '_>, offer: &mut Offer<'_>) {
        let holds = |one: &&Facts<'_>| {
            self.book.get(one.id()).is_some_and(|it| it.holds)
                && self.profiler.as_ref().is_none_or(|profiler| !profiler.has(one.id()))
        };
        let holders: Vec<Facts<'_>> =
            moment.facts.iter().filter(holds).map(|one| self.lane(one)).collect();
        let mut coming = Vec::new();
        for one in &holders {
            if offer.plan(one.id()).is_some() {
                continue;
            }
            if !is_on_own_type(one, moment.view)
                || offer.grant(&wanted(one.job)) != GrantOutcome::Taken
            {
                coming.push(*one);
            }
        }
        for &(kind, _) in moment.kinds {
            self.displace(kind, &coming, moment, offer);
        }
        let left = self.allocator.grant(&coming, moment.view, offer);
        // Where places are short, single grants may still push others aside.
        for one in left {
            self.push_aside(&one, moment, offer);
        }
    }
}

/// Whether a job runs, and on the type that its leases are on.
fn is_on_own_type(one: &Facts<'_>, view: &View<'_>) -> bool {
    let Some(planned) = &one.job.state.planned else { return false };
    let first = planned.placement.masks().first().map(|(node, _)| view.cluster().node(*node).kind);
    one.kind.is_none() || first == one.kind
}
