//! The most work for the money, with deadlines kept where they can be.

use super::engine::{Engine, Unsolved};
use super::frame::Frame;
use super::level;
use super::optimiser::Goal;
use super::problem::Problem;
use super::throughput::Count;
use super::{NEEDS, Shared, entry_settings, lift};
use crate::prelude::*;
use trainyard_solver::Sense;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-cost",
    about: "Time on each type of GPU such that the work done for its price is most, with deadlines as a setting.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.2",
    needs: NEEDS,
    class: super::class(Objective::Cost),
    settings: entry_settings!(
        (
            "count",
            "`speed`: work counts by the job's own best speed, its GPUs and its weight; `steps`: a step is a step"
        ),
        ("slo", "whether a job with a deadline is promised the rate that keeps it"),
    ),
    defaults: defaults::<Settings>,
    build,
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    count: Count,
    slo: bool,
    #[serde(flatten)]
    shared: Shared,
}

/// Maximises the sum of all rates, each over the price of where it is had. One LP; two more where not all deadlines can
/// be kept.
#[derive(Clone)]
pub struct Cheapest {
    /// How work is added up.
    pub count: Count,
    /// Whether deadlines are promised.
    pub slo: bool,
}

/// Shares are had a round or two late, so that a deadline is kept only by a job that aims at a moment before it: at
/// this part of the time that is left.
const EARLY: f64 = 0.95;
/// By how much a promised rate may be missed, relatively.
const MISSED: f64 = 1e-6;

impl Cheapest {
    /// What a second of each choice is worth for its price.
    fn worths(&self, problem: &Problem<'_>) -> Vec<f64> {
        let worths = self.count.worths(problem).into_iter().zip(&problem.table.choices);
        let price = |uses: &[(u16, u32)]| -> f64 {
            let gpus: f64 = uses.iter().map(|(_, gpus)| f64::from(*gpus)).sum();
            let each =
                uses.iter().map(|(kind, n)| problem.prices[usize::from(*kind)] * f64::from(*n));
            each.sum::<f64>() / gpus
        };
        worths.map(|(worth, choice)| worth / price(&choice.uses)).collect()
    }

    /// The rate with which each deadline is kept in a part of the time until then; 0 without one.
    fn promised(&self, problem: &Problem<'_>, part: f64) -> Vec<f64> {
        let rate = |party: usize| match problem.parties[party].deadline {
            Some(seconds) if seconds > 0.0 && problem.parties[party].left.is_finite() => {
                problem.parties[party].left / (seconds * part)
            }
            Some(_) | None => 0.0,
        };
        problem.all().map(rate).collect()
    }
}

/// The promises that are kept when as little as possible is missing from all of them together.
fn kept(
    problem: &Problem<'_>,
    promised: &[f64],
    engine: &mut Engine,
) -> Result<Vec<f64>, Unsolved> {
    let mut frame = Frame::new(Sense::Minimise, problem);
    let rows = frame.at_least("promise", problem, |party| f64::from(promised[party] > 0.0));
    let unit = |party: usize| if promised[party] > 0.0 { 1.0 / promised[party] } else { 0.0 };
    let into: Vec<_> = problem.all().map(|party| (rows[party], unit(party))).collect();
    let columns = frame.fill(problem, false, |_| 0.0, &into);
    for row in &rows {
        frame.model.column(1.0, 0.0, f64::INFINITY, [(*row, 1.0)]);
    }
    let shares = columns.of(&engine.linear(&frame.model)?.values);
    let reached = |party: usize| problem.rate(party, &shares) >= promised[party] * (1.0 - MISSED);
    let keep = |party: usize| if reached(party) { promised[party] * (1.0 - MISSED) } else { 0.0 };
    Ok(problem.all().map(keep).collect())
}

impl Goal for Cheapest {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        let worths = self.worths(problem);
        let promised = self.promised(problem, if engine.exact() { 1.0 } else { EARLY });
        if !self.slo || promised.iter().all(|rate| *rate <= 0.0) {
            return level::dearest(problem, &worths, None, engine);
        }
        match level::dearest(problem, &worths, Some(&promised), engine) {
            Err(Unsolved::Infeasible) if engine.exact() => {
                level::dearest(problem, &worths, None, engine)
            }
            Err(Unsolved::Infeasible) => {
                let kept = kept(problem, &promised, engine)?;
                level::dearest(problem, &worths, Some(&kept), engine)
            }
            other => other,
        }
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { count, slo, shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Cheapest { count, slo })
}
