//! What Gavel's objectives promise the jobs they divide for, on drawn problems; and what they do not promise, by
//! example.

#[path = "gavel/drawn.rs"]
mod drawn;

use drawn::Drawn;
use proptest::prelude::*;
use trainyard_policies::gavel::engine::{Engine, Method};
use trainyard_policies::gavel::hierarchy::{Fill, Inside};
use trainyard_policies::gavel::level;
use trainyard_policies::gavel::max_min::MaxMin;
use trainyard_policies::gavel::optimiser::Goal;
use trainyard_policies::gavel::problem::Problem;
use trainyard_policies::gavel::proof::Proof;
use trainyard_policies::gavel::throughput::{Count, MaxSum};
use trainyard_types::JobId;

fn engine(method: Method) -> Engine {
    Engine::new(method).expect("always there")
}

fn shares(drawn: &Drawn, mut goal: impl Goal, method: Method) -> Vec<f64> {
    let table = drawn.table();
    let problem = Problem::new(&table, drawn.facts());
    goal.solve(&problem, &mut engine(method)).expect("solved")
}

/// The true rate of a job under shares, which may come from what it said instead.
fn true_rate(drawn: &Drawn, job: usize, shares: &[f64]) -> f64 {
    let table = drawn.table();
    let problem = Problem::new(&table, drawn.facts());
    problem.rate(problem.party(JobId(job as u32)).expect("it runs"), shares)
}

/// One to three types; at least `crowd` jobs for each GPU; rates from `slowest` to 1.
fn drawn(crowd: usize, slowest: f64, gpus_max: u32) -> impl Strategy<Value = Drawn> {
    prop::collection::vec(1u32..4, 1..4).prop_flat_map(move |capacity| {
        let least = (capacity.iter().sum::<u32>() as usize * crowd).max(2);
        let rates = prop::collection::vec(slowest..1.0, capacity.len());
        let smallest = capacity.iter().copied().min().unwrap_or(1).min(gpus_max);
        let job = (1..=smallest, Just(1.0), rates);
        prop::collection::vec(job, least..least + 4)
            .prop_map(move |jobs| Drawn { capacity: capacity.clone(), jobs })
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Where no job could use more than its own part alone, each job has at least that.
    #[test]
    fn max_min_gives_everyone_at_least_its_own_cluster(drawn in drawn(1, 0.05, 2)) {
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        for method in [Method::Structured, Method::Interior, Method::Simplex] {
            let shares = MaxMin.solve(&problem, &mut engine(method)).expect("solved");
            for party in problem.all() {
                let (with, alone) = (problem.rate(party, &shares), problem.isolated_rate(party));
                prop_assert!(with >= alone * (1.0 - 1e-6), "{method:?}: {with} is below {alone}");
            }
        }
    }

    /// No job could have more without another having less.
    #[test]
    fn max_min_filled_wastes_nothing(drawn in drawn(1, 0.05, 2)) {
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        let goals: [Box<dyn Goal>; 2] =
            [Box::new(MaxMin), Box::new(Fill { inside: Inside::Fairness, tenants: false })];
        for mut goal in goals {
            let shares = goal.solve(&problem, &mut engine(Method::Structured)).expect("solved");
            let rate = |party: usize| problem.rate(party, &shares);
            let floors: Vec<f64> = problem.all().map(|p| rate(p) * (1.0 - 1e-9)).collect();
            let worth = Count::Steps.worths(&problem);
            let more = level::dearest(&problem, &worth, Some(&floors), &mut engine(Method::Simplex));
            let more = more.expect("what is had can be had");
            let sum = |of: &[f64]| problem.all().map(|p| problem.rate(p, of)).sum::<f64>();
            let (has, could) = (sum(&shares), sum(&more));
            prop_assert!(could <= has * (1.0 + 1e-6), "{has} in all, and {could} would be possible");
        }
    }

    /// The structured and the general water-filling agree on every rate.
    #[test]
    fn water_filling_is_the_same_by_both_solvers(drawn in drawn(1, 0.05, 2)) {
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        let mut fill = Fill { inside: Inside::Fairness, tenants: false };
        let ours = fill.solve(&problem, &mut engine(Method::Structured)).expect("solved");
        let general = fill.solve(&problem, &mut engine(Method::Interior)).expect("solved");
        for party in problem.all() {
            let (a, b) = (problem.rate(party, &ours), problem.rate(party, &general));
            prop_assert!((a - b).abs() <= 1e-4 * b, "{a} and {b}");
        }
    }

    /// The largest product of rates by our own solver is that of the general one.
    #[test]
    fn the_largest_product_is_the_same_by_both_solvers(drawn in drawn(1, 0.05, 2)) {
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        let mut goal = Proof { discount: false };
        let ours = goal.solve(&problem, &mut engine(Method::Structured)).expect("solved");
        let general = goal.solve(&problem, &mut engine(Method::Interior)).expect("solved");
        let product = |of: &[f64]| problem.all().map(|p| problem.rate(p, of).ln()).sum::<f64>();
        let (ours, general) = (product(&ours), product(&general));
        prop_assert!((ours - general).abs() <= 1e-5, "{ours} and {general}");
    }

    /// What jobs give up is the same by our own solver and by the general one, which solves a program without each of
    /// them; also where jobs are alike.
    #[test]
    fn what_jobs_give_up_is_the_same_by_both_solvers(mut drawn in drawn(1, 0.05, 2), alike in 0usize..5) {
        let twins: Vec<_> = drawn.jobs.iter().take(alike).cloned().collect();
        drawn.jobs.extend(twins);
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        let mut goal = Proof { discount: true };
        let ours = goal.solve(&problem, &mut engine(Method::Structured)).expect("solved");
        let general = goal.solve(&problem, &mut engine(Method::Interior)).expect("solved");
        for party in problem.all() {
            let (a, b) = (problem.rate(party, &ours), problem.rate(party, &general));
            prop_assert!((a - b).abs() <= 1e-4 * b, "party {party}: {a} and {b}");
        }
    }

    /// In a crowd no job would rather have another's shares of the largest product, nor by equal parts of all types.
    #[test]
    fn nobody_envies_under_the_largest_product(drawn in drawn(3, 0.5, 1)) {
        let table = drawn.table();
        let problem = Problem::new(&table, drawn.facts());
        let shares =
            Proof { discount: false }.solve(&problem, &mut engine(Method::Structured)).expect("solved");
        let kinds = table.kinds.len();
        for party in problem.all() {
            let own = problem.rate(party, &shares);
            for other in problem.all() {
                let theirs: f64 = (0..kinds)
                    .map(|kind| problem.ways(party)[kind].1 * shares[other * kinds + kind])
                    .sum();
                prop_assert!(theirs <= own * (1.0 + 1e-5), "{own}, and with another's {theirs}");
            }
        }
    }

    /// Whatever a job says about its speeds, by its true speeds it has no more than by the truth.
    #[test]
    fn lies_do_not_pay_under_the_proof(
        drawn in drawn(1, 0.1, 1),
        liar in 0usize..32,
        lies in prop::collection::vec(0.1f64..10.0, 3),
    ) {
        let liar = liar % drawn.jobs.len();
        let honest = true_rate(&drawn, liar, &shares(&drawn, Proof { discount: true }, Method::Structured));
        let mut said = drawn.clone();
        said.jobs[liar].2.iter_mut().zip(&lies).for_each(|(rate, lie)| *rate *= lie);
        let lied = true_rate(&drawn, liar, &shares(&said, Proof { discount: true }, Method::Structured));
        prop_assert!(lied <= honest * (1.0 + 1e-5), "the truth gives {honest}, the lie {lied}");
    }
}

/// The most that any job gains by any of some lies about its speed on either of two types.
fn best_lie(drawn: &Drawn, goal: impl Fn() -> Box<dyn Goal>, method: Method) -> f64 {
    let rate = |job: usize, said: &Drawn| {
        let table = said.table();
        let problem = Problem::new(&table, said.facts());
        let shares = goal().solve(&problem, &mut engine(method)).expect("solved");
        true_rate(drawn, job, &shares)
    };
    let mut best = 0.0;
    for job in 0..drawn.jobs.len() {
        let honest = rate(job, drawn);
        for kind in 0..2 {
            for lie in [0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.4, 2.0, 3.0, 10.0] {
                let mut said = drawn.clone();
                said.jobs[job].2[kind] *= lie;
                best = f64::max(best, rate(job, &said) / honest - 1.0);
            }
        }
    }
    best
}

/// Gavel does not claim that its max-min is safe from lies, and it is not; nor is the largest product without the part
/// that every job gives up.
#[test]
fn lies_pay_under_max_min_and_under_the_largest_product_alone() {
    let drawn = Drawn::of(&[1, 1], &[&[1.0, 2.0], &[1.0, 1.1], &[1.0, 4.0], &[1.0, 1.0]]);
    for method in [Method::Structured, Method::Interior] {
        let max_min = best_lie(&drawn, || Box::new(MaxMin), method);
        assert!(max_min > 0.02, "no lie gains more than {max_min:.4} under max-min by {method:?}");
        let product = best_lie(&drawn, || Box::new(Proof { discount: false }), method);
        assert!(product > 0.02, "no lie gains more than {product:.4} under the product");
        let proof = best_lie(&drawn, || Box::new(Proof { discount: true }), method);
        assert!(proof < 1e-5, "a lie gains {proof:.6} under the proof");
    }
}

/// Max-min equalises what is measured against each job's own mix, so that a job may prefer another's shares.
#[test]
fn there_is_envy_under_max_min() {
    let drawn = Drawn::of(&[1, 1], &[&[1.0, 2.0], &[1.0, 1.1], &[1.0, 4.0], &[1.0, 1.0]]);
    let shares = shares(&drawn, MaxMin, Method::Structured);
    let with = |job: usize, of: usize| -> f64 {
        (0..2).map(|kind| drawn.jobs[job].2[kind] * shares[of * 2 + kind]).sum()
    };
    let envy =
        |job: usize| (0..4).map(|other| with(job, other) / with(job, job)).fold(0.0, f64::max);
    let worst = (0..4).map(envy).fold(0.0, f64::max);
    assert!(worst > 1.02, "no job would gain more than {worst:.4} by another's shares");
}

/// The largest sum leaves out the job that gains least, which has less than alone.
#[test]
fn the_largest_sum_may_leave_someone_with_nothing() {
    let drawn = Drawn::of(&[1], &[&[1.0], &[3.0]]);
    let table = drawn.table();
    let problem = Problem::new(&table, drawn.facts());
    let shares = shares(&drawn, MaxSum(Count::Steps), Method::Structured);
    assert!(problem.rate(0, &shares) < 1e-6 && problem.isolated_rate(0) > 0.4);
}
