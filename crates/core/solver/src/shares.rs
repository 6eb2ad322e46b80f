//! Solvers that know the structure of time shares.
//!
//! The problems of this module all have the same form: few types of GPU, one small block of unknowns for each job (what
//! part of its time it runs in each of its ways), and one row for each type that all blocks share (its GPUs). Given a
//! price for each type, every job is on its own and buys the rate it needs at least cost, in closed form. What is left
//! is a search over prices, in as many dimensions as there are types.
//!
//! - [`pool`](Pool): the jobs, their [`Way`]s and the GPUs, as plain numbers.
//! - `hull`: the cheapest mix of ways that gives a job a rate.
//! - `path`: how much each job needs at a level; max-min, makespan and finish-time fairness differ in nothing else.
//! - `basis`: a small revised simplex whose columns come one by one.
//! - `game`: the best mix of what jobs asked for at past prices.
//! - [`market`](Market): the search over prices, warm from the last ones.
//! - `fill`: what goes on after the first bottleneck, for jobs and for [`Tenant`]s.
//! - `total`: the largest sum.
//! - `product`: the largest product, without each of the jobs.
//! - [`pairs`](PairPool): jobs that share GPUs two by two, by column generation over classes of jobs.
//! - [`stated`]: the same problems row by row, for tests, benches and callers that want a general engine.
//!
//! Nothing here panics on bad numbers. A rate, a number of GPUs or a capacity that is not finite and positive makes a
//! way impossible; a job without a possible way, or whose part is not finite and positive, is left out, gets nothing
//! and is named in [`Fractions::left_out`]. Every loop has a bound, and a search that is cut off by its
//! [`Limit`](crate::Limit) still returns fractions that fit.

pub(crate) mod basis;
mod fill;
mod game;
mod hull;
mod market;
mod pairs;
mod path;
mod pool;
mod product;
mod stated;
mod total;

pub use fill::Member;
pub use market::Market;
pub use pairs::{PairFractions, PairJob, PairPool, max_min_pairs};
pub use path::Clock;
pub use pool::{Fractions, Inside, Pool, Tenant, Way};
pub use product::{LogProduct, Product, without_each};
pub use stated::{stated, stated_pairs};
