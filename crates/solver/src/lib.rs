//! One way to state a linear, integer or conic problem, and the engines that solve it.
//!
//! A [`Model`] is built column by column over named rows. An engine ([`Solve`]) takes it with a [`Limit`] and gives a
//! [`Solution`], whose [`Status`] says how good it is.

mod model;
pub mod shares;
mod solution;

pub use model::{Affine, Column, Cone, Model, Name, Row, Sense};
pub use solution::{Limit, Solution, Solve, SolverError, Status};
