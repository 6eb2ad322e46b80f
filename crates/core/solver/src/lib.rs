//! One way to state a linear, integer or conic problem, and the engines that solve it.
//!
//! A [`Model`] is built column by column over named rows. An engine ([`Solve`]) takes it with a [`Limit`] and gives a
//! [`Solution`], whose [`Status`] says how good it is.
//!
//! | engine | kind | for |
//! | --- | --- | --- |
//! | [`Interior`] | interior point | LPs and cones; prices; of several best answers the one in the middle |
//! | [`Simplex`] | simplex, branch and bound | LPs and whole numbers; no prices |
//! | `Highs` (feature `highs`) | simplex, branch and bound | the same, faster, with prices and warm starts |
//!
//! One configuration for each job under few capacities has a solver of its own: [`choice`].
//! Pairings have solvers of their own: [`bipartite`] for two sides, [`matching`] and [`matching_in_order`] for one.
//! Which job runs before which deadline is [`leases`].
//!
//! ```
//! use trainyard_solver::{Interior, Limit, Model, Name, Sense, Solve, Status};
//! let mut model = Model::new(Sense::Maximise);
//! let capacity = model.row(Name("capacity", 0), f64::NEG_INFINITY, 4.0);
//! let x = model.column(3.0, 0.0, 3.0, [(capacity, 1.0)]);
//! let y = model.column(1.0, 0.0, f64::INFINITY, [(capacity, 1.0)]);
//! let solution = Interior::default().solve(&model, &Limit::steps(100)).unwrap();
//! assert_eq!(solution.status, Status::Proven);
//! assert!((solution.values[x.index()] - 3.0).abs() < 1e-7);
//! assert!((solution.values[y.index()] - 1.0).abs() < 1e-7);
//! assert!((solution.prices[capacity.index()] - 1.0).abs() < 1e-7);
//! ```

mod bipartite;
mod check;
pub mod choice;
mod fixed;
#[cfg(feature = "highs")]
mod highs;
mod in_order;
mod interior;
pub mod leases;
mod matching;
mod model;
pub mod shares;
mod simplex;
mod solution;

pub use bipartite::bipartite;
#[cfg(feature = "highs")]
pub use highs::Highs;
pub use in_order::matching_in_order;
pub use interior::Interior;
pub use matching::{matching, matching_of_most};
pub use model::{Affine, Column, Cone, Model, Name, Row, Sense};
pub use simplex::Simplex;
pub use solution::{Limit, Solution, Solve, SolverError, Status};
