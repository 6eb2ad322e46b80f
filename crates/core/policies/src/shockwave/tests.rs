//! The program beside the one of the authors, stated with a boolean for each job and round and solved the general way.

use super::calendar::{Booking, Calendar};
use super::welfare::{Candidate, Program, log_of};
use proptest::prelude::*;
use trainyard_solver::{Column, Limit, Model, Name, Row, Sense, Simplex, Solve, Status};

/// Points between which the logarithm is a line.
const BASES: [f64; 6] = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0];

/// The authors' program: x[job, round] boolean, the progress planned, its logarithm as a mixture of points, and the
/// longest time left. The logarithm is concave, so that the mixture needs no booleans of its own.
/// A solver takes 0.9999999 for a boolean, and hundreds of seconds hang on each: the value is that of the whole rounds.
fn general(program: &Program) -> Option<f64> {
    let mut model = Model::new(Sense::Maximise);
    let full = f64::from(program.gpus);
    let capacity: Vec<Row> = (0..program.rounds as usize)
        .map(|round| model.row(Name("capacity", round), f64::NEG_INFINITY, full))
        .collect();
    let parts = f64::from(program.rounds) * program.jobs.len() as f64;
    let (mut longest, mut booleans) = (Vec::new(), Vec::new());
    for (index, job) in program.jobs.iter().enumerate() {
        // Planned progress is at most what the rounds give: planned - step x rounds <= 0.
        let pace = model.row(Name("pace", index), f64::NEG_INFINITY, 0.0);
        let least = model.row(Name("least", index), f64::from(job.least), f64::INFINITY);
        let mixture = model.row(Name("mixture", index), 1.0, 1.0);
        let progress = model.row(Name("progress", index), job.done, job.done);
        // Seconds left: longest + seconds of the planned progress >= left.
        let left = model.row(Name("left", index), job.left, f64::INFINITY);
        longest.push((left, 1.0));
        for row in &capacity {
            let entries = [(*row, f64::from(job.gpus)), (pace, -job.step), (least, 1.0)];
            booleans.push(model.integer(0.0, 0.0, 1.0, entries));
        }
        let seconds = job.round / job.step;
        model.column(0.0, 0.0, 1.0, [(pace, 1.0), (progress, -1.0), (left, seconds)]);
        for base in BASES {
            let worth = job.weight * log_of(base) / parts;
            model.column(worth, 0.0, 1.0, [(mixture, 1.0), (progress, base)]);
        }
    }
    model.column(-program.k, 0.0, f64::INFINITY, longest);
    let solution = Simplex::default().solve(&model, &Limit::steps(200_000)).expect("a sound model");
    match solution.status {
        Status::Proven => {
            let given = |round: &Column| solution.values[round.index()].round() as u32;
            let counts =
                booleans.chunks(program.rounds as usize).map(|job| job.iter().map(given).sum());
            Some(program.value(&counts.collect::<Vec<u32>>()))
        }
        Status::Infeasible => None,
        status => panic!("the general way ended with {status:?}"),
    }
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let one = (0u32..3, 0.0..0.95f64, 0.02..0.4f64, 0.5..1.5f64, 0.0..3.0f64);
    let one = one.prop_map(|(power, done, step, long, late)| Candidate {
        gpus: 1 << power,
        weight: libm::exp2(late),
        done,
        step,
        left: (1.0 - done) / step * 120.0 * long,
        round: 120.0,
        least: 0,
    });
    prop::collection::vec(one, 1..5)
}

fn programs() -> impl Strategy<Value = Program> {
    let k = prop::sample::select(vec![0.0, 1e-5, 1e-4, 1e-3, 1.0]);
    (candidates(), 4u32..9, 2u32..5, k).prop_map(|(jobs, gpus, rounds, k)| Program {
        jobs,
        gpus,
        rounds,
        k,
    })
}

/// The value of the rounds that really are in a calendar.
fn realised(program: &Program, rounds: &[u32]) -> f64 {
    let booking = |(job, rounds): (&Candidate, &u32)| Booking {
        gpus: job.gpus,
        rounds: *rounds,
        urgency: job.weight,
        runs: false,
    };
    let bookings: Vec<Booking> = program.jobs.iter().zip(rounds).map(booking).collect();
    let mut calendar = Calendar::new(&bookings, program.gpus, program.rounds);
    calendar.fit(&bookings, program);
    program.value(&calendar.counts(bookings.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_calendar_is_worth_more_than_the_program_and_ours_is_worth_nearly_as_much(
        program in programs(),
    ) {
        let chosen = program.solve().expect("no job needs to get anything");
        let best = general(&program).expect("no job needs to get anything");
        // Numbers of rounds ignore whether gangs can be packed, so that they bound the general program from above.
        let scale = best.abs().max(chosen.value.abs()).max(1e-3);
        prop_assert!(chosen.value >= best - 1e-6 * scale, "{} < {best}", chosen.value);
        let ours = realised(&program, &chosen.rounds);
        prop_assert!(ours <= best + 1e-6 * scale, "{ours} > {best}");
    }

    #[test]
    fn a_least_number_of_rounds_is_kept_or_the_program_says_that_it_cannot_be(
        mut program in programs(), least in prop::collection::vec(0u32..4, 5),
    ) {
        for (job, least) in program.jobs.iter_mut().zip(least) {
            job.least = least;
        }
        match program.solve() {
            Some(chosen) => {
                prop_assert!(program.is_feasible());
                let kept = program.jobs.iter().zip(&chosen.rounds).all(|(job, count)| *count >= job.least);
                prop_assert!(kept);
                let used: u32 = program.jobs.iter().zip(&chosen.rounds).map(|(job, count)| job.gpus * count).sum();
                prop_assert!(used <= program.gpus * program.rounds);
            }
            None => prop_assert!(!program.is_feasible()),
        }
    }
}

#[test]
fn calendars_are_within_a_hundredth_of_the_general_program_in_the_mean() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut lost, mut worst) = (0.0, 0.0f64);
    for _ in 0..200 {
        let program = programs().new_tree(&mut runner).expect("a program").current();
        let best = general(&program).expect("no job needs to get anything");
        let ours = realised(&program, &program.solve().expect("likewise").rounds);
        // The range is from the value when no job runs to the best.
        let range = (best - program.value(&vec![0; program.jobs.len()])).max(1e-9);
        let loss = (best - ours).max(0.0) / range;
        (lost, worst) = (lost + loss / 200.0, worst.max(loss));
    }
    assert!(lost < 0.01, "{lost} of the range is lost in the mean, {worst} at worst");
}
