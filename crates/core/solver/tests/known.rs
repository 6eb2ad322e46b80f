//! Problems whose answers are known.

use trainyard_solver::{
    Affine, Column, Cone, Interior, Limit, Model, Name, Sense, Simplex, Solution, Solve,
    SolverError, Status,
};

const LIMIT: Limit = Limit::steps(10_000);
const INFINITE: f64 = f64::INFINITY;

/// Engines that solve LPs, by name.
fn engines() -> Vec<(&'static str, Box<dyn Solve>)> {
    vec![
        ("interior", Box::new(Interior::default())),
        ("simplex", Box::new(Simplex::default())),
        #[cfg(feature = "highs")]
        ("highs", Box::new(trainyard_solver::Highs::default())),
    ]
}

fn searchers() -> Vec<(&'static str, Box<dyn Solve>)> {
    engines().into_iter().filter(|(name, _)| *name != "interior").collect()
}

fn solved(model: &Model) -> Solution {
    let solution = Interior::default().solve(model, &LIMIT).expect("an answer");
    assert_eq!(solution.status, Status::Proven);
    solution
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-7 * wanted.abs().max(1.0)
}

fn column(column: Column, factor: f64) -> Affine {
    Affine { terms: vec![(column, factor)], constant: 0.0 }
}

fn constant(constant: f64) -> Affine {
    Affine { terms: vec![], constant }
}

#[test]
fn prices_are_the_worth_of_one_more() {
    for sense in [Sense::Maximise, Sense::Minimise] {
        for (name, mut engine) in engines() {
            // max 3x + 2y with x + y <= 4, x + 3y <= 6; and min 4x + 6y with x + y >= 3, x + 3y >= 2.
            let mut model = Model::new(sense);
            let (costs, bounds) = match sense {
                Sense::Maximise => ([3.0, 2.0], [(-INFINITE, 4.0), (-INFINITE, 6.0)]),
                Sense::Minimise => ([4.0, 6.0], [(3.0, INFINITE), (2.0, INFINITE)]),
            };
            let first = model.row(Name("first", 0), bounds[0].0, bounds[0].1);
            let second = model.row(Name("second", 0), bounds[1].0, bounds[1].1);
            model.column(costs[0], 0.0, INFINITE, [(first, 1.0), (second, 1.0)]);
            model.column(costs[1], 0.0, INFINITE, [(first, 1.0), (second, 3.0)]);
            let found = engine.solve(&model, &LIMIT).expect("an answer");
            assert_eq!(found.status, Status::Proven, "{name}");
            assert!(near(found.objective, 12.0), "{name}: {}", found.objective);
            if name == "simplex" {
                assert!(found.prices.is_empty());
                continue;
            }
            let wanted = match sense {
                Sense::Maximise => [3.0, 0.0],
                Sense::Minimise => [4.0, 0.0],
            };
            for (price, wanted) in found.prices.iter().zip(wanted) {
                assert!(near(*price, wanted), "{name}: {:?}", found.prices);
            }
        }
    }
}

#[test]
fn the_interior_point_ends_in_the_middle_of_the_best() {
    // Any split of one unit between four is best; the middle is a quarter each.
    let mut model = Model::new(Sense::Maximise);
    let total = model.row(Name("total", 0), -INFINITE, 1.0);
    for _ in 0..4 {
        model.column(1.0, 0.0, INFINITE, [(total, 1.0)]);
    }
    let found = solved(&model);
    assert!(found.values.iter().all(|value| (value - 0.25).abs() < 1e-6), "{:?}", found.values);
}

#[test]
fn logarithms_divide_in_proportion_to_weights() {
    // max sum w log(x) with sum x <= c has x = c w / sum w.
    let (weights, capacity) = ([1.0, 2.0, 5.0], 4.0);
    let mut model = Model::new(Sense::Maximise);
    let total = model.row(Name("total", 0), -INFINITE, capacity);
    let mut shares = Vec::new();
    for weight in weights {
        let share = model.column(0.0, 0.0, INFINITE, [(total, 1.0)]);
        let log = model.column(weight, -INFINITE, INFINITE, []);
        model.cone(Cone::Exponential, vec![column(log, 1.0), constant(1.0), column(share, 1.0)]);
        shares.push(share);
    }
    let found = solved(&model);
    let mut objective = 0.0;
    for (share, weight) in shares.iter().zip(weights) {
        let wanted = capacity * weight / 8.0;
        objective += weight * wanted.ln();
        let value = found.values[share.index()];
        assert!((value - wanted).abs() < 1e-5, "{value} instead of {wanted}");
    }
    assert!(near(found.objective, objective), "{} {objective}", found.objective);
    // One more unit is worth the sum of weights over the capacity.
    assert!((found.prices[0] - 2.0).abs() < 1e-5, "{:?}", found.prices);
}

#[test]
fn a_second_order_cone_is_a_length() {
    // The point of x + y = 2 nearest to (3, 0) is (2.5, -0.5).
    let mut model = Model::new(Sense::Minimise);
    let line = model.row(Name("line", 0), 2.0, 2.0);
    let x = model.column(0.0, -INFINITE, INFINITE, [(line, 1.0)]);
    let y = model.column(0.0, -INFINITE, INFINITE, [(line, 1.0)]);
    let length = model.column(1.0, 0.0, INFINITE, []);
    let off = Affine { terms: vec![(x, 1.0)], constant: -3.0 };
    model.cone(Cone::Second, vec![column(length, 1.0), off, column(y, 1.0)]);
    let found = solved(&model);
    assert!(near(found.objective, 0.5_f64.sqrt()), "{}", found.objective);
    assert!((found.values[x.index()] - 2.5).abs() < 1e-6);
    assert!((found.values[y.index()] + 0.5).abs() < 1e-6);
}

#[test]
fn a_power_cone_is_a_weighted_product() {
    // max x^0.25 y^0.75 with x + y = 8 has x = 2 and y = 6.
    let mut model = Model::new(Sense::Maximise);
    let total = model.row(Name("total", 0), 8.0, 8.0);
    let x = model.column(0.0, 0.0, INFINITE, [(total, 1.0)]);
    let y = model.column(0.0, 0.0, INFINITE, [(total, 1.0)]);
    let product = model.column(1.0, -INFINITE, INFINITE, []);
    model.cone(Cone::Power(0.25), vec![column(x, 1.0), column(y, 1.0), column(product, 1.0)]);
    let found = solved(&model);
    assert!(near(found.objective, 2.0_f64.powf(0.25) * 6.0_f64.powf(0.75)));
    assert!((found.values[x.index()] - 2.0).abs() < 1e-4);
}

#[test]
fn a_knapsack_of_whole_things_leaves_the_fraction_out() {
    for (name, mut engine) in searchers() {
        let mut model = Model::new(Sense::Maximise);
        let weight = model.row(Name("weight", 0), -INFINITE, 10.0);
        for (value, heavy) in [(10.0, 5.0), (40.0, 4.0), (30.0, 6.0), (50.0, 3.0)] {
            model.integer(value, 0.0, 1.0, [(weight, heavy)]);
        }
        let found = engine.solve(&model, &LIMIT).expect("an answer");
        assert_eq!(found.status, Status::Proven, "{name}");
        assert_eq!(found.values, [0.0, 1.0, 0.0, 1.0], "{name}");
        assert_eq!(found.objective, 90.0, "{name}");
    }
}

#[test]
fn an_answer_at_hand_does_no_harm_right_or_wrong() {
    for (name, mut engine) in searchers() {
        for start in [vec![1.0, 1.0], vec![9.0, 9.0], vec![f64::NAN, 0.0], vec![0.0]] {
            let mut model = Model::new(Sense::Maximise);
            let row = model.row(Name("row", 0), -INFINITE, 2.5);
            model.integer(1.0, 0.0, 5.0, [(row, 1.0)]);
            model.integer(1.0, 0.0, 5.0, [(row, 1.0)]);
            engine.start_from(&start);
            let found = engine.solve(&model, &LIMIT).expect("an answer");
            assert_eq!((found.status, found.objective), (Status::Proven, 2.0), "{name} {start:?}");
        }
    }
}

#[test]
fn what_cannot_hold_is_infeasible() {
    for (name, mut engine) in engines() {
        let mut apart = Model::new(Sense::Minimise);
        let low = apart.row(Name("low", 0), -INFINITE, 1.0);
        let high = apart.row(Name("high", 0), 2.0, INFINITE);
        apart.column(1.0, -INFINITE, INFINITE, [(low, 1.0), (high, 1.0)]);
        let mut crossed = Model::new(Sense::Minimise);
        let row = crossed.row(Name("crossed", 0), 2.0, 1.0);
        crossed.column(1.0, 0.0, 1.0, [(row, 1.0)]);
        let mut empty = Model::new(Sense::Minimise);
        empty.row(Name("empty", 0), 1.0, 2.0);
        empty.column(1.0, 0.0, 1.0, []);
        let mut narrow = Model::new(Sense::Minimise);
        let row = narrow.row(Name("row", 0), 0.0, 1.0);
        narrow.column(1.0, 3.0, 2.0, [(row, 1.0)]);
        for model in [apart, crossed, empty, narrow] {
            let found = engine.solve(&model, &LIMIT).expect("an answer");
            assert_eq!(found.status, Status::Infeasible, "{name}");
            assert!(found.values.is_empty() && found.objective.is_nan() && !found.has_values());
        }
    }
    let mut between = Model::new(Sense::Minimise);
    let row = between.row(Name("row", 0), 0.0, 1.0);
    between.integer(1.0, 0.2, 0.8, [(row, 1.0)]);
    for (name, mut engine) in searchers() {
        let found = engine.solve(&between, &LIMIT).expect("an answer");
        assert_eq!(found.status, Status::Infeasible, "{name}");
    }
}

#[test]
fn what_has_no_end_is_unbounded() {
    for (name, mut engine) in engines() {
        let mut model = Model::new(Sense::Maximise);
        let row = model.row(Name("row", 0), -INFINITE, 1.0);
        model.column(1.0, 0.0, INFINITE, [(row, 1.0)]);
        model.column(1.0, 0.0, INFINITE, [(row, -1.0)]);
        let found = engine.solve(&model, &LIMIT).expect("an answer");
        assert_eq!(found.status, Status::Unbounded, "{name}");
        let mut alone = Model::new(Sense::Minimise);
        alone.column(1.0, -INFINITE, 0.0, []);
        let found = engine.solve(&alone, &LIMIT).expect("an answer");
        assert_eq!(found.status, Status::Unbounded, "{name}");
    }
}

#[test]
fn models_without_rows_or_columns_have_answers() {
    for (name, mut engine) in engines() {
        let found = engine.solve(&Model::new(Sense::Maximise), &LIMIT).expect("an answer");
        assert_eq!((found.status, found.objective), (Status::Proven, 0.0), "{name}");
        let mut rows = Model::new(Sense::Maximise);
        rows.row(Name("row", 0), -1.0, 1.0);
        let found = engine.solve(&rows, &LIMIT).expect("an answer");
        assert_eq!((found.status, found.values.len()), (Status::Proven, 0), "{name}");
        let mut columns = Model::new(Sense::Maximise);
        columns.column(2.0, 0.0, 3.0, []);
        columns.column(-1.0, -4.0, INFINITE, []);
        columns.column(0.0, 5.0, INFINITE, []);
        let found = engine.solve(&columns, &LIMIT).expect("an answer");
        assert_eq!(found.values, [3.0, -4.0, 5.0], "{name}");
        assert_eq!(found.objective, 10.0, "{name}");
    }
}

#[test]
fn a_column_may_name_a_row_twice_and_a_row_may_be_free() {
    for (name, mut engine) in engines() {
        let mut model = Model::new(Sense::Maximise);
        let twice = model.row(Name("twice", 0), -INFINITE, 6.0);
        let free = model.row(Name("free", 0), -INFINITE, INFINITE);
        model.column(1.0, 0.0, INFINITE, [(twice, 1.0), (free, 5.0), (twice, 2.0)]);
        let found = engine.solve(&model, &LIMIT).expect("an answer");
        assert!(near(found.objective, 2.0), "{name}: {}", found.objective);
    }
}

#[test]
fn columns_with_one_value_are_taken_as_such() {
    for (name, mut engine) in engines() {
        let mut model = Model::new(Sense::Maximise);
        let row = model.row(Name("row", 0), -INFINITE, 5.0);
        model.column(7.0, 2.0, 2.0, [(row, 1.5)]);
        model.column(1.0, 0.0, INFINITE, [(row, 1.0)]);
        let found = engine.solve(&model, &LIMIT).expect("an answer");
        assert!(near(found.objective, 16.0), "{name}: {}", found.objective);
        assert!(found.prices.first().is_none_or(|price| near(*price, 1.0)), "{name}");
        let mut against = Model::new(Sense::Minimise);
        let row = against.row(Name("row", 0), 2.0, 2.0);
        against.column(1.0, 0.0, 0.0, [(row, -2.0)]);
        let found = engine.solve(&against, &LIMIT).expect("an answer");
        assert_eq!(found.status, Status::Infeasible, "{name}");
    }
    // A fixed column in a cone is a constant of it.
    let mut model = Model::new(Sense::Maximise);
    let length = model.column(0.0, 5.0, 5.0, []);
    let (x, y) = (model.column(1.0, -INFINITE, INFINITE, []), model.column(0.0, 3.0, 3.0, []));
    model.cone(Cone::Second, vec![column(length, 1.0), column(x, 1.0), column(y, 1.0)]);
    assert!(near(solved(&model).objective, 4.0));
}

#[test]
fn a_limit_of_one_step_is_kept() {
    let mut model = Model::new(Sense::Maximise);
    let rows: Vec<_> = (0..20).map(|at| model.row(Name("row", at), -INFINITE, 1.0)).collect();
    for at in 0..20 {
        let entries: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| (*row, 1.0 + ((i * 7 + at * 3) % 5) as f64))
            .collect();
        model.column(1.0 + (at % 3) as f64, 0.0, INFINITE, entries);
    }
    for (name, mut engine) in engines() {
        let found = engine.solve(&model, &Limit::steps(1)).expect("an answer");
        assert_eq!(found.status, Status::OutOfLimit, "{name}");
        assert!(found.steps <= 1 && found.values.is_empty(), "{name}: {}", found.steps);
        let found = engine.solve(&model, &Limit::steps(0)).expect("an answer");
        assert_eq!(found.status, Status::OutOfLimit, "{name}");
        let none = Limit { steps: 100, wall: Some(std::time::Duration::ZERO) };
        assert_eq!(engine.solve(&model, &none).expect("an answer").status, Status::OutOfLimit);
        assert_eq!(engine.solve(&model, &LIMIT).expect("an answer").status, Status::Proven);
    }
}

#[test]
fn what_is_not_a_number_is_named() {
    for (name, mut engine) in engines() {
        let mut refused = |model: &Model| match engine.solve(model, &LIMIT) {
            Err(error) => error.to_string(),
            Ok(found) => panic!("{name} solved it: {found:?}"),
        };
        let mut model = Model::new(Sense::Maximise);
        let row = model.row(Name("capacity", 7), 0.0, 1.0);
        model.column(1.0, 0.0, 1.0, [(row, f64::NAN)]);
        assert_eq!(
            refused(&model),
            "column[0] has the value NaN, which is not a number that a model can hold"
        );
        let mut model = Model::new(Sense::Maximise);
        model.row(Name("capacity", 7), 0.0, f64::NAN);
        assert!(refused(&model).starts_with("capacity[7] has the value NaN"));
        let mut model = Model::new(Sense::Maximise);
        model.column(INFINITE, 0.0, 1.0, []);
        assert!(refused(&model).starts_with("cost of column[0] has the value inf"));
        let mut model = Model::new(Sense::Maximise);
        model.column(1.0, INFINITE, INFINITE, []);
        assert!(refused(&model).starts_with("column[0] has the value inf"));
        let mut model = Model::new(Sense::Maximise);
        model.column(1.0, 0.0, 1.0, [(row, 1.0)]);
        assert_eq!(refused(&model), "column[0] has an entry in a row of another model");
    }
}

#[test]
fn what_an_engine_cannot_do_it_says() {
    let mut cones = Model::new(Sense::Maximise);
    let x = cones.column(1.0, 0.0, 1.0, []);
    cones.cone(Cone::Second, vec![constant(1.0), column(x, 1.0)]);
    for (name, mut engine) in searchers() {
        let error = engine.solve(&cones, &LIMIT).expect_err("no cones here");
        assert!(matches!(error, SolverError::Unsupported { what: "cones", .. }), "{name}");
    }
    let mut whole = Model::new(Sense::Maximise);
    let row = whole.row(Name("row", 0), 0.0, 1.0);
    whole.integer(1.0, 0.0, 1.0, [(row, 1.0)]);
    let error = Interior::default().solve(&whole, &LIMIT).expect_err("no whole numbers here");
    assert_eq!(error.to_string(), "the interior point cannot solve a model with whole numbers");
    let mut power = Model::new(Sense::Maximise);
    let x = power.column(1.0, 0.0, 1.0, []);
    power.cone(Cone::Power(1.5), vec![column(x, 1.0), constant(1.0), constant(1.0)]);
    let error = Interior::default().solve(&power, &LIMIT).expect_err("no such power");
    assert_eq!(error.to_string(), "cone[0] has an exponent outside (0, 1)");
}
