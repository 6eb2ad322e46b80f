//! Pairs by column generation, against the whole problem.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trainyard_solver::shares::{PairFractions, PairJob, PairPool, max_min_pairs, stated_pairs};
use trainyard_solver::{Limit, Simplex, Solve, Status};

const LIMIT: Limit = Limit::steps(100_000);

/// Classes in plain numbers; how much of its speed a job keeps beside another, by class, class and type.
#[derive(Clone, Debug)]
struct Case {
    capacity: Vec<f64>,
    gpus: Vec<f64>,
    alone: Vec<f64>,
    keeps: Vec<f64>,
    jobs: Vec<PairJob>,
}

impl Case {
    fn pair(&self, a: usize, b: usize, kind: usize) -> (f64, f64) {
        let (classes, kinds) = (self.gpus.len(), self.capacity.len());
        let of = |x: usize, y: usize| {
            self.alone[x * kinds + kind] * self.keeps[(x * classes + y) * kinds + kind]
        };
        (of(a, b), of(b, a))
    }
}

fn case() -> impl Strategy<Value = Case> {
    let rate = prop_oneof![1 => Just(0.0), 5 => 0.1..10.0f64];
    let keeps = prop_oneof![1 => Just(0.0), 4 => 0.3..1.0f64];
    let part = prop_oneof![2 => Just(1.0), 1 => Just(5.0), 4 => 0.1..5.0f64];
    (1..5usize, 1..4usize, 1..10usize).prop_flat_map(move |(classes, kinds, jobs)| {
        let capacity = prop::collection::vec((1u32..4).prop_map(f64::from), kinds);
        let gpus = prop::collection::vec(prop_oneof![3 => Just(1.0), 1 => Just(2.0)], classes);
        let alone = prop::collection::vec(rate.clone(), classes * kinds);
        let keeps = prop::collection::vec(keeps.clone(), classes * classes * kinds);
        let job = (0..classes, part.clone()).prop_map(|(class, part)| PairJob { class, part });
        (capacity, gpus, alone, keeps, prop::collection::vec(job, jobs)).prop_map(
            |(capacity, gpus, alone, keeps, jobs)| Case { capacity, gpus, alone, keeps, jobs },
        )
    })
}

/// Time, GPUs and rates add up.
fn assert_fits(case: &Case, found: &PairFractions) {
    let kinds = case.capacity.len();
    let mut used = vec![0.0; kinds];
    let mut time = vec![0.0; case.jobs.len()];
    let mut rates = vec![0.0; case.jobs.len()];
    for &(job, kind, part) in &found.alone {
        let class = case.jobs[job].class;
        used[kind] += part * case.gpus[class];
        time[job] += part;
        rates[job] += part * case.alone[class * kinds + kind];
    }
    for &((a, b), kind, part) in &found.together {
        assert!(a < b && part > 0.0);
        let (x, y) = (case.jobs[a].class, case.jobs[b].class);
        let (of_a, of_b) = case.pair(x, y, kind);
        used[kind] += part * case.gpus[x].max(case.gpus[y]);
        time[a] += part;
        time[b] += part;
        rates[a] += part * of_a;
        rates[b] += part * of_b;
    }
    assert!(time.iter().all(|time| *time <= 1.0 + 1e-9), "{time:?}");
    assert!(used.iter().zip(&case.capacity).all(|(used, gpus)| *used <= gpus + 1e-9), "{used:?}");
    for (sum, told) in rates.iter().zip(&found.rates) {
        assert!((sum - told).abs() <= 1e-9 * sum.max(1.0), "{rates:?} {:?}", found.rates);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None, rng_seed: RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    #[test]
    fn pairs_of_classes_reach_what_all_pairs_of_jobs_reach(case in case()) {
        let pair = |a, b, kind| case.pair(a, b, kind);
        let pool = PairPool {
            capacity: &case.capacity,
            gpus: &case.gpus,
            alone: &case.alone,
            pair: &pair,
        };
        let found = max_min_pairs(&pool, &case.jobs, &LIMIT);
        assert_fits(&case, &found);
        prop_assert_eq!(found.status, Status::Proven);
        let jobs: Vec<PairJob> = (0..case.jobs.len())
            .filter(|job| !found.left_out.contains(job))
            .map(|job| case.jobs[job])
            .collect();
        if jobs.is_empty() {
            prop_assert_eq!(found.level, 0.0);
            return Ok(());
        }
        let (model, level) = stated_pairs(&pool, &jobs);
        let whole = Simplex::default().solve(&model, &LIMIT).unwrap();
        let expected = whole.values[level.index()];
        prop_assert!((found.level - expected).abs() <= 1e-6 * expected, "{} {}", found.level, expected);
    }

    #[test]
    fn no_number_is_bad_enough_to_panic(
        capacity in prop::collection::vec(any::<f64>(), 0..4),
        gpus in prop::collection::vec(any::<f64>(), 0..4),
        alone in prop::collection::vec(any::<f64>(), 0..12),
        jobs in prop::collection::vec((0..6usize, any::<f64>()), 0..8),
        rates in (any::<f64>(), any::<f64>()),
    ) {
        let pool = PairPool {
            capacity: &capacity,
            gpus: &gpus,
            alone: &alone,
            pair: &|_, _, _| rates,
        };
        let jobs: Vec<PairJob> =
            jobs.into_iter().map(|(class, part)| PairJob { class, part }).collect();
        let found = max_min_pairs(&pool, &jobs, &Limit::steps(1000));
        prop_assert!(found.alone.iter().all(|(_, _, part)| (0.0..=1.0 + 1e-9).contains(part)));
        prop_assert!(found.together.iter().all(|(_, _, part)| (0.0..=1.0 + 1e-9).contains(part)));
    }
}
