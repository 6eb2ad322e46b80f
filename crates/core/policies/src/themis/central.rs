//! The same least worst rho by an interior point, which stops near the middle of all answers that reach it.
//!
//! Once jobs have waited long, the worst rho is that of one job which cannot be helped, and nearly all fractions of the
//! others are as good. Published results of Themis in simulators rest on the answer of such a solver, so this is the
//! program as they state it, row by row: what is redundant moves the middle.

use super::fairest::{Finish, worst};
use trainyard_solver::{Affine, Cone, Interior, Limit, Model, Name, Sense, Solve};

/// Steps of the interior point; usual problems take 20 to 50.
const STEPS_MAX: u64 = 500;
/// Accuracies, in the order in which they are tried; the authors' solver stops at the first.
const TOLERANCES: [f64; 2] = [1e-8, 1e-7];

/// By how much its worst rho may be above the least, relatively: what a solver calls feasible.
const NEAR: f64 = 1e-2;

/// Fractions of time, one for each job, whose worst rho is near the `least` one; nothing if the arithmetic breaks down.
pub fn central(jobs: &[Finish], gpus: f64, least: f64) -> Option<Vec<f64>> {
    let model = model(jobs, gpus);
    TOLERANCES.iter().find_map(|&tolerance| {
        let solution = Interior { tolerance }.solve(&model, &Limit::steps(STEPS_MAX)).ok()?;
        // The first columns are the fractions.
        let fractions = solution.values.get(..jobs.len())?;
        (worst(jobs, fractions) <= least * (1.0 + NEAR)).then(|| fractions.to_vec())
    })
}

/// Least rho such that rho >= (elapsed + work left · inverse) / alone and inverse · rate · fraction >= 1 for each job.
pub(super) fn model(jobs: &[Finish], gpus: f64) -> Model {
    let (lowest, highest) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut model = Model::new(Sense::Minimise);
    let room = model.row(Name("gpus", 0), lowest, gpus);
    let rows: Vec<_> = jobs
        .iter()
        .enumerate()
        .map(|(index, job)| model.row(Name("rho", index), job.elapsed / job.alone, highest))
        .collect();
    let fractions: Vec<_> =
        jobs.iter().map(|job| model.column(0.0, 0.0, 1.0, [(room, job.gpus)])).collect();
    model.column(1.0, lowest, highest, rows.iter().map(|row| (*row, 1.0)));
    for ((job, fraction), row) in jobs.iter().zip(fractions).zip(rows) {
        let factor = -job.left * job.rate / job.alone;
        let inverse = model.column(0.0, lowest, highest, [(row, factor)]);
        let sum = |sign: f64| Affine {
            terms: vec![(fraction, job.rate), (inverse, sign)],
            constant: 0.0,
        };
        let two = Affine { terms: Vec::new(), constant: 2.0 };
        // a · b >= 1 with both above 0: |(a - b, 2)| <= a + b.
        model.cone(Cone::Second, vec![sum(1.0), sum(-1.0), two]);
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_the_worst_is_in_the_middle_of_what_it_may_have() {
        let job = |elapsed, left, alone| Finish { elapsed, left, rate: 2.0, alone, gpus: 1.0 };
        // The first cannot be helped, and there is room for all: everything from a tenth on is as good for the others.
        let jobs = [job(90.0, 10.0, 10.0), job(0.0, 10.0, 10.0), job(0.0, 20.0, 20.0)];
        let middle = central(&jobs, 3.0, 10.0).expect("it solves");
        assert!((middle[0] - 1.0).abs() < 1e-6, "{middle:?}");
        assert!(middle[1..].iter().all(|x| (0.3..0.9).contains(x)), "{middle:?}");
        assert!((middle[1] - middle[2]).abs() < 1e-3, "{middle:?}");
    }

    #[test]
    fn a_job_alone_has_all_its_time() {
        let job = Finish { elapsed: 5.0, left: 10.0, rate: 3.0, alone: 10.0, gpus: 4.0 };
        let one = central(&[job], 8.0, 1.5).expect("it solves");
        assert!((one[0] - 1.0).abs() < 1e-6, "{one:?}");
    }
}
