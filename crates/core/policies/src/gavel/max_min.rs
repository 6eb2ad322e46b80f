//! Max-min fairness over types of GPU, or least attained service as Gavel has it: the least served job is served as
//! well as can be.

use super::engine::{Engine, Unsolved};
use super::level;
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel",
    about: "Time on each type of GPU such that the worst treated job fares as well as possible.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.1",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// Maximises the least rate, where the rate of a job is counted in GPUs and in its rate on an even mix of all types, over
/// its weight. One LP with a column for each choice; the structured solver goes on with those that can still gain.
#[derive(Clone)]
pub struct MaxMin;

impl MaxMin {
    /// The rate at which each party has exactly the level 1.
    pub fn needs(problem: &Problem<'_>) -> Vec<f64> {
        let need = |party: usize| {
            let facts = &problem.parties[party];
            facts.weight * problem.proportional(party) / facts.gpus
        };
        problem.all().map(need).collect()
    }
}

impl Goal for MaxMin {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        if engine.structured() && has_room_for_all(problem) {
            return Ok(vec![1.0; problem.table.choices.len()]);
        }
        level::filled(problem, &MaxMin::needs(problem), engine)
    }

    fn needs(&self, problem: &Problem<'_>) -> Option<Vec<f64>> {
        Some(MaxMin::needs(problem))
    }

    fn raises_the_least(&self) -> bool {
        true
    }
}

/// Whether there is one type of GPU, one way for each job to run on it, and room for all jobs at once: then each has all
/// of its time, and nothing is to be worked out.
fn has_room_for_all(problem: &Problem<'_>) -> bool {
    let table = problem.table;
    let [capacity] = table.capacity[..] else { return false };
    let alone = table.choices.len() == problem.len()
        && table.choices.iter().all(|choice| choice.jobs.len() == 1 && choice.runs());
    let asked: u64 = table.choices.iter().map(|choice| u64::from(choice.gpus())).sum();
    alone && asked <= u64::from(capacity)
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Plain { shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, MaxMin)
}
