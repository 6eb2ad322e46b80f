//! Choices that fit, from what the jobs would buy at given prices.

use super::price::Priced;
use super::ready::{Item, Ready};

/// Passes over all jobs that fill up what is free.
const FILLS_MAX: usize = 16;

/// Choices that fit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The item of each job.
    pub chosen: Vec<Option<u32>>,
    pub value: f64,
}

impl Plan {
    pub fn new(ready: &Ready, chosen: Vec<Option<u32>>) -> Plan {
        let value = chosen.iter().flatten().map(|item| ready.item(*item).value).sum();
        Plan { chosen, value }
    }
}

/// The best of what is bought at the prices and at slightly higher ones, made to fit and filled up.
pub(super) fn best(ready: &Ready, priced: &Priced) -> Plan {
    let plans = [1.0, 1.0 + 1e-6, 1.02].map(|factor| {
        let prices: Vec<f64> = priced.prices.iter().map(|price| price * factor).collect();
        let bought = (0..ready.jobs()).map(|job| ready.buys(job, &prices).0).collect();
        let mut draft = Draft::new(ready, bought);
        draft.repair(&priced.prices);
        draft.fill();
        Plan::new(ready, draft.chosen)
    });
    let mut plans = plans.into_iter();
    let first = plans.next().expect("three plans");
    plans.fold(first, |best, plan| if plan.value > best.value { plan } else { best })
}

/// Choices on their way to fit.
struct Draft<'a> {
    ready: &'a Ready,
    chosen: Vec<Option<u32>>,
    /// What is free of each type; below 0 where too much is chosen.
    room: Vec<i64>,
}

/// A change of one job's choice; the least `cost` comes first.
struct Move {
    cost: f64,
    job: usize,
    to: Option<u32>,
}

impl<'a> Draft<'a> {
    fn new(ready: &'a Ready, chosen: Vec<Option<u32>>) -> Draft<'a> {
        let mut room: Vec<i64> = ready.capacity.iter().map(|gpus| i64::from(*gpus)).collect();
        for item in chosen.iter().flatten().map(|item| ready.item(*item)) {
            room[item.kind as usize] -= i64::from(item.gpus);
        }
        Draft { ready, chosen, room }
    }

    /// Lets jobs go down, elsewhere or without, cheapest first by the prices, until everything fits.
    ///
    /// Every pass frees GPUs of a type that has too few, because going without is always possible.
    fn repair(&mut self, prices: &[f64]) {
        while self.room.iter().any(|room| *room < 0) {
            let mut moves: Vec<Move> = (0..self.ready.jobs())
                .filter_map(|job| self.cheapest_way_down(job, prices))
                .collect();
            moves.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.job.cmp(&b.job)));
            for Move { job, to, .. } in moves {
                let from = self.chosen[job].map(|item| self.ready.item(item));
                if from.is_some_and(|from| self.room[from.kind as usize] < 0)
                    && to.is_none_or(|to| self.fits(from, self.ready.item(to), true))
                {
                    self.change(job, to);
                }
            }
        }
    }

    fn cheapest_way_down(&self, job: usize, prices: &[f64]) -> Option<Move> {
        let from = self.ready.item(self.chosen[job]?);
        let excess = -self.room[from.kind as usize];
        if excess <= 0 {
            return None;
        }
        let cost = |net: f64, freed: u32| {
            let freed = i64::from(freed).min(excess) as f64;
            (from.net(prices) - net).max(0.0) / freed.max(1.0)
        };
        let mut best = Move { cost: cost(0.0, from.gpus), job, to: None };
        for to in self.ready.items_of(job) {
            let item = self.ready.item(to);
            let same = item.kind == from.kind;
            let lower = if same { item.gpus < from.gpus } else { self.fits(None, item, false) };
            if !lower {
                continue;
            }
            let cost = cost(item.net(prices), if same { from.gpus - item.gpus } else { from.gpus });
            if cost < best.cost {
                best = Move { cost, job, to: Some(to) };
            }
        }
        Some(best)
    }

    /// Whether there is room for `to` when `from` is given up; going down always fits while all is made to fit.
    fn fits(&self, from: Option<&Item>, to: &Item, down: bool) -> bool {
        let own = from.filter(|from| from.kind == to.kind).map_or(0, |from| i64::from(from.gpus));
        let more = i64::from(to.gpus) - own;
        down && own > 0 && more < 0 || more <= self.room[to.kind as usize]
    }

    /// Lets jobs have what is free, the most valuable for its GPUs first.
    fn fill(&mut self) {
        for _ in 0..FILLS_MAX {
            let mut moves: Vec<Move> =
                (0..self.ready.jobs()).filter_map(|job| self.best_way_up(job)).collect();
            if moves.is_empty() {
                break;
            }
            moves.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.job.cmp(&b.job)));
            for Move { job, to, .. } in moves {
                let from = self.chosen[job].map(|item| self.ready.item(item));
                if to.is_some_and(|to| self.fits(from, self.ready.item(to), false)) {
                    self.change(job, to);
                }
            }
        }
    }

    fn best_way_up(&self, job: usize) -> Option<Move> {
        let from = self.chosen[job].map(|item| self.ready.item(item));
        let value = from.map_or(0.0, |from| from.value);
        let mut best: Option<Move> = None;
        for to in self.ready.items_of(job) {
            let item = self.ready.item(to);
            if item.value <= value || !self.fits(from, item, false) {
                continue;
            }
            let cost = (value - item.value) / f64::from(item.gpus.max(1));
            if best.as_ref().is_none_or(|best| cost < best.cost) {
                best = Some(Move { cost, job, to: Some(to) });
            }
        }
        best
    }

    fn change(&mut self, job: usize, to: Option<u32>) {
        if let Some(from) = self.chosen[job].map(|item| self.ready.item(item)) {
            self.room[from.kind as usize] += i64::from(from.gpus);
        }
        if let Some(to) = to.map(|item| self.ready.item(item)) {
            self.room[to.kind as usize] -= i64::from(to.gpus);
        }
        self.chosen[job] = to;
    }
}
