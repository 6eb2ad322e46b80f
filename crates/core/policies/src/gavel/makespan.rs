//! The earliest end of all jobs that are here.

use super::engine::{Engine, Unsolved};
use super::level;
use super::optimiser::Goal;
use super::problem::Problem;
use super::{NEEDS, Plain, entry_settings, lift};
use crate::prelude::*;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-makespan",
    about: "Time on each type of GPU such that the last of the jobs that are here ends as early as possible.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: NEEDS,
    class: super::class(Objective::Throughput),
    settings: entry_settings!(),
    defaults: defaults::<Plain>,
    build,
};

/// Where the authors' search begins, in seconds, and the ratio of its ends at which it stops.
const EARLIEST: f64 = 100.0;
const LATEST: f64 = 1e6;
const NEAR: f64 = 1.05;
/// How often their search may widen its range by ten.
const WIDER_MAX: u32 = 12;

/// Minimises the longest time left. The end is 1 / s at the highest level s at which every job's rate is s times its
/// work, so that one LP is exact. With the interior point it is the authors' own search, which is up to 5 % late.
#[derive(Clone, Default)]
pub struct Makespan {
    /// The end that the last answer keeps to, in seconds.
    pub end: Option<f64>,
}

impl Makespan {
    fn search(
        &mut self,
        problem: &Problem<'_>,
        work: &[f64],
        engine: &mut Engine,
    ) -> Result<Vec<f64>, Unsolved> {
        let (mut earliest, mut latest) = (EARLIEST, LATEST);
        let mut best = None;
        for _ in 0..WIDER_MAX {
            let top = latest;
            while NEAR * earliest < latest {
                let end = (earliest + latest) / 2.0;
                let rates: Vec<f64> = work.iter().map(|work| work / end).collect();
                match level::reach(problem, &rates, engine) {
                    Ok(shares) => {
                        best = Some((end, shares));
                        latest = end;
                    }
                    Err(Unsolved::Infeasible) => earliest = end,
                    Err(other) => return Err(other),
                }
            }
            if let Some((end, shares)) = best {
                self.end = Some(end);
                return Ok(shares);
            }
            (earliest, latest) = (top, top * 10.0);
        }
        Err(Unsolved::Infeasible)
    }
}

impl Goal for Makespan {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let work: Vec<f64> = problem.all().map(|party| problem.work(party)).collect();
        if engine.exact() {
            return self.search(problem, &work, engine);
        }
        // A job that can end sooner without making the last one late may, where the engine can tell.
        let shares = level::filled(problem, &work, engine)?;
        let end = |party: usize| work[party] / problem.rate(party, &shares);
        self.end = Some(problem.all().map(end).fold(0.0, f64::max));
        Ok(shares)
    }

    fn forget(&mut self) {
        self.end = None;
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Plain { shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Makespan::default())
}
