//! A cluster of its own for every job: an n-th of each type, served by turns. What fairness is measured against.

use super::engine::{Engine, Unsolved};
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "isolated",
    about: "Every job has an equal part of each type of GPU, as in a cluster of its own.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// No LP: capacity over the number of jobs over GPUs of the job, at most all of its time. O(n k).
#[derive(Clone)]
pub struct Isolated;

impl Goal for Isolated {
    fn solve(&mut self, problem: &Problem<'_>, _engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let mut shares = vec![0.0; problem.table.choices.len()];
        for party in problem.all() {
            for (choice, share) in problem.isolated(party) {
                shares[choice] = share;
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
    lift(&ENTRY, shared, Isolated)
}
