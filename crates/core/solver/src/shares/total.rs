//! The largest sum.
//!
//! At prices, every job takes what is worth most to it after payment. Answers of all jobs to a price are mixed, as in
//! the search for a level; the mix that fits and is worth most gives the next prices (Dantzig and Wolfe, 1960), until
//! no answer is worth more than its place in the mix.

use super::basis::{Basis, Column, Entered};
use super::hull::Ready;
use super::market::{Market, STALLED_MAX, STEPS_MAX, assembled};
use super::pool::{Fractions, Pool};
use crate::{Limit, Status};

/// An answer that gains less than this part of the sum is not taken in.
const GAIN_MIN: f64 = 1e-11;

impl Market {
    /// Makes the sum of worth and time as large as it can be; the level is that sum.
    ///
    /// `worth` has one number for each way of the pool: its rate for throughput, its rate over the price of its GPUs for
    /// cost. `floors` has a least rate for some or all jobs. `None` where the floors cannot be kept.
    ///
    /// ```
    /// use trainyard_solver::{Limit, shares::{Market, Pool}};
    ///
    /// let pool = Pool::dense(&[1.0, 1.0], &[1.0, 1.0], &[4.0, 1.0, 2.0, 1.0]);
    /// let found = Market::new().max_sum(&pool, &[4.0, 1.0, 2.0, 1.0], &[], &Limit::steps(100)).unwrap();
    /// assert!((found.level - 5.0).abs() < 1e-9, "the first on the fast GPU, the second on the slow one");
    /// ```
    pub fn max_sum(
        &mut self,
        pool: &Pool,
        worth: &[f64],
        floors: &[f64],
        limit: &Limit,
    ) -> Option<Fractions> {
        let ready = Ready::new(pool);
        let floor = |job: usize| floors.get(job).copied().filter(|f| f.is_finite()).unwrap_or(0.0);
        let floors: Vec<f64> = (0..ready.jobs()).map(floor).collect();
        let kept = match floors.iter().any(|floor| *floor > 0.0) {
            true => self.least(pool, &floors, limit)?,
            false => vec![0.0; pool.ways.len()],
        };
        let value = |way: usize| worth.get(way).copied().filter(|w| w.is_finite()).unwrap_or(0.0);
        let worth: Vec<f64> = (0..pool.ways.len()).map(value).collect();
        // In parts of the largest, so that no unit is too large or too small to count in.
        let largest = worth.iter().copied().map(f64::abs).fold(0.0, f64::max);
        let scale = if largest > 0.0 { largest } else { 1.0 };
        let worth: Vec<f64> = worth.iter().map(|worth| worth / scale).collect();
        let trade = Trade { ready: &ready, worth: &worth, floors: &floors };
        let Settled { fractions, prices, gap, steps } = trade.settle(kept, limit);
        let sum: f64 = fractions.iter().zip(&worth).map(|(part, worth)| part * worth).sum();
        let idle = (0..ready.jobs()).filter(|job| ready.fastest(*job) == 0.0).collect();
        let mut found = assembled(pool, fractions, ready.gpu_prices(&prices), idle);
        found.level = sum * scale;
        found.steps = steps;
        found.status = if gap <= 1e-9 { Status::Proven } else { Status::Feasible { gap } };
        Some(found)
    }
}

/// What a trade ended with.
struct Settled {
    fractions: Vec<f64>,
    /// Prices of whole types, which sum to 1 unless all are 0.
    prices: Vec<f64>,
    /// What part of the sum may be missing.
    gap: f64,
    steps: u64,
}

impl Market {
    /// Fractions that keep floors and no more, so that there is room to begin with.
    fn least(&mut self, pool: &Pool, floors: &[f64], limit: &Limit) -> Option<Vec<f64>> {
        let found = self.afford(pool, floors, limit)?;
        let scale = 1.0 / found.level.max(1.0);
        Some(found.of.iter().map(|part| part * scale).collect())
    }
}

struct Trade<'a> {
    ready: &'a Ready,
    worth: &'a [f64],
    floors: &'a [f64],
}

/// The answer of all jobs to prices: what it is worth, what it takes of each type, and, if wanted, the fractions.
struct Answer {
    worth: f64,
    usage: Vec<f64>,
    fractions: Vec<(usize, f64)>,
}

impl Trade<'_> {
    /// The best mix, from fractions that fit.
    fn settle(&self, kept: Vec<f64>, limit: &Limit) -> Settled {
        let kinds = self.ready.kinds;
        let mut answers = vec![self.count(&kept)];
        let rest =
            (0..kinds).map(|kind| Column { id: kind, worth: 0.0, entries: vec![(kind, 1.0)] });
        let members = rest.chain([column(kinds, &answers[0])]).collect();
        let Some(mut basis) = Basis::new(members, vec![1.0; kinds + 1]) else {
            return Settled { fractions: kept, prices: vec![0.0; kinds], gap: 1.0, steps: 0 };
        };
        let (mut gap, mut steps) = (1.0, 0);
        // The sum so far, the least bound on it, and when either last moved.
        let (mut most, mut bound, mut moved) = (f64::NEG_INFINITY, f64::INFINITY, 0);
        while steps < limit.steps.clamp(1, STEPS_MAX) && steps < moved + STALLED_MAX {
            steps += 1;
            let prices = basis.prices();
            let answer = self.answer(&prices[..kinds]);
            let paid: f64 =
                answer.usage.iter().zip(&prices).map(|(used, price)| used * price).sum();
            let gain = answer.worth - paid - prices[kinds];
            let sum: f64 = prices.iter().sum();
            if sum > most || sum + gain < bound {
                moved = steps;
            }
            // Whatever mix there is, it is worth at most what all take at any prices.
            (most, bound) = (most.max(sum), bound.min(sum + gain));
            gap = ((bound - sum) / bound.abs().max(f64::MIN_POSITIVE)).max(0.0);
            if gain <= GAIN_MIN * sum.abs() {
                gap = 0.0;
                break;
            }
            answers.push(answer);
            if !self.take_in(&mut basis, &answers) {
                break;
            }
        }
        let mut fractions = vec![0.0; kept.len()];
        for (id, weight) in basis.values().filter(|(id, weight)| *id >= kinds && *weight > 0.0) {
            for (way, part) in &answers[id - kinds].fractions {
                fractions[*way] += weight * part;
            }
        }
        let prices: Vec<f64> = basis.prices()[..kinds].iter().map(|price| price.max(0.0)).collect();
        let sum = prices.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let prices = prices.iter().map(|price| price / sum).collect();
        Settled { fractions, prices, gap, steps }
    }

    /// Takes the newest answer in, then whatever older one or room gains after it.
    fn take_in(&self, basis: &mut Basis, answers: &[Answer]) -> bool {
        let kinds = self.ready.kinds;
        let mut next = Some(column(kinds + answers.len() - 1, &answers[answers.len() - 1]));
        for _ in 0..100 {
            let Some(entering) = next else { return true };
            match basis.enter(entering) {
                Entered::For(..) if basis.refresh() => {}
                Entered::For(..) | Entered::Unbounded | Entered::Singular => return false,
            }
            let prices = basis.prices();
            let least = GAIN_MIN * prices.iter().sum::<f64>().abs();
            let room = (0..kinds).map(|kind| (-prices[kind], kind));
            let old = answers.iter().enumerate().map(|(number, answer)| {
                let paid = answer.usage.iter().zip(&prices).map(|(used, price)| used * price);
                (answer.worth - paid.sum::<f64>() - prices[kinds], kinds + number)
            });
            let gains = room.chain(old).filter(|(gain, _)| *gain > least);
            let best = gains.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            next = best.map(|(_, id)| match id < kinds {
                true => Column { id, worth: 0.0, entries: vec![(id, 1.0)] },
                false => column(id, &answers[id - kinds]),
            });
        }
        true
    }

    /// What fractions are worth and take.
    fn count(&self, fractions: &[f64]) -> Answer {
        let mut answer =
            Answer { worth: 0.0, usage: vec![0.0; self.ready.kinds], fractions: Vec::new() };
        for way in (0..self.ready.jobs()).flat_map(|job| self.ready.ways_of(job)) {
            let (origin, _, _) = self.ready.way(way);
            if fractions[origin] > 0.0 {
                self.add(&mut answer, way, fractions[origin]);
            }
        }
        answer
    }

    fn add(&self, answer: &mut Answer, way: usize, part: f64) {
        let (origin, _, uses) = self.ready.way(way);
        answer.worth += part * self.worth[origin];
        uses.iter().for_each(|(kind, gpus)| answer.usage[*kind] += part * gpus);
        answer.fractions.push((origin, part));
    }

    /// What each job takes at prices of whole types.
    fn answer(&self, prices: &[f64]) -> Answer {
        let mut answer =
            Answer { worth: 0.0, usage: vec![0.0; self.ready.kinds], fractions: Vec::new() };
        for job in 0..self.ready.jobs() {
            for (way, part) in self.best(job, prices).into_iter().flatten() {
                self.add(&mut answer, way, part);
            }
        }
        answer
    }

    /// The best of nothing, one way or two ways that keeps the floor of a job.
    fn best(&self, job: usize, prices: &[f64]) -> [Option<(usize, f64)>; 2] {
        let floor = self.floors[job].min(self.ready.fastest(job));
        let net = |way: usize| {
            let (origin, rate, uses) = self.ready.way(way);
            let paid: f64 = uses.iter().map(|(kind, gpus)| gpus * prices[*kind]).sum();
            (self.worth[origin] - paid, rate)
        };
        let mut best = (if floor > 0.0 { f64::NEG_INFINITY } else { 0.0 }, [None, None]);
        for high in self.ready.ways_of(job) {
            let (gain, rate) = net(high);
            if rate < floor {
                continue;
            }
            // All of its time, or no more than the floor asks for.
            let part = if gain > 0.0 { 1.0 } else { (floor / rate).clamp(0.0, 1.0) };
            if part > 0.0 && gain * part > best.0 {
                best = (gain * part, [Some((high, part)), None]);
            }
            for low in self.ready.ways_of(job) {
                let (less, slow) = net(low);
                if slow < floor {
                    let part = (floor - slow) / (rate - slow);
                    let sum = gain * part + less * (1.0 - part);
                    if sum > best.0 {
                        best = (sum, [Some((high, part)), Some((low, 1.0 - part))]);
                    }
                }
            }
        }
        best.1
    }
}

fn column(id: usize, answer: &Answer) -> Column {
    let usage = answer.usage.iter().copied().enumerate();
    Column { id, worth: answer.worth, entries: usage.chain([(answer.usage.len(), 1.0)]).collect() }
}
