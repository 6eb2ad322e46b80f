//! microlp: a simplex and a branch and bound, in Rust alone.

use crate::check::{before_solving, whole};
use crate::{Limit, Model, Sense, Solution, Solve, SolverError, Status};
use microlp::{
    ComparisonOp, Error, OptimizationDirection, Problem, SolutionStatus, SolveOptions,
    SolveOutcome, Variable,
};

const ENGINE: &str = "the simplex";

/// A simplex with branch and bound (the crate `microlp`).
///
/// A step is a node of the search. A model without whole numbers has no nodes, and its pivots cannot be limited: it is
/// not begun if its rows outnumber the steps, for a simplex needs about one pivot for each row. It has no prices. The
/// same model gives the same bits unless time on the clock cuts it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Simplex {
    /// The part of the objective that may be lost when whole numbers are searched; 0 proves the best.
    pub gap: f64,
    start: Option<Vec<f64>>,
}

impl Simplex {
    /// One that may stop short of the best by this part of the objective.
    pub fn with_gap(gap: f64) -> Simplex {
        Simplex { gap, start: None }
    }
}

impl Solve for Simplex {
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError> {
        let start = self.start.take();
        if let Some(answer) = before_solving(model, limit)? {
            return Ok(answer);
        }
        if !model.cones.is_empty() {
            return Err(SolverError::Unsupported { engine: ENGINE, what: "cones" });
        }
        let search = model.columns.iter().any(|column| column.integer);
        if !search && limit.steps < model.rows.len() as u64 {
            return Ok(Solution::without_values(Status::OutOfLimit, 0));
        }
        let (problem, variables) = problem(model)?;
        let mut options = SolveOptions::default();
        options.time_limit = limit.wall;
        options.node_limit = Some(limit.steps);
        options.mip_gap = self.gap;
        options.warm_start = start.filter(|values| search && fits(model, values)).map(|values| {
            let whole = variables.iter().zip(values).zip(&model.columns);
            let whole = whole.filter(|(_, column)| column.integer);
            whole.map(|((variable, value), _)| (*variable, value)).collect()
        });
        answer(model, problem.solve_with(options), &variables)
    }

    fn start_from(&mut self, values: &[f64]) {
        self.start = Some(values.to_vec());
    }

    fn forget(&mut self) {
        self.start = None;
    }
}

fn fits(model: &Model, values: &[f64]) -> bool {
    values.len() == model.columns.len() && values.iter().all(|value| value.is_finite())
}

fn problem(model: &Model) -> Result<(Problem, Vec<Variable>), SolverError> {
    let mut problem = Problem::new(match model.sense {
        Sense::Minimise => OptimizationDirection::Minimize,
        Sense::Maximise => OptimizationDirection::Maximize,
    });
    let mut variables = Vec::with_capacity(model.columns.len());
    for column in &model.columns {
        let (lower, upper) = whole(column);
        variables.push(if column.integer {
            let range = (narrow(lower)?, narrow(upper)?);
            problem.add_integer_var(column.cost, range)
        } else {
            problem.add_var(column.cost, (lower, upper))
        });
    }
    for (row, entries) in model.rows.iter().zip(model.by_row()) {
        let terms = || entries.iter().map(|(column, factor)| (variables[*column], *factor));
        if entries.is_empty() {
            continue;
        }
        if row.lower == row.upper {
            problem.add_constraint(terms(), ComparisonOp::Eq, row.upper);
            continue;
        }
        if row.upper.is_finite() {
            problem.add_constraint(terms(), ComparisonOp::Le, row.upper);
        }
        if row.lower.is_finite() {
            problem.add_constraint(terms(), ComparisonOp::Ge, row.lower);
        }
    }
    Ok((problem, variables))
}

/// A bound of whole numbers, which the engine keeps in 32 bits.
fn narrow(bound: f64) -> Result<i32, SolverError> {
    let edge = f64::from(i32::MAX);
    if bound.is_finite() && bound.abs() > edge {
        return Err(SolverError::Unsupported {
            engine: ENGINE,
            what: "bounds of whole numbers beyond 32 bits",
        });
    }
    Ok(bound.clamp(-edge, edge) as i32)
}

fn answer(
    model: &Model,
    outcome: Result<SolveOutcome, Error>,
    variables: &[Variable],
) -> Result<Solution, SolverError> {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(Error::Infeasible) => return Ok(Solution::without_values(Status::Infeasible, 0)),
        Err(Error::Unbounded) => return Ok(Solution::without_values(Status::Unbounded, 0)),
        Err(error) => {
            return Err(SolverError::Numerical { engine: ENGINE, why: error.to_string() });
        }
    };
    let stats = outcome.stats();
    let search = model.columns.iter().any(|column| column.integer);
    let steps = if search { stats.nodes_solved } else { stats.lp_iterations };
    let Some(found) = outcome.solution() else {
        return Ok(Solution::without_values(Status::OutOfLimit, steps));
    };
    let status = match found.status() {
        SolutionStatus::Optimal => Status::Proven,
        _ => Status::Feasible { gap: found.gap().unwrap_or(f64::INFINITY) },
    };
    let mut values = Vec::with_capacity(variables.len());
    for (variable, column) in variables.iter().zip(&model.columns) {
        let (lower, upper) = whole(column);
        let value = found.var_value(*variable);
        let value = if column.integer { value.round() } else { value };
        // The edge of 32 bits stands for no bound at all.
        if column.integer && value.abs() >= f64::from(i32::MAX) {
            let endless = if value > 0.0 { upper.is_infinite() } else { lower.is_infinite() };
            if endless && column.cost != 0.0 {
                return Ok(Solution::without_values(Status::Unbounded, steps));
            }
        }
        values.push(value.clamp(lower, upper));
    }
    let objective = model.objective(&values);
    Ok(Solution { status, values, objective, prices: Vec::new(), steps })
}
