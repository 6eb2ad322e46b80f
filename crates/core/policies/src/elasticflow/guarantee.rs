//! Which jobs can be promised a deadline, and what each needs for it.

use super::plan::{Filling, Grid, Plan, Task, least_share};
use super::{Active, Settings};
use crate::horizon::Horizon;
use crate::levels::Curve;
use crate::prelude::*;
use std::cmp::Reverse;

/// What is free from now on, type by type, and what is promised of it.
pub(super) struct Guarantees {
    pub(super) grid: Grid,
    pub(super) filling: Filling,
    /// What is free beside all promises.
    pub(super) horizons: Vec<(GpuType, Horizon)>,
    /// GPUs of each type.
    capacities: Vec<(GpuType, u32)>,
    /// The promised plan of each job and the type it is on; nothing for jobs that are promised nothing.
    pub(super) plans: Vec<Option<(GpuType, Plan)>>,
}

impl Guarantees {
    /// All GPUs but those of jobs that cannot be stopped, for as long as these are expected to need them.
    pub(super) fn new(view: &View<'_>, kinds: &[(GpuType, u32)], settings: Settings) -> Guarantees {
        let now = view.now;
        let mut horizons: Vec<(GpuType, Horizon)> =
            kinds.iter().map(|&(kind, gpus)| (kind, Horizon::new(now, gpus))).collect();
        for job in view.granted().filter(|job| !view.may_stop(*job)) {
            let until = view.time_to_end(job).map_or(Time::NEVER, |left| now + left.max(Span(1)));
            let masks = job.state.planned.iter().flat_map(|planned| planned.placement.masks());
            for (node, mask) in masks {
                let kind = view.cluster().node(*node).kind;
                if let Some((_, line)) = horizons.iter_mut().find(|(other, _)| *other == kind) {
                    line.take_up_to(now, until, mask.count_ones());
                }
            }
        }
        Guarantees {
            grid: Grid { now, slot: settings.slot },
            filling: settings.filling,
            horizons,
            capacities: kinds.to_vec(),
            plans: Vec::new(),
        }
    }

    /// Promises deadlines, earliest first. Where not all can be kept, the newest job among those due by then is left
    /// out, so that what was promised before stays so.
    ///
    /// O(n l s) for n jobs with l sizes and s ends of plans, twice if an earlier one is left out for a later one.
    pub(super) fn promised(mut self, active: &[Active<'_>]) -> Guarantees {
        self.plans = vec![None; active.len()];
        let mut order: Vec<usize> = (0..active.len())
            .filter(|&index| {
                let due = active[index].due();
                due.is_some_and(|due| due > self.grid.now)
                    && active[index].lateness(self.grid.now) == Span::ZERO
            })
            .collect();
        order.sort_unstable_by_key(|&index| (active[index].due(), active[index].job.id()));
        let empty = self.horizons.clone();
        let mut left_out = vec![false; active.len()];
        let mut gaps = false;
        for place in 0..order.len() {
            let index = order[place];
            while !left_out[index] && !self.promise(index, active) {
                let newest = order[..=place].iter().copied().filter(|other| !left_out[*other]);
                let by_age =
                    |other: &usize| (active[*other].job.spec.submitted, active[*other].job.id());
                let newest = newest.max_by_key(by_age).unwrap_or(index);
                left_out[newest] = true;
                gaps |= newest != index;
                self.withdraw(newest);
            }
        }
        if gaps {
            // Those between were planned around one that is gone.
            self.horizons = empty;
            self.plans = vec![None; active.len()];
            for index in order.into_iter().filter(|index| !left_out[*index]) {
                self.promise(index, active);
            }
        }
        self
    }

    /// The line of a type.
    pub(super) fn horizon(&mut self, kind: GpuType) -> Option<&mut Horizon> {
        self.horizons.iter_mut().find(|(other, _)| *other == kind).map(|(_, line)| line)
    }

    /// Takes a promise back.
    pub(super) fn withdraw(&mut self, index: usize) {
        if let Some((kind, plan)) = self.plans[index].take()
            && let Some(line) = self.horizon(kind)
        {
            plan.give(line);
        }
    }

    /// Promises a plan.
    pub(super) fn put(&mut self, index: usize, kind: GpuType, plan: Plan) {
        if let Some(line) = self.horizon(kind) {
            plan.take(line);
        }
        self.plans[index] = Some((kind, plan));
    }

    /// Promises one job its least share: where it runs if that suffices, else on the type of which it takes the
    /// smallest part.
    fn promise(&mut self, index: usize, active: &[Active<'_>]) -> bool {
        let one = &active[index];
        let here = one.current.map(|(kind, _)| kind);
        let plan_on = |curve: &Curve| {
            let (_, line) = self.horizons.iter().find(|(kind, _)| *kind == curve.kind)?;
            let task = Task { curve, work: one.work, deadline: one.due()? };
            let plan = least_share(&task, line, self.grid.now, (self.grid, self.filling))?;
            Some((curve.kind, plan))
        };
        let part_of_type = |kind: GpuType, plan: &Plan| {
            let all = self.capacities.iter().find(|(other, _)| *other == kind);
            plan.gpu_time() / f64::from(all.map_or(1, |(_, gpus)| *gpus))
        };
        let plans = one.curves.iter().filter_map(plan_on);
        let best = plans.min_by(|(a, first), (b, second)| {
            let moves = Some(*a) != here;
            moves.cmp(&(Some(*b) != here)).then_with(|| {
                part_of_type(*a, first).total_cmp(&part_of_type(*b, second)).then(a.cmp(b))
            })
        });
        match best {
            Some((kind, plan)) => {
                self.put(index, kind, plan);
                true
            }
            None => false,
        }
    }
}

/// Jobs that are promised nothing, in the order in which they get what is left: those that are late anyway by their
/// deadlines, then by submission.
pub(super) fn unpromised(active: &[Active<'_>], guarantees: &Guarantees) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..active.len()).filter(|index| guarantees.plans[*index].is_none()).collect();
    order.sort_unstable_by_key(|&index| {
        let one = &active[index];
        let deadline = one.deadline.unwrap_or(Time::NEVER);
        // A job that runs is not stopped for one that is like it.
        (deadline, Reverse(one.current.is_some()), one.job.spec.submitted, one.job.id())
    });
    order
}
