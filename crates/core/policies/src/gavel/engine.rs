//! Which solver works, how much it may, and what became of it.

use crate::prelude::*;
use trainyard_solver::shares::Market;
use trainyard_solver::{Interior, Limit, Model, Simplex, Solution, Solve, SolverError, Status};

/// Steps of an interior point; usual problems take 20 to 50.
const STEPS_MAX: u64 = 500;
/// Accuracies of an interior point, in the order in which they are tried; the authors' solver stops at 1e-8.
const TOLERANCES: [f64; 3] = [1e-10, 1e-8, 1e-7];
/// A simplex counts rows before it begins: see `trainyard_solver::Simplex`.
const PIVOTS_MAX: u64 = 1_000_000;

/// The solver of an objective.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// One that knows the structure of time shares, where there is one; else the interior point.
    #[default]
    Structured,
    /// The authors' own model in an interior point, which ends in the middle of all best answers.
    Interior,
    /// A simplex, which ends in a corner of them.
    Simplex,
    /// HiGHS, in builds that have it.
    Highs,
}

impl Method {
    /// Whether models are the authors' own to the last column, so that the middle of all best answers is theirs.
    pub fn exact(self) -> bool {
        self == Method::Interior
    }
}

/// A solver with its limit.
pub struct Engine {
    /// Which.
    pub method: Method,
    /// The search over prices of the structured solvers, warm from the last one.
    pub market: Market,
    /// One for models of rows and columns, if it is not the interior point.
    linear: Option<(Box<dyn Solve>, Limit)>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsolved {
    /// No shares satisfy all rows.
    #[error("no shares satisfy all rows")]
    Infeasible,
    /// The limit came first, or the model has no end.
    #[error("the solver ended with {0:?}")]
    Ended(Status),
    /// The solver failed.
    #[error(transparent)]
    Failed(#[from] SolverError),
}

impl Engine {
    /// An engine for a method; nothing if this build does not have it.
    pub fn new(method: Method) -> Option<Engine> {
        let linear: Option<(Box<dyn Solve>, Limit)> = match method {
            Method::Structured | Method::Interior => None,
            Method::Simplex => Some((Box::new(Simplex::default()), Limit::steps(PIVOTS_MAX))),
            #[cfg(feature = "highs")]
            Method::Highs => {
                Some((Box::new(trainyard_solver::Highs::default()), Limit::steps(PIVOTS_MAX)))
            }
            #[cfg(not(feature = "highs"))]
            Method::Highs => return None,
        };
        Some(Engine { method, market: Market::new(), linear })
    }

    /// One with another solver, for tests of what happens when it fails.
    pub fn with(method: Method, linear: Box<dyn Solve>) -> Engine {
        let linear = Some((linear, Limit::steps(STEPS_MAX)));
        Engine { method, market: Market::new(), linear }
    }

    /// Whether models are the authors' own to the last column, so that the middle of all best answers is theirs.
    pub fn exact(&self) -> bool {
        self.method.exact()
    }

    /// Whether solvers that know the structure are asked first.
    pub fn structured(&self) -> bool {
        self.method == Method::Structured && self.linear.is_none()
    }

    /// Solves a model of rows and columns.
    pub fn linear(&mut self, model: &Model) -> Result<Solution, Unsolved> {
        match &mut self.linear {
            Some((solver, limit)) => judge(solver.solve(model, limit)?),
            None => self.conic(model),
        }
    }

    /// Solves a model with cones, or one whose prices are needed: the work of an interior point, whatever the method.
    ///
    /// Where the arithmetic does not allow the usual accuracy, less is asked for: none of the models here is without an
    /// end, so that an answer which says so is a breakdown of the arithmetic too.
    pub fn conic(&mut self, model: &Model) -> Result<Solution, Unsolved> {
        let mut last = Unsolved::Infeasible;
        for tolerance in TOLERANCES {
            let answer = Interior { tolerance }.solve(model, &Limit::steps(STEPS_MAX));
            match answer.map_err(Unsolved::from).and_then(judge) {
                Ok(solution) => return Ok(solution),
                Err(Unsolved::Infeasible) => return Err(Unsolved::Infeasible),
                Err(other) => last = other,
            }
        }
        Err(last)
    }

    /// Forgets what it kept to start warm.
    pub fn forget(&mut self) {
        self.market.forget();
        if let Some((solver, _)) = &mut self.linear {
            solver.forget();
        }
    }
}

fn judge(solution: Solution) -> Result<Solution, Unsolved> {
    match solution.status {
        Status::Proven | Status::Feasible { .. } => Ok(solution),
        Status::Infeasible => Err(Unsolved::Infeasible),
        status @ (Status::Unbounded | Status::OutOfLimit) => Err(Unsolved::Ended(status)),
    }
}
