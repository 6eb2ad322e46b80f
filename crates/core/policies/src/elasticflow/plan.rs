//! How many GPUs a job gets when: the least that meets its deadline, by progressive filling.

use crate::horizon::Horizon;
use crate::levels::{Curve, Level};
use crate::prelude::*;

/// Work counts as done when less than this part of it is missing: sums of parts are not exact.
const DONE: f64 = 1e-9;

/// Slots of equal length from the moment of a decision on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) now: Time,
    pub(crate) slot: Span,
}

impl Grid {
    /// The first end of a slot that is not before a moment.
    pub(crate) fn up(&self, at: Time) -> Time {
        let slots = at.since(self.now).0.div_ceil(self.slot.0.max(1));
        self.now + self.slot.times(slots)
    }
}

/// Where a plan may go from one size to the next.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Filling {
    /// At the end of any slot, as late as the deadline allows.
    #[default]
    Slots,
    /// Only where the number of free GPUs changes: the authors' code.
    Events,
}

/// What a job needs.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) curve: &'a Curve,
    pub(crate) work: f64,
    pub(crate) deadline: Time,
}

/// So many GPUs for so long.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) gpus: u32,
}

/// Parts in order of time, without gaps but those in which the job has nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// Until when the GPUs of the last part are counted, if that is not its end.
    counted_to: Option<Time>,
}

impl Plan {
    /// GPUs at a moment.
    pub(crate) fn at(&self, at: Time) -> u32 {
        let here = self.parts.iter().find(|part| part.from <= at && at < part.to);
        here.map_or(0, |part| part.gpus)
    }

    /// GPU-seconds in all.
    pub(crate) fn gpu_time(&self) -> f64 {
        let time = |part: &Part| part.to.since(part.from).as_secs_f64() * f64::from(part.gpus);
        let beyond = self
            .parts
            .last()
            .zip(self.counted_to)
            .map_or(0.0, |(last, to)| to.since(last.to).as_secs_f64() * f64::from(last.gpus));
        self.parts.iter().map(time).sum::<f64>() + beyond
    }

    /// The first change after a moment, other than its end.
    pub(crate) fn next_change(&self, at: Time) -> Option<Time> {
        let first = self.parts.first().map(|part| part.from).into_iter();
        // A gap is a change to nothing.
        let later = self.parts.windows(2).map(|two| two[0].to);
        first.chain(later).find(|change| *change > at)
    }

    /// Takes its GPUs from what is free.
    pub(crate) fn take(&self, horizon: &mut Horizon) {
        for part in &self.parts {
            horizon.take(part.from, part.to, part.gpus);
        }
    }

    /// Gives its GPUs back.
    pub(crate) fn give(&self, horizon: &mut Horizon) {
        for part in &self.parts {
            horizon.give(part.from, part.to, part.gpus);
        }
    }

    /// The end of the stretch in which the plan ends, if something is free to change there before the deadline: the
    /// authors' code counts GPU time up to it.
    fn stretch_over(&self, horizon: &Horizon, aligned: Time) -> Option<Time> {
        let end = self.parts.last()?.to;
        horizon.next_change(Time(end.0 - 1)).filter(|change| *change < aligned)
    }

    fn push(&mut self, part: Part) {
        match self.parts.last_mut() {
            Some(last) if last.gpus == part.gpus && last.to == part.from => last.to = part.to,
            _ => self.parts.push(part),
        }
    }
}

/// The minimum satisfactory share (ElasticFlow, section 4.1): the lowest size at which a job meets its deadline on what
/// is free, from a moment on. The size below it is kept as long as it may be. Nothing if no size suffices.
///
/// O(l s) for l sizes and s steps of the horizon before the deadline.
pub(crate) fn least_share(
    task: &Task<'_>,
    horizon: &Horizon,
    from: Time,
    (grid, filling): (Grid, Filling),
) -> Option<Plan> {
    let mut below: Option<Level> = None;
    for &level in task.curve.levels() {
        let turn = match filling {
            Filling::Slots => turn_by_slots(task, horizon, from, (grid, level, below)),
            Filling::Events => turn_by_events(task, horizon, from, (grid, level)),
        };
        if let Some(turn) = turn {
            let mut plan = forward(task, horizon, from, (grid, level, below, turn))?;
            if filling == Filling::Events {
                plan.counted_to = plan.stretch_over(horizon, grid.up(task.deadline));
            }
            return Some(plan);
        }
        below = Some(level);
    }
    None
}

/// More GPUs in the present part and the least share after it: what it would mean to grow a job now.
pub(crate) fn grown(
    task: &Task<'_>,
    horizon: &Horizon,
    gpus: Level,
    (grid, filling): (Grid, Filling),
) -> Option<Plan> {
    let now = grid.now;
    let aligned = grid.up(task.deadline);
    let next = match filling {
        Filling::Slots => now + grid.slot,
        Filling::Events => horizon.next_change(now).unwrap_or(aligned),
    };
    let next = next.min(aligned);
    if horizon.between(now, next).any(|stretch| stretch.free < gpus.gpus) {
        return None;
    }
    let whole = Span::from_secs_f64(task.work / gpus.rate);
    let end = grid.up(now + whole);
    if end <= next && now + whole <= task.deadline {
        let only = Part { from: now, to: end, gpus: gpus.gpus };
        return Some(Plan { parts: vec![only], counted_to: None });
    }
    let until = if next == aligned { task.deadline } else { next };
    let done = gpus.rate * until.since(now).as_secs_f64();
    let rest = Task { work: task.work - done, ..*task };
    let first = Part { from: now, to: next, gpus: gpus.gpus };
    if rest.work <= task.work * DONE {
        return Some(Plan { parts: vec![first], counted_to: None });
    }
    let after = least_share(&rest, horizon, next, (grid, filling))?;
    let mut plan = Plan { parts: vec![first], counted_to: after.counted_to };
    after.parts.into_iter().for_each(|part| plan.push(part));
    Some(plan)
}

/// The start of the earliest stretch from which a size alone suffices until the deadline.
fn turn_by_events(
    task: &Task<'_>,
    horizon: &Horizon,
    from: Time,
    (grid, level): (Grid, Level),
) -> Option<Time> {
    let aligned = grid.up(task.deadline);
    let mut sum = 0.0;
    for stretch in horizon.between(from, aligned).rev() {
        let Some(here) = task.curve.within(stretch.free.min(level.gpus)) else { continue };
        let to = if stretch.to == aligned { task.deadline } else { stretch.to };
        sum += here.rate * to.since(stretch.from).as_secs_f64();
        if sum >= task.work * (1.0 - DONE) {
            return Some(stretch.from);
        }
    }
    None
}

/// The latest end of a slot at which a job must pass from the size below to this one.
fn turn_by_slots(
    task: &Task<'_>,
    horizon: &Horizon,
    from: Time,
    (grid, level, below): (Grid, Level, Option<Level>),
) -> Option<Time> {
    let rate = |free: u32, level: Option<Level>| {
        let most = level.map_or(0, |level| level.gpus.min(free));
        task.curve.within(most).map_or(0.0, |here| here.rate)
    };
    let stretches = || horizon.between(from, task.deadline);
    let low: f64 =
        stretches().map(|one| rate(one.free, below) * one.to.since(one.from).as_secs_f64()).sum();
    let mut missing = task.work * (1.0 - DONE) - low;
    if missing <= 0.0 {
        return Some(grid.up(task.deadline));
    }
    for stretch in stretches().rev() {
        let gain = rate(stretch.free, Some(level)) - rate(stretch.free, below);
        let length = stretch.to.since(stretch.from).as_secs_f64();
        if gain > 0.0 && gain * length >= missing {
            let need = Span::from_secs_f64(missing / gain);
            // Whole slots of the grid, as late as they suffice.
            let latest = stretch.to.0.saturating_sub(need.0).max(grid.now.0);
            let slots = Time(latest).since(grid.now).0 / grid.slot.0.max(1);
            return Some((grid.now + grid.slot.times(slots)).max(stretch.from));
        }
        missing -= gain.max(0.0) * length;
    }
    None
}

/// The lower size until the turn, the higher one after it, as far as there are GPUs, until the work is done.
fn forward(
    task: &Task<'_>,
    horizon: &Horizon,
    from: Time,
    (grid, level, below, turn): (Grid, Level, Option<Level>, Time),
) -> Option<Plan> {
    let mut plan = Plan::default();
    let mut left = task.work;
    let aligned = grid.up(task.deadline);
    let before = horizon.between(from, turn.min(aligned)).map(|stretch| (stretch, below));
    let after = horizon.between(turn.max(from), aligned).map(|stretch| (stretch, Some(level)));
    for (stretch, level) in before.chain(after) {
        let most = level.map_or(0, |level| level.gpus.min(stretch.free));
        let Some(here) = task.curve.within(most) else { continue };
        let to = if stretch.to == aligned { task.deadline } else { stretch.to };
        let done = here.rate * to.since(stretch.from).as_secs_f64();
        if done >= left - task.work * DONE {
            let need = Span::from_secs_f64(left / here.rate);
            let end = grid.up(stretch.from + need).min(stretch.to).max(stretch.from + Span(1));
            plan.push(Part { from: stretch.from, to: end, gpus: here.gpus });
            return Some(plan);
        }
        left -= done;
        plan.push(Part { from: stretch.from, to: stretch.to, gpus: here.gpus });
    }
    None
}
