//! How many rounds of a window each job gets: the welfare program of Shockwave (NSDI'23, section 5).
//!
//! The authors state it with a boolean for each job and round. But rounds are alike: the objective depends on the
//! number of rounds of each job alone. What is left is to choose these numbers, so that
//!
//! ```text
//!   sum of weight x log(progress after so many rounds) / (jobs x rounds)  -  k x longest time left
//! ```
//!
//! is largest. For a bound on the longest time left each job has a least number of rounds, and the rest is a knapsack
//! with concave gains, solved exactly (`knapsack`). The bound is found by a search over the values it can take: the
//! best welfare under a bound is concave in it but for the wholeness of rounds, so that a peak is climbed first and
//! then every range of the bound is looked at that could hold a higher one.

use super::knapsack::{Class, fill};
use std::collections::BTreeMap;

/// Progress at which the logarithm is exact; between two of them it is a line.
const BASES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// Their logarithms; that of a millionth stands for no progress at all, which has none.
const LOGS: [f64; 6] = [
    -13.815510557964274,
    -1.6094379124341003,
    -0.916290731874155,
    -0.5108256237659907,
    -0.2231435513142097,
    0.0,
];

/// One job in the program.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// GPUs it takes at once.
    pub gpus: u32,
    /// How much its welfare counts.
    pub weight: f64,
    /// The part of it that is done, from 0 to 1.
    pub done: f64,
    /// The part of it that one round adds.
    pub step: f64,
    /// Seconds it is believed to need still.
    pub left: f64,
    /// Seconds of a round that count against what is left.
    pub round: f64,
    /// Rounds it must get, or no plan is good.
    pub least: u32,
}

/// The program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The jobs.
    pub jobs: Vec<Candidate>,
    /// GPUs in each round.
    pub gpus: u32,
    /// Rounds of the window.
    pub rounds: u32,
    /// What a second of the longest time left costs.
    pub k: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Rounds of each job.
    pub rounds: Vec<u32>,
    /// The value of the objective.
    pub value: f64,
}

/// The logarithm of a progress, by straight lines between the authors' points.
pub fn log_of(progress: f64) -> f64 {
    let progress = progress.clamp(0.0, 1.0);
    let next = BASES.iter().position(|base| *base >= progress).unwrap_or(BASES.len() - 1).max(1);
    let (low, high) = (BASES[next - 1], BASES[next]);
    let (from, to) = (LOGS[next - 1], LOGS[next]);
    from + (to - from) * (progress - low) / (high - low)
}

impl Candidate {
    /// The most rounds that do it any good.
    pub fn most(&self, rounds: u32) -> u32 {
        if self.step <= 0.0 {
            return 0;
        }
        libm::ceil((1.0 - self.done).max(0.0) / self.step - 1e-9).clamp(0.0, f64::from(rounds))
            as u32
    }

    /// Its welfare after so many rounds.
    pub fn welfare(&self, count: u32) -> f64 {
        self.weight * log_of(self.done + self.step * f64::from(count))
    }

    /// Seconds left after so many rounds.
    ///
    /// Rounds beyond the end of the work by the pace so far take nothing off, as in the authors' program.
    pub fn left(&self, count: u32) -> f64 {
        let rest = if self.step > 0.0 { (1.0 - self.done) / self.step * self.round } else { 0.0 };
        (self.left - (self.round * f64::from(count)).min(rest)).max(0.0)
    }

    /// The least number of rounds after which at most so many seconds are left; more than `most` if there is none.
    fn rounds_until(&self, left: f64, most: u32) -> u32 {
        if self.left(most) > left {
            return most + 1;
        }
        let guess = libm::ceil((self.left - left) / self.round - 1e-9).clamp(0.0, f64::from(most));
        let guess = guess as u32;
        if self.left(guess) > left { guess + 1 } else { guess }
    }
}

impl Program {
    /// The best numbers of rounds; nothing if the least ones do not fit.
    pub fn solve(&self) -> Option<Chosen> {
        let search = Search::new(self);
        let last = search.bounds.len().checked_sub(1)?;
        search.lows(search.bounds[last])?;
        let first = partition(0, last, |at| search.lows(search.bounds[at]).is_none());
        let mut known: BTreeMap<usize, Chosen> = BTreeMap::new();
        let (mut from, mut to) = (first, last);
        while to - from > 4 {
            let third = (to - from) / 3;
            let (a, b) = (from + third, to - third);
            if search.at(a, &mut known) < search.at(b, &mut known) { from = a + 1 } else { to = b }
        }
        (from..=to).for_each(|at| {
            search.at(at, &mut known);
        });
        search.prove(first, last, &mut known);
        known.into_values().max_by(|a, b| a.value.total_cmp(&b.value))
    }

    /// Whether the least rounds of all jobs fit.
    pub fn is_feasible(&self) -> bool {
        let room = u64::from(self.gpus) * u64::from(self.rounds);
        let fits = self.jobs.iter().all(|job| job.least <= job.most(self.rounds));
        let need = |job: &Candidate| u64::from(job.least) * u64::from(job.gpus);
        fits && self.jobs.iter().map(need).sum::<u64>() <= room
    }

    /// The value of the objective for numbers of rounds.
    pub fn value(&self, rounds: &[u32]) -> f64 {
        let left = self.jobs.iter().zip(rounds).map(|(job, count)| job.left(*count));
        self.welfare(rounds) - self.k * left.fold(0.0, f64::max)
    }

    /// The part of it that is not the time left.
    fn welfare(&self, rounds: &[u32]) -> f64 {
        let parts = f64::from(self.rounds) * self.jobs.len() as f64;
        let of = self.jobs.iter().zip(rounds).map(|(job, count)| job.welfare(*count));
        of.sum::<f64>() / parts.max(1.0)
    }

    /// What one more round is worth to the welfare of a job that has so many.
    pub fn gain(&self, job: usize, count: u32) -> f64 {
        if count >= self.jobs[job].most(self.rounds) {
            return 0.0;
        }
        self.jobs[job].welfare(count + 1) - self.jobs[job].welfare(count)
    }
}

/// The first place of a range at which a condition that holds up to somewhere no longer holds.
fn partition(mut from: usize, mut to: usize, holds: impl Fn(usize) -> bool) -> usize {
    while from < to {
        let middle = (from + to) / 2;
        if holds(middle) { from = middle + 1 } else { to = middle }
    }
    from
}

/// Ranges of the bound that are halved to prove that no peak was missed; small programs need fewer.
const RANGES_MAX: usize = 64;

/// A range of the bound and what no choice in it exceeds.
struct Range {
    ceiling: f64,
    from: usize,
    to: usize,
}

/// What does not change while the bound is searched for.
struct Search<'a> {
    program: &'a Program,
    most: Vec<u32>,
    /// Gains of one more round, steepest first, by size: gain, job, and the round it leads to.
    gains: BTreeMap<u32, Vec<(f64, u32, u32)>>,
    /// The values that the longest time left can take, ascending.
    bounds: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program) -> Search<'a> {
        let most: Vec<u32> = program.jobs.iter().map(|job| job.most(program.rounds)).collect();
        let mut gains: BTreeMap<u32, Vec<(f64, u32, u32)>> = BTreeMap::new();
        let mut bounds = Vec::new();
        for (index, job) in program.jobs.iter().enumerate() {
            bounds.extend((0..=most[index]).map(|count| job.left(count)));
            let class = gains.entry(job.gpus).or_default();
            for count in 0..most[index] {
                let gain = job.welfare(count + 1) - job.welfare(count);
                class.push((gain.max(0.0), index as u32, count + 1));
            }
        }
        // Rounds of one job have falling gains, so that they stay in order.
        for class in gains.values_mut() {
            class.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.2, a.1).cmp(&(b.2, b.1))));
        }
        let all = program.jobs.iter().zip(&most);
        let floor = all.map(|(job, most)| job.left(*most)).fold(0.0, f64::max);
        bounds.retain(|bound| *bound >= floor);
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Search { program, most, gains, bounds }
    }

    /// The least rounds of each job under a bound on the time left; nothing if they do not fit.
    fn lows(&self, bound: f64) -> Option<Vec<u32>> {
        let mut lows = Vec::with_capacity(self.most.len());
        let mut room = u64::from(self.program.gpus) * u64::from(self.program.rounds);
        for (job, &most) in self.program.jobs.iter().zip(&self.most) {
            let low = job.rounds_until(bound, most).max(job.least);
            if low > most {
                return None;
            }
            room = room.checked_sub(u64::from(low) * u64::from(job.gpus))?;
            lows.push(low);
        }
        Some(lows)
    }

    /// The value under a bound, by its place; remembered.
    fn at(&self, at: usize, known: &mut BTreeMap<usize, Chosen>) -> f64 {
        if !known.contains_key(&at)
            && let Some(chosen) = self.fill(self.bounds[at])
        {
            known.insert(at, chosen);
        }
        known.get(&at).map_or(f64::NEG_INFINITY, |chosen| chosen.value)
    }

    /// Looks where a peak may have been missed: of whole rounds the value can have several.
    ///
    /// Whoever has at most `bounds[to]` seconds left and at least `bounds[from]` has no more welfare than the best
    /// under the later bound, and loses at least the earlier one. Ranges that cannot beat the best known are left, the
    /// others halved, most promising first, until none is left or the limit is reached.
    fn prove(&self, from: usize, to: usize, known: &mut BTreeMap<usize, Chosen>) {
        let mut open = vec![self.range(from, to, known)];
        for _ in 0..RANGES_MAX {
            let best = known.values().map(|chosen| chosen.value).fold(f64::NEG_INFINITY, f64::max);
            open.retain(|range| range.ceiling > best);
            let promise = |(_, a): &(usize, &Range), (_, b): &(usize, &Range)| {
                a.ceiling.total_cmp(&b.ceiling)
            };
            let Some((at, _)) = open.iter().enumerate().max_by(promise) else { return };
            let Range { from, to, .. } = open.swap_remove(at);
            if from < to {
                let middle = from + (to - from) / 2;
                open.push(self.range(from, middle, known));
                open.push(self.range(middle + 1, to, known));
            }
        }
    }

    fn range(&self, from: usize, to: usize, known: &mut BTreeMap<usize, Chosen>) -> Range {
        self.at(to, known);
        let welfare = known.get(&to).map(|chosen| self.program.welfare(&chosen.rounds));
        let ceiling = welfare.unwrap_or(f64::NEG_INFINITY) - self.program.k * self.bounds[from];
        Range { ceiling, from, to }
    }

    fn fill(&self, bound: f64) -> Option<Chosen> {
        let mut rounds = self.lows(bound)?;
        let mut room = u64::from(self.program.gpus) * u64::from(self.program.rounds);
        for (job, low) in self.program.jobs.iter().zip(&rounds) {
            room -= u64::from(job.gpus) * u64::from(*low);
        }
        let open = |class: &[(f64, u32, u32)]| -> Vec<(f64, u32)> {
            let open = class.iter().filter(|(_, job, count)| *count > rounds[*job as usize]);
            open.map(|(gain, job, _)| (*gain, *job)).collect()
        };
        let open: Vec<(u32, Vec<(f64, u32)>)> =
            self.gains.iter().map(|(size, class)| (*size, open(class))).collect();
        let classes: Vec<Class> = open
            .iter()
            .map(|(size, items)| Class {
                size: u64::from(*size),
                gains: items.iter().map(|(gain, _)| *gain).collect(),
            })
            .collect();
        for ((_, items), count) in open.iter().zip(fill(&classes, room)) {
            for (_, job) in &items[..count] {
                rounds[*job as usize] += 1;
            }
        }
        let value = self.program.value(&rounds);
        Some(Chosen { rounds, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_exact_at_its_points() {
        for base in BASES {
            assert!((log_of(base) - libm::log(base.max(1e-6))).abs() < 1e-12);
        }
        assert!(log_of(0.5) < libm::log(0.5), "a line lies below a concave curve");
    }
}
