//! The search over prices.
//!
//! At a price, the level that all jobs together can pay for with the worth of all GPUs is an upper bound on the optimum:
//! jobs that fit into the GPUs can pay. The bound is quasiconvex in the price, and what jobs ask for at a price cuts
//! off all prices whose bound is not lower. The mix of past demands that fits best gives the next price, and when it
//! fits altogether it is an optimal answer: every demand in it gives each job at least its need at the lowest bound.

use super::game::{Best, Game};
use super::hull::Ready;
use super::path::{Clock, Deadlines, Path, Straight};
use super::pool::{Fractions, Pool};
use crate::{Limit, Status};

/// The search over prices, which starts from the prices it ended with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Market {
    /// Prices of a GPU of each type from the last solve.
    pub(super) prices: Vec<f64>,
}

/// A mix may ask for this much more than there is; it is scaled down by that much in the end.
const OVER: f64 = 1e-11;
/// Bound on steps, whatever the limit says.
pub(super) const STEPS_MAX: u64 = 5_000;
/// A search that has not come nearer for so many steps has met the end of its precision.
pub(super) const STALLED_MAX: u64 = 200;

/// Where a search ended.
pub(super) struct Summit {
    pub level: f64,
    /// Prices of whole types that no higher level can be paid for at; all 0 where jobs and not GPUs are the bound.
    pub prices: Vec<f64>,
    /// What was tried and is in the mix, with its weight.
    pub mix: Vec<(Tried, f64)>,
    /// By how much the mix asks for more than there is.
    pub over: f64,
    pub steps: u64,
}

/// Prices, and the level at which jobs were asked for their demand.
#[derive(Clone)]
pub(super) struct Tried {
    prices: Vec<f64>,
    level: f64,
}

impl Market {
    /// A search that knows nothing yet.
    pub fn new() -> Market {
        Market::default()
    }

    /// Forgets the prices.
    pub fn forget(&mut self) {
        self.prices.clear();
    }

    /// Makes the lowest ratio of rate and part as large as it can be.
    ///
    /// Every job gets that ratio and no more; GPUs beyond that stay free. Weights and normalisation belong into the parts.
    ///
    /// ```
    /// use trainyard_solver::{Limit, shares::{Market, Pool}};
    ///
    /// // Two jobs on one fast and one slow GPU: the first gains more from the fast one.
    /// let pool = Pool::dense(&[1.0, 1.0], &[1.0, 1.0], &[4.0, 1.0, 2.0, 1.0]);
    /// let found = Market::new().max_min(&pool, &[1.0, 1.0], &Limit::steps(1000));
    /// assert!((found.level - 1.75).abs() < 1e-9);
    /// ```
    pub fn max_min(&mut self, pool: &Pool, parts: &[f64], limit: &Limit) -> Fractions {
        let ready = Ready::new(pool);
        let (parts, left_out) = partakers(&ready, parts);
        let fits = |(job, part): (usize, &f64)| ready.fastest(job) / part;
        let risers = parts.iter().enumerate().filter(|(_, part)| **part > 0.0);
        let ceiling = risers.map(fits).fold(f64::INFINITY, f64::min);
        let path = Straight { parts: &parts, ceiling };
        let summit = self.climb(&ready, &path, limit);
        finish(pool, &ready, &path, summit, left_out)
    }

    /// Makes the time until the last job is done as short as it can be, given the work left of each.
    ///
    /// The level is that time in seconds; it is infinite where no job can run, and 0 where there is nothing to do.
    pub fn makespan(&mut self, pool: &Pool, work: &[f64], limit: &Limit) -> Fractions {
        let mut found = self.max_min(pool, work, limit);
        found.level = if found.level > 0.0 { 1.0 / found.level } else { f64::INFINITY };
        if found.left_out.len() == pool.jobs() && pool.jobs() > 0 {
            found.level = if work.iter().any(|work| *work > 0.0) { f64::INFINITY } else { 0.0 };
        }
        found
    }

    /// Makes the largest ratio of time in all and time alone as small as it can be; the level is that ratio.
    pub fn finish_time(&mut self, pool: &Pool, clocks: &[Clock], limit: &Limit) -> Fractions {
        let ready = Ready::new(pool);
        let sound = |clock: &Clock| {
            let positive = clock.left > 0.0 && clock.left.is_finite() && clock.alone > 0.0;
            let known = clock.alone.is_finite() && clock.since >= 0.0 && clock.since.is_finite();
            if positive && known { clock.left } else { 0.0 }
        };
        let (left, left_out) = partakers(&ready, &clocks.iter().map(sound).collect::<Vec<f64>>());
        let none = Clock { since: 0.0, left: 0.0, alone: 1.0 };
        let clock = |(job, &left): (usize, &f64)| if left > 0.0 { clocks[job] } else { none };
        let clocks: Vec<Clock> = left.iter().enumerate().map(clock).collect();
        let best = |(job, clock): (usize, &Clock)| match clock.left > 0.0 {
            true => clock.alone / (clock.since + clock.left / ready.fastest(job)),
            false => f64::INFINITY,
        };
        let ceiling = clocks.iter().enumerate().map(best).fold(f64::INFINITY, f64::min);
        let path = Deadlines { clocks: &clocks, ceiling };
        let summit = self.climb(&ready, &path, limit);
        let mut found = finish(pool, &ready, &path, summit, left_out);
        found.level = if found.level > 0.0 { 1.0 / found.level } else { 0.0 };
        found
    }

    /// Fractions that give every job at least a rate, if there are any. A rate that is not positive asks for nothing.
    pub fn afford(&mut self, pool: &Pool, rates: &[f64], limit: &Limit) -> Option<Fractions> {
        let found = self.max_min(pool, rates, limit);
        let asks = |job: &usize| rates.get(*job).is_some_and(|rate| *rate > 0.0);
        // Half of the tolerance of a general engine.
        (found.level >= 1.0 - 5e-10 && !found.left_out.iter().any(asks)).then_some(found)
    }

    /// The highest level of a path that the GPUs can carry.
    pub(super) fn climb(&mut self, ready: &Ready, path: &dyn Path, limit: &Limit) -> Summit {
        let mut search = Search::new(ready, path);
        let mut prices = ready.whole_prices(&self.prices);
        let mut game = Game::new(ready.kinds);
        let mut summit = Summit {
            level: 0.0,
            prices: vec![0.0; ready.kinds],
            mix: Vec::new(),
            over: f64::INFINITY,
            steps: 0,
        };
        if !search.level.is_finite() || ready.kinds == 0 {
            return Summit { over: 0.0, ..summit };
        }
        let mut tried: Vec<Tried> = Vec::new();
        let steps_max = limit.steps.clamp(1, STEPS_MAX);
        let mut nearest = (f64::INFINITY, 0);
        while summit.steps < steps_max && summit.steps < nearest.1 + STALLED_MAX {
            summit.steps += 1;
            let (usage, lower) = search.offer(&prices);
            tried.push(Tried { prices: prices.clone(), level: search.level });
            if lower {
                summit.prices.clone_from(&prices);
            }
            let Some(Best { fullest, prices: next, weights }) = game.add(usage) else { break };
            summit.over = fullest - 1.0;
            if lower || summit.over < nearest.0 {
                nearest = (summit.over, summit.steps);
            }
            summit.mix = weights.iter().map(|&(of, weight)| (tried[of].clone(), weight)).collect();
            if summit.over <= OVER {
                break;
            }
            prices = next;
        }
        summit.level = search.level;
        self.prices = ready.gpu_prices(&summit.prices);
        summit
    }
}

/// The lowest bound so far, and what is needed to lower it.
struct Search<'a> {
    ready: &'a Ready,
    path: &'a dyn Path,
    level: f64,
    costs: Vec<f64>,
    need: Vec<f64>,
    slope: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(ready: &'a Ready, path: &'a dyn Path) -> Search<'a> {
        let none = vec![0.0; ready.jobs()];
        let level = path.ceiling();
        Search { ready, path, level, costs: Vec::new(), need: none.clone(), slope: none }
    }

    /// Lowers the bound if these prices do, and gives what jobs ask for at them.
    fn offer(&mut self, prices: &[f64]) -> (Vec<f64>, bool) {
        self.ready.costs(prices, &mut self.costs);
        let budget = 1.0;
        let (mut low, mut high) = (0.0, self.level);
        let mut at = self.level;
        let mut lower = false;
        // Newton's steps from above; where the path bends the wrong way, halves keep them inside.
        for _ in 0..100 {
            self.path.needs(at, &mut self.need, &mut self.slope);
            let demand = self.ready.demand(&self.costs, &self.need, &self.slope);
            let over = demand.cost - budget;
            if over <= 1e-13 && (at == self.level || over >= -1e-13) || high - low <= 1e-15 * high {
                self.level = at;
                return (demand.usage, lower);
            }
            lower = true;
            if over > 0.0 {
                high = at
            } else {
                low = at
            }
            let newton = at - over / demand.slope;
            let inside = newton > low && newton < high;
            at = if inside { newton } else { 0.5 * (low + high) };
        }
        self.path.needs(high, &mut self.need, &mut self.slope);
        self.level = high;
        (self.ready.demand(&self.costs, &self.need, &self.slope).usage, lower)
    }
}

/// Parts with 0 for jobs that take no part, and the list of these.
pub(super) fn partakers(ready: &Ready, parts: &[f64]) -> (Vec<f64>, Vec<usize>) {
    let part = |job: usize| {
        let part = parts.get(job).copied().unwrap_or(0.0);
        let ratio = ready.fastest(job) / part;
        if part > 0.0 && ratio > 0.0 && ratio.is_finite() { part } else { 0.0 }
    };
    let kept: Vec<f64> = (0..ready.jobs()).map(part).collect();
    let left_out = (0..ready.jobs()).filter(|job| kept[*job] == 0.0).collect();
    (kept, left_out)
}

/// The mix as fractions, scaled to what there is.
pub(super) fn finish(
    pool: &Pool,
    ready: &Ready,
    path: &dyn Path,
    summit: Summit,
    left_out: Vec<usize>,
) -> Fractions {
    let mut fractions = vec![0.0; pool.ways.len()];
    let mut need = vec![0.0; ready.jobs()];
    let mut slope = need.clone();
    path.needs(summit.level, &mut need, &mut slope);
    let mut costs = Vec::new();
    let mut asked = need.clone();
    for (Tried { prices, level }, weight) in &summit.mix {
        // The very demand that is in the mix, scaled down where the level has sunk since: made anew at the new level,
        // ties could fall another way and the mix no longer fit.
        path.needs(*level, &mut asked, &mut slope);
        ready.costs(prices, &mut costs);
        ready.spread(&costs, (&asked, &need), *weight, &mut fractions);
    }
    let mut found = assembled(pool, fractions, ready.gpu_prices(&summit.prices), left_out);
    found.level *= summit.level;
    found.steps = summit.steps;
    found
}

/// Fractions scaled to what there is, with the rates they give; the level is the factor of that scaling.
pub(super) fn assembled(
    pool: &Pool,
    mut fractions: Vec<f64>,
    prices: Vec<f64>,
    left_out: Vec<usize>,
) -> Fractions {
    let fit = fit(pool, &mut fractions);
    let status = match 1.0 - fit {
        gap if gap <= 1e-9 => Status::Proven,
        gap => Status::Feasible { gap },
    };
    let rate = |job: usize| {
        let ways = (pool.starts[job]..pool.starts[job + 1]).filter(|way| fractions[*way] > 0.0);
        ways.fold(0.0, |sum, way| sum + fractions[way] * pool.ways[way].rate)
    };
    let rates = (0..pool.jobs()).map(rate).collect();
    Fractions { status, level: fit, rates, of: fractions, prices, left_out, steps: 0 }
}

/// Scales fractions down to the GPUs and the time there is, and gives the factor.
fn fit(pool: &Pool, fractions: &mut [f64]) -> f64 {
    let mut usage = vec![0.0; pool.kinds()];
    let mut longest: f64 = 1.0;
    for job in 0..pool.jobs() {
        let parts = &fractions[pool.starts[job]..pool.starts[job + 1]];
        longest = longest.max(parts.iter().sum());
        for (part, way) in parts.iter().zip(pool.ways(job)).filter(|(part, _)| **part > 0.0) {
            for (kind, gpus) in way.uses.iter().filter(|(_, gpus)| *gpus > 0.0) {
                usage[*kind] += part * gpus;
            }
        }
    }
    let full = usage.iter().zip(&pool.capacity).filter(|(used, _)| **used > 0.0);
    let fullest = full.map(|(used, gpus)| used / gpus).fold(longest, f64::max);
    if fullest > 1.0 {
        fractions.iter_mut().for_each(|fraction| *fraction /= fullest);
    }
    1.0 / fullest
}
