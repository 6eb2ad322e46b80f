//! At most one choice for each job, of greatest value together, under a handful of capacities.
//!
//! A choice takes a number of GPUs of one type and has a value. This is a multiple-choice knapsack with one row for
//! each type; Sia's program (SOSP 2023, section 3.4) is one, with goodputs to a power as values.
//!
//! - `ready`: the problem without choices that another one dominates, and with the concave hull of each job and type.
//! - `price`: a price for each type at which what every job would buy on its own bounds the value from above
//!   (Lagrangian bound, the best there is, which equals that of the linear relaxation).
//! - `round`: what they would buy, made to fit and then filled up.
//! - `core`: branch and bound over the jobs that could still choose otherwise, by a table of states: two ways to the same
//!   use of GPUs are one, and what the prices prove to be worse than what is at hand is left out.
//! - [`stated`]: the same problem row by row, for a general engine.
//!
//! The search ends when the gap between value and bound is proven to be small, or when its work is used up; both are
//! told. It counts work and reads no clock, so that the same problem gives the same answer.

mod core;
mod price;
mod ready;
mod round;
mod stated;

pub use stated::stated;

use ready::Ready;

/// So many GPUs of one type, and what they are worth to the job.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Choice {
    /// The type, by its number.
    pub kind: usize,
    /// GPUs of it.
    pub gpus: u32,
    /// What having them is worth; a choice that is worth nothing is never made.
    pub value: f64,
}

/// The GPUs of each type, and the choices of each job.
///
/// ```
/// use trainyard_solver::choice::{Aim, Choice, Choices};
/// let mut choices = Choices::new([4, 1]);
/// choices.job([Choice { kind: 0, gpus: 4, value: 3.0 }, Choice { kind: 1, gpus: 1, value: 2.5 }]);
/// choices.job([Choice { kind: 0, gpus: 4, value: 2.0 }]);
/// let found = choices.best(&Aim::default());
/// assert_eq!((found.value, found.gap()), (4.5, 0.0));
/// assert_eq!(found.of, [Some(1), Some(0)]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    capacity: Vec<u32>,
    /// Where the choices of each job begin; one more than there are jobs.
    starts: Vec<usize>,
    choices: Vec<Choice>,
}

/// When a search may end.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Aim {
    /// It ends when at most this part of the value can be missing.
    pub gap_max: f64,
    /// It ends after so many states were looked at.
    pub work_max: u64,
    /// All values are multiples of this, so that less than it cannot be missing; 0 where nothing is known.
    pub grain: f64,
}

impl Default for Aim {
    fn default() -> Aim {
        Aim { gap_max: 0.0, work_max: 1_000_000, grain: 0.0 }
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// For each job the number of its choice, in the order in which they were given.
    pub of: Vec<Option<usize>>,
    /// The value of all choices together.
    pub value: f64,
    /// No choices are worth more than this.
    pub bound: f64,
    /// What one more GPU of each type would be worth about.
    pub prices: Vec<f64>,
    /// States that were looked at.
    pub work: u64,
}

impl Chosen {
    /// The part of the value that may be missing.
    pub fn gap(&self) -> f64 {
        let missing = (self.bound - self.value).max(0.0);
        if missing == 0.0 { 0.0 } else { missing / self.bound.max(f64::MIN_POSITIVE) }
    }
}

/// Sums of values that differ by less than this part of them count as equal.
const PRECISION: f64 = 1e-9;

impl Choices {
    /// GPUs of each type, and no jobs yet.
    pub fn new(capacity: impl IntoIterator<Item = u32>) -> Choices {
        Choices { capacity: capacity.into_iter().collect(), starts: vec![0], choices: Vec::new() }
    }

    /// Adds a job with its choices and gives its number.
    ///
    /// A choice whose value is not finite, or that no capacity allows, is never made.
    pub fn job(&mut self, choices: impl IntoIterator<Item = Choice>) -> usize {
        self.choices.extend(choices);
        self.starts.push(self.choices.len());
        self.starts.len() - 2
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The GPUs of each type.
    pub fn capacity(&self) -> &[u32] {
        &self.capacity
    }

    /// The choices of a job.
    pub fn of(&self, job: usize) -> &[Choice] {
        &self.choices[self.starts[job]..self.starts[job + 1]]
    }

    /// The best choices that can be found, and how good they are proven to be.
    ///
    /// O(choices x log choices) to prepare, O(choices) for each of a few dozen prices, and the work of the aim.
    pub fn best(&self, aim: &Aim) -> Chosen {
        let ready = Ready::new(self);
        let priced = price::least(&ready);
        let mut plan = round::best(&ready, &priced);
        let mut bound = priced.bound.max(plan.value);
        let mut work = 0;
        if bound - plan.value > missing_max(aim, bound) {
            let searched = core::search(&ready, &priced, &plan, aim);
            work = searched.work;
            bound = bound.min(searched.bound);
            plan = searched.plan.unwrap_or(plan);
        }
        bound = bound.max(plan.value);
        if bound - plan.value <= missing_max(&Aim { gap_max: 0.0, ..*aim }, priced.bound) {
            bound = plan.value;
        }
        let of = plan.chosen.iter().map(|item| item.map(|item| ready.item(item).origin)).collect();
        Chosen { of, value: plan.value, bound, prices: priced.prices, work }
    }
}

/// What may be missing of a value without the search trying to find it.
fn missing_max(aim: &Aim, bound: f64) -> f64 {
    let grain = if aim.grain > 0.0 { aim.grain * 0.999 } else { 0.0 };
    (aim.gap_max.max(PRECISION) * bound.abs()).max(grain)
}
