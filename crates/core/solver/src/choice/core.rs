//! Branch and bound over the jobs that could choose otherwise.
//!
//! At the prices of the least bound, any other choice of a job than what it would buy loses something, and so does every
//! GPU that stays free. The value of choices is the bound less these losses. So a state of the search is what is used of
//! each type when some jobs have chosen and the others still stand at what they would buy, with what was lost so far;
//! of two states with the same use the lesser loss dominates (the table of a dynamic program), and a state whose losses
//! reach what separates the bound from the plan at hand is left out. A job whose every other choice loses that much
//! is fixed and no part of the core (Dantzig's reduced costs; the core is Balas' and Zemel's).
//!
//! Where states become more than the work allows, those of the greatest loss are dropped and the least loss among the
//! dropped bounds what may be missing.

use super::price::Priced;
use super::ready::Ready;
use super::round::Plan;
use super::{Aim, missing_max};

/// What a search ended with.
pub(super) struct Searched {
    /// A better plan than the one at hand.
    pub plan: Option<Plan>,
    pub bound: f64,
    pub work: u64,
}

/// Looks for a better plan than `plan`.
pub(super) fn search(ready: &Ready, priced: &Priced, plan: &Plan, aim: &Aim) -> Searched {
    let mut search = Search::new(ready, priced, plan, aim);
    let jobs = search.core();
    search.run(&jobs);
    let plan = search.best.map(|(layer, state)| search.traced(&jobs, layer, state));
    // What was dropped may have been as good as its loss says, and what was left out as good as the limit says.
    let bound = priced.bound - search.dropped.min((search.gap - search.slack).max(0.0));
    Searched { plan, bound, work: search.work }
}

/// What a job would buy or another choice of it, and what that loses.
#[derive(Clone, Debug)]
struct Turn {
    loss: f64,
    item: Option<u32>,
}

/// A job of the core.
struct CoreJob {
    job: usize,
    bought: Option<u32>,
    /// By loss.
    options: Vec<Turn>,
}

/// One state of a layer.
#[derive(Copy, Clone)]
struct State {
    /// Use of all types, packed.
    used: u64,
    loss: f64,
    /// Its place in the layer before.
    parent: u32,
    /// The option that led here.
    option: u32,
}

struct Search<'a> {
    ready: &'a Ready,
    prices: &'a [f64],
    bound: f64,
    /// What each job would buy at the prices.
    bought: Vec<Option<u32>>,
    /// A state that loses as much is no better than the plan at hand.
    gap: f64,
    /// How much of the gap the search does not try to close.
    slack: f64,
    best: Option<(usize, usize)>,
    /// The least loss among states that were dropped for want of work.
    dropped: f64,
    work: u64,
    work_max: u64,
    layers: Vec<Vec<State>>,
}

impl<'a> Search<'a> {
    fn new(ready: &'a Ready, priced: &'a Priced, plan: &Plan, aim: &Aim) -> Search<'a> {
        let bought = (0..ready.jobs()).map(|job| ready.buys(job, &priced.prices).0).collect();
        // A little less than what need not be looked for, so that the proof stands after rounding.
        let slack = 0.99 * missing_max(aim, priced.bound);
        Search {
            ready,
            prices: &priced.prices,
            bound: priced.bound,
            bought,
            gap: priced.bound - plan.value,
            slack,
            best: None,
            dropped: f64::INFINITY,
            work: 0,
            work_max: aim.work_max,
            layers: Vec::new(),
        }
    }

    /// Jobs that could choose otherwise within the gap, those that lose least by it first.
    fn core(&self) -> Vec<CoreJob> {
        let mut jobs: Vec<CoreJob> = (0..self.ready.jobs())
            .map(|job| {
                let (bought, net) = self.ready.buys(job, self.prices);
                let items = self.ready.items_of(job).map(Some);
                let all = items.chain([None]).filter(|item| *item != bought).map(|item| {
                    let own = item.map_or(0.0, |item| self.ready.item(item).net(self.prices));
                    Turn { loss: (net - own).max(0.0), item }
                });
                let mut options: Vec<Turn> =
                    all.filter(|option| option.loss < self.gap - self.slack).collect();
                options.push(Turn { loss: 0.0, item: bought });
                options.sort_by(|a, b| a.loss.total_cmp(&b.loss).then(a.item.cmp(&b.item)));
                CoreJob { job, bought, options }
            })
            .filter(|job| job.options.len() > 1)
            .collect();
        let second = |job: &CoreJob| job.options[1].loss;
        jobs.sort_by(|a, b| second(a).total_cmp(&second(b)).then(a.job.cmp(&b.job)));
        jobs
    }

    fn run(&mut self, jobs: &[CoreJob]) {
        let Some(reach) = Reach::new(self.ready, &self.bought, jobs) else {
            self.dropped = 0.0;
            return;
        };
        let start = State { used: reach.start, loss: 0.0, parent: 0, option: 0 };
        self.layers.push(vec![start]);
        let mut seen = Seen::default();
        let mut left: u64 = jobs.iter().map(|job| job.options.len() as u64).sum();
        for (place, job) in jobs.iter().enumerate() {
            if job.options[1].loss >= self.gap - self.slack {
                break;
            }
            let width = (self.work_max.saturating_sub(self.work) / left.max(1)).max(1) as usize;
            left -= job.options.len() as u64;
            let next = self.expand(job, &reach, place, (&mut seen, width));
            self.layers.push(next);
            self.look(self.layers.len() - 1, &reach);
            self.prune(&reach, place + 1);
        }
    }

    /// All states after one more job has chosen, at most `width` of them.
    fn expand(
        &mut self,
        job: &CoreJob,
        reach: &Reach,
        place: usize,
        (seen, width): (&mut Seen, usize),
    ) -> Vec<State> {
        let before = &self.layers[place];
        let limit = self.gap - self.slack;
        let bought = reach.delta(self.ready, job.bought);
        let deltas: Vec<u64> = job
            .options
            .iter()
            .map(|option| reach.delta(self.ready, option.item).wrapping_sub(bought))
            .collect();
        let mut next: Vec<State> = Vec::with_capacity(before.len() * 2);
        seen.clear(before.len() * job.options.len());
        for (parent, state) in before.iter().enumerate() {
            for (option, (choice, delta)) in job.options.iter().zip(&deltas).enumerate() {
                let loss = state.loss + choice.loss;
                if loss >= limit {
                    break;
                }
                self.work += 1;
                let used = state.used.wrapping_add(*delta);
                let new = State { used, loss, parent: parent as u32, option: option as u32 };
                match seen.place(used, next.len() as u32) {
                    Some(old) if next[old as usize].loss > loss => next[old as usize] = new,
                    Some(_) => {}
                    None => next.push(new),
                }
            }
        }
        if next.len() > width {
            let by_loss =
                |a: &State, b: &State| a.loss.total_cmp(&b.loss).then(a.used.cmp(&b.used));
            next.select_nth_unstable_by(width, by_loss);
            let least = next[width..].iter().map(|state| state.loss).fold(f64::INFINITY, f64::min);
            self.dropped = self.dropped.min(least);
            next.truncate(width);
            next.sort_by(by_loss);
        }
        next
    }

    /// Whether a state of a layer, with all further jobs at what they would buy, is a better plan.
    fn look(&mut self, layer: usize, reach: &Reach) {
        for (place, state) in self.layers[layer].iter().enumerate() {
            let mut loss = state.loss;
            let mut fits = true;
            for (kind, price) in self.prices.iter().enumerate() {
                let room = reach.room(self.ready, kind, state.used);
                fits &= room >= 0;
                loss += price * room as f64;
            }
            if fits && loss < self.gap {
                self.gap = loss;
                self.best = Some((layer, place));
            }
        }
    }

    /// Leaves out states of the newest layer from which no better plan that fits can come.
    fn prune(&mut self, reach: &Reach, place: usize) {
        let limit = self.gap - self.slack;
        let layer = self.layers.len() - 1;
        // States are pointed at by place, so the plan at hand is found again after some are gone.
        let best = self.best.filter(|(of, _)| *of == layer).map(|(_, at)| self.layers[layer][at]);
        let (ready, prices) = (self.ready, self.prices);
        self.layers[layer].retain(|state| {
            if best.is_some_and(|best| best.used == state.used) {
                return true;
            }
            let mut loss = state.loss;
            for (kind, price) in prices.iter().enumerate() {
                let room = reach.room(ready, kind, state.used);
                if room + reach.less[place][kind] < 0 {
                    return false;
                }
                // What the further jobs cannot fill stays free.
                loss += price * (room - reach.more[place][kind]).max(0) as f64;
            }
            loss < limit
        });
        if let Some(best) = best {
            let at = self.layers[layer].iter().position(|state| state.used == best.used);
            self.best = at.map(|at| (layer, at));
        }
    }

    /// The plan that a state stands for.
    fn traced(&self, jobs: &[CoreJob], layer: usize, state: usize) -> Plan {
        let mut chosen = self.bought.clone();
        let mut at = self.layers[layer][state];
        for place in (0..layer).rev() {
            let job = &jobs[place];
            chosen[job.job] = job.options[at.option as usize].item;
            at = self.layers[place][at.parent as usize];
        }
        let plan = Plan::new(self.ready, chosen);
        debug_assert!(plan.value <= self.bound + 1e-6 * self.bound.abs());
        plan
    }
}

/// How uses are packed, and how far the jobs after each place can change them.
struct Reach {
    shifts: Vec<u32>,
    masks: Vec<u64>,
    /// Packed use of what all jobs would buy.
    start: u64,
    /// By place, then type: GPUs that the jobs from there on can take more than they would buy.
    more: Vec<Vec<i64>>,
    /// The same for less.
    less: Vec<Vec<i64>>,
}

impl Reach {
    /// `None` where a use does not fit the pack.
    fn new(ready: &Ready, bought: &[Option<u32>], jobs: &[CoreJob]) -> Option<Reach> {
        let kinds = ready.kinds();
        let mut start = vec![0_i64; kinds];
        for item in bought.iter().flatten().map(|item| ready.item(*item)) {
            start[item.kind as usize] += i64::from(item.gpus);
        }
        let mut more = vec![vec![0; kinds]; jobs.len() + 1];
        let mut less = more.clone();
        for (place, job) in jobs.iter().enumerate().rev() {
            for kind in 0..kinds {
                let gpus = |item: Option<u32>| {
                    let item = item.map(|item| ready.item(item));
                    let item = item.filter(|item| item.kind as usize == kind);
                    item.map_or(0, |item| i64::from(item.gpus))
                };
                let own = gpus(job.bought);
                let all = || job.options.iter().map(|option| gpus(option.item));
                more[place][kind] = more[place + 1][kind] + all().max().unwrap_or(own) - own;
                less[place][kind] = less[place + 1][kind] + own - all().min().unwrap_or(own);
            }
        }
        let bits = |kind: usize| 64 - ((start[kind] + more[0][kind]) as u64).leading_zeros();
        let mut shifts = Vec::with_capacity(kinds);
        let mut masks = Vec::with_capacity(kinds);
        let mut shift = 0;
        for kind in 0..kinds {
            let width = bits(kind).max(1);
            if shift + width > 64 {
                return None;
            }
            shifts.push(shift);
            masks.push(if width == 64 { u64::MAX } else { (1 << width) - 1 });
            shift += width;
        }
        let packed = start.iter().zip(&shifts).map(|(used, shift)| (*used as u64) << shift);
        let start = packed.sum();
        Some(Reach { shifts, masks, start, more, less })
    }

    /// The packed use of one item.
    fn delta(&self, ready: &Ready, item: Option<u32>) -> u64 {
        item.map_or(0, |item| {
            let item = ready.item(item);
            u64::from(item.gpus) << self.shifts[item.kind as usize]
        })
    }

    /// What a use leaves free of a type; below 0 where it is too much.
    fn room(&self, ready: &Ready, kind: usize, used: u64) -> i64 {
        let used = (used >> self.shifts[kind]) & self.masks[kind];
        i64::from(ready.capacity[kind]) - used as i64
    }
}

/// Which uses a layer has already, and where: open addressing, emptied in constant time.
#[derive(Default)]
struct Seen {
    slots: Vec<(u32, u32, u64)>,
    stamp: u32,
}

impl Seen {
    /// Empties it and makes room for so many.
    fn clear(&mut self, most: usize) {
        let size = (most * 2).next_power_of_two().clamp(64, 1 << 24);
        if self.slots.len() < size {
            self.slots = vec![(0, 0, 0); size];
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// Where a use is, or nothing and it is noted as `place`.
    fn place(&mut self, used: u64, place: u32) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = (used.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let (stamp, found, key) = self.slots[at];
            if stamp != self.stamp {
                self.slots[at] = (self.stamp, place, used);
                return None;
            }
            if key == used {
                return Some(found);
            }
            at = (at + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_seen_once_in_each_layer() {
        let mut seen = Seen::default();
        seen.clear(3);
        assert_eq!(
            [(7, 0), (9, 1), (7, 2)].map(|(used, at)| seen.place(used, at)),
            [None, None, Some(0)]
        );
        seen.clear(3);
        assert_eq!(seen.place(7, 5), None);
    }
}
