//! Random problems: the engines agree with each other, with duality, and with trying everything.

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq};
use proptest::{collection::vec, prop_oneof, proptest};
use trainyard_solver::{
    Affine, Cone, Interior, Limit, Model, Name, Sense, Simplex, Solution, Solve, SolverError,
    Status,
};

const LIMIT: Limit = Limit::steps(10_000);
const INFINITE: f64 = f64::INFINITY;

/// A problem as plain lists, which a test can compute with.
#[derive(Clone, Debug)]
struct Plain {
    sense: Sense,
    /// Lower and upper bound.
    rows: Vec<(f64, f64)>,
    /// Cost, lower and upper bound, entries.
    columns: Vec<(f64, f64, f64, Vec<f64>)>,
}

impl Plain {
    fn model(&self, integer: bool) -> Model {
        let mut model = Model::new(self.sense);
        let rows: Vec<_> = (self.rows.iter().enumerate())
            .map(|(at, (lower, upper))| model.row(Name("row", at), *lower, *upper))
            .collect();
        for (cost, lower, upper, entries) in &self.columns {
            let entries = rows.iter().copied().zip(entries.iter().copied());
            if integer {
                model.integer(*cost, *lower, *upper, entries);
            } else {
                model.column(*cost, *lower, *upper, entries);
            }
        }
        model
    }

    fn holds(&self, values: &[f64], slack: f64) -> bool {
        let inside =
            |value: f64, lower: f64, upper: f64| value >= lower - slack && value <= upper + slack;
        let columns = self.columns.iter().zip(values).all(|(c, value)| inside(*value, c.1, c.2));
        let mut rows = self.rows.iter().enumerate();
        columns
            && rows.all(|(at, (lower, upper))| {
                let sum = self.columns.iter().zip(values).map(|(c, value)| c.3[at] * value).sum();
                inside(sum, *lower, *upper)
            })
    }

    fn objective(&self, values: &[f64]) -> f64 {
        self.columns.iter().zip(values).map(|(column, value)| column.0 * value).sum()
    }

    /// The bound of the dual at these prices: what duality says the objective is.
    fn dual(&self, prices: &[f64]) -> f64 {
        let gain = match self.sense {
            Sense::Maximise => 1.0,
            Sense::Minimise => -1.0,
        };
        let worth = |price: f64, lower: f64, upper: f64| {
            let bound = if price * gain > 0.0 { upper } else { lower };
            // An infinite bound has no price; what is left of one is a rounding error.
            if bound.is_finite() { price * bound } else { price.abs() * 1e9 }
        };
        let rows = self
            .rows
            .iter()
            .zip(prices)
            .map(|((lower, upper), price)| worth(*price, *lower, *upper));
        let columns = self.columns.iter().map(|(cost, lower, upper, entries)| {
            let paid: f64 = entries.iter().zip(prices).map(|(factor, price)| factor * price).sum();
            let left = cost - paid;
            worth(if left.abs() < 1e-7 { 0.0 } else { left }, *lower, *upper)
        });
        rows.map(|part| if part.abs() < 1e-6 { 0.0 } else { part }).chain(columns).sum()
    }
}

fn bounds() -> impl Strategy<Value = (f64, f64)> {
    let whole = || (-4_i32..12).prop_map(f64::from);
    prop_oneof![
        3 => whole().prop_map(|upper| (-INFINITE, upper)),
        2 => whole().prop_map(|lower| (lower, INFINITE)),
        1 => whole().prop_map(|both| (both, both)),
        1 => (whole(), 0_i32..6).prop_map(|(lower, width)| (lower, lower + f64::from(width))),
        1 => Just((-INFINITE, INFINITE)),
    ]
}

fn plain(
    column: impl Strategy<Value = (f64, f64)> + Clone + 'static,
) -> impl Strategy<Value = Plain> {
    (any::<bool>(), 1_usize..6, 1_usize..6).prop_flat_map(move |(maximise, rows, columns)| {
        let number = || prop_oneof![2 => Just(0.0), 5 => (-3_i32..7).prop_map(f64::from)];
        let one = (number(), column.clone(), vec(number(), rows));
        let one = one.prop_map(|(cost, (lower, upper), entries)| (cost, lower, upper, entries));
        let sense = if maximise { Sense::Maximise } else { Sense::Minimise };
        (vec(bounds(), rows), vec(one, columns)).prop_map(move |(rows, columns)| Plain {
            sense,
            rows,
            columns,
        })
    })
}

fn real() -> impl Strategy<Value = (f64, f64)> + Clone {
    prop_oneof![
        4 => Just((0.0, INFINITE)),
        2 => (0_i32..5).prop_map(|upper| (0.0, f64::from(upper))),
        1 => Just((-INFINITE, INFINITE)),
        1 => Just((-INFINITE, 2.0)),
    ]
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0)
}

fn bits(solution: &Solution) -> (Vec<u64>, Vec<u64>, u64) {
    let bits = |list: &[f64]| list.iter().map(|value| value.to_bits()).collect();
    (bits(&solution.values), bits(&solution.prices), solution.objective.to_bits())
}

fn engines() -> Vec<Box<dyn Solve>> {
    vec![
        Box::new(Interior::default()),
        Box::new(Simplex::default()),
        #[cfg(feature = "highs")]
        Box::new(trainyard_solver::Highs::default()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(5), ..ProptestConfig::default() })]

    #[test]
    fn the_engines_agree_on_linear_problems(plain in plain(real())) {
        let model = plain.model(false);
        let solve = |mut engine: Box<dyn Solve>| engine.solve(&model, &LIMIT);
        let all: Vec<_> = engines().into_iter().map(solve).collect();
        let judge = all[1].as_ref().expect("an answer");
        let proven = judge.status == Status::Proven;
        for found in &all {
            // An interior point may break down where there is no answer, and there alone.
            if matches!(found, Err(SolverError::Numerical { .. })) && !proven {
                continue;
            }
            let found = found.as_ref().expect("an answer");
            // What is neither feasible nor bounded has two names.
            prop_assert_eq!(found.status == Status::Proven, proven, "{:?}", all);
            if proven {
                prop_assert!(plain.holds(&found.values, 1e-6), "{:?}", found);
                prop_assert!(near(found.objective, judge.objective), "{:?}", all);
                prop_assert!(near(found.objective, plain.objective(&found.values)));
                if !found.prices.is_empty() {
                    let dual = plain.dual(&found.prices);
                    prop_assert!(near(dual, found.objective), "{} {:?}", dual, found);
                }
            }
        }
    }

    #[test]
    fn the_searches_find_what_trying_everything_finds(
        plain in plain((0_i32..2, 0_i32..3).prop_map(|(lower, width)| (f64::from(lower), f64::from(lower + width))))
    ) {
        let best = try_everything(&plain);
        let model = plain.model(true);
        // The interior point has no whole numbers.
        for mut engine in engines().into_iter().skip(1) {
            let found = engine.solve(&model, &LIMIT).expect("an answer");
            match best {
                None => prop_assert_eq!(found.status, Status::Infeasible),
                Some(best) => {
                    prop_assert_eq!(found.status, Status::Proven);
                    prop_assert!(plain.holds(&found.values, 0.0));
                    prop_assert_eq!(found.objective, best);
                }
            }
        }
    }

    #[test]
    fn the_same_problem_has_the_same_answer_to_the_last_bit(plain in plain(real())) {
        let model = plain.model(false);
        for mut engine in engines() {
            let first = engine.solve(&model, &LIMIT);
            engine.forget();
            let second = engine.solve(&model, &LIMIT);
            let (Ok(first), Ok(second)) = (&first, &second) else {
                prop_assert_eq!(first, second);
                continue;
            };
            prop_assert_eq!(bits(first), bits(second));
            prop_assert_eq!(first.steps, second.steps);
        }
    }

    #[test]
    fn the_best_sum_of_logarithms_cannot_be_improved(
        rates in vec(vec(1_u32..20, 3), 1..6), capacity in 1_u32..4
    ) {
        let (model, shares) = proportional(&rates, f64::from(capacity));
        let found = Interior::default().solve(&model, &LIMIT).expect("an answer");
        prop_assert_eq!(found.status, Status::Proven);
        // At the best, no move of time towards any other split gains: the sum over jobs of u'/u is at most the jobs.
        let got = |job: usize| -> f64 {
            (0..3).map(|kind| f64::from(rates[job][kind]) * found.values[shares[job][kind]]).sum()
        };
        let jobs = rates.len();
        let linear: Vec<Vec<f64>> = (0..jobs)
            .map(|job| rates[job].iter().map(|rate| f64::from(*rate) / got(job)).collect())
            .collect();
        let bound = best_split(&linear, f64::from(capacity));
        prop_assert!(bound <= jobs as f64 * (1.0 + 1e-5), "{} for {} jobs", bound, jobs);
    }
}

/// The best objective of whole values within the bounds of columns.
fn try_everything(plain: &Plain) -> Option<f64> {
    let mut best: Option<f64> = None;
    let mut values: Vec<f64> = plain.columns.iter().map(|column| column.1).collect();
    loop {
        if plain.holds(&values, 0.0) {
            let found = plain.objective(&values);
            best = Some(match (best, plain.sense) {
                (None, _) => found,
                (Some(best), Sense::Maximise) => best.max(found),
                (Some(best), Sense::Minimise) => best.min(found),
            });
        }
        let next = (0..values.len()).find(|at| values[*at] < plain.columns[*at].2);
        let Some(next) = next else { return best };
        values[next] += 1.0;
        for (value, column) in values.iter_mut().zip(&plain.columns).take(next) {
            *value = column.1;
        }
    }
}

/// Time of jobs on three types, each with a capacity, with the greatest sum of logarithms of what jobs get.
fn proportional(rates: &[Vec<u32>], capacity: f64) -> (Model, Vec<Vec<usize>>) {
    let mut model = Model::new(Sense::Maximise);
    let kinds: Vec<_> = (0..3).map(|at| model.row(Name("kind", at), -INFINITE, capacity)).collect();
    let mut shares = Vec::new();
    for (job, rates) in rates.iter().enumerate() {
        let time = model.row(Name("time", job), -INFINITE, 1.0);
        let columns: Vec<_> = (kinds.iter())
            .map(|kind| model.column(0.0, 0.0, INFINITE, [(*kind, 1.0), (time, 1.0)]))
            .collect();
        let log = model.column(1.0, -INFINITE, INFINITE, []);
        let got = columns.iter().zip(rates).map(|(column, rate)| (*column, f64::from(*rate)));
        let got = Affine { terms: got.collect(), constant: 0.0 };
        let one = Affine { terms: vec![], constant: 1.0 };
        let log = Affine { terms: vec![(log, 1.0)], constant: 0.0 };
        model.cone(Cone::Exponential, vec![log, one, got]);
        shares.push(columns.iter().map(|column| column.index()).collect());
    }
    (model, shares)
}

/// The greatest sum of gains times shares over all splits, by the simplex.
fn best_split(gains: &[Vec<f64>], capacity: f64) -> f64 {
    let mut model = Model::new(Sense::Maximise);
    let kinds: Vec<_> = (0..3).map(|at| model.row(Name("kind", at), -INFINITE, capacity)).collect();
    for (job, gains) in gains.iter().enumerate() {
        let time = model.row(Name("time", job), -INFINITE, 1.0);
        for (kind, gain) in kinds.iter().zip(gains) {
            model.column(*gain, 0.0, INFINITE, [(*kind, 1.0), (time, 1.0)]);
        }
    }
    Simplex::default().solve(&model, &LIMIT).expect("an answer").objective
}

#[cfg(feature = "highs")]
#[test]
fn a_warm_start_takes_fewer_steps_to_the_same_objective() {
    let shares = |shift: usize| {
        let mut model = Model::new(Sense::Maximise);
        let kinds: Vec<_> = (0..3).map(|at| model.row(Name("kind", at), -INFINITE, 20.0)).collect();
        let least: Vec<_> =
            (0..100).map(|at| model.row(Name("least", at), 0.0, INFINITE)).collect();
        for (job, least) in least.iter().enumerate() {
            let time = model.row(Name("time", job), -INFINITE, 1.0);
            for (at, kind) in kinds.iter().enumerate() {
                let moved = if job == 7 { shift } else { 0 };
                let rate = 1.0 + ((job * 13 + at * 29 + moved) % 17) as f64;
                model.column(0.0, 0.0, INFINITE, [(*kind, 1.0), (time, 1.0), (*least, rate)]);
            }
        }
        model.column(1.0, 0.0, INFINITE, least.iter().map(|row| (*row, -1.0)));
        model
    };
    let mut warm = trainyard_solver::Highs::default();
    let first = warm.solve(&shares(0), &LIMIT).expect("an answer");
    let warm = warm.solve(&shares(3), &LIMIT).expect("an answer");
    let cold = trainyard_solver::Highs::default().solve(&shares(3), &LIMIT).expect("an answer");
    assert!(near(warm.objective, cold.objective));
    assert!(warm.steps * 4 < cold.steps, "{} {} {}", first.steps, warm.steps, cold.steps);
}
