//! Max-min fairness over tenants and, inside each, over its jobs or in order of arrival, and whatever is left after the
//! first bottleneck shared out in the same way: water-filling.

use super::engine::{Engine, Unsolved};
use super::frame::Frame;
use super::max_min::MaxMin;
use super::optimiser::Goal;
use super::pooled;
use super::problem::Problem;
use super::{NEEDS, Shared, entry_settings, lift};
use crate::prelude::*;
use std::collections::BTreeMap;
use trainyard_solver::Sense;
use trainyard_solver::shares::{self, Member, Tenant};
use trainyard_types::TenantId;

/// The row in the registry.
pub const ENTRY: PolicyEntry = Entry {
    name: "gavel-hierarchy",
    about: "Time on each type of GPU by the weights of tenants, and inside a tenant evenly or in order of arrival.",
    paper: "Narayanan et al., Gavel, OSDI 2020, section 4.3",
    needs: NEEDS,
    class: super::class(Objective::Fairness),
    settings: entry_settings!(
        (
            "inside",
            "`fairness`: a tenant's jobs share by weight; `fifo`: its first job has all of the tenant's weight"
        ),
        ("tenants", "whether tenants count; without them every job stands for itself"),
    ),
    defaults: defaults::<Settings>,
    build,
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Settings {
    inside: Inside,
    tenants: bool,
    #[serde(flatten)]
    shared: Shared,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { inside: Inside::default(), tenants: true, shared: Shared::default() }
    }
}

/// How a tenant shares among its jobs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inside {
    /// By their weights.
    #[default]
    Fairness,
    /// In order of arrival.
    Fifo,
}

/// Raises all levels together, each by its weight, until some jobs cannot be raised any more; freezes those, splits
/// their tenant's weight among the rest of its jobs, and goes on with them. At most one LP for each job.
///
/// The structured solver does the same in as many stages as there are types.
/// Which jobs cannot be raised is read from the prices of the rows: an interior point ends where every row that binds
/// has one.
#[derive(Clone)]
pub struct Fill {
    /// How a tenant shares among its jobs.
    pub inside: Inside,
    /// Whether tenants count at all; without them every job stands for itself.
    pub tenants: bool,
}

/// A row whose price is below this part of all prices does not bind.
const BINDS: f64 = 1e-5;
/// By how much a level that was reached may be missed later, so that the next model has an inside.
const GIVES: f64 = 1e-8;

impl Fill {
    /// What each party weighs in the next raise: those that are frozen nothing.
    fn weights(&self, problem: &Problem<'_>, frozen: &[bool]) -> Vec<f64> {
        let free = |party: &usize| !frozen[*party];
        if !self.tenants {
            let weight = |party: usize| problem.parties[party].weight;
            return problem.all().map(|p| if free(&p) { weight(p) } else { 0.0 }).collect();
        }
        let mut members: BTreeMap<TenantId, Vec<usize>> = BTreeMap::new();
        for party in problem.all().filter(free) {
            members.entry(problem.parties[party].tenant).or_default().push(party);
        }
        let mut weights = vec![0.0; problem.len()];
        for (tenant, mut parties) in members {
            let whole = problem.tenants.get(tenant.index()).copied().unwrap_or(1.0);
            if self.inside == Inside::Fifo {
                let first = |party: &usize| {
                    let facts = &problem.parties[*party];
                    (std::cmp::Reverse((facts.age * 1e6) as u64), facts.job)
                };
                parties.sort_by_key(first);
                parties.truncate(1);
            }
            let sum: f64 = parties.iter().map(|party| problem.parties[*party].weight).sum();
            for party in parties {
                weights[party] = whole * problem.parties[party].weight / sum;
            }
        }
        weights
    }

    /// Raises every job from where it is, each by its weight: the shares, by how much, and what each row is worth.
    fn raise(
        problem: &Problem<'_>,
        (units, reached, weights): (&[f64], &[f64], &[f64]),
        engine: &mut Engine,
    ) -> Result<(Vec<f64>, f64, Vec<f64>), Unsolved> {
        let mut frame = Frame::new(Sense::Maximise, problem);
        let rows = frame.at_least("level", problem, |party| reached[party] * (1.0 - GIVES));
        let into: Vec<_> = problem.all().map(|party| (rows[party], 1.0 / units[party])).collect();
        let columns = frame.fill(problem, engine.exact(), |_| 0.0, &into);
        let raised = rows.iter().zip(weights).map(|(row, weight)| (*row, -weight));
        let by = frame.model.column(1.0, 0.0, f64::INFINITY, raised);
        let solution = engine.conic(&frame.model)?;
        let prices = rows.iter().map(|row| solution.prices[row.index()].abs()).collect();
        Ok((columns.of(&solution.values), solution.values[by.index()], prices))
    }
}

/// Which jobs share with which, in the terms of the solver that knows the structure.
fn groups(fill: &Fill, problem: &Problem<'_>, units: &[f64]) -> (Vec<Member>, Vec<Tenant>) {
    let inside = match fill.inside {
        Inside::Fairness => shares::Inside::Fairness,
        Inside::Fifo => shares::Inside::Fifo,
    };
    let facts = |party: usize| &problem.parties[party];
    let member = |tenant, weight, party: usize| Member { tenant, weight, part: units[party] };
    if !fill.tenants {
        let tenant = |party| Tenant { weight: facts(party).weight, inside };
        let members = problem.all().map(|party| member(party, 1.0, party)).collect();
        return (members, problem.all().map(tenant).collect());
    }
    let last = problem.parties.iter().map(|one| one.tenant.index() + 1).max().unwrap_or(0);
    let weight = |tenant: usize| problem.tenants.get(tenant).copied().unwrap_or(1.0);
    let tenants = (0..last).map(|tenant| Tenant { weight: weight(tenant), inside });
    let members = problem.all().map(|p| member(facts(p).tenant.index(), facts(p).weight, p));
    (members.collect(), tenants.collect())
}

impl Goal for Fill {
    fn solve(&mut self, problem: &Problem<'_>, engine: &mut Engine) -> Result<Vec<f64>, Unsolved> {
        // Levels are counted as in max-min, weights aside.
        let needs = MaxMin::needs(problem);
        let units: Vec<f64> =
            problem.all().map(|party| needs[party] / problem.parties[party].weight).collect();
        if engine.structured() {
            let (members, tenants) = groups(self, problem, &units);
            if let Some(shares) = pooled::water_fill(problem, (&members, &tenants), engine) {
                return Ok(shares);
            }
        }
        let mut frozen = vec![false; problem.len()];
        let mut reached = vec![0.0; problem.len()];
        let mut shares = vec![0.0; problem.table.choices.len()];
        while frozen.contains(&false) {
            let weights = self.weights(problem, &frozen);
            let (found, by, prices) = Fill::raise(problem, (&units, &reached, &weights), engine)?;
            shares = found;
            // The weighted prices of all raised rows add up to 1: at least one of them binds.
            let mut dearest = (0.0, 0);
            for party in problem.all().filter(|party| weights[*party] > 0.0) {
                reached[party] += weights[party] * by;
                let price = prices[party] * weights[party];
                frozen[party] |= price > BINDS;
                if price >= dearest.0 {
                    dearest = (price, party);
                }
            }
            frozen[dearest.1] = true;
        }
        Ok(shares)
    }
}

fn build(raw: &RawSettings) -> Result<Pipeline, ConfigError> {
    let Settings { inside, tenants, shared } = raw.read(ENTRY.name)?;
    lift(&ENTRY, shared, Fill { inside, tenants })
}
