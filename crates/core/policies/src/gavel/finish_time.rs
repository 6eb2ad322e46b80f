//! Finish-time fairness: no job ends much later than it would in a cluster of its own.

use super::engine::{Engine, Unsolved};
use super::frame::Frame;
use super::level;
use super::optimiser::Goal;
use super::pooled;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_solver::{Affine, Cone, Name, Sense};

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-ftf",
    about: "Time on each type of GPU such that the worst ratio of a job's time to that in a cluster of its own is least.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2; the measure: Mahajan et al., Themis, NSDI 2020",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// Minimises the largest rho: (age + work / rate) over (isolated time so far + work / isolated rate).
///
/// The structured solver raises all jobs towards the same rho. With the interior point it is one second-order cone for
/// each job, as the authors have it. Otherwise it is a search for the rho at which the rates that all jobs then need can
/// just be had, one LP for each step.
#[derive(Clone, Default)]
pub struct FinishTime {
    past: BTreeMap<JobId, Past>,
}

/// What the isolated time so far is counted from.
#[derive(Copy, Clone, Debug)]
struct Past {
    work: f64,
    isolated_rate: f64,
    isolated_time: f64,
}

/// A job in the terms of the objective.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Terms {
    /// Seconds since it came.
    pub age: f64,
    /// Work left.
    pub work: f64,
    /// Seconds in all in a cluster of its own.
    pub isolated: f64,
}

impl Terms {
    /// Rho at a rate.
    pub fn rho(&self, rate: f64) -> f64 {
        (self.age + self.work / rate) / self.isolated
    }
}

/// The search ends when the ends of its range are this near, relatively.
const NEAR: f64 = 1e-8;
const STEPS_MAX: u32 = 100;

impl FinishTime {
    /// Takes note of what was done since the last time, and says what each party has ahead.
    pub fn terms(&mut self, problem: &Problem<'_>) -> Vec<Terms> {
        let mut past = BTreeMap::new();
        let mut terms = Vec::with_capacity(problem.len());
        for party in problem.all() {
            let facts = &problem.parties[party];
            let (work, isolated_rate) = (problem.work(party), problem.isolated_rate(party));
            let before = self.past.get(&facts.job);
            let done = before
                .map_or(0.0, |past| past.isolated_time + (past.work - work) / past.isolated_rate);
            let isolated_time = done.max(0.0);
            past.insert(facts.job, Past { work, isolated_rate, isolated_time });
            let isolated = isolated_time + work / isolated_rate;
            terms.push(Terms { age: facts.age, work, isolated });
        }
        self.past = past;
        terms
    }
}

/// The cones of the authors: a time for each job that is at least work over rate.
fn conic(
    problem: &Problem<'_>,
    terms: &[Terms],
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    let mut frame = Frame::new(Sense::Minimise, problem);
    let rows: Vec<_> = terms
        .iter()
        .enumerate()
        .map(|(party, one)| {
            frame.model.row(Name("rho", party), one.age / one.isolated, f64::INFINITY)
        })
        .collect();
    let columns = frame.fill(problem, engine.exact(), |_| 0.0, &[]);
    let (lowest, highest) = (f64::NEG_INFINITY, f64::INFINITY);
    frame.model.column(1.0, lowest, highest, rows.iter().map(|row| (*row, 1.0)));
    for party in problem.all() {
        let one = &terms[party];
        // Rates in units of the isolated one keep the numbers near 1.
        let unit = problem.isolated_rate(party);
        let factor = -one.work / unit / one.isolated;
        let inverse = frame.model.column(0.0, lowest, highest, [(rows[party], factor)]);
        let rate = columns.terms(problem, party, 1.0 / unit);
        let minus = rate.iter().map(|(column, factor)| (*column, -factor));
        let sum = rate.iter().copied().chain([(inverse, 1.0)]).collect();
        let difference = minus.chain([(inverse, 1.0)]).collect();
        // inverse * rate >= 1 with both above 0: |(inverse - rate, 2)| <= inverse + rate.
        frame.model.cone(
            Cone::Second,
            vec![
                Affine { terms: sum, constant: 0.0 },
                Affine { terms: difference, constant: 0.0 },
                Affine { terms: Vec::new(), constant: 2.0 },
            ],
        );
    }
    Ok(columns.of(&engine.conic(&frame.model)?.values))
}

/// The least rho at which the rates that it asks for can be had, between where it surely cannot be and where it is.
fn search(
    problem: &Problem<'_>,
    terms: &[Terms],
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    let worst = |shares: &[f64]| {
        let rhos = problem.all().map(|party| terms[party].rho(problem.rate(party, shares)));
        rhos.fold(0.0, f64::max)
    };
    let mut at = |rho: f64| {
        let needs: Vec<f64> =
            terms.iter().map(|one| one.work / (rho * one.isolated - one.age)).collect();
        level::highest(problem, &needs, engine)
    };
    let isolated = problem.all().map(|party| terms[party].rho(problem.isolated_rate(party)));
    let mut high = isolated.fold(0.0, f64::max);
    let mut low = terms.iter().map(|one| one.age / one.isolated).fold(0.0, f64::max);
    let (mut best, mut level_low) = (at(high)?, 0.0);
    for step in 0..STEPS_MAX {
        // At a level above 1 every job is faster than asked for, which gives a better rho at once.
        high = high.min(worst(&best.shares));
        if high - low <= NEAR * high {
            break;
        }
        // The level grows with rho, nearly along a line once the range is small; every other step halves the range.
        let straight = low + (high - low) * (1.0 - level_low) / (best.level - level_low);
        let inside = straight.clamp(low + 1e-3 * (high - low), high - 1e-3 * (high - low));
        let secant = step % 2 == 1 && level_low > 0.0 && inside.is_finite();
        let rho = if secant { inside } else { low + (high - low) / 2.0 };
        let found = at(rho)?;
        if found.level >= 1.0 {
            (high, best) = (rho, found);
        } else {
            (low, level_low) = (rho, found.level);
        }
    }
    Ok(best.shares)
}

impl Goal for FinishTime {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let terms = self.terms(problem);
        if engine.structured()
            && let Some((_, shares)) = pooled::finish_time(problem, &terms, engine)
        {
            // All jobs have the same rho now; a job may have a better one at no other job's cost.
            let rates: Vec<f64> = problem.all().map(|party| problem.rate(party, &shares)).collect();
            return Ok(pooled::filled(problem, &rates, engine).map_or(shares, |(_, more)| more));
        }
        match engine.exact() {
            true => conic(problem, &terms, engine),
            false => search(problem, &terms, engine),
        }
    }

    fn forget(&mut self) {
        self.past.clear();
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Plain { shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, FinishTime::default())
}
