//! Shares that stay good when jobs arrive later.
//!
//! An optimiser that looks at present jobs alone gives them the best there is, and a job that comes later finds a
//! cluster that suits the others: a job that would do almost as well elsewhere sits on the one type that the newcomer
//! needs. So arrivals are forecast from those seen so far, and room is made for them: of all shares under which no
//! present job has less than a stated part of what the optimiser gave it, those are taken that serve the expected jobs
//! best.
//!
//! The forecast: jobs of one class (model, size, acceptable types) came at so many an hour and are so long on average,
//! so that by Little's law so many of them are there at a time; those that are not there now are expected.
//! What is seen is a cache: after forgetting, the forecast begins anew.

use super::engine::Engine;
use super::level;
use super::problem::{Party, Problem};
use crate::prelude::*;
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet};
use trainyard_framework::{Choice, RateTable};
use trainyard_types::{GpuType, ModelId};

/// What speed of present jobs beyond what they are promised is worth, beside that of expected jobs.
const SPARE_WORTH: f64 = 1e-2;

/// A job that is there less often is not expected.
const CHANCE_MIN: f64 = 0.05;

/// Makes room for expected jobs.
#[derive(Clone, Debug)]
pub struct Ahead {
    /// The part of its rate that a present job may lose by it.
    regret: f64,
    /// When the first job came: what was there at the beginning tells nothing about arrivals.
    start: Time,
    seen: BTreeSet<JobId>,
    classes: BTreeMap<Class, History>,
}

/// Jobs that are alike.
type Class = (ModelId, u32, Vec<GpuType>);

/// What was seen of a class.
#[derive(Clone, Debug, Default)]
struct History {
    /// Jobs that came after the beginning.
    arrivals: u32,
    /// All jobs, and their lengths together.
    jobs: u32,
    seconds: f64,
    /// How the newest of them can run alone.
    ways: Vec<Choice>,
}

impl Ahead {
    /// One that has seen nothing yet.
    pub fn new(regret: f64) -> Ahead {
        Ahead { regret, start: Time::NEVER, seen: BTreeSet::new(), classes: BTreeMap::new() }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        *self = Ahead::new(self.regret);
    }

    /// Takes note of the jobs that came.
    pub fn observe(&mut self, table: &RateTable, view: &View<'_>) {
        let mut ways: BTreeMap<JobId, Vec<Choice>> = BTreeMap::new();
        for choice in table.choices.iter().filter(|choice| choice.jobs.len() == 1) {
            ways.entry(choice.jobs[0]).or_default().push(choice.clone());
        }
        for id in &table.jobs {
            let Some(job) = view.job(*id) else { continue };
            let history = self.classes.entry(class(job)).or_default();
            history.ways = ways.remove(id).unwrap_or_default();
            if !self.seen.insert(*id) {
                continue;
            }
            self.start = self.start.min(job.spec.submitted);
            history.arrivals += u32::from(job.spec.submitted > self.start);
            history.jobs += 1;
            history.seconds += view.time_total(job).map_or(0.0, Span::as_secs_f64);
        }
    }

    /// Jobs that are expected beyond those that are there: how each can run, and how likely it is there.
    fn expected(&self, table: &RateTable, view: &View<'_>) -> Vec<(&[Choice], f64)> {
        let mut present: BTreeMap<Class, f64> = BTreeMap::new();
        for job in table.jobs.iter().filter_map(|id| view.job(*id)) {
            *present.entry(class(job)).or_default() += 1.0;
        }
        let watched = view.now.since(self.start).as_secs_f64();
        let gpus: u32 = table.capacity.iter().sum();
        let mut expected = Vec::new();
        for (class, history) in &self.classes {
            let at_a_time = f64::from(history.arrivals) / watched.max(1.0)
                * (history.seconds / f64::from(history.jobs.max(1)));
            let missing = at_a_time - present.get(class).copied().unwrap_or(0.0);
            // More than fit are no reason to leave more room.
            let mut rest = missing.min(f64::from(gpus / class.1.max(1)));
            while rest > CHANCE_MIN {
                expected.push((&history.ways[..], rest.min(1.0)));
                rest -= 1.0;
            }
        }
        expected
    }

    /// Shares that leave more room than these, at a regret within bounds; these themselves where no job is expected.
    pub fn improved(
        &self,
        problem: &Problem<'_>,
        view: &View<'_>,
        shares: Vec<f64>,
        engine: &mut Engine,
    ) -> Vec<f64> {
        let expected = self.expected(problem.table, view);
        if expected.is_empty() || problem.is_empty() {
            return shares;
        }
        let known = problem.table.choices.len();
        let (table, mut facts) = with_expected(problem.table, &expected);
        for party in &problem.parties {
            if let Some(place) = table.position(party.job) {
                facts[place] = party.clone();
            }
        }
        let wider = Problem::new(&table, facts);
        let mut floors = vec![0.0; wider.len()];
        for party in problem.all() {
            if let Some(place) = wider.party(problem.parties[party].job) {
                floors[place] = problem.rate(party, &shares) * (1.0 - self.regret);
            }
        }
        let first = JobId(u32::MAX - expected.len() as u32);
        let chance = |job: JobId| match job < first {
            true => SPARE_WORTH,
            false => expected[(job.0 - first.0) as usize].1,
        };
        let worth: Vec<f64> =
            (0..table.choices.len()).map(|choice| worth(&wider, choice, chance)).collect();
        match level::dearest(&wider, &worth, Some(&floors), engine) {
            Ok(mut found) => {
                found.truncate(known);
                found
            }
            Err(_) => shares,
        }
    }
}

/// The speed of a choice as a part of the best speed of its jobs, times their GPUs and what each job counts.
fn worth(problem: &Problem<'_>, choice: usize, counts: impl Fn(JobId) -> f64) -> f64 {
    let choice = &problem.table.choices[choice];
    let parts = choice.jobs.iter().zip(&choice.rates).filter_map(|(job, rate)| {
        let party = problem.party(*job)?;
        Some(rate / problem.fastest(party) * problem.parties[party].gpus * counts(*job))
    });
    parts.sum()
}

/// The table with expected jobs after all present ones, and what is known of its jobs by their choices alone.
fn with_expected(table: &RateTable, expected: &[(&[Choice], f64)]) -> (RateTable, Vec<Party>) {
    let mut wider = table.clone();
    let mut facts: Vec<Party> = table.jobs.iter().map(|job| Party::unknown(*job)).collect();
    for (number, (ways, _)) in expected.iter().enumerate() {
        // Ids of jobs are dense from 0, so that the last ones are free.
        let id = JobId(u32::MAX - (expected.len() - number) as u32);
        wider.jobs.push(id);
        let gpus = ways.first().map_or(1.0, |choice| f64::from(choice.gpus()));
        facts.push(Party { gpus, ..Party::unknown(id) });
        wider
            .choices
            .extend(ways.iter().map(|choice| Choice { jobs: smallvec![id], ..choice.clone() }));
    }
    (wider, facts)
}

fn class(job: JobRef<'_>) -> Class {
    let want = &job.spec.want;
    let mut kinds = want.kinds.to_vec();
    kinds.sort_unstable();
    (job.spec.model, want.gpus, kinds)
}
