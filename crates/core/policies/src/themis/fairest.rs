//! The fractions of time that make the worst finish-time fairness as good as it can be, on one type of GPU.
//!
//! Minimise over x the largest of rho_j(x_j) = (elapsed_j + left_j / x_j) / alone_j, with 0 <= x_j <= 1 and the GPUs in
//! time within the cluster; and then the largest but one, and so on. For a given rho each job has a least fraction, which
//! falls as rho grows. A job that cannot reach rho even with all its time has all of it, and the others share one rho:
//! so a single bisection finds the answer. O(n) for each of a fixed number of steps.

/// A job in this problem; times in one unit.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Finish {
    /// Since it was submitted.
    pub elapsed: f64,
    /// What is left at full speed.
    pub left: f64,
    /// Work in a unit of time at full speed.
    pub rate: f64,
    /// How long the whole job takes with its own part of the cluster.
    pub alone: f64,
    /// GPUs while it runs.
    pub gpus: f64,
}

impl Finish {
    /// Its finish-time fairness at a fraction of time.
    pub fn rho(&self, fraction: f64) -> f64 {
        (self.elapsed + self.left / fraction) / self.alone
    }

    /// The least fraction of time that keeps it at `rho`, or all of it if nothing does.
    fn least(&self, rho: f64) -> f64 {
        let time = rho * self.alone - self.elapsed;
        if time > 0.0 { (self.left / time).min(1.0) } else { 1.0 }
    }
}

/// Steps of the bisection: enough to reach the last bit of a number from any bracket.
const STEPS: u32 = 128;

/// Fractions of time, one for each job, and the worst rho they give.
pub fn fairest(jobs: &[Finish], gpus: f64) -> (Vec<f64>, f64) {
    let need = |rho: f64| -> f64 { jobs.iter().map(|job| job.gpus * job.least(rho)).sum() };
    let mut high = 1.0;
    while need(high) > gpus && high < f64::MAX / 4.0 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if need(middle) > gpus { low = middle } else { high = middle }
    }
    let fractions: Vec<f64> = jobs.iter().map(|job| job.least(high)).collect();
    let worst = worst(jobs, &fractions);
    (fractions, worst)
}

/// The worst rho at these fractions.
pub fn worst(jobs: &[Finish], fractions: &[f64]) -> f64 {
    jobs.iter().zip(fractions).map(|(job, x)| job.rho(*x)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::themis::central::model;
    use proptest::prelude::*;
    use trainyard_solver::{Interior, Limit, Solve, Status};

    fn any_jobs() -> impl Strategy<Value = Vec<Finish>> {
        let job = (0.0f64..50.0, 1.0f64..100.0, 0.1f64..10.0, 1.0f64..200.0, 1u32..5);
        let job = job.prop_map(|(elapsed, left, rate, alone, gpus)| Finish {
            elapsed,
            left,
            rate,
            alone,
            gpus: f64::from(gpus),
        });
        prop::collection::vec(job, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn the_worst_is_as_good_as_a_general_solver_finds(
            jobs in any_jobs(),
            gpus in 1u32..16,
        ) {
            let gpus = f64::from(gpus);
            let (fractions, worst) = fairest(&jobs, gpus);
            let used: f64 = fractions.iter().zip(&jobs).map(|(x, job)| x * job.gpus).sum();
            prop_assert!(used <= gpus * (1.0 + 1e-9));
            prop_assert!(fractions.iter().all(|x| *x > 0.0 && *x <= 1.0));
            // Rates are only units; without them the model is at its most accurate.
            let plain: Vec<Finish> = jobs.iter().map(|job| Finish { rate: 1.0, ..*job }).collect();
            let solution = Interior::default().solve(&model(&plain, gpus), &Limit::steps(500));
            let best = solution.expect("it solves");
            // Few are not proven for want of digits, and then there is nothing to compare with.
            prop_assume!(best.status == Status::Proven);
            let best = best.objective;
            // The fractions above fit, so their rho can be had: being no worse makes it the least.
            prop_assert!(worst <= best * (1.0 + 1e-5), "{worst} instead of {best}");
        }
    }

    #[test]
    fn who_cannot_be_helped_has_all_its_time_and_the_others_share_one_rho() {
        let job = |elapsed, left, alone| Finish { elapsed, left, rate: 1.0, alone, gpus: 1.0 };
        let jobs = [job(90.0, 10.0, 10.0), job(0.0, 10.0, 10.0), job(0.0, 20.0, 20.0)];
        let (fractions, worst) = fairest(&jobs, 2.0);
        assert_eq!((fractions[0], worst), (1.0, 10.0));
        assert!((fractions[1] - 0.5).abs() < 1e-12 && (fractions[2] - 0.5).abs() < 1e-12);
    }
}
