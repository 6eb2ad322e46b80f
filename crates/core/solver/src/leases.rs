//! Which job holds which lease: jobs that need so many leases before one of several deadlines, each worth less than the
//! one before, on GPUs that are counted lease by lease.
//!
//! As a general program it has a column for each job, deadline and lease (Chronus, SoCC 2021). Here its structure is
//! used: the leases of a job before its deadline are interchangeable, and the deadlines are nested, because they all
//! begin now. What is left to choose are the deadlines ([`choose`](Program::solve)); which leases then serve them is
//! a packing ([`pack`]).
//!
//! First as many demands as possible are served at all, for each of them is a promise; then value counts; then what is
//! used of the lease that begins now: as little or as much as possible ([`Now`]). That is the order of the published
//! program, in which serving every job is a constraint and the last term is less than the least step of its values.

mod bound;
mod pack;
#[cfg(test)]
mod tests;

pub use pack::{Packing, Piece, pack, pack_most, packs, suffices};

/// What a job asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// GPUs in each lease that it holds.
    pub gpus: u32,
    /// Leases that it needs.
    pub leases: u32,
    /// Deadlines, soonest first.
    pub steps: Vec<Step>,
    /// Whether it is rather taken for the lease that begins now than one that is alike: it runs already.
    pub prefers: bool,
}

/// A deadline and what it is worth to meet it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Step {
    /// Leases that end before it, from now on.
    pub before: u32,
    /// What meeting it is worth.
    pub value: f64,
}

/// What to do with the lease that begins now, where value leaves a choice.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Now {
    /// Use as much of it as possible.
    #[default]
    Most,
    /// Use as little of it as possible, so that it is left to others.
    Least,
}

/// All demands on the GPUs of each lease.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What is asked for.
    pub demands: Vec<Demand>,
    /// GPUs of each lease from now on; later ones have as many as the last.
    pub capacity: Vec<u32>,
    /// What to do with the lease that begins now.
    pub now: Now,
}

/// Which job holds which lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The step that each demand is to meet; nothing if it finds no place before any of them.
    pub steps: Vec<Option<usize>>,
    /// The leases of each demand, ascending; 0 begins now.
    pub leases: Vec<Vec<u32>>,
    /// What all steps that are met are worth.
    pub value: f64,
    /// No plan that serves as many is worth more.
    pub bound: f64,
    /// Units of work that it took: a unit is a demand that was packed.
    pub work: u64,
}

impl Plan {
    /// Whether a demand holds the lease that begins now.
    pub fn runs_now(&self, demand: usize) -> bool {
        self.leases[demand].first() == Some(&0)
    }

    /// GPUs in use in the lease that begins now.
    pub fn used_now(&self, demands: &[Demand]) -> u32 {
        let used = demands.iter().enumerate().filter(|(index, _)| self.runs_now(*index));
        used.map(|(_, demand)| demand.gpus).sum()
    }

    /// The part of the bound by which the plan may be worth less than the best one.
    pub fn gap(&self) -> f64 {
        if self.bound > 0.0 { ((self.bound - self.value) / self.bound).max(0.0) } else { 0.0 }
    }
}

/// Values that differ by less are equal.
const VALUE_EQUAL: f64 = 1e-9;

/// So many demands at most are tried in all their steps.
const TRIED_MAX: usize = 8;

impl Program {
    /// A plan, within so many units of work. The first answer is always given, whatever the limit.
    ///
    /// 1. All jobs at the best step that is possible at all. If that can be packed, it is the best plan.
    /// 2. Else prices for GPU time up to each lease give a bound and a first choice of steps.
    /// 3. A job that finds no place falls to its next step; then jobs that fell are lifted again, dearest first, as far
    ///    as the limit allows; then each is let fall once to see whether others rise in its place.
    /// 4. Few jobs whose plan does not reach the bound are tried in all their steps, as far as the limit allows.
    pub fn solve(&self, work_max: u64) -> Plan {
        let mut search = Search::new(self);
        let best: Vec<Option<usize>> = (0..self.demands.len()).map(|at| self.first(at)).collect();
        let full = self.merit(&best);
        if let Some(packing) = search.try_steps(&best) {
            return search.plan(best, packing, full);
        }
        let prices = bound::Prices::new(self, full);
        search.fall(&best, work_max);
        search.fall(&prices.steps, work_max);
        search.rise(prices.bound, work_max);
        search.swap(prices.bound, work_max);
        if self.demands.len() <= TRIED_MAX && !search.is_best(prices.bound) {
            search.try_all(&mut vec![None; self.demands.len()], 0, work_max);
        }
        let (steps, packing) = search.found.take().expect("a fall ends with a packing");
        search.plan(steps, packing, prices.bound)
    }

    /// The soonest step of a demand that it could meet alone.
    fn first(&self, demand: usize) -> Option<usize> {
        let Demand { gpus, leases, steps, .. } = &self.demands[demand];
        let wide = |lease: u32| self.capacity_of(lease) >= *gpus;
        steps.iter().position(|step| {
            step.before >= *leases
                && (0..step.before).filter(|lease| wide(*lease)).nth(*leases as usize - 1).is_some()
        })
    }

    fn capacity_of(&self, lease: u32) -> u32 {
        let last = self.capacity.last().copied().unwrap_or(0);
        self.capacity.get(lease as usize).copied().unwrap_or(last)
    }

    fn value(&self, steps: &[Option<usize>]) -> f64 {
        let value = |(demand, step): (&Demand, &Option<usize>)| {
            step.map_or(0.0, |step| demand.steps[step].value)
        };
        self.demands.iter().zip(steps).map(value).sum()
    }

    /// What serving a demand at all counts beside value: more than all values together.
    fn promise(&self) -> f64 {
        let most = |demand: &Demand| demand.steps.iter().map(|step| step.value).fold(0.0, f64::max);
        1.0 + self.demands.iter().map(most).sum::<f64>()
    }

    /// Value and promises kept.
    fn merit(&self, steps: &[Option<usize>]) -> f64 {
        let kept = steps.iter().flatten().count() as f64;
        self.value(steps) + kept * self.promise()
    }

    fn pieces(&self, steps: &[Option<usize>]) -> Vec<Option<Piece>> {
        let piece = |(demand, step): (&Demand, &Option<usize>)| {
            let before = demand.steps[(*step)?].before;
            Some(Piece { gpus: demand.gpus, leases: demand.leases, before })
        };
        self.demands.iter().zip(steps).map(piece).collect()
    }
}

/// The best choice of steps found so far.
struct Search<'a> {
    program: &'a Program,
    found: Option<(Vec<Option<usize>>, Packing)>,
    work: u64,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program) -> Search<'a> {
        Search { program, found: None, work: 0 }
    }

    fn try_steps(&mut self, steps: &[Option<usize>]) -> Option<Packing> {
        self.work += steps.len() as u64;
        let (pieces, capacity) = (self.program.pieces(steps), &self.program.capacity);
        suffices(&pieces, capacity).then(|| pack(&pieces, capacity).ok()).flatten()
    }

    /// Lowers steps until all fit: a job that finds no place takes its next one, or none.
    ///
    /// One at a time while less than half of the work is used, and then all that find no place at once, so that a
    /// plan for far more than there is room for ends in a few rounds too.
    fn fall(&mut self, from: &[Option<usize>], work_max: u64) {
        let mut steps = from.to_vec();
        loop {
            self.work += steps.len() as u64;
            let (pieces, capacity) = (self.program.pieces(&steps), &self.program.capacity);
            let stuck = if self.work <= work_max / 2 {
                match pack(&pieces, capacity) {
                    Ok(packing) => return self.keep(steps, packing),
                    Err(one) => vec![one],
                }
            } else {
                match pack_most(&pieces, capacity) {
                    (packing, stuck) if stuck.is_empty() => return self.keep(steps, packing),
                    (_, stuck) => stuck,
                }
            };
            for at in stuck {
                let more = self.program.demands[at].steps.len();
                steps[at] = steps[at].map(|step| step + 1).filter(|step| *step < more);
            }
        }
    }

    fn keep(&mut self, steps: Vec<Option<usize>>, packing: Packing) {
        let merit = self.program.merit(&steps);
        let held = self.found.as_ref().map(|(steps, _)| self.program.merit(steps));
        if held.is_none_or(|held| merit > held + VALUE_EQUAL) {
            self.found = Some((steps, packing));
        }
    }

    fn held(&self) -> Vec<Option<usize>> {
        self.found.as_ref().expect("a fall came first").0.clone()
    }

    /// Demands that could be worth more, dearest first.
    fn lowered(&self, steps: &[Option<usize>]) -> Vec<(usize, usize)> {
        let promise = self.program.promise();
        let mut lowered = Vec::new();
        for (index, demand) in self.program.demands.iter().enumerate() {
            let Some(first) = self.program.first(index) else { continue };
            let held = steps[index].map_or(-promise, |step| demand.steps[step].value);
            let below = steps[index].unwrap_or(demand.steps.len());
            for step in first..below {
                let gain = demand.steps[step].value - held;
                let size = f64::from(demand.gpus) * f64::from(demand.leases);
                lowered.push((gain / size, index, step));
            }
        }
        lowered.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        lowered.into_iter().map(|(_, index, step)| (index, step)).collect()
    }

    fn is_best(&self, bound: f64) -> bool {
        self.program.merit(&self.held()) >= bound - VALUE_EQUAL
    }

    /// Lifts single demands.
    fn rise(&mut self, bound: f64, work_max: u64) {
        for (index, step) in self.lowered(&self.held()) {
            if self.work >= work_max || self.is_best(bound) {
                return;
            }
            let mut steps = self.held();
            if steps[index].is_some_and(|held| held <= step) {
                continue;
            }
            steps[index] = Some(step);
            if let Some(packing) = self.try_steps(&steps) {
                self.keep(steps, packing);
            }
        }
    }

    /// Lets one demand fall, to its next step or out of the plan, and lifts others in its place.
    fn swap(&mut self, bound: f64, work_max: u64) {
        let mut improved = true;
        while improved {
            improved = false;
            for down in 0..self.program.demands.len() {
                let Some(held) = self.held()[down] else { continue };
                let next =
                    Some(held + 1).filter(|step| *step < self.program.demands[down].steps.len());
                for to in [next, None] {
                    if self.work >= work_max || self.is_best(bound) {
                        return;
                    }
                    improved |= self.try_swap(down, to, work_max);
                }
            }
        }
    }

    fn try_swap(&mut self, down: usize, to: Option<usize>, work_max: u64) -> bool {
        let before = self.held();
        let mut steps = before.clone();
        steps[down] = to;
        let mut raised = None;
        for (up, step) in self.lowered(&before) {
            let is_lower = steps[up].is_none_or(|held| held > step);
            if up == down || !is_lower || self.work >= work_max {
                continue;
            }
            let former = steps[up].replace(step);
            match self.try_steps(&steps) {
                Some(packing) => raised = Some(packing),
                None => steps[up] = former,
            }
        }
        let is_better = self.program.merit(&steps) > self.program.merit(&before) + VALUE_EQUAL;
        match raised.filter(|_| is_better) {
            Some(packing) => self.keep(steps, packing),
            None => return false,
        }
        true
    }

    /// Tries every step of the demands from one on beside the steps before it. What does not fit is not gone on with:
    /// more demands would not make it fit.
    fn try_all(&mut self, steps: &mut Vec<Option<usize>>, at: usize, work_max: u64) {
        let mut hoped = steps.clone();
        for (rest, step) in hoped.iter_mut().enumerate().skip(at) {
            *step = self.program.first(rest);
        }
        let is_hopeless =
            self.program.merit(&hoped) <= self.program.merit(&self.held()) + VALUE_EQUAL;
        if is_hopeless || self.work >= work_max {
            return;
        }
        let Some(packing) = self.try_steps(steps) else { return };
        if at == steps.len() {
            return self.keep(steps.clone(), packing);
        }
        let options =
            self.program.first(at).map(|first| first..self.program.demands[at].steps.len());
        for step in options.into_iter().flatten() {
            steps[at] = Some(step);
            self.try_all(steps, at + 1, work_max);
        }
        steps[at] = None;
        self.try_all(steps, at + 1, work_max);
    }

    /// The plan of a packing, with the lease that begins now used as it should be.
    fn plan(&self, steps: Vec<Option<usize>>, mut packing: Packing, bound: f64) -> Plan {
        if self.program.now == Now::Most {
            packing.fill_now(&self.program.demands);
        }
        let value = self.program.value(&steps);
        let kept = self.program.merit(&steps) - value;
        let bound = (bound - kept).max(value);
        Plan { steps, leases: packing.into_leases(), value, bound, work: self.work }
    }
}
