//! Jobs, ways and GPUs as plain numbers, and what comes out.

use crate::Status;

/// One way for a job to run: so many GPUs of one type, or of two, and the rate they give.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Way {
    /// Work per second.
    pub rate: f64,
    /// Types by number, and GPUs taken of each. The second is unused where its GPUs are 0.
    pub uses: [(usize, f64); 2],
}

impl Way {
    /// On GPUs of one type.
    pub fn on(kind: usize, gpus: f64, rate: f64) -> Way {
        Way { rate, uses: [(kind, gpus), (kind, 0.0)] }
    }

    /// Across GPUs of two types.
    pub fn across(uses: [(usize, f64); 2], rate: f64) -> Way {
        Way { rate, uses }
    }
}

/// The GPUs of each type, and the ways of each job.
///
/// ```
/// use trainyard_solver::shares::{Pool, Way};
///
/// let mut pool = Pool::new([4.0, 8.0]);
/// let job = pool.job([Way::on(0, 2.0, 3.5), Way::on(1, 2.0, 1.0)]);
/// assert_eq!((job, pool.jobs(), pool.ways(job).len()), (0, 1, 2));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub(super) capacity: Vec<f64>,
    /// Where the ways of each job begin; one more than there are jobs.
    pub(super) starts: Vec<usize>,
    pub(super) ways: Vec<Way>,
}

impl Pool {
    /// GPUs of each type, and no jobs yet.
    pub fn new(capacity: impl IntoIterator<Item = f64>) -> Pool {
        Pool { capacity: capacity.into_iter().collect(), starts: vec![0], ways: Vec::new() }
    }

    /// Adds a job with its ways and gives its number. Fractions come back in the order in which ways were added.
    pub fn job(&mut self, ways: impl IntoIterator<Item = Way>) -> usize {
        self.ways.extend(ways);
        self.starts.push(self.ways.len());
        self.starts.len() - 2
    }

    /// Jobs that may run on every type with as many GPUs: `rates` holds a row of types for each job.
    pub fn dense(capacity: &[f64], gpus: &[f64], rates: &[f64]) -> Pool {
        let kinds = capacity.len().max(1);
        let mut pool = Pool::new(capacity.iter().copied());
        for (row, &gpus) in rates.chunks_exact(kinds).zip(gpus) {
            pool.job(row.iter().enumerate().map(|(kind, &rate)| Way::on(kind, gpus, rate)));
        }
        pool
    }

    /// How many jobs there are.
    pub fn jobs(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many types there are.
    pub fn kinds(&self) -> usize {
        self.capacity.len()
    }

    /// The GPUs of a type; 0 where their number makes no sense.
    pub fn capacity(&self, kind: usize) -> f64 {
        let gpus = self.capacity[kind];
        if gpus.is_finite() { gpus.max(0.0) } else { 0.0 }
    }

    /// The ways of a job.
    pub fn ways(&self, job: usize) -> &[Way] {
        &self.ways[self.starts[job]..self.starts[job + 1]]
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Fractions {
    /// [`Status::Proven`], or feasible with a gap where the limit came first.
    pub status: Status,
    /// The value of the objective: the level, the makespan, the worst ratio or the sum.
    pub level: f64,
    /// Fractions of time, one for each way of the pool in its order.
    pub of: Vec<f64>,
    /// The rate of each job.
    pub rates: Vec<f64>,
    /// What a GPU of each type is worth at the bottleneck, scaled so that all GPUs together are worth 1.
    pub prices: Vec<f64>,
    /// Jobs that took no part, ascending: no possible way, or a part that is not finite and positive.
    pub left_out: Vec<usize>,
    /// Prices that were tried.
    pub steps: u64,
}

/// A tenant that shares, for a division first among tenants and then among the jobs of each.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its weight among tenants.
    pub weight: f64,
    /// How it divides among its jobs.
    pub inside: Inside,
}

/// How a tenant divides among its jobs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// In proportion to the weights of its jobs that can still gain.
    Fairness,
    /// All to the first of its jobs that can still gain.
    Fifo,
}
