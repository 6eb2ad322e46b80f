//! What is free now and promised to no job makes jobs faster.

use super::guarantee::{Guarantees, unpromised};
use super::plan::{Plan, Task, grown};
use super::{Active, Settings};
use crate::levels::{Curve, Level};
use crate::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which job grows first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Leftover {
    /// Where one more GPU adds the least GPU time, as the paper proves to be best for concave curves.
    #[default]
    Paper,
    /// Where it adds the most: the sort of the authors' code.
    Artifact,
}

/// Sizes for now.
pub(super) struct Sizes {
    /// The type and number of GPUs of each job; nothing for those that wait.
    pub(super) sizes: Vec<Option<(GpuType, u32)>>,
    /// When a plan changes a size.
    pub(super) next_change: Option<Time>,
}

/// Gives what is free now to jobs: first a least size to each that has nothing, then more to those that use it well.
pub(super) fn spread(
    active: &[Active<'_>],
    guarantees: Guarantees,
    now: Time,
    settings: Settings,
) -> Sizes {
    let left = guarantees.horizons.iter().map(|(kind, line)| (*kind, line.free_at(now))).collect();
    let sizes = guarantees.plans.iter().map(|plan| {
        let (kind, plan) = plan.as_ref()?;
        Some((*kind, plan.at(now))).filter(|(_, gpus)| *gpus > 0)
    });
    let sizes = sizes.collect();
    let mut spread = Spread { active, guarantees, left, sizes, now };
    let waiting = unpromised(active, &spread.guarantees);
    spread.start(&waiting);
    if settings.resize_cost {
        spread.keep(&waiting);
    }
    match settings.leftover {
        Leftover::Paper => spread.grow_cheapest(),
        Leftover::Artifact => spread.grow_dearest(),
    }
    let plans = spread.guarantees.plans.iter().flatten();
    let next_change = plans.filter_map(|(_, plan)| plan.next_change(now)).min();
    Sizes { sizes: spread.sizes, next_change }
}

struct Spread<'a> {
    active: &'a [Active<'a>],
    guarantees: Guarantees,
    /// Free GPUs of each type at this moment.
    left: Vec<(GpuType, u32)>,
    sizes: Vec<Option<(GpuType, u32)>>,
    now: Time,
}

/// A step up that a job could take.
struct Growth {
    index: usize,
    kind: GpuType,
    to: Level,
    /// Added GPU-seconds for each added GPU.
    added: f64,
    /// Its plan after it, if it is promised one.
    plan: Option<Plan>,
}

impl Spread<'_> {
    fn left_of(&self, kind: GpuType) -> u32 {
        self.left.iter().find(|(other, _)| *other == kind).map_or(0, |(_, gpus)| *gpus)
    }

    /// Where changes cost, a job that runs gets back what it has before any job grows, if that is still free.
    fn keep(&mut self, waiting: &[usize]) {
        let promised =
            (0..self.active.len()).filter(|index| self.guarantees.plans[*index].is_some());
        let order: Vec<usize> = promised.chain(waiting.iter().copied()).collect();
        for index in order {
            let Some((kind, gpus)) = self.active[index].current else { continue };
            let curve = self.active[index].curves.iter().find(|curve| curve.kind == kind);
            let Some(level) = curve.and_then(|curve| curve.within(gpus)) else { continue };
            let same_kind = self.sizes[index].is_none_or(|(other, _)| other == kind);
            let has = self.sizes[index].map_or(0, |(_, gpus)| gpus);
            if level.gpus == gpus
                && has < gpus
                && same_kind
                && gpus - has <= self.left_of(kind)
                && let Some(growth) = self.growth(index, kind, level)
            {
                self.apply(growth);
            }
        }
    }

    /// A least size to each job that has nothing: promised jobs by deadline, then the others.
    fn start(&mut self, waiting: &[usize]) {
        let mut promised: Vec<usize> = (0..self.active.len())
            .filter(|index| self.guarantees.plans[*index].is_some())
            .collect();
        promised.sort_unstable_by_key(|&index| (self.active[index].due(), index));
        for index in promised.into_iter().chain(waiting.iter().copied()) {
            if self.sizes[index].is_some() {
                continue;
            }
            let planned_on = self.guarantees.plans[index].as_ref().map(|(kind, _)| *kind);
            let usable = self.active[index]
                .curves
                .iter()
                .filter(|curve| planned_on.is_none_or(|kind| kind == curve.kind));
            let fits = usable.filter_map(|curve| {
                let least = *curve.levels().first()?;
                (least.gpus <= self.left_of(curve.kind)).then_some((curve.kind, least))
            });
            // Its own type first: a job that runs is not moved for a speed that it would pay for with a restart.
            let here = self.active[index].current.map(|(kind, _)| kind);
            let stays = |kind: GpuType| here == Some(kind);
            let chosen = fits.max_by(|(a, first), (b, second)| {
                stays(*a).cmp(&stays(*b)).then(first.rate.total_cmp(&second.rate)).then(b.cmp(a))
            });
            if let Some((kind, least)) = chosen
                && let Some(growth) = self.growth(index, kind, least)
            {
                self.apply(growth);
            }
        }
    }

    /// Step by step where a GPU adds the least GPU time. What others take meanwhile is seen when a step is taken.
    fn grow_cheapest(&mut self) {
        let mut steps: BinaryHeap<Reverse<Step>> = BinaryHeap::new();
        for index in 0..self.active.len() {
            steps.extend(self.step(index).map(Reverse));
        }
        while let Some(Reverse(Step(growth))) = steps.pop() {
            if !self.fits(&growth) {
                continue;
            }
            let index = growth.index;
            // Others may have grown since.
            let Some(growth) = self.growth(index, growth.kind, growth.to) else { continue };
            self.apply(growth);
            steps.extend(self.step(index).map(Reverse));
        }
    }

    /// Step by step where a GPU adds the most GPU time, everything looked at anew after each.
    fn grow_dearest(&mut self) {
        let mut order: Vec<usize> = (0..self.active.len()).collect();
        order.sort_by_key(|&index| (self.active[index].due(), index));
        loop {
            let steps: Vec<Growth> =
                order.iter().filter_map(|&index| self.growth_of(index)).collect();
            let best = steps.into_iter().filter(|growth| self.fits(growth));
            // The first of equals, for the authors' sort is stable.
            let best = best.reduce(|best, next| if next.added > best.added { next } else { best });
            match best {
                Some(growth) => self.apply(growth),
                None => return,
            }
        }
    }

    fn step(&self, index: usize) -> Option<Step> {
        self.growth_of(index).map(Step)
    }

    fn fits(&self, growth: &Growth) -> bool {
        let has = self.sizes[growth.index].map_or(0, |(_, gpus)| gpus);
        growth.to.gpus > has && growth.to.gpus - has <= self.left_of(growth.kind)
    }

    /// The next step up of a job that has something.
    fn growth_of(&self, index: usize) -> Option<Growth> {
        let (kind, gpus) = self.sizes[index]?;
        let curve = self.curve(index, kind)?;
        let to = curve.above(gpus)?;
        if to.gpus - gpus > self.left_of(kind) || !self.is_worth_it(index, kind, to) {
            return None;
        }
        self.growth(index, kind, to)
    }

    /// Whether a job would be over sooner though it loses the time of the change, and is likely to keep the size for
    /// long enough.
    fn is_worth_it(&self, index: usize, kind: GpuType, to: Level) -> bool {
        let one = &self.active[index];
        let (Some((here, gpus)), true) = (one.current, one.change > Span::ZERO) else {
            return true;
        };
        let Some(now) = self.curve(index, here).and_then(|curve| curve.within(gpus)) else {
            return true;
        };
        if (here, gpus) == (kind, to.gpus) {
            return true;
        }
        let cost = one.change.as_secs_f64();
        // How long it kept a size so far is how long it is taken to keep this one.
        let kept =
            one.job.state.ran(self.now).as_secs_f64() / f64::from(one.job.state.restarts + 1);
        let gain = (to.rate - now.rate) / to.rate * kept;
        gain > cost && cost + one.work / to.rate < one.work / now.rate
    }

    /// A step of a job to a size, with its plan after it.
    fn growth(&self, index: usize, kind: GpuType, to: Level) -> Option<Growth> {
        let one = &self.active[index];
        let has = self.sizes[index].map_or(0, |(_, gpus)| gpus);
        let more = f64::from(to.gpus - has);
        let Some((planned_on, plan)) = &self.guarantees.plans[index] else {
            let time = |level: Level| one.work / level.rate * f64::from(level.gpus);
            let before = self.curve(index, kind).and_then(|curve| curve.within(has));
            let added = (time(to) - before.map_or(0.0, time)) / more;
            return Some(Growth { index, kind, to, added, plan: None });
        };
        if *planned_on != kind {
            return None;
        }
        let (_, line) = self.guarantees.horizons.iter().find(|(other, _)| *other == kind)?;
        let mut line = line.clone();
        plan.give(&mut line);
        let task = Task { curve: self.curve(index, kind)?, work: one.work, deadline: one.due()? };
        let next = grown(&task, &line, to, (self.guarantees.grid, self.guarantees.filling))?;
        let added = (next.gpu_time() - plan.gpu_time()) / more;
        Some(Growth { index, kind, to, added, plan: Some(next) })
    }

    fn apply(&mut self, growth: Growth) {
        let Growth { index, kind, to, plan, .. } = growth;
        let has = self.sizes[index].map_or(0, |(_, gpus)| gpus);
        if let Some((_, left)) = self.left.iter_mut().find(|(other, _)| *other == kind) {
            *left -= to.gpus - has;
        }
        self.sizes[index] = Some((kind, to.gpus));
        match plan {
            Some(plan) => {
                self.guarantees.withdraw(index);
                self.guarantees.put(index, kind, plan);
            }
            // Without a promise it has them for this slot alone.
            None => {
                let slot = self.guarantees.grid.slot;
                if let Some(line) = self.guarantees.horizon(kind) {
                    line.take_up_to(self.now, self.now + slot, to.gpus - has);
                }
            }
        }
    }

    fn curve(&self, index: usize, kind: GpuType) -> Option<&Curve> {
        self.active[index].curves.iter().find(|curve| curve.kind == kind)
    }
}

/// In order of added GPU time, then of jobs.
struct Step(Growth);

impl PartialEq for Step {
    fn eq(&self, other: &Step) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Step) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Step) -> std::cmp::Ordering {
        self.0.added.total_cmp(&other.0.added).then(self.0.index.cmp(&other.0.index))
    }
}
