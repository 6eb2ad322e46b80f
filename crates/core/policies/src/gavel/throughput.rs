//! The most work done by all jobs together, whichever job does it.

use super::engine::{Engine, Unsolved};
use super::level;
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Shared, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-throughput",
    about: "Time on each type of GPU such that all jobs together do the most work.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: NEEDS,
    class: super::class(Objective::Throughput),
    settings: entry_settings!((
        "count",
        "`speed`: work counts by the job's own best speed, its GPUs and its weight; `steps`: a step is a step, whichever job makes it"
    ),),
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    count: Count,
    #[serde(flatten)]
    shared: Shared,
}

/// How the work of different jobs is added up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// In parts of the job's own speed where it is fastest, times its GPUs and weight.
    #[default]
    Speed,
    /// In steps, as the authors do: models with many small steps win.
    Steps,
}

impl Count {
    /// What one unit of work of a party is worth.
    pub fn worth(self, problem: &Problem<'_>, party: usize) -> f64 {
        let facts = &problem.parties[party];
        match self {
            Count::Speed => facts.gpus * facts.weight / problem.fastest(party),
            Count::Steps => 1.0,
        }
    }

    /// What a second of each choice is worth.
    pub fn worths(self, problem: &Problem<'_>) -> Vec<f64> {
        let mut worth = vec![0.0; problem.table.choices.len()];
        for party in problem.all() {
            let each = self.worth(problem, party);
            for (choice, rate) in problem.ways(party) {
                worth[*choice] += each * rate;
            }
        }
        worth
    }
}

/// Maximises the sum of all rates. One LP.
#[derive(Clone)]
pub struct MaxSum(pub Count);

impl Goal for MaxSum {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        level::dearest(problem, &self.0.worths(problem), None, engine)
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { count, shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, MaxSum(count))
}
