//! Clarabel: an interior point for linear and conic problems, in Rust alone.

use crate::check::before_solving;
use crate::fixed::Rest;
use crate::{Cone, Limit, Model, Sense, Solution, Solve, SolverError, Status};
use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettings, DefaultSolution, DefaultSolver, IPSolver, SolverStatus, SupportedConeT,
};

const ENGINE: &str = "the interior point";
/// A worse gap than asked for that still counts as proven: what double precision gives on badly scaled models.
const GAP_PROVEN: f64 = 1e-8;
/// By how much the rows of an answer that is only feasible may be missed, and the gap up to which it is one.
const FEASIBLE: f64 = 1e-6;
const GAP_FEASIBLE: f64 = 1e-2;

/// An interior point (the crate `clarabel`).
///
/// Of several best answers it gives one in the middle of them, not a corner. It has prices, knows all cones and no whole
/// numbers. Models that have no answer because free columns run away can end as [`SolverError::Numerical`] instead of
/// unbounded; a looser tolerance would call some of them solved. A step is one iteration; 20 to 50 are usual. The same model gives the same bits: one thread, fixed order.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Interior {
    /// The gap and the misses of rows at which it stops.
    pub tolerance: f64,
}

impl Default for Interior {
    fn default() -> Interior {
        Interior { tolerance: 1e-10 }
    }
}

impl Solve for Interior {
    fn solve(&mut self, model: &Model, limit: &Limit) -> Result<Solution, SolverError> {
        if let Some(answer) = before_solving(model, limit)? {
            return Ok(answer);
        }
        if model.columns.iter().any(|column| column.integer) {
            return Err(SolverError::Unsupported { engine: ENGINE, what: "whole numbers" });
        }
        if let Some(rest) = Rest::of(model) {
            let found = self.solve(&rest.model, limit)?;
            return Ok(rest.whole(model, found));
        }
        let standard = Standard::of(model);
        let columns = model.columns.len();
        let none = CscMatrix::zeros((columns, columns));
        let (matrix, right) = (&standard.matrix, &standard.right);
        let settings = settings(self.tolerance, limit);
        let mut solver =
            DefaultSolver::new(&none, &standard.costs, matrix, right, &standard.cones, settings)
                .map_err(|error| numerical(error.to_string()))?;
        solver.solve();
        answer(model, &standard, &solver.solution, limit)
    }
}

fn settings(tolerance: f64, limit: &Limit) -> DefaultSettings<f64> {
    DefaultSettings {
        verbose: false,
        max_iter: u32::try_from(limit.steps).unwrap_or(u32::MAX),
        time_limit: limit.wall.map_or(f64::INFINITY, |wall| wall.as_secs_f64()),
        // Gaps are compared with 1 where the objective is below it, so a small objective needs a small gap.
        tol_gap_abs: tolerance,
        tol_gap_rel: tolerance,
        tol_feas: tolerance.max(1e-9),
        reduced_tol_gap_abs: GAP_FEASIBLE,
        reduced_tol_gap_rel: GAP_FEASIBLE,
        reduced_tol_feas: FEASIBLE,
        reduced_tol_infeas_rel: FEASIBLE,
        max_threads: 1,
        direct_solve_method: "qdldl".to_owned(),
        ..DefaultSettings::default()
    }
}

/// The model as Clarabel wants it: minimise `costs` x where `right` - `matrix` x lies in `cones`.
struct Standard {
    costs: Vec<f64>,
    matrix: CscMatrix<f64>,
    right: Vec<f64>,
    cones: Vec<SupportedConeT<f64>>,
    /// For each row of the model: where its equality, its upper and its lower bound are.
    places: Vec<Places>,
}

#[derive(Copy, Clone, Default)]
struct Places {
    equal: Option<usize>,
    upper: Option<usize>,
    lower: Option<usize>,
}

impl Places {
    fn all(self) -> impl Iterator<Item = (usize, f64)> {
        let above = self.equal.or(self.upper).map(|place| (place, 1.0));
        above.into_iter().chain(self.lower.map(|place| (place, -1.0)))
    }
}

impl Standard {
    fn of(model: &Model) -> Standard {
        let mut used = vec![false; model.rows.len()];
        for (row, _) in &model.entries {
            used[row.index()] = true;
        }
        let free = (f64::NEG_INFINITY, f64::INFINITY);
        let rows = model.rows.iter().zip(used);
        let rows = rows.map(|(row, used)| if used { (row.lower, row.upper) } else { free });
        let columns = model.columns.iter().map(|column| (column.lower, column.upper));
        let bounds: Vec<(f64, f64)> = rows.chain(columns).collect();

        let mut right = Vec::new();
        let mut places = vec![Places::default(); bounds.len()];
        for (place, (lower, upper)) in places.iter_mut().zip(&bounds) {
            place.equal = (lower == upper).then(|| push(&mut right, *upper));
        }
        let equalities = right.len();
        for (place, (lower, upper)) in places.iter_mut().zip(&bounds) {
            if lower != upper {
                place.upper = upper.is_finite().then(|| push(&mut right, *upper));
                place.lower = lower.is_finite().then(|| push(&mut right, -*lower));
            }
        }
        let mut cones = Vec::new();
        if equalities > 0 {
            cones.push(SupportedConeT::ZeroConeT(equalities));
        }
        if right.len() > equalities {
            cones.push(SupportedConeT::NonnegativeConeT(right.len() - equalities));
        }
        let mut triplets = Triplets::default();
        for column in 0..model.columns.len() {
            let own = (model.rows.len() + column, 1.0);
            for (row, factor) in model.entries_of(column).into_iter().chain([own]) {
                for (place, sign) in places[row].all() {
                    triplets.push(place, column, sign * factor);
                }
            }
        }
        for (cone, of) in &model.cones {
            for expression in of {
                let place = push(&mut right, expression.constant);
                for (column, factor) in &expression.terms {
                    triplets.push(place, column.index(), -factor);
                }
            }
            cones.push(match cone {
                Cone::Second => SupportedConeT::SecondOrderConeT(of.len()),
                Cone::Exponential => SupportedConeT::ExponentialConeT(),
                Cone::Power(exponent) => SupportedConeT::PowerConeT(*exponent),
            });
        }
        places.truncate(model.rows.len());
        let matrix = triplets.matrix(right.len(), model.columns.len());
        let sign = sign(model.sense);
        let costs = model.columns.iter().map(|column| sign * column.cost).collect();
        Standard { costs, matrix, right, cones, places }
    }
}

fn push(list: &mut Vec<f64>, value: f64) -> usize {
    list.push(value);
    list.len() - 1
}

/// What turns the objective into one to minimise.
fn sign(sense: Sense) -> f64 {
    match sense {
        Sense::Minimise => 1.0,
        Sense::Maximise => -1.0,
    }
}

#[derive(Default)]
struct Triplets {
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
}

impl Triplets {
    fn push(&mut self, row: usize, column: usize, value: f64) {
        self.rows.push(row);
        self.columns.push(column);
        self.values.push(value);
    }

    fn matrix(self, rows: usize, columns: usize) -> CscMatrix<f64> {
        CscMatrix::new_from_triplets(rows, columns, self.rows, self.columns, self.values)
    }
}

fn answer(
    model: &Model,
    standard: &Standard,
    found: &DefaultSolution<f64>,
    limit: &Limit,
) -> Result<Solution, SolverError> {
    let steps = u64::from(found.iterations);
    let gap = gap(found);
    let status = match found.status {
        SolverStatus::Solved => Status::Proven,
        SolverStatus::AlmostSolved if gap <= GAP_PROVEN => Status::Proven,
        SolverStatus::AlmostSolved => Status::Feasible { gap },
        SolverStatus::PrimalInfeasible => Status::Infeasible,
        SolverStatus::DualInfeasible => Status::Unbounded,
        // A weak proof is one where the engine came to its own end, and none where it was cut.
        SolverStatus::AlmostPrimalInfeasible if steps < limit.steps => Status::Infeasible,
        SolverStatus::AlmostDualInfeasible if steps < limit.steps => Status::Unbounded,
        SolverStatus::AlmostPrimalInfeasible
        | SolverStatus::AlmostDualInfeasible
        | SolverStatus::MaxIterations
        | SolverStatus::MaxTime => Status::OutOfLimit,
        SolverStatus::Unsolved
        | SolverStatus::NumericalError
        | SolverStatus::InsufficientProgress
        | SolverStatus::CallbackTerminated => return Err(numerical(found.status.to_string())),
    };
    if !matches!(status, Status::Proven | Status::Feasible { .. }) {
        return Ok(Solution::without_values(status, steps));
    }
    let columns = model.columns.iter().zip(&found.x);
    let values: Vec<f64> =
        columns.map(|(column, value)| value.clamp(column.lower, column.upper)).collect();
    let sign = sign(model.sense);
    let price = |places: &Places| -> f64 {
        places.all().map(|(place, side)| -sign * side * found.z[place]).sum()
    };
    let prices = standard.places.iter().map(price).collect();
    let objective = model.objective(&values);
    Ok(Solution { status, values, objective, prices, steps })
}

fn gap(found: &DefaultSolution<f64>) -> f64 {
    let size = found.obj_val.abs().max(found.obj_val_dual.abs()).max(f64::MIN_POSITIVE);
    (found.obj_val - found.obj_val_dual).abs() / size
}

fn numerical(why: String) -> SolverError {
    SolverError::Numerical { engine: ENGINE, why }
}
