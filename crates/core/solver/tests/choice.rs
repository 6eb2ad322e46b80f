//! At most one choice for each job: never worse than trying everything, and never worse than a general engine.

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq};
use proptest::{prop_oneof, proptest};
use trainyard_solver::choice::{Aim, Choice, Choices, Chosen, stated};
use trainyard_solver::{Limit, Simplex, Solve, Status};

/// The value of what was chosen, counted anew; panics where it does not fit.
fn counted(choices: &Choices, found: &Chosen) -> f64 {
    let mut left: Vec<i64> = choices.capacity().iter().map(|gpus| i64::from(*gpus)).collect();
    let mut value = 0.0;
    for (job, chosen) in found.of.iter().enumerate() {
        let Some(choice) = chosen.map(|chosen| choices.of(job)[chosen]) else { continue };
        left[choice.kind] -= i64::from(choice.gpus);
        value += choice.value;
    }
    assert!(left.iter().all(|left| *left >= 0), "more is chosen than there is: {left:?}");
    value
}

fn best_of_all(choices: &Choices, job: usize, left: &mut [i64]) -> f64 {
    if job == choices.jobs() {
        return 0.0;
    }
    let mut best = best_of_all(choices, job + 1, left);
    for choice in choices.of(job) {
        if i64::from(choice.gpus) <= left[choice.kind] {
            left[choice.kind] -= i64::from(choice.gpus);
            best = best.max(choice.value + best_of_all(choices, job + 1, left));
            left[choice.kind] += i64::from(choice.gpus);
        }
    }
    best
}

/// Few or many ties: values of any sort, of two decimals, or of a handful of jobs that are all alike.
fn problem(jobs: usize, gpus: u32) -> impl Strategy<Value = Choices> {
    let value = prop_oneof![
        (0.0..4.0f64).boxed(),
        (0_u32..40).prop_map(|cents| f64::from(cents) / 10.0).boxed(),
    ];
    let choice = (0_usize..3, 1..=gpus.div_ceil(2), value);
    let kinds = vec(0..=gpus, 3);
    let drawn = vec(vec(choice, 0..5), 0..=jobs);
    (kinds, drawn, any::<bool>()).prop_map(|(capacity, drawn, alike)| {
        let mut choices = Choices::new(capacity);
        let jobs = drawn.len();
        for job in 0..jobs {
            let from = if alike { job % 2 } else { job };
            let row = drawn[from].iter();
            choices.job(row.map(|&(kind, gpus, value)| Choice { kind, gpus, value }));
        }
        choices
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_fits_is_worth_more(choices in problem(6, 10)) {
        let found = choices.best(&Aim::default());
        let mut left: Vec<i64> = choices.capacity().iter().map(|gpus| i64::from(*gpus)).collect();
        let best = best_of_all(&choices, 0, &mut left);
        prop_assert!((counted(&choices, &found) - best).abs() < 1e-6, "{} of {best}", found.value);
        prop_assert!((found.value - counted(&choices, &found)).abs() < 1e-9);
        prop_assert_eq!(found.gap(), 0.0);
    }

    #[test]
    fn whatever_the_work_the_bound_holds(choices in problem(6, 10), work_max in 0_u64..60) {
        let found = choices.best(&Aim { work_max, ..Aim::default() });
        let mut left: Vec<i64> = choices.capacity().iter().map(|gpus| i64::from(*gpus)).collect();
        let best = best_of_all(&choices, 0, &mut left);
        let value = counted(&choices, &found);
        prop_assert!(value <= best + 1e-9 && best <= found.bound + 1e-6, "{value} {best} {}", found.bound);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_general_engine_finds_nothing_better(choices in problem(14, 16)) {
        let found = choices.best(&Aim::default());
        let (model, _) = stated(&choices);
        let general = Simplex::default().solve(&model, &Limit::steps(20_000)).unwrap();
        if general.status == Status::Proven {
            let value = counted(&choices, &found);
            prop_assert!(value >= general.objective - 1e-6, "{value} below {}", general.objective);
            prop_assert!(found.bound >= general.objective - 1e-6);
        }
    }
}

#[test]
fn choices_that_make_no_sense_are_never_made() {
    let mut choices = Choices::new([4]);
    let odd = [(0, 2, f64::NAN), (7, 1, 9.0), (0, 5, 9.0), (0, 0, 9.0), (0, 1, -1.0)];
    choices.job(odd.map(|(kind, gpus, value)| Choice { kind, gpus, value }));
    choices.job([Choice { kind: 0, gpus: 4, value: 1.0 }]);
    let found = choices.best(&Aim::default());
    assert_eq!((found.of, found.value, found.bound), (vec![None, Some(0)], 1.0, 1.0));
    let none = Choices::new([]).best(&Aim::default());
    assert_eq!((none.value, none.bound, none.gap()), (0.0, 0.0, 0.0));
}

#[test]
fn values_of_whole_cents_end_a_search_within_a_cent() {
    let mut choices = Choices::new([7, 5]);
    for job in 0..9_u32 {
        let value = |gpus: u32| f64::from((job * 7 + gpus * 13) % 50) / 100.0 + 0.01;
        choices.job((1..5).map(|gpus| Choice {
            kind: (gpus % 2) as usize,
            gpus,
            value: value(gpus),
        }));
    }
    let exact = choices.best(&Aim::default());
    let cents = choices.best(&Aim { grain: 0.01, ..Aim::default() });
    assert!((exact.value - cents.value).abs() < 1e-9);
    assert!(cents.work <= exact.work, "{} against {}", cents.work, exact.work);
    assert_eq!(cents.gap(), 0.0);
}
