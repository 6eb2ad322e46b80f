//! A problem in the terms of the solvers that know the structure of time shares.

use super::engine::{Engine, Unsolved};
use super::finish_time::Terms;
use super::problem::Problem;
use trainyard_solver::shares::{Clock, Fractions, Member, Pool, Tenant, Way};
use trainyard_solver::{Limit, Status};

/// Prices that may be tried before the general solver takes over.
const STEPS_MAX: u64 = 2_000;
/// The gap up to which an answer that was cut short is good enough.
const GAP_MAX: f64 = 1e-7;

/// Jobs, ways and GPUs, and which choice each way is.
pub struct Pooled {
    /// The jobs, by number of the party.
    pub pool: Pool,
    choices: Vec<usize>,
}

impl Pooled {
    /// The problem, if it has the structure: every choice is one job on GPUs of one or two types.
    pub fn of(problem: &Problem<'_>) -> Option<Pooled> {
        let table = problem.table;
        if table.choices.iter().any(|choice| choice.jobs.len() > 1 || choice.uses.len() > 2) {
            return None;
        }
        let mut pool = Pool::new(table.capacity.iter().map(|gpus| f64::from(*gpus)));
        let mut choices = Vec::new();
        for party in problem.all() {
            let ways = problem.ways(party).iter().map(|(choice, rate)| {
                choices.push(*choice);
                let uses = &table.choices[*choice].uses;
                let part = |(kind, gpus): (u16, u32)| (usize::from(kind), f64::from(gpus));
                match uses.get(1) {
                    None => Way::on(usize::from(uses[0].0), f64::from(uses[0].1), *rate),
                    Some(second) => Way::across([part(uses[0]), part(*second)], *rate),
                }
            });
            pool.job(ways);
        }
        Some(Pooled { pool, choices })
    }

    /// The level and the shares of an answer, if it is a good one.
    pub fn answer(&self, problem: &Problem<'_>, found: &Fractions) -> Option<(f64, Vec<f64>)> {
        let good = match found.status {
            Status::Proven => true,
            Status::Feasible { gap } => gap <= GAP_MAX,
            Status::Infeasible | Status::Unbounded | Status::OutOfLimit => false,
        };
        if !good || !found.left_out.is_empty() || !found.level.is_finite() {
            return None;
        }
        let mut shares = vec![0.0; problem.table.choices.len()];
        for (choice, share) in self.choices.iter().zip(&found.of) {
            shares[*choice] = share.clamp(0.0, 1.0);
        }
        Some((found.level, shares))
    }
}

/// The highest level at which every job has its need times the level.
pub fn max_min(
    problem: &Problem<'_>,
    needs: &[f64],
    engine: &mut Engine,
) -> Option<(f64, Vec<f64>)> {
    let pooled = Pooled::of(problem)?;
    let found = engine.market.max_min(&pooled.pool, needs, &Limit::steps(STEPS_MAX));
    pooled.answer(problem, &found)
}

/// The same, and whatever is left after the first bottleneck shared out in the same way.
pub fn filled(
    problem: &Problem<'_>,
    needs: &[f64],
    engine: &mut Engine,
) -> Option<(f64, Vec<f64>)> {
    let pooled = Pooled::of(problem)?;
    let found = engine.market.max_min_filled(&pooled.pool, needs, &Limit::steps(STEPS_MAX));
    pooled.answer(problem, &found)
}

/// The largest worth of all choices together, where each party has at least a rate. An error where that cannot be; nothing
/// where the problem has another structure or the search is cut short.
pub fn max_sum(
    problem: &Problem<'_>,
    worth: &[f64],
    floors: Option<&[f64]>,
    engine: &mut Engine,
) -> Option<Result<Vec<f64>, Unsolved>> {
    let pooled = Pooled::of(problem)?;
    let worth: Vec<f64> = pooled.choices.iter().map(|choice| worth[*choice]).collect();
    let (floors, limit) = (floors.unwrap_or_default(), Limit::steps(STEPS_MAX));
    match engine.market.max_sum(&pooled.pool, &worth, floors, &limit) {
        Some(found) => pooled.answer(problem, &found).map(|(_, shares)| Ok(shares)),
        None => Some(Err(Unsolved::Infeasible)),
    }
}

/// Tenants raised by their weights and their jobs inside, until no job can gain.
pub fn water_fill(
    problem: &Problem<'_>,
    (members, tenants): (&[Member], &[Tenant]),
    engine: &mut Engine,
) -> Option<Vec<f64>> {
    let pooled = Pooled::of(problem)?;
    let limit = Limit::steps(STEPS_MAX);
    let found = engine.market.water_fill(&pooled.pool, members, tenants, &limit);
    pooled.answer(problem, &found).map(|(_, shares)| shares)
}

/// The least worst rho.
pub fn finish_time(
    problem: &Problem<'_>,
    terms: &[Terms],
    engine: &mut Engine,
) -> Option<(f64, Vec<f64>)> {
    let pooled = Pooled::of(problem)?;
    let clock = |one: &Terms| Clock { since: one.age, left: one.work, alone: one.isolated };
    let clocks: Vec<Clock> = terms.iter().map(clock).collect();
    let found = engine.market.finish_time(&pooled.pool, &clocks, &Limit::steps(STEPS_MAX));
    pooled.answer(problem, &found)
}
