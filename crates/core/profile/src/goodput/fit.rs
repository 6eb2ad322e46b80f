//! The seven parameters from what was observed (Pollux, section 4.1).
//!
//! The loss is the root mean square error of the logarithm of gradient times plus that of iteration times, and two
//! regularisations: `1e-3 (gamma - 1)^2`, because little overlap is the simpler explanation, and
//! `1e-2 ((beta_n / alpha_n)^2 + (beta_r / alpha_r)^2)`, because exchanges should rather be long than grow.
//! What was never seen is not fitted but assumed: mostly that it costs nothing, so that a job is tried there.

use super::descent::{Box7, Group, N, Objective, Point, lower};
use super::throughput::FLOOR;
use super::{Exchange, IterationTime, Size, Throughput};

/// The time of an iteration at one place.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Observation {
    /// Where.
    pub size: Size,
    /// Samples on each GPU at once.
    pub local: u32,
    /// Seconds of an iteration without accumulated passes.
    pub step: f64,
    /// The part of it that exchanging gradients adds.
    pub sync: f64,
}

/// Why there is no fit.
#[derive(Copy, Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// The job has not run yet, or has not reported.
    #[error("nothing was observed yet; at least one iteration must be")]
    TooFew,
    /// A time that cannot be.
    #[error(
        "observation {index} is no time of an iteration: {step} s with {sync} s of exchange; \
         expected a positive time of which the exchange is a part"
    )]
    Impossible {
        /// Which one, from 0.
        index: usize,
        /// The whole.
        step: f64,
        /// The exchange.
        sync: f64,
    },
}

/// A fit, and how far it can be trusted.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The parameters.
    pub throughput: Throughput,
    /// What was minimised, at the minimum.
    pub loss: f64,
    /// By kind of exchange.
    seen: [Seen; 3],
    /// Whether several batch sizes were seen, so that the two parts of a gradient can be separated.
    batches: bool,
}

/// What was seen of one kind of exchange.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct Seen {
    count: u32,
    /// The root mean square of relative errors.
    error: f64,
    gpus_most: u32,
}

/// The relative error of an iteration's time for each doubling of GPUs beyond what was seen.
///
/// Fits to at most `k` GPUs of the trainings published with Pollux miss the time on `2k` GPUs by 20 % in the mean and
/// 14 % in the median; a test measures it where those tables are at hand.
pub const UNSEEN_DOUBT: f64 = 0.2;

impl Fitted {
    /// The most GPUs that were seen at once.
    pub fn gpus_seen(&self) -> u32 {
        self.seen.iter().map(|seen| seen.gpus_most).max().unwrap_or(0)
    }

    /// The relative error of the iteration times that were seen with one kind of exchange; nothing where none was.
    pub fn error(&self, exchange: Exchange) -> Option<f64> {
        let seen = &self.seen[exchange as usize];
        (seen.count > 0).then_some(seen.error)
    }

    /// Whether both parts of a gradient's time were separated, by several batch sizes.
    pub fn knows_batches(&self) -> bool {
        self.batches
    }

    /// How far the time of an iteration there may be off, as a part of it.
    ///
    /// The error on what was seen with the same kind of exchange, and [`UNSEEN_DOUBT`] for every doubling of GPUs
    /// beyond it; an exchange that was never seen counts from one GPU on.
    pub fn relative_error(&self, size: Size) -> f64 {
        let seen = &self.seen[size.exchange() as usize];
        let known = if seen.count > 0 { seen.gpus_most } else { 1 };
        let beyond = (f64::from(size.gpus.max(1)) / f64::from(known)).max(1.0);
        let all = self.seen.iter().filter(|seen| seen.count > 0);
        let usual = all.map(|seen| seen.error).fold(0.0, f64::max);
        let error = if seen.count > 0 { seen.error } else { usual };
        error + UNSEEN_DOUBT * libm::log2(beyond)
    }
}

impl IterationTime for Fitted {
    fn seconds(&self, size: Size, local: u32, accumulated: u32) -> f64 {
        self.throughput.seconds(size, local, accumulated)
    }
}

/// The parameters that explain all observations best, with priors for what they do not show.
pub fn fit(observations: &[Observation]) -> Result<Fitted, FitError> {
    if observations.is_empty() {
        return Err(FitError::TooFew);
    }
    for (index, &Observation { step, sync, .. }) in observations.iter().enumerate() {
        let usable = step.is_finite() && sync.is_finite() && sync >= 0.0 && step > sync;
        if !usable {
            return Err(FitError::Impossible { index, step, sync });
        }
    }
    let problem = Problem::new(observations);
    let within = problem.bounds();
    let starts = [problem.usual_start(), problem.likely_start()];
    let found = starts.map(|start| {
        let start = std::array::from_fn(|i| start[i].clamp(within.least[i], within.most[i]));
        lower(&problem, &within, start)
    });
    let (at, loss) = if found[1].1 < found[0].1 { found[1] } else { found[0] };
    let throughput = problem.with_priors(parameters(&at));
    let seen = Exchange::ALL.map(|exchange| seen_of(observations, exchange, &throughput));
    Ok(Fitted { throughput, loss, seen, batches: problem.batches })
}

fn seen_of(observations: &[Observation], exchange: Exchange, model: &Throughput) -> Seen {
    let mut seen = Seen::default();
    let mut squares = 0.0;
    for one in observations.iter().filter(|one| one.size.exchange() == exchange) {
        let error = model.iteration(one.size, one.local) / one.step - 1.0;
        seen.count += 1;
        squares += error * error;
        seen.gpus_most = seen.gpus_most.max(one.size.gpus);
    }
    seen.error = (squares / f64::from(seen.count.max(1))).sqrt();
    seen
}

// Coordinates: logarithms of the six times, and gamma. Times differ by factors of thousands, and in logarithms a step
// that suits one suits all.
const ALPHA_C: usize = 0;
const BETA_C: usize = 1;
const ALPHA_N: usize = 2;
const BETA_N: usize = 3;
const ALPHA_R: usize = 4;
const BETA_R: usize = 5;
const GAMMA: usize = 6;

fn parameters(at: &Point) -> Throughput {
    Throughput {
        alpha_c: libm::exp(at[ALPHA_C]),
        beta_c: libm::exp(at[BETA_C]),
        alpha_n: libm::exp(at[ALPHA_N]),
        beta_n: libm::exp(at[BETA_N]),
        alpha_r: libm::exp(at[ALPHA_R]),
        beta_r: libm::exp(at[BETA_R]),
        gamma: at[GAMMA],
    }
}

/// One observation, as the loss needs it.
#[derive(Copy, Clone)]
struct Row {
    exchange: Exchange,
    local: f64,
    /// GPUs beyond two.
    further: f64,
    log_gradient: f64,
    log_step: f64,
}

struct Problem {
    rows: Vec<Row>,
    /// What was seen: several batches, several nodes, several GPUs of one node, more than two GPUs.
    batches: bool,
    network: bool,
    node: bool,
    further: bool,
    gradient_mean: f64,
}

impl Problem {
    fn new(observations: &[Observation]) -> Problem {
        let rows = observations.iter().map(|one| Row {
            exchange: one.size.exchange(),
            local: f64::from(one.local.max(1)),
            further: (f64::from(one.size.gpus) - 2.0).max(FLOOR),
            log_gradient: libm::log(one.step - one.sync),
            log_step: libm::log(one.step),
        });
        let has = |exchange| observations.iter().any(|one| one.size.exchange() == exchange);
        let sum: f64 = observations.iter().map(|one| one.step - one.sync).sum();
        Problem {
            rows: rows.collect(),
            batches: observations.iter().any(|one| one.local != observations[0].local),
            network: has(Exchange::Network),
            node: has(Exchange::Node),
            further: observations.iter().any(|one| one.size.gpus > 2),
            gradient_mean: sum / observations.len() as f64,
        }
    }

    /// Bounds, in which whatever was not seen is fixed (the priors of section 4.1).
    fn bounds(&self) -> Box7 {
        let floor = libm::log(FLOOR);
        let mut within = Box7 { least: [floor; N], most: [-floor; N] };
        within.least[GAMMA] = 1.0;
        within.most[GAMMA] = 10.0;
        let mut fix = |coordinate: usize, value: f64| {
            within.least[coordinate] = value;
            within.most[coordinate] = value;
        };
        if !self.batches {
            fix(ALPHA_C, libm::log(self.gradient_mean / 2.0));
        }
        if !self.network {
            fix(ALPHA_N, floor);
        }
        if !self.node {
            fix(ALPHA_R, floor);
        }
        if !self.network || !self.further {
            fix(BETA_N, floor);
        }
        if !self.node || !self.further {
            fix(BETA_R, floor);
        }
        within
    }

    /// The authors' start.
    fn usual_start(&self) -> Point {
        let (alpha, beta) = (libm::log(0.1), libm::log(0.01));
        [alpha, beta, alpha, beta, alpha, beta, 1.001]
    }

    /// A start near what was seen: half of a gradient's time for each of its parts, exchanges that hardly grow.
    fn likely_start(&self) -> Point {
        let alpha = libm::log(self.gradient_mean / 2.0);
        let local: f64 = self.rows.iter().map(|row| row.local).sum();
        let beta = alpha - libm::log(local / self.rows.len() as f64);
        let sync = |exchange: Exchange| {
            let rows = || self.rows.iter().filter(|row| row.exchange == exchange);
            let times = rows().map(|row| libm::exp(row.log_step) - libm::exp(row.log_gradient));
            libm::log((times.sum::<f64>() / rows().count().max(1) as f64).max(1e-6))
        };
        let (network, node) = (sync(Exchange::Network), sync(Exchange::Node));
        [alpha, beta, network, network - 3.0, node, node - 3.0, 1.5]
    }

    /// Exchanges over a network that was never seen are a little longer than those within a node (the authors' 1.1).
    fn with_priors(&self, mut throughput: Throughput) -> Throughput {
        if !self.network {
            throughput.alpha_n = throughput.alpha_n.max(throughput.alpha_r * 1.1);
            throughput.beta_n = throughput.beta_n.max(throughput.beta_r * 1.1);
        }
        throughput
    }
}

impl Objective for Problem {
    fn residuals(&self, at: &Point, take: &mut dyn FnMut(Group, f64, &Point)) {
        let model = parameters(at);
        let gamma = model.gamma;
        for row in &self.rows {
            let gradient = model.alpha_c + model.beta_c * row.local;
            let part = model.alpha_c / gradient;
            let mut slope = [0.0; N];
            slope[ALPHA_C] = part;
            slope[BETA_C] = 1.0 - part;
            let log_gradient = libm::log(gradient);
            take(Group::First, log_gradient - row.log_gradient, &slope);

            let (alpha, beta, first) = match row.exchange {
                Exchange::Nothing => (FLOOR, 0.0, None),
                Exchange::Node => (model.alpha_r, model.beta_r, Some(ALPHA_R)),
                Exchange::Network => (model.alpha_n, model.beta_n, Some(ALPHA_N)),
            };
            let sync = alpha + beta * row.further;
            let log_sync = libm::log(sync);
            // The share of the gradient in the sum of powers, and the logarithm of its root.
            let apart = gamma * (log_sync - log_gradient);
            let share = 1.0 / (1.0 + libm::exp(apart));
            let larger = log_gradient.max(log_sync);
            let log_step = larger + libm::log1p(libm::exp(-apart.abs())) / gamma;
            slope[ALPHA_C] *= share;
            slope[BETA_C] *= share;
            if let Some(first) = first {
                slope[first] = (1.0 - share) * alpha / sync;
                slope[first + 1] = (1.0 - share) * beta * row.further / sync;
            }
            let mean = share * log_gradient + (1.0 - share) * log_sync;
            slope[GAMMA] = (mean - log_step) / gamma;
            take(Group::Second, log_step - row.log_step, &slope);
        }
        let mut slope = [0.0; N];
        slope[GAMMA] = 1e-3f64.sqrt();
        take(Group::Square, slope[GAMMA] * (gamma - 1.0), &slope);
        for first in [ALPHA_N, ALPHA_R] {
            let growth = 0.1 * libm::exp(at[first + 1] - at[first]);
            let mut slope = [0.0; N];
            slope[first] = -growth;
            slope[first + 1] = growth;
            take(Group::Square, growth, &slope);
        }
    }
}

#[cfg(test)]
mod tests;
