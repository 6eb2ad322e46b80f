//! Speed by the number of tasks.

use super::Assignment;
use crate::nnls::nnls;

/// How the tasks of a job exchange gradients.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Through parameter servers, each worker at its own pace: `f = w / (a + b w/p + c w + d p)`.
    Asynchronous,
    /// Through parameter servers, all workers in step: `f = 1 / (a M/w + b + c w/p + d w + e p)`.
    Synchronous,
    /// Among themselves, without servers: `f = 1 / (a M/w + b + c (w-1)/w + d w)`. Not in the paper, which is older.
    AllReduce,
}

/// The tasks of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tasks {
    /// Workers; each has a GPU.
    pub workers: u32,
    /// Parameter servers; none where workers exchange gradients among themselves.
    pub servers: u32,
}

impl Tasks {
    /// Workers alone.
    pub fn workers(workers: u32) -> Tasks {
        Tasks { workers, servers: 0 }
    }
}

/// A speed that was seen.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Observed {
    /// With how many tasks.
    pub tasks: Tasks,
    /// Samples in a step over all workers.
    pub batch: f64,
    /// Steps per second.
    pub rate: f64,
}

/// Why there is no model.
#[derive(Copy, Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Fewer numbers of tasks were seen than the model has parameters.
    #[error("{seen} different sizes were seen, {needed} are needed")]
    TooFew {
        /// How many were seen.
        seen: usize,
        /// How many are needed.
        needed: usize,
    },
    /// No parameters explain what was seen.
    #[error("the best fit is off by a factor of {factor:.2}")]
    Nowhere {
        /// The worst ratio of a fitted and a seen speed, either way.
        factor: f64,
    },
}

/// A fit that is further off than this explains nothing.
const FACTOR_MAX: f64 = 2.0;

/// A fitted model of speed. Where a speed was seen, that one holds (the authors' code does the same).
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedModel {
    form: Form,
    parameters: Vec<f64>,
    seen: Vec<Observed>,
}

impl Form {
    /// How many different observations a fit needs: one for each parameter that can be told from the others. At one
    /// batch, as a job keeps it, the third term of the last form is made of the first two.
    pub fn needed(self) -> usize {
        match self {
            Form::AllReduce => 3,
            Form::Asynchronous => 4,
            Form::Synchronous => 5,
        }
    }

    /// What each parameter is multiplied by; the sum is the time of a step, for asynchronous jobs times the workers.
    fn terms(self, tasks: Tasks, batch: f64) -> Vec<f64> {
        let (workers, servers) = (f64::from(tasks.workers), f64::from(tasks.servers.max(1)));
        match self {
            Form::Asynchronous => vec![1.0, workers / servers, workers, servers],
            Form::Synchronous => vec![batch / workers, 1.0, workers / servers, workers, servers],
            Form::AllReduce => vec![batch / workers, 1.0, (workers - 1.0) / workers, workers],
        }
    }

    /// The term that is the exchange with parameter servers; nothing for workers alone.
    fn exchange(self) -> Option<usize> {
        match self {
            Form::Asynchronous => Some(1),
            Form::Synchronous => Some(2),
            Form::AllReduce => None,
        }
    }

    /// The sum of all terms that belongs to a speed.
    fn sum_of(self, tasks: Tasks, rate: f64) -> f64 {
        match self {
            Form::Asynchronous => f64::from(tasks.workers) / rate,
            Form::Synchronous | Form::AllReduce => 1.0 / rate,
        }
    }

    /// The speed that belongs to a sum of all terms: the same relation the other way round.
    fn rate_of(self, tasks: Tasks, sum: f64) -> f64 {
        self.sum_of(tasks, sum)
    }
}

impl SpeedModel {
    /// Fits a form to what was seen. What has no worker or no speed is left out; of equal tasks and batches the last
    /// one counts. Errors count in proportion to the time of a step, so that small and large sizes weigh alike.
    pub fn fit(form: Form, observed: &[Observed]) -> Result<SpeedModel, FitError> {
        let mut seen: Vec<Observed> = Vec::new();
        for one in observed {
            let is_sound = one.tasks.workers > 0
                && one.rate > 0.0
                && one.rate.is_finite()
                && one.batch > 0.0
                && one.batch.is_finite();
            if is_sound {
                seen.retain(|other| other.tasks != one.tasks || other.batch != one.batch);
                seen.push(*one);
            }
        }
        if seen.len() < form.needed() {
            return Err(FitError::TooFew { seen: seen.len(), needed: form.needed() });
        }
        let mut rows = Vec::with_capacity(seen.len());
        for one in &seen {
            let sum = form.sum_of(one.tasks, one.rate);
            rows.push(form.terms(one.tasks, one.batch).iter().map(|term| term / sum).collect());
        }
        let nowhere = FitError::Nowhere { factor: f64::INFINITY };
        let parameters = nnls(&rows, &vec![1.0; rows.len()]).ok_or(nowhere)?;
        let model = SpeedModel { form, parameters, seen };
        let factor = model.worst();
        if factor <= FACTOR_MAX { Ok(model) } else { Err(FitError::Nowhere { factor }) }
    }

    /// The parameters, in the order of the form.
    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// Steps per second: as seen, or else as fitted; nothing without a worker.
    pub fn rate(&self, tasks: Tasks, batch: f64) -> Option<f64> {
        let seen = self.seen.iter().find(|one| one.tasks == tasks && one.batch == batch);
        seen.map(|one| one.rate).or_else(|| self.fitted(tasks, batch))
    }

    /// Steps per second by the fit alone.
    pub fn fitted(&self, tasks: Tasks, batch: f64) -> Option<f64> {
        let terms = self.form.terms(tasks, batch);
        let sum: f64 = terms.iter().zip(&self.parameters).map(|(term, x)| term * x).sum();
        let rate = self.form.rate_of(tasks, sum);
        (tasks.workers > 0 && rate > 0.0 && rate.is_finite()).then_some(rate)
    }

    /// Steps per second with the parameters assigned to servers as given, where the model was fitted to jobs whose
    /// servers hold equal parts: a step waits for the fullest server, so that the time of the exchange with the servers
    /// grows by the imbalance.
    pub fn rate_on(&self, tasks: Tasks, batch: f64, assignment: &Assignment) -> Option<f64> {
        let mut terms = self.form.terms(tasks, batch);
        if let Some(exchange) = self.form.exchange() {
            terms[exchange] *= assignment.imbalance();
        }
        let sum: f64 = terms.iter().zip(&self.parameters).map(|(term, x)| term * x).sum();
        let rate = self.form.rate_of(tasks, sum);
        (tasks.workers > 0 && rate > 0.0 && rate.is_finite()).then_some(rate)
    }

    /// The worst ratio of a fitted and a seen speed, either way.
    fn worst(&self) -> f64 {
        let off = |one: &Observed| match self.fitted(one.tasks, one.batch) {
            Some(rate) => (rate / one.rate).max(one.rate / rate),
            None => f64::INFINITY,
        };
        self.seen.iter().map(off).fold(1.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(form: Form, parameters: &[f64], tasks: &[(u32, u32)], batch: f64) -> Vec<Observed> {
        let one = |&(workers, servers): &(u32, u32)| {
            let tasks = Tasks { workers, servers };
            let sum = form.terms(tasks, batch).iter().zip(parameters).map(|(t, x)| t * x).sum();
            Observed { tasks, batch, rate: form.rate_of(tasks, sum) }
        };
        tasks.iter().map(one).collect()
    }

    const SIZES: [(u32, u32); 8] =
        [(1, 1), (2, 1), (4, 2), (4, 4), (6, 3), (8, 2), (3, 5), (10, 10)];

    #[test]
    fn exact_observations_give_the_parameters_back() {
        let cases: [(Form, &[f64]); 3] = [
            (Form::Asynchronous, &[2.0, 0.3, 0.05, 0.1]),
            (Form::Synchronous, &[0.01, 0.2, 0.3, 0.0, 0.02]),
            (Form::AllReduce, &[0.004, 0.05, 0.2, 0.003]),
        ];
        for (form, truth) in cases {
            let model = SpeedModel::fit(form, &seen(form, truth, &SIZES, 256.0)).unwrap();
            // At one batch many parameters of the last form mean the same.
            for (found, truth) in model.parameters().iter().zip(truth) {
                let is_equal = form == Form::AllReduce || (found - truth).abs() < 1e-7;
                assert!(is_equal, "{form:?} {:?}", model.parameters());
            }
            let tasks = Tasks { workers: 7, servers: 4 };
            let expected = &seen(form, truth, &[(7, 4)], 256.0)[0];
            assert!((model.rate(tasks, 256.0).unwrap() / expected.rate - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_was_seen_stands_above_the_fit() {
        let mut all = seen(Form::AllReduce, &[0.004, 0.05, 0.2, 0.003], &SIZES, 256.0);
        all[3].rate *= 1.3;
        let model = SpeedModel::fit(Form::AllReduce, &all).unwrap();
        assert_eq!(model.rate(all[3].tasks, 256.0), Some(all[3].rate));
        assert_ne!(model.fitted(all[3].tasks, 256.0), Some(all[3].rate));
        assert_eq!(model.rate(Tasks::workers(0), 256.0), None);
    }

    #[test]
    fn a_job_is_as_slow_as_its_fullest_server() {
        let truth = [0.001, 0.02, 0.3, 0.0, 0.0];
        let all = seen(Form::Synchronous, &truth, &SIZES, 256.0);
        let model = SpeedModel::fit(Form::Synchronous, &all).unwrap();
        let tasks = Tasks { workers: 8, servers: 4 };
        let even = Assignment::balanced(&[10, 10, 10, 10], 4);
        let rate = model.rate_on(tasks, 256.0, &even).unwrap();
        assert!((rate / model.fitted(tasks, 256.0).unwrap() - 1.0).abs() < 1e-9);
        // All on one of four: the exchange takes four times as long, here 2.4 s of 0.032 + 0.02 + 0.6.
        let one = Assignment::by_bound(&[0, 0, 0, 0, 40], 4, 100);
        let slow = model.rate_on(tasks, 256.0, &one).unwrap();
        assert!((1.0 / slow - (0.032 + 0.02 + 2.4)).abs() < 1e-6, "{}", 1.0 / slow);
        let workers = SpeedModel::fit(
            Form::AllReduce,
            &seen(Form::AllReduce, &[0.004, 0.05, 0.2, 0.003], &SIZES, 256.0),
        );
        let workers = workers.unwrap();
        assert_eq!(workers.rate_on(tasks, 256.0, &one), workers.fitted(tasks, 256.0));
    }

    #[test]
    fn too_few_sizes_and_nonsense_are_told_apart() {
        let all = seen(Form::Synchronous, &[0.01, 0.2, 0.3, 0.0, 0.02], &SIZES, 256.0);
        let twice = [all[0], all[0], all[1], all[1]];
        let few = SpeedModel::fit(Form::Synchronous, &twice);
        assert_eq!(few, Err(FitError::TooFew { seen: 2, needed: 5 }));
        let still = all.iter().map(|one| Observed { rate: 0.0, ..*one }).collect::<Vec<_>>();
        let none = SpeedModel::fit(Form::Synchronous, &still);
        assert_eq!(none, Err(FitError::TooFew { seen: 0, needed: 5 }));
        let rates = [1.0, 50.0, 0.02, 40.0, 0.01, 60.0];
        let wild = rates.iter().zip(1..).map(|(rate, workers)| Observed {
            tasks: Tasks::workers(workers),
            batch: 64.0,
            rate: *rate,
        });
        let wild = SpeedModel::fit(Form::AllReduce, &wild.collect::<Vec<_>>());
        assert!(matches!(wild, Err(FitError::Nowhere { factor }) if factor > 2.0), "{wild:?}");
    }
}
