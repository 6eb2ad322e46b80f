//! Shortest job first over types of GPU: the job with the least left where it is fastest is served first.

use super::engine::{Engine, Unsolved};
use super::level;
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-sjf",
    about: "Time on each type of GPU by how little is left; the shortest job gets its fastest type.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: NEEDS,
    class: super::class(Objective::CompletionTime),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// Maximises the sum of all rates over their fastest, each times the number of jobs that are not shorter. One LP.
#[derive(Clone)]
pub struct Shortest;

impl Shortest {
    /// For each party how many parties, itself included, do not come before it.
    fn precedence(problem: &Problem<'_>) -> Vec<f64> {
        let mut order: Vec<usize> = problem.all().collect();
        let time = |party: usize| problem.work(party) / problem.fastest(party);
        order.sort_by(|a, b| time(*a).total_cmp(&time(*b)).then(a.cmp(b)));
        let mut points = vec![0.0; order.len()];
        for (rank, party) in order.into_iter().enumerate() {
            points[party] = (problem.len() - rank) as f64;
        }
        points
    }
}

impl Goal for Shortest {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let points = Shortest::precedence(problem);
        let mut worth = vec![0.0; problem.table.choices.len()];
        for party in problem.all() {
            for (choice, rate) in problem.ways(party) {
                worth[*choice] += points[party] * rate / problem.fastest(party);
            }
        }
        level::dearest(problem, &worth, None, engine)
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Plain { shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Shortest)
}
