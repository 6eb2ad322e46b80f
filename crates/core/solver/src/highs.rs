//! HiGHS: a simplex and a branch and bound in C++.

mod basis;

use crate::check::{before_solving, whole};
use crate::{Limit, Model, Sense, Solution, Solve, SolverError, Status};
use basis::Basis;
use highs::{ColProblem, HighsModelStatus, HighsSolutionStatus, HighsStatus, SolvedModel};

const ENGINE: &str = "HiGHS";
/// What counts as the best when whole numbers are searched: the engine reports a gap even where it has proven all.
const GAP_PROVEN: f64 = 1e-9;

/// A simplex with branch and bound (HiGHS, by the crate `highs`).
///
/// A step is a pivot, or a node of the search where there are whole numbers. It has prices where there are none.
///
/// It keeps the basis of its last answer and starts from it if the next model has as many rows and columns and no whole
/// numbers: a model that is nearly the last one is solved in few pivots. Where several answers are best, which one comes
/// out depends on that start, so a replay must begin where the record did, or [`Solve::forget`] before each solve. One
/// thread: the same models in the same order give the same bits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Highs {
    /// The part of the objective that may be lost when whole numbers are searched; 0 proves the best.
    pub gap: f64,
    basis: Option<Basis>,
    start: Option<Vec<f64>>,
}

impl Highs {
    /// One that may stop short of the best by this part of the objective.
    pub fn with_gap(gap: f64) -> Highs {
        Highs { gap, ..Highs::default() }
    }
}

impl Solve for Highs {
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError> {
        let start = self.start.take();
        if let Some(answer) = before_solving(model, limit)? {
            return Ok(answer);
        }
        if !model.cones.is_empty() {
            return Err(SolverError::Unsupported { engine: ENGINE, what: "cones" });
        }
        let search = model.columns.iter().any(|column| column.integer);
        let mut engine = loaded(model)?;
        options(&mut engine, self.gap, limit);
        if search {
            let fits = |values: &Vec<f64>| {
                values.len() == model.columns.len() && values.iter().all(|value| value.is_finite())
            };
            if let Some(values) = start.filter(fits) {
                // A start that does not hold is dropped by the engine.
                let _ = engine.try_set_solution(Some(&values), None, None, None);
            }
        } else if let Some(basis) = self.basis.take() {
            basis.put(&mut engine);
        }
        let mut solved = engine.try_solve().map_err(failed)?;
        if solved.status() == HighsModelStatus::UnboundedOrInfeasible {
            // What the presolve cannot tell apart, the simplex can.
            let mut again = highs::Model::from(solved);
            again.set_option("presolve", "off");
            solved = again.try_solve().map_err(failed)?;
        }
        if !search && solved.status() == HighsModelStatus::Optimal {
            self.basis = Basis::of(&solved, model.columns.len(), model.rows.len());
        }
        answer(model, &solved, search)
    }

    fn start_from(&mut self, values: &[f64]) {
        self.start = Some(values.to_vec());
    }

    fn forget(&mut self) {
        self.basis = None;
        self.start = None;
    }
}

fn loaded(model: &Model) -> Result<highs::Model, SolverError> {
    let mut problem = ColProblem::new();
    let rows: Vec<highs::Row> =
        model.rows.iter().map(|row| problem.add_row(row.lower..=row.upper)).collect();
    for (place, column) in model.columns.iter().enumerate() {
        let (lower, upper) = whole(column);
        let entries = model.entries_of(place).into_iter().map(|(row, factor)| (rows[row], factor));
        problem.add_column_with_integrality(column.cost, lower..=upper, entries, column.integer);
    }
    let sense = match model.sense {
        Sense::Minimise => highs::Sense::Minimise,
        Sense::Maximise => highs::Sense::Maximise,
    };
    problem.try_optimise(sense).map_err(failed)
}

fn options(engine: &mut highs::Model, gap: f64, limit: &Limit) {
    let steps = i32::try_from(limit.steps).unwrap_or(i32::MAX);
    engine.set_option("threads", 1);
    engine.set_option("parallel", "off");
    engine.set_option("solver", "simplex");
    engine.set_option("primal_feasibility_tolerance", 1e-9);
    engine.set_option("dual_feasibility_tolerance", 1e-9);
    engine.set_option("simplex_iteration_limit", steps);
    engine.set_option("mip_max_nodes", steps);
    engine.set_option("mip_rel_gap", gap);
    engine.set_option("mip_abs_gap", 0.0);
    if let Some(wall) = limit.wall {
        engine.set_option("time_limit", wall.as_secs_f64());
    }
}

fn answer(model: &Model, solved: &SolvedModel, search: bool) -> Result<Solution, SolverError> {
    let steps = if search { basis::nodes(solved) } else { solved.simplex_iteration_count() };
    let steps = u64::try_from(steps).unwrap_or(0);
    let gap = if search { solved.mip_gap() } else { f64::INFINITY };
    let has_values = solved.primal_solution_status() == HighsSolutionStatus::Feasible;
    let status = match solved.status() {
        HighsModelStatus::Optimal if search && gap > GAP_PROVEN => Status::Feasible { gap },
        HighsModelStatus::Optimal => Status::Proven,
        HighsModelStatus::Infeasible => Status::Infeasible,
        HighsModelStatus::Unbounded => Status::Unbounded,
        HighsModelStatus::ReachedTimeLimit
        | HighsModelStatus::ReachedIterationLimit
        | HighsModelStatus::ReachedSolutionLimit => {
            if has_values {
                Status::Feasible { gap }
            } else {
                Status::OutOfLimit
            }
        }
        other => {
            return Err(SolverError::Numerical { engine: ENGINE, why: format!("{other:?}") });
        }
    };
    if !matches!(status, Status::Proven | Status::Feasible { .. }) {
        return Ok(Solution::without_values(status, steps));
    }
    let found = solved.get_solution();
    let mut values = Vec::with_capacity(model.columns.len());
    for (column, value) in model.columns.iter().zip(found.columns()) {
        let (lower, upper) = whole(column);
        let value = if column.integer { value.round() } else { *value };
        values.push(value.clamp(lower, upper));
    }
    let objective = model.objective(&values);
    let prices = if search { Vec::new() } else { found.dual_rows().to_vec() };
    Ok(Solution { status, values, objective, prices, steps })
}

fn failed(status: HighsStatus) -> SolverError {
    SolverError::Numerical { engine: ENGINE, why: format!("{status:?}") }
}
