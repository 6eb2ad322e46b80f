//! What an objective is worked out from: the table of rates, and what is known of each job.

use std::ops::Range;
use trainyard_framework::{RateTable, View};
use trainyard_profile::kinds;
use trainyard_types::{JobId, TenantId, Time};

/// A job that takes part: one that can run somewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    /// Its id.
    pub job: JobId,
    /// The GPUs it asks for.
    pub gpus: f64,
    /// Its weight, above 0.
    pub weight: f64,
    /// Work left; infinite where it is not known.
    pub left: f64,
    /// Seconds since it was submitted.
    pub age: f64,
    /// Seconds until the last moment at which finishing is worth anything.
    pub deadline: Option<f64>,
    /// The tenant that is charged.
    pub tenant: TenantId,
}

/// Rates as a matrix of parties and choices, and the facts about the parties.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    /// Choices, types and how many GPUs there are.
    pub table: &'a RateTable,
    /// The jobs that take part, by id.
    pub parties: Vec<Party>,
    /// All ways of all parties, party by party: the choice, and the rate in it.
    ways: Vec<(usize, f64)>,
    /// Where the ways of each party begin; one more than there are parties.
    starts: Vec<usize>,
    /// The party of each job of the table, if it is one.
    places: Vec<Option<usize>>,
    /// What a GPU of each type costs for an hour, above 0.
    pub prices: Vec<f64>,
    /// What tenants weigh among each other, by tenant; those that are not there weigh 1.
    pub tenants: Vec<f64>,
    /// Whether a fact had to be replaced because it made no sense.
    pub mended: bool,
}

impl<'a> Problem<'a> {
    /// From a table and the facts about each of its jobs, in the same order. Jobs that run nowhere take no part.
    pub fn new(table: &'a RateTable, facts: Vec<Party>) -> Problem<'a> {
        assert_eq!(facts.len(), table.jobs.len(), "one set of facts for each job");
        // Job, choice and rate: by job, in one list, for there are many jobs and a list for each would be slow.
        let mut by_job: Vec<(usize, usize, f64)> = Vec::with_capacity(table.choices.len());
        let mut mended = false;
        for (index, choice) in table.choices.iter().enumerate() {
            for (job, rate) in choice.jobs.iter().zip(&choice.rates) {
                let sound = rate.is_finite() && *rate >= 0.0;
                mended |= !sound;
                if let Some(at) = table.position(*job) {
                    by_job.push((at, index, if sound { *rate } else { 0.0 }));
                }
            }
        }
        // Stable, and quick where choices are by job already.
        by_job.sort_by_key(|(at, ..)| *at);
        let mut problem = Problem {
            table,
            parties: Vec::with_capacity(facts.len()),
            ways: Vec::new(),
            starts: vec![0],
            places: vec![None; facts.len()],
            prices: vec![1.0; table.kinds.len()],
            tenants: Vec::new(),
            mended,
        };
        let mut rest = by_job.as_slice();
        for (at, mut party) in facts.into_iter().enumerate() {
            let (ways, others) =
                rest.split_at(rest.iter().take_while(|(of, ..)| *of == at).count());
            rest = others;
            if !ways.iter().any(|(_, _, rate)| *rate > 0.0) {
                continue;
            }
            if !(party.weight > 0.0 && party.weight.is_finite()) {
                party.weight = 1.0;
                problem.mended = true;
            }
            if party.left.is_nan() || party.left <= 0.0 {
                party.left = f64::INFINITY;
            }
            problem.places[at] = Some(problem.parties.len());
            problem.parties.push(party);
            problem.ways.extend(ways.iter().map(|(_, choice, rate)| (*choice, *rate)));
            problem.starts.push(problem.ways.len());
        }
        problem
    }

    /// The same from a view.
    pub fn seen(table: &'a RateTable, view: &View<'_>) -> Problem<'a> {
        let facts = table.jobs.iter().map(|id| {
            let Some(job) = view.job(*id) else { return Party::unknown(*id) };
            let until = |time: Time| time.as_secs_f64() - view.now.as_secs_f64();
            Party {
                job: *id,
                gpus: f64::from(job.spec.want.gpus.max(1)),
                weight: job.spec.weight,
                left: view.work_left(job).map_or(f64::INFINITY, |work| work.0),
                age: view.now.since(job.spec.submitted).as_secs_f64(),
                deadline: job.spec.deadline().map(until),
                tenant: job.spec.tenant,
            }
        });
        let mut problem = Problem::new(table, facts.collect());
        problem.prices = prices(table, view);
        for (id, _) in view.tenants().iter() {
            // A child's weight counts among its siblings, and its parent's among those.
            let path = view.tenants().path(id).map(|id| view.tenants().get(id).weight);
            let weight: f64 = path.product();
            let sound = weight > 0.0 && weight.is_finite();
            problem.mended |= !sound && problem.parties.iter().any(|one| one.tenant == id);
            problem.tenants.push(if sound { weight } else { 1.0 });
        }
        problem
    }

    /// How many take part.
    pub fn len(&self) -> usize {
        self.parties.len()
    }

    /// Whether no job takes part.
    pub fn is_empty(&self) -> bool {
        self.parties.is_empty()
    }

    /// All parties by number.
    pub fn all(&self) -> Range<usize> {
        0..self.parties.len()
    }

    /// The ways in which a party can run: the number of the choice, and its rate there, which may be 0.
    pub fn ways(&self, party: usize) -> &[(usize, f64)] {
        &self.ways[self.starts[party]..self.starts[party + 1]]
    }

    /// The party that is a job.
    pub fn party(&self, job: JobId) -> Option<usize> {
        self.table.position(job).and_then(|at| self.places[at])
    }

    /// The ways of a party alone.
    pub fn alone(&self, party: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let choices = &self.table.choices;
        self.ways(party).iter().copied().filter(|(choice, _)| choices[*choice].jobs.len() == 1)
    }

    /// Its rate where it is fastest alone.
    pub fn fastest(&self, party: usize) -> f64 {
        let best = self.alone(party).map(|(_, rate)| rate).fold(0.0, f64::max);
        if best > 0.0 {
            return best;
        }
        self.ways(party).iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// Its rate if its time went to the types in proportion to their GPUs.
    pub fn proportional(&self, party: usize) -> f64 {
        let total: f64 = self.table.capacity.iter().map(|gpus| f64::from(*gpus)).sum();
        let part = |choice: usize| f64::from(self.table.capacity[self.kind(choice)]) / total;
        let rate: f64 = self.best_alone(party).map(|(choice, rate)| rate * part(choice)).sum();
        if rate > 0.0 { rate } else { self.fastest(party) }
    }

    /// Its shares if every one of n parties had an n-th of each type for itself: at most all of its time.
    pub fn isolated(&self, party: usize) -> Vec<(usize, f64)> {
        let each = 1.0 / (self.len() as f64 * self.parties[party].gpus);
        let mut shares: Vec<(usize, f64)> = self
            .best_alone(party)
            .map(|(choice, _)| (choice, f64::from(self.table.capacity[self.kind(choice)]) * each))
            .collect();
        let whole: f64 = shares.iter().map(|(_, share)| share).sum();
        if whole > 1.0 {
            shares.iter_mut().for_each(|(_, share)| *share /= whole);
        }
        shares
    }

    /// Its rate under its isolated shares.
    pub fn isolated_rate(&self, party: usize) -> f64 {
        let rates = self.isolated(party).into_iter().map(|(choice, share)| {
            let way = self.ways(party).iter().find(|(other, _)| *other == choice);
            way.map_or(0.0, |(_, rate)| rate * share)
        });
        rates.sum()
    }

    /// Its work left; where that is not known, ten days of it where it is fastest, so that such jobs are all alike.
    pub fn work(&self, party: usize) -> f64 {
        let left = self.parties[party].left;
        if left.is_finite() { left } else { self.fastest(party) * 864_000.0 }
    }

    /// Its rate under shares of all choices.
    pub fn rate(&self, party: usize, shares: &[f64]) -> f64 {
        self.ways(party).iter().map(|(choice, rate)| rate * shares[*choice]).sum()
    }

    fn kind(&self, choice: usize) -> usize {
        self.table.choices[choice].kind()
    }

    /// The best way alone on each type, at the size that is asked for if it can be: several ways on one type differ in
    /// distance or in size.
    fn best_alone(&self, party: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let asked = |choice: usize| {
            f64::from(self.table.choices[choice].gpus()) == self.parties[party].gpus
        };
        let claim = |(choice, rate): (usize, f64)| (asked(choice) && rate > 0.0, rate);
        let mut best: Vec<(usize, f64)> = Vec::with_capacity(self.table.kinds.len());
        for (choice, rate) in self.alone(party) {
            match best.iter_mut().find(|(other, _)| self.kind(*other) == self.kind(choice)) {
                Some(known) if claim(*known) < claim((choice, rate)) => *known = (choice, rate),
                Some(_) => {}
                None => best.push((choice, rate)),
            }
        }
        best.into_iter()
    }
}

/// What a GPU of each type costs: as the cluster says, else what is usual, else as the dearest of the others.
fn prices(table: &RateTable, view: &View<'_>) -> Vec<f64> {
    let known = |price: f64| (price > 0.0 && price.is_finite()).then_some(price);
    let prices: Vec<Option<f64>> = table
        .kinds
        .iter()
        .map(|kind| {
            let kind = &view.cluster().kinds[kind.index()];
            let usual = || kinds::facts(&kind.name).and_then(|facts| known(facts.price_per_hour));
            known(kind.price_per_hour).or_else(usual)
        })
        .collect();
    let dearest = prices.iter().flatten().copied().fold(0.0, f64::max);
    let other = if dearest > 0.0 { dearest } else { 1.0 };
    prices.into_iter().map(|price| price.unwrap_or(other)).collect()
}

impl Party {
    /// A job of which nothing is known.
    pub fn unknown(job: JobId) -> Party {
        Party {
            job,
            gpus: 1.0,
            weight: 1.0,
            left: f64::INFINITY,
            age: 0.0,
            deadline: None,
            tenant: TenantId(0),
        }
    }
}
