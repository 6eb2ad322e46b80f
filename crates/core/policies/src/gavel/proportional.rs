//! Time in proportion to weight, on each type in proportion to its GPUs: every job gets the same part of what it asked
//! for.

use super::engine::{Engine, Unsolved};
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "proportional",
    about: "Every job runs the same part of the time for its weight, spread evenly over all types of GPU.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.1",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// No LP: the part of its time is the same for all jobs of a weight, at most all of it; what those leave goes to the
/// others. O(n log n + n k).
#[derive(Clone)]
pub struct Proportional;

impl Proportional {
    /// The part of its time that each party runs.
    fn times(problem: &Problem<'_>) -> Vec<f64> {
        let mut gpus: f64 = problem.table.capacity.iter().map(|gpus| f64::from(*gpus)).sum();
        let mut demand: f64 = problem.parties.iter().map(|one| one.weight * one.gpus).sum();
        let mut order: Vec<usize> = problem.all().collect();
        let weight = |party: usize| problem.parties[party].weight;
        order.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)).then(a.cmp(b)));
        let mut times = vec![0.0; problem.len()];
        // Heaviest first: a job that has all of its time leaves the rest of its part to those behind.
        for party in order {
            let time = (weight(party) * gpus / demand).min(1.0);
            times[party] = time;
            gpus -= time * problem.parties[party].gpus;
            demand -= weight(party) * problem.parties[party].gpus;
        }
        times
    }
}

impl Goal for Proportional {
    fn solve(&mut self, problem: &Problem<'_>, _engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let total: f64 = problem.table.capacity.iter().map(|gpus| f64::from(*gpus)).sum();
        let mut shares = vec![0.0; problem.table.choices.len()];
        for (party, time) in Proportional::times(problem).into_iter().enumerate() {
            for (choice, _) in problem.isolated(party) {
                let kind = problem.table.choices[choice].kind();
                shares[choice] = time * f64::from(problem.table.capacity[kind]) / total;
            }
        }
        Ok(shares)
    }

    fn looks_at_rates(&self) -> bool {
        false
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Plain { shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Proportional)
}
