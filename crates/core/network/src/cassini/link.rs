//! The jobs on one link: their unified circle, the best shifts, and the compatibility score.

use super::circle::{CircleSettings, Incommensurate, Perimeter, Profile};

/// How well jobs get along on a link, and when each must begin.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkFit {
    /// One less the mean demand beyond the capacity, as a part of it: 1 when there is none; it may be below 0.
    pub score: f64,
    /// By how many seconds each job must be delayed; the first by none.
    pub shifts: Vec<f64>,
    /// The circle.
    pub perimeter: Perimeter,
}

/// Demands of the jobs of a link around their circle.
pub(crate) struct Unified {
    pub demands: Vec<Vec<f64>>,
    pub perimeter: Perimeter,
    periods: Vec<f64>,
    capacity: f64,
}

impl Unified {
    pub fn new(
        capacity: f64,
        profiles: &[&Profile],
        settings: &CircleSettings,
    ) -> Result<Unified, Incommensurate> {
        let periods: Vec<_> = profiles.iter().map(|profile| profile.period()).collect();
        let perimeter = Perimeter::of(&periods, settings)?;
        let most = perimeter.repeats.iter().max().copied().unwrap_or(1) as usize;
        let slots = (settings.angles * most).min(settings.angles_max).max(settings.angles);
        let around = profiles.iter().zip(&perimeter.repeats);
        let demands = around.map(|(profile, repeats)| profile.around(slots, *repeats)).collect();
        let periods = periods.iter().map(|period| period.as_secs_f64()).collect();
        Ok(Unified { demands, perimeter, periods, capacity })
    }

    pub fn slots(&self) -> usize {
        self.demands.first().map_or(1, Vec::len)
    }

    /// How many shifts of a job differ.
    fn choices(&self, job: usize) -> usize {
        self.slots().div_ceil(self.perimeter.repeats[job] as usize)
    }

    /// The score when demands beyond the capacity sum up to this over all slots.
    pub fn score(&self, excess: f64) -> f64 {
        1.0 - excess / (self.slots() as f64 * self.capacity)
    }

    /// Demand beyond the capacity, over all slots, with a job put on top of others.
    pub fn excess_with(&self, others: &[f64], job: usize, shift: usize) -> f64 {
        let demand = &self.demands[job];
        let (head, tail) = demand.split_at(demand.len() - shift % demand.len());
        over(&others[..tail.len()], tail, self.capacity)
            + over(&others[tail.len()..], head, self.capacity)
    }

    /// Adds a job to a sum of demands, or takes it away.
    pub fn add(&self, sum: &mut [f64], job: usize, shift: usize, sign: f64) {
        let demand = &self.demands[job];
        let slots = demand.len();
        for (slot, sum) in sum.iter_mut().enumerate() {
            *sum += sign * demand[(slot + slots - shift % slots) % slots];
        }
    }

    /// All demands together.
    pub fn sum(&self, shifts: &[usize], without: usize) -> Vec<f64> {
        let mut sum = vec![0.0; self.slots()];
        for (job, shift) in shifts.iter().enumerate().filter(|(job, _)| *job != without) {
            self.add(&mut sum, job, *shift, 1.0);
        }
        sum
    }

    /// Slots as seconds of a job's own iteration.
    pub fn seconds(&self, job: usize, shift: usize) -> f64 {
        let turns = shift as f64 * f64::from(self.perimeter.repeats[job]) / self.slots() as f64;
        (turns - libm::floor(turns)) * self.periods[job]
    }

    /// Seconds as slots, to the nearest.
    pub fn slot_of(&self, job: usize, seconds: f64) -> usize {
        let turns = seconds / self.periods[job];
        let turns = turns - libm::floor(turns);
        let slot = turns * self.slots() as f64 / f64::from(self.perimeter.repeats[job]);
        libm::round(slot) as usize % self.slots()
    }

    fn best_shifts(&self, settings: &CircleSettings) -> (f64, Vec<usize>) {
        let jobs = self.demands.len();
        let mut shifts = vec![0; jobs];
        let tried = (1..jobs).try_fold(1usize, |all, job| all.checked_mul(self.choices(job)));
        if tried.is_some_and(|tried| tried <= settings.tried_max) {
            let mut best = (f64::INFINITY, shifts.clone());
            let mut sum = self.demands.first().cloned().unwrap_or_default();
            self.try_all(1, &mut sum, &mut shifts, &mut best);
            return best;
        }
        // Twice from different beginnings: all together, and one after the other from the greatest demand down.
        let together = self.improve(shifts.clone(), settings);
        if together.0 <= 0.0 {
            return together;
        }
        let spread = self.improve(self.one_by_one(), settings);
        if spread.0 < together.0 { spread } else { together }
    }

    fn try_all(
        &self,
        job: usize,
        sum: &mut [f64],
        shifts: &mut Vec<usize>,
        best: &mut (f64, Vec<usize>),
    ) {
        if job + 1 >= self.demands.len() {
            // A job alone has nothing to move.
            let choices = if job < self.demands.len() { self.choices(job) } else { 1 };
            for shift in 0..choices {
                let excess = match self.demands.get(job) {
                    Some(_) => self.excess_with(sum, job, shift),
                    None => sum.iter().map(|sum| (sum - self.capacity).max(0.0)).sum(),
                };
                if excess < best.0 - 1e-9 * self.capacity {
                    if let Some(last) = shifts.get_mut(job) {
                        *last = shift;
                    }
                    *best = (excess, shifts.clone());
                }
            }
            return;
        }
        for shift in 0..self.choices(job) {
            shifts[job] = shift;
            let mut with = sum.to_vec();
            self.add(&mut with, job, shift, 1.0);
            self.try_all(job + 1, &mut with, shifts, best);
        }
    }

    fn one_by_one(&self) -> Vec<usize> {
        let total = |job: &usize| self.demands[*job].iter().sum::<f64>();
        let mut jobs: Vec<usize> = (0..self.demands.len()).collect();
        jobs.sort_by(|a, b| total(b).total_cmp(&total(a)).then(a.cmp(b)));
        let mut shifts = vec![0; jobs.len()];
        let mut sum = vec![0.0; self.slots()];
        for (at, job) in jobs.into_iter().enumerate() {
            shifts[job] = if at == 0 { 0 } else { self.best_shift(&sum, job, 0).1 };
            self.add(&mut sum, job, shifts[job], 1.0);
        }
        // Only differences count: the first job begins at once.
        let slots = self.slots();
        let first = shifts[0];
        shifts.iter_mut().for_each(|shift| *shift = (*shift + slots - first) % slots);
        shifts
    }

    fn best_shift(&self, others: &[f64], job: usize, kept: usize) -> (f64, usize) {
        let mut best = (self.excess_with(others, job, kept), kept);
        for shift in 0..self.choices(job) {
            let excess = self.excess_with(others, job, shift);
            if excess < best.0 - 1e-9 * self.capacity {
                best = (excess, shift);
            }
        }
        best
    }

    fn improve(&self, mut shifts: Vec<usize>, settings: &CircleSettings) -> (f64, Vec<usize>) {
        let mut sum = self.sum(&shifts, usize::MAX);
        let over = |sum: &[f64]| sum.iter().map(|sum| (sum - self.capacity).max(0.0)).sum::<f64>();
        let mut excess = over(&sum);
        for _ in 0..settings.sweeps_max {
            let before = excess;
            for (job, shift) in shifts.iter_mut().enumerate().skip(1) {
                self.add(&mut sum, job, *shift, -1.0);
                (excess, *shift) = self.best_shift(&sum, job, *shift);
                self.add(&mut sum, job, *shift, 1.0);
            }
            if excess >= before - 1e-9 * self.capacity {
                break;
            }
        }
        (excess, shifts)
    }
}

/// The shifts of jobs on one link that leave the least demand beyond its capacity.
///
/// All combinations are tried where they are few, as for two jobs; otherwise each shift in turn is improved.
pub fn fit_link(
    capacity: f64,
    profiles: &[&Profile],
    settings: &CircleSettings,
) -> Result<LinkFit, Incommensurate> {
    let unified = Unified::new(capacity, profiles, settings)?;
    let (excess, shifts) = unified.best_shifts(settings);
    let shifts = shifts.iter().enumerate().map(|(job, shift)| unified.seconds(job, *shift));
    let shifts = shifts.collect();
    Ok(LinkFit { score: unified.score(excess), shifts, perimeter: unified.perimeter })
}

/// Demand beyond a capacity. In eight sums side by side, so that a processor adds several at once.
fn over(others: &[f64], demand: &[f64], capacity: f64) -> f64 {
    let mut sums = [0.0; 8];
    let (blocks, rest) = (others.chunks_exact(8), others.chunks_exact(8).remainder());
    let demands = demand.chunks_exact(8);
    let last = demands.remainder().iter().zip(rest);
    let last: f64 = last.map(|(a, b)| (a + b - capacity).max(0.0)).sum();
    for (others, demand) in blocks.zip(demands) {
        for lane in 0..8 {
            sums[lane] += (others[lane] + demand[lane] - capacity).max(0.0);
        }
    }
    sums.iter().sum::<f64>() + last
}
