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
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

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
    /// What about the jobs does not hang on their weights and least rounds: programs that differ in these share it.
    pub fn ground(&self) -> Ground {
        Ground::new(self)
    }

    /// The best numbers of rounds; nothing if the least ones do not fit.
    #[cfg(test)]
    pub fn solve(&self) -> Option<Chosen> {
        self.solve_on(&self.ground())
    }

    /// The best numbers of rounds on known ground; nothing if the least ones do not fit.
    pub fn solve_on(&self, ground: &Ground) -> Option<Chosen> {
        let mut search = Search::new(self, ground);
        let bounds = &ground.bounds;
        let last = bounds.len().checked_sub(1)?;
        if !search.fits(bounds[last]) {
            return None;
        }
        let first = partition(0, last, |at| !search.fits(bounds[at]));
        let (mut from, mut to) = (first, last);
        while to - from > 4 {
            let third = (to - from) / 3;
            let (a, b) = (from + third, to - third);
            if search.at(a) < search.at(b) { from = a + 1 } else { to = b }
        }
        (from..=to).for_each(|at| {
            search.at(at);
        });
        search.prove(first, last);
        let Search { known, found, .. } = search;
        let best =
            known.into_values().max_by(|a, b| found[*a].value.total_cmp(&found[*b].value))?;
        let Found { counts, value, .. } = &found[best];
        let mut rounds = vec![0; self.jobs.len()];
        counts.iter().for_each(|(at, count)| rounds[*at as usize] = *count);
        Some(Chosen { rounds, value: *value })
    }

    /// Whether the least rounds of all jobs fit.
    pub fn is_feasible(&self) -> bool {
        let fits = self.jobs.iter().all(|job| job.least <= job.most(self.rounds));
        let need = |job: &Candidate| u64::from(job.least) * u64::from(job.gpus);
        fits && self.jobs.iter().map(need).sum::<u64>() <= self.room()
    }

    /// The value of the objective for numbers of rounds.
    pub fn value(&self, rounds: &[u32]) -> f64 {
        let left = self.jobs.iter().zip(rounds).map(|(job, count)| job.left(*count));
        self.welfare(rounds) - self.k * left.fold(0.0, f64::max)
    }

    /// The part of it that is not the time left.
    fn welfare(&self, rounds: &[u32]) -> f64 {
        let of = self.jobs.iter().zip(rounds).map(|(job, count)| job.welfare(*count));
        of.sum::<f64>() / self.parts()
    }

    /// The number of all rounds of all jobs, over which welfare is a mean.
    fn parts(&self) -> f64 {
        (f64::from(self.rounds) * self.jobs.len() as f64).max(1.0)
    }

    /// GPU-rounds of the window.
    fn room(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.rounds)
    }

    /// The steepest gains of each size, as many as there is room for, out of what each job gains with so many rounds at
    /// most. O(jobs + rounds that fit x log of those).
    fn gains(&self, ground: &Ground) -> BTreeMap<u32, Vec<Gain>> {
        let most = &ground.most;
        // First rounds, with the welfare after each.
        let mut classes: BTreeMap<u32, Vec<Reverse<(Gain, u64)>>> = BTreeMap::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let class = classes.entry(job.gpus).or_default();
            if most[at] > 0 {
                let (idle, first) = ground.logs[at];
                let (now, next) = (job.weight * idle, job.weight * first);
                let gain = Gain { gain: (next - now).max(0.0), job: at as u32, count: 1 };
                class.push(Reverse((gain, next.to_bits())));
            }
        }
        let steepest = |(size, mut heads): (u32, Vec<Reverse<(Gain, u64)>>)| {
            let limit = self.room() / u64::from(size.max(1));
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            // Of the first rounds no more than fit are among the steepest.
            if heads.len() > limit {
                heads.select_nth_unstable_by_key(limit, |head| head.0);
                heads.truncate(limit);
            }
            let mut heads = BinaryHeap::from(heads);
            let mut gains: Vec<Gain> = Vec::new();
            while gains.len() < limit
                && let Some(Reverse((head, welfare))) = heads.pop()
            {
                gains.push(head);
                let (job, count) = (&self.jobs[head.job as usize], head.count);
                if count < most[head.job as usize] {
                    let next = job.welfare(count + 1);
                    let gain = (next - f64::from_bits(welfare)).max(0.0);
                    let gain = Gain { gain, count: count + 1, ..head };
                    heads.push(Reverse((gain, next.to_bits())));
                }
            }
            // Rounds of one job have falling gains but for rounding, so that they are in order already but for that.
            gains.sort_by(Gain::steeper);
            (size, gains)
        };
        classes.into_iter().map(steepest).collect()
    }

    /// What numbers of rounds come to, kept such that the worth of small changes is found quickly.
    pub fn evaluated(&self, rounds: &[u32]) -> Evaluated {
        let left: Vec<f64> =
            self.jobs.iter().zip(rounds).map(|(job, count)| job.left(*count)).collect();
        let mut longest: Vec<usize> = (0..left.len()).collect();
        longest.sort_unstable_by(|a, b| left[*b].total_cmp(&left[*a]).then(a.cmp(b)));
        Evaluated { value: self.value(rounds), welfare: self.welfare(rounds), left, longest }
    }

    /// What one more round is worth to the welfare of a job that has so many.
    pub fn gain(&self, job: usize, count: u32) -> f64 {
        if count >= self.jobs[job].most(self.rounds) {
            return 0.0;
        }
        self.jobs[job].welfare(count + 1) - self.jobs[job].welfare(count)
    }
}

/// What numbers of rounds come to.
pub struct Evaluated {
    /// The value of the objective.
    pub value: f64,
    welfare: f64,
    /// Seconds left of each job.
    left: Vec<f64>,
    /// Jobs by them, the longest first.
    longest: Vec<usize>,
}

impl Evaluated {
    /// The value if one job had a round more and some others, none of them twice, a round less.
    pub fn after(&self, (more, less): (usize, &[usize]), rounds: &[u32], program: &Program) -> f64 {
        let changed = std::iter::once((more, rounds[more] + 1));
        let changed = changed.chain(less.iter().map(|job| (*job, rounds[*job] - 1)));
        let (mut gained, mut longest) = (0.0, 0.0f64);
        for (at, count) in changed {
            let job = &program.jobs[at];
            gained += job.welfare(count) - job.welfare(rounds[at]);
            longest = longest.max(job.left(count));
        }
        let others = self.longest.iter().find(|at| **at != more && !less.contains(at));
        let longest = longest.max(others.map_or(0.0, |at| self.left[*at]));
        self.welfare + gained / program.parts() - program.k * longest
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

/// A choice that was found.
struct Found {
    /// The jobs that get rounds, each once, with how many: few where there are many jobs.
    counts: Vec<(u32, u32)>,
    value: f64,
    /// The part of the value that is not the time left.
    welfare: f64,
    /// The longest time left.
    longest: f64,
}

/// What about the jobs of a program does not hang on their weights and least rounds.
pub struct Ground {
    most: Vec<u32>,
    /// The logarithm of the progress of each job without a round and after one.
    logs: Vec<(f64, f64)>,
    /// Seconds left of each job that gets no round, as most do where there are many.
    left: Vec<f64>,
    /// The least that the longest time left can be.
    floor: f64,
    /// Jobs that can have more left than that, the longest first: only these ever need rounds for a bound.
    long: Vec<usize>,
    /// The values that the longest time left can take, ascending.
    bounds: Vec<f64>,
}

impl Ground {
    fn new(program: &Program) -> Ground {
        let jobs = &program.jobs;
        let most: Vec<u32> = jobs.iter().map(|job| job.most(program.rounds)).collect();
        let left: Vec<f64> = jobs.iter().map(|job| job.left(0)).collect();
        let logs = jobs.iter().map(|job| (log_of(job.done), log_of(job.done + job.step))).collect();
        let floor = jobs.iter().zip(&most).map(|(job, most)| job.left(*most)).fold(0.0, f64::max);
        // Of a job that never has as much left nothing is a bound.
        let mut bounds: Vec<f64> = Vec::new();
        for at in (0..jobs.len()).filter(|at| left[*at] >= floor) {
            bounds.extend((0..=most[at]).map(|count| jobs[at].left(count)));
        }
        bounds.retain(|bound| *bound >= floor);
        bounds.sort_unstable_by(f64::total_cmp);
        bounds.dedup();
        let mut long: Vec<usize> = (0..jobs.len()).filter(|at| left[*at] > floor).collect();
        long.sort_unstable_by(|a, b| left[*b].total_cmp(&left[*a]).then(a.cmp(b)));
        Ground { most, logs, left, floor, long, bounds }
    }
}

/// The search for the bound: what does not change meanwhile, and what was found so far.
struct Search<'a> {
    program: &'a Program,
    ground: &'a Ground,
    /// The welfare of all jobs if none gets a round.
    idle: f64,
    /// Jobs that must get rounds whatever the bound.
    pressed: Vec<usize>,
    /// GPU-rounds beside the least rounds of all jobs; nothing if they do not fit.
    room: Option<u64>,
    /// Gains of one more round, steepest first, by size: gain, job, and the round it leads to. Of each size as many as
    /// there is room for: those of them that a bound demands anyway take as much room as they are.
    gains: BTreeMap<u32, Vec<Gain>>,
    /// Rounds of each job while a choice is made; all 0 in between.
    rounds: Vec<u32>,
    /// What was found, and the bounds that each is the best under, by their places.
    found: Vec<Found>,
    known: BTreeMap<usize, usize>,
}

/// What one more round of a job gains, and which round it is.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Gain {
    /// What it gains.
    pub gain: f64,
    /// The job.
    pub job: u32,
    /// The round it leads to.
    pub count: u32,
}

impl Gain {
    /// The steepest first, and of equals the earlier round.
    fn steeper(&self, other: &Gain) -> Ordering {
        let earlier = (self.count, self.job).cmp(&(other.count, other.job));
        other.gain.total_cmp(&self.gain).then(earlier)
    }
}

impl Eq for Gain {}

impl PartialOrd for Gain {
    fn partial_cmp(&self, other: &Gain) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Gain {
    fn cmp(&self, other: &Gain) -> Ordering {
        self.steeper(other)
    }
}

impl<'a> Search<'a> {
    fn new(program: &'a Program, ground: &'a Ground) -> Search<'a> {
        let jobs = &program.jobs;
        let welfare = jobs.iter().zip(&ground.logs).map(|(job, (idle, _))| job.weight * idle);
        let room = jobs.iter().zip(&ground.most).try_fold(program.room(), |room, (job, most)| {
            let need = u64::from(job.least) * u64::from(job.gpus);
            if job.least > *most { None } else { room.checked_sub(need) }
        });
        Search {
            program,
            ground,
            idle: welfare.sum(),
            pressed: (0..jobs.len()).filter(|at| jobs[*at].least > 0).collect(),
            room,
            gains: program.gains(ground),
            rounds: vec![0; jobs.len()],
            found: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// The jobs that must have more than their least rounds under a bound on the time left, with how many.
    fn demanded(&self, bound: f64) -> impl Iterator<Item = (usize, u32)> + '_ {
        let ground = self.ground;
        let long = ground.long.iter().take_while(move |at| ground.left[**at] > bound);
        long.map(move |&at| {
            let job = &self.program.jobs[at];
            (at, job.rounds_until(bound, ground.most[at]).max(job.least))
        })
    }

    /// GPU-rounds beside those that a bound demands; nothing if they do not fit.
    fn room(&self, bound: f64) -> Option<u64> {
        self.demanded(bound).try_fold(self.room?, |room, (at, low)| {
            let job = &self.program.jobs[at];
            let more = u64::from(low - job.least) * u64::from(job.gpus);
            if low > self.ground.most[at] { None } else { room.checked_sub(more) }
        })
    }

    fn fits(&self, bound: f64) -> bool {
        self.room(bound).is_some()
    }

    /// The value under a bound, by its place; remembered.
    fn at(&mut self, at: usize) -> f64 {
        if !self.known.contains_key(&at) {
            // What is best under a later bound and keeps this one is the best under this one too.
            let later = self.known.range(at..).next().map(|(_, found)| *found);
            let bound = self.ground.bounds[at];
            let kept = later.filter(|found| self.found[*found].longest <= bound);
            let found = kept.or_else(|| {
                let found = self.fill(bound)?;
                self.found.push(found);
                Some(self.found.len() - 1)
            });
            self.known.extend(found.map(|found| (at, found)));
        }
        self.known.get(&at).map_or(f64::NEG_INFINITY, |found| self.found[*found].value)
    }

    /// Looks where a peak may have been missed: of whole rounds the value can have several.
    ///
    /// A choice that leaves at most `bounds[to]` seconds and at least `bounds[from]` has no more welfare than the best
    /// under the later bound, and loses at least the earlier one. Ranges that cannot beat the best known are left, the
    /// others halved, most promising first, until none is left or the limit is reached.
    fn prove(&mut self, from: usize, to: usize) {
        let mut open = vec![self.range(from, to)];
        for _ in 0..RANGES_MAX {
            let best = self.found.iter().map(|found| found.value).fold(f64::NEG_INFINITY, f64::max);
            open.retain(|range| range.ceiling > best);
            let promise = |(_, a): &(usize, &Range), (_, b): &(usize, &Range)| {
                a.ceiling.total_cmp(&b.ceiling)
            };
            let Some((at, _)) = open.iter().enumerate().max_by(promise) else { return };
            let Range { from, to, .. } = open.swap_remove(at);
            if from < to {
                let middle = from + (to - from) / 2;
                open.push(self.range(from, middle));
                open.push(self.range(middle + 1, to));
            }
        }
    }

    fn range(&mut self, from: usize, to: usize) -> Range {
        self.at(to);
        let welfare = self.known.get(&to).map(|found| self.found[*found].welfare);
        let ceiling =
            welfare.unwrap_or(f64::NEG_INFINITY) - self.program.k * self.ground.bounds[from];
        Range { ceiling, from, to }
    }

    /// The best choice under a bound. O(gains + jobs that get rounds), however many jobs there are.
    fn fill(&mut self, bound: f64) -> Option<Found> {
        let room = self.room(bound)?;
        let mut chosen: Vec<u32> = Vec::new();
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut raise = |at: usize, to: u32| {
            if rounds[at] == 0 && to > 0 {
                chosen.push(at as u32);
            }
            rounds[at] = to;
        };
        self.pressed.iter().for_each(|at| raise(*at, self.program.jobs[*at].least));
        self.demanded(bound).for_each(|(at, low)| raise(at, low));
        let is_open = |gain: &&Gain| gain.count > rounds[gain.job as usize];
        let open: Vec<Vec<Gain>> = self
            .gains
            .values()
            .map(|class| class.iter().filter(is_open).copied().collect())
            .collect();
        let classes = self.gains.keys().zip(&open).map(|(size, items)| Class {
            size: u64::from(*size),
            gains: items.iter().map(|item| item.gain).collect(),
        });
        let counts = fill(&classes.collect::<Vec<Class>>(), room);
        for (items, count) in open.iter().zip(counts) {
            for item in &items[..count] {
                let rounds = &mut rounds[item.job as usize];
                if *rounds == 0 {
                    chosen.push(item.job);
                }
                *rounds += 1;
            }
        }
        let found = self.found(&rounds, &chosen);
        chosen.iter().for_each(|at| rounds[*at as usize] = 0);
        self.rounds = rounds;
        Some(found)
    }

    /// What numbers of rounds come to, where all jobs but the chosen have none: [`Program::value`] but for the order in
    /// which welfare is added up.
    fn found(&self, rounds: &[u32], chosen: &[u32]) -> Found {
        let (mut welfare, mut longest) = (self.idle, self.ground.floor);
        let mut counts: Vec<(u32, u32)> =
            chosen.iter().map(|at| (*at, rounds[*at as usize])).collect();
        counts.sort_unstable();
        for (at, count) in &counts {
            let job = &self.program.jobs[*at as usize];
            welfare += job.welfare(*count) - job.weight * self.ground.logs[*at as usize].0;
            longest = longest.max(job.left(*count));
        }
        // The others have no more left than the floor, or are in this list, the longest first.
        if let Some(idle) = self.ground.long.iter().find(|at| rounds[**at] == 0) {
            longest = longest.max(self.ground.left[*idle]);
        }
        let welfare = welfare / self.program.parts();
        let value = welfare - self.program.k * longest;
        Found { counts, value, welfare, longest }
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
